"""Logs in a temporary directory, and batches as producers, coordinators and leaders send them."""

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager, LogManagerOptions
from kctl.broker.log.unified_log import AppendOrigin, FetchIsolation
from kctl.model import TopicPartition
from kctl.records.builder import RecordBatchBuilder
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.memory_records import batches

TP = TopicPartition("t", 0)
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
BASE_MS = 1_600_000_000_000


def batch(*values, first_ms=BASE_MS, key=b"k", **producer):
    """A batch of `values`, one millisecond apart, numbered from 0."""
    builder = RecordBatchBuilder(**producer)
    for number, value in enumerate(values):
        builder.append(timestamp=first_ms + number, key=key, value=value)
    return bytearray(builder.build())


def marker(producer_id, *, commit, producer_epoch=0, coordinator_epoch=0, timestamp=BASE_MS):
    """The end of a transaction, as its coordinator writes it."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return marker_batch(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=timestamp,
    )


class LogWorld:
    """One broker's logs; `restart` opens them again, after a clean stop or a crash."""

    def __init__(self, runtime, root, config=None, log_dirs=1, **options):
        self.runtime = runtime
        self.log_dirs = [str(root / f"d{number}") for number in range(log_dirs)]
        self.config = config or LogConfig()
        self.options = LogManagerOptions(**options)
        self.manager = None
        self.start()

    def start(self):
        self.manager = LogManager(
            self.runtime,
            self.log_dirs,
            self.config,
            broker_id=0,
            cluster_id=CLUSTER_ID,
            options=self.options,
        )
        self.manager.start()

    def close(self):
        closing = self.runtime.scheduler.spawn(self.manager.close())
        self.runtime.scheduler.settle()
        closing.result()

    def crash(self):
        """The process is gone: whatever it had not written is lost, nothing is closed."""
        for directory in self.manager._directories.values():
            directory.release()
        for timer in self.manager._timers.values():
            timer.cancel()
        self.runtime.scheduler.spawn(self.manager.cleaner.stop())
        self.manager = None

    def restart(self, *, clean=False):
        if clean:
            self.close()
        else:
            self.crash()
        self.start()
        return self.manager.get_log(TP)

    def log(self, topic_partition=TP):
        return self.manager.get_or_create_log(topic_partition, self.config)

    @property
    def warnings(self):
        return self.runtime.trace.warnings


def append(log, *values, epoch=0, origin=AppendOrigin.CLIENT, now_ms=BASE_MS, **batch_options):
    """Append one batch and let it be committed."""
    info = log.append_as_leader(
        batch(*values, **batch_options), epoch, origin=origin, now_ms=now_ms
    )
    log.update_high_watermark(log.log_end_offset)
    return info


def end_transaction(log, producer_id, *, commit, epoch=0, **options):
    return log.append_as_leader(
        marker(producer_id, commit=commit, **options), epoch,
        origin=AppendOrigin.COORDINATOR, now_ms=BASE_MS,
    )  # fmt: skip


def bytes_of(info):
    """What a reader got."""
    if info.records is None:
        return b""
    return info.records.file.pread(info.records.length, info.records.position)


def values_of(log, offset=None, isolation=FetchIsolation.LOG_END):
    """(offset, value) of every record from `offset` on, fetched in small pieces."""
    offset = log.log_start_offset if offset is None else offset
    found = []
    while True:
        data = bytes_of(log.read(offset, 200, isolation=isolation))
        got = list(batches(data))
        if not got:
            return found
        for one in got:
            if not one.is_control:
                found += [(r.offset, bytes(r.value)) for r in one.records() if r.offset >= offset]
        offset = got[-1].next_offset
