"""A log directory of Apache Kafka 2.7.2, after a clean shutdown or `kill -9`, opens, reads back
record for record, and closes with the bytes that Kafka itself would have left."""

import dataclasses

import pytest

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.unified_log import AppendOrigin, FetchIsolation
from kctl.model import TopicPartition
from kctl.records.memory_records import batches
from kctl.storage.checkpoint import decode_offsets
from tests.support.golden_logs import dump_of

CLUSTER_ID = "Q_r5DLx4Q6S6rdMT32SJpA"
# The topic configs that matter.
V0 = ("v0-", "compacted-v0")
V1 = ("v1-", "compacted-v1")
SMALL_INTERVAL = {
    "tx", "v2-none", "v2-gzip", "v2-snappy", "v2-lz4", "v2-zstd", "v2-logappendtime",
}  # fmt: skip


def topic_config(topic):
    version = "0.9.0" if topic.startswith(V0) else "0.10.2" if topic.startswith(V1) else "2.7"
    return LogConfig(
        message_format_version=version,
        index_interval_bytes=512 if topic in SMALL_INTERVAL else 4096,
    )


def open_logs(runtime, root):
    manager = LogManager(
        runtime, [str(root)], LogConfig(), broker_id=0, cluster_id=CLUSTER_ID,
        topic_config=topic_config,
    )  # fmt: skip
    manager.start()
    return manager


def close(runtime, manager):
    closing = runtime.scheduler.spawn(manager.close())
    runtime.scheduler.settle()
    closing.result()


def read_all(log, max_bytes=700):
    """Read every record as a consumer would, in parts."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.read(offset, max_bytes, isolation=FetchIsolation.LOG_END)
        if info.records is None:
            # Compaction removed the last records.
            return
        data = info.records.file.pread(info.records.length, info.records.position)
        found = list(batches(data))
        for batch in found:
            yield from (record for record in batch.records() if record.offset >= offset)
        assert found[-1].next_offset > offset, "a fetch must bring the reader on"
        offset = found[-1].next_offset


def dumped_records(directory):
    for path in sorted(directory.glob("*.log")):
        yield from dump_of(path)[1]


def size_of(data):
    return -1 if data is None else len(data)


@pytest.fixture(params=["clean", "unclean"])
def root(request):
    return request.getfixturevalue(f"{request.param}_logs")


def test_every_record_reads_back_as_dumped(runtime, root):
    manager = open_logs(runtime, root)

    assert not manager.damaged
    seen = 0
    for log in manager.all_logs():
        dumped = [
            record
            for record in dumped_records(root / str(log.topic_partition))
            if record.offset >= log.log_start_offset
        ]
        found = list(read_all(log))
        assert [
            (record.offset, size_of(record.key), size_of(record.value)) for record in found
        ] == [(record.offset, record.key_size, record.value_size) for record in dumped]
        seen += len(found)
    assert seen > 900


def test_log_end_offsets_are_those_of_the_checkpoint(runtime, clean_logs):
    path = clean_logs / "recovery-point-offset-checkpoint"
    expected = decode_offsets(path.read_bytes(), str(path))

    manager = open_logs(runtime, clean_logs)

    found = {log.topic_partition: log.log_end_offset for log in manager.all_logs()}
    assert found == {tp: end for tp, end in expected.items() if tp.topic != "big-records"}
    assert manager.get_log(TopicPartition("deleted-records", 0)).log_start_offset == 77


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_open_and_close_changes_nothing_but_the_order_of_checkpoints(runtime, clean_logs):
    before = contents(clean_logs)

    close(runtime, open_logs(runtime, clean_logs))

    after = contents(clean_logs)
    for name in before:
        if name.endswith("offset-checkpoint"):
            lines = [line for line in before[name].split(b"\n") if b"big-records" not in line]
            # One more or less changes the count, which is the second line.
            assert sorted(lines[2:]) == sorted(after[name].split(b"\n")[2:]), name
        else:
            assert after.get(name) == before[name], name
    assert set(after) == set(before)


# Compaction leaves other index entries than appends do, and removes transactions' batches; old
# formats were appended in sets of several messages, which recovery cannot know.
ODD = ("compact", "txc", "v0-", "v1-", "upgraded", "__")


def test_recovery_of_a_clean_directory_rebuilds_identical_files(runtime, clean_logs):
    """Offset indexes, aborted transactions and epochs are rebuilt from the batches."""
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (clean_logs / name).unlink()
    # An append's time index entry has the record's offset, recovery's the batch's last offset;
    # snapshots lack those that the clean shutdown had removed.
    wanted = {
        name: data
        for name, data in contents(clean_logs).items()
        if "/" in name
        and not name.startswith(ODD)
        and not name.endswith((".snapshot", ".timeindex"))
    }

    close(runtime, open_logs(runtime, clean_logs))

    after = contents(clean_logs)
    assert {name: after.get(name) for name in wanted} == wanted
    assert len(wanted) > 100


def replay(manager, root, source):
    """Append a golden log's batches again, as its producers and coordinator sent them."""
    config = dataclasses.replace(
        topic_config(source.topic), segment_bytes=4096 if source.topic == "tx" else 8192
    )
    log = manager.get_or_create_log(TopicPartition(source.topic, 7), config)
    for path in sorted((root / str(source)).glob("*.log")):
        for batch in batches(path.read_bytes()):
            data = bytearray(batch.to_bytes())
            if not batch.is_control:
                data[0:8] = bytes(8)
            origin = AppendOrigin.COORDINATOR if batch.is_control else AppendOrigin.CLIENT
            info = log.append_as_leader(
                data, batch.partition_leader_epoch, origin=origin, now_ms=batch.max_timestamp
            )
            assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
            log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("topic", ["v2-gzip", "v2-snappy", "v2-lz4", "v2-zstd", "tx"])
def test_appends_leave_files_identical_to_kafkas(runtime, clean_logs, topic):
    manager = open_logs(runtime, clean_logs)
    source = TopicPartition(topic, 0)

    replay(manager, clean_logs, source)
    runtime.scheduler.settle()
    close(runtime, manager)

    ours, kafkas = contents(clean_logs / f"{topic}-7"), contents(clean_logs / str(source))
    assert ours == kafkas


def test_recovery_is_idempotent(runtime, unclean_logs):
    open_logs(runtime, unclean_logs)
    first = contents(unclean_logs)
    (unclean_logs / ".lock").unlink()
    open_logs(runtime, unclean_logs)
    assert contents(unclean_logs) == first


def test_read_committed_sees_the_aborted_transactions(runtime, clean_logs):
    manager = open_logs(runtime, clean_logs)
    log = manager.get_log(TopicPartition("tx", 0))
    log.update_high_watermark(log.log_end_offset)

    assert log.last_stable_offset == 262, "one transaction was left open"
    info = log.read(0, 10**6, isolation=FetchIsolation.TXN_COMMITTED)
    aborted = [tuple(entry)[:2] for entry in info.aborted_transactions]
    assert aborted == [(5, 0)]
    info = log.read(14, 10**6, isolation=FetchIsolation.TXN_COMMITTED)
    assert [tuple(entry)[:2] for entry in info.aborted_transactions] == [
        (5, 0), (6, 24), (6, 43),
    ]  # fmt: skip
    assert log.read(262, 100, isolation=FetchIsolation.TXN_COMMITTED).records is None
