"""FutureLogs: replicas on their way from one log directory of this broker to another.

A future log is a copy that grows beside the current one, in `<topic>-<partition>.<uuid>-future`.
When it has all that the current one has, it takes its place, in this order: it is closed and
durable; its directory gets the current one's name; the current one is renamed to `-delete`. Each
of the names is durable before anything else happens.

Whatever a crash leaves of that, the next start completes or takes back: a future log beside a
current one goes on growing; of two current ones that which has all the other has stays; a future
log without a current one, with every log directory there, becomes the current one.

Invariants: a future log holds the beginning of what the current one holds, and nothing else, so
what is cut off there is cut off here; the two are never in one log directory; the current one is
not compacted meanwhile.

Kafka 2.7: kafka.log.LogManager (`futureLogs`, `replaceCurrentWithFutureLog`); KIP-113
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kctl.broker.log.log_config import LONG_MAX, LogConfig
from kctl.broker.log.log_directory import LogDirectory
from kctl.broker.log.log_factory import LogFactory
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import CorruptDataError, StorageError
from kctl.model import TopicPartition
from kctl.runtime.runtime import Runtime
from kctl.storage.layout import directory_name, future_directory_name

UUID_BYTES = 16


class FutureLogs:
    """The future logs of a broker, by partition; see the module."""

    def __init__(
        self,
        runtime: Runtime,
        logs: Mapping[TopicPartition, UnifiedLog],
        directories: Mapping[str, LogDirectory],
        factory: LogFactory,
        retire: Callable[[UnifiedLog], None],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """`logs` are the current ones, as they change; `retire` closes a log and removes its
        files; `on_failure` gets the log directory that failed, and why."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._trace = runtime.trace
        self._current = logs
        self._directories = directories
        self._factory = factory
        self._retire = retire
        self._on_failure = on_failure
        self._logs: dict[TopicPartition, UnifiedLog] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is on its way."""
        return topic_partition in self._logs

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The partition's future log, if there is one."""
        return self._logs.get(topic_partition)

    def all(self) -> list[UnifiedLog]:
        """Every future log."""
        return list(self._logs.values())

    def count_in(self, log_dir: str) -> int:
        """How many are in one log directory."""
        return sum(1 for log in self._logs.values() if log.log_directory == log_dir)

    # --- start -------------------------------------------------------------------------------

    def load(
        self, directory: LogDirectory, tp: TopicPartition, path: str, config: LogConfig
    ) -> None:
        """Open what was found; a copy that is damaged begins anew. StorageError."""
        if tp in self._logs:
            self._trace.warning(f"{path}: {tp} is on its way to {self._logs[tp].directory}")
            self._disk.remove_tree(path)
            return
        try:
            log = self._factory.load(directory, tp, path, _of_future(config), is_future=True)
            if not directory.had_clean_shutdown:
                cut_to_durable(log)
        except CorruptDataError as error:
            self._trace.warning(f"{path}: the copy is damaged and begins anew: {error}")
            self._disk.remove_tree(path)
            config = _of_future(config)
            log = self._factory.create(directory, tp, self._new_path(directory, tp), config)
        log.update_high_watermark(directory.high_watermarks.get(tp, 0))
        self._logs[tp] = log

    def agree_with_current(self) -> None:
        """All logs are loaded: have the future ones hold what the current ones hold."""
        for tp, log in list(self._logs.items()):
            current = self._current.get(tp)
            if current is None:
                continue
            end = common_end(log, current)
            if current.log_directory == log.log_directory:
                self.delete(tp)
            elif end < log.log_end_offset:
                self.current_truncated(tp, end)

    def orphans(self) -> Iterable[TopicPartition]:
        """Partitions that have a future log only."""
        return [tp for tp in self._logs if tp not in self._current]

    # --- on the way --------------------------------------------------------------------------

    def create(self, tp: TopicPartition, log_dir: str, *, may_be_known: bool) -> UnifiedLog:
        """An empty future log of a partition that has none. `may_be_known`: the directory's
        checkpoints may still speak of a deleted log of the partition. StorageError."""
        directory = self._directories[log_dir]
        config = _of_future(self._current[tp].config)
        log = self._factory.create(directory, tp, self._new_path(directory, tp), config)
        if may_be_known:
            # They may still speak of a deleted log of its name.
            log.local.announce(0)
        self._logs[tp] = log
        return log

    def _new_path(self, directory: LogDirectory, tp: TopicPartition) -> str:
        uuid_hex = self._runtime.entropy.random_bytes(UUID_BYTES).hex()
        return f"{directory.path}/{future_directory_name(tp, uuid_hex)}"

    def delete(self, tp: TopicPartition) -> None:
        """The partition stays where it is, or goes away; fine if it is not on its way."""
        log = self._logs.pop(tp, None)
        if log is not None:
            try:
                self._retire(log)
            except StorageError as error:
                self._on_failure(log.log_directory, str(error))

    def log_dir_failed(self, log_dir: str) -> None:
        """Forget what is in a directory that is offline."""
        for tp in [tp for tp, log in self._logs.items() if log.log_directory == log_dir]:
            self._logs.pop(tp).abandon()

    def current_truncated(self, tp: TopicPartition, offset: int) -> None:
        """The current log was cut off at `offset`."""
        self._change(tp, lambda log: log.truncate_to(offset))

    def current_started_over(self, tp: TopicPartition, offset: int) -> None:
        """The current log was emptied, and goes on at `offset`."""
        self._change(tp, lambda log: log.truncate_fully_and_start_at(offset))

    def _change(self, tp: TopicPartition, change: Callable[[UnifiedLog], object]) -> None:
        log = self._logs.get(tp)
        if log is not None:
            try:
                change(log)
            except StorageError as error:
                self._on_failure(log.log_directory, str(error))

    # --- arrival -----------------------------------------------------------------------------

    def take_cleaned_offset(self, tp: TopicPartition) -> None:
        """Have the future log know how far what was copied is compacted."""
        future, current = self._logs[tp], self._current[tp]
        future.local.cleaned_offset = min(current.local.cleaned_offset, future.log_end_offset)

    def take_place(self, tp: TopicPartition) -> UnifiedLog:
        """Give the future log, which has all that the current one has, that one's name; the log
        to be used from now on. The current one is still there, and is the caller's to retire.

        StorageError: the future log's directory failed, and the current one stays.
        """
        current, future = self._current[tp], self._logs[tp]
        if future.log_end_offset != current.log_end_offset:
            raise RuntimeError(f"{tp}: a future log takes no place before it has everything")
        if current.latest_epoch > future.latest_epoch:
            # A leader's epoch begins before its first record.
            future.maybe_assign_epoch_start_offset(current.latest_epoch, future.log_end_offset)
        future.update_high_watermark(current.high_watermark)
        self.take_cleaned_offset(tp)
        log = self._rename(future, current.config)
        log.maybe_increment_log_start_offset(current.log_start_offset)
        log.local.cleaned_offset = future.local.cleaned_offset
        return log

    def promote(self, tp: TopicPartition, config: LogConfig) -> UnifiedLog:
        """The current log is gone: what there is of the future one is the partition's log.
        StorageError."""
        return self._rename(self._logs[tp], config)

    def _rename(self, future: UnifiedLog, config: LogConfig) -> UnifiedLog:
        tp = future.topic_partition
        path = f"{future.log_directory}/{directory_name(tp)}"
        future.close()
        self._disk.rename(future.directory, path)
        self._disk.fsync_directory(future.log_directory)
        log = self._factory.reopen(future, path, config)
        del self._logs[tp]
        return log


def _of_future(config: LogConfig) -> LogConfig:
    """Settings of a log for which nobody waits."""
    return replace(config, flush_messages=LONG_MAX)


def cut_to_durable(log: UnifiedLog) -> None:
    """Have the rest copied again: after a crash it may have holes where the current log, which is
    dropped in the end, has none."""
    log.truncate_to(log.local.end_before(log.recovery_point))


def common_end(one: UnifiedLog, other: UnifiedLog) -> int:
    """Up to where two replicas of a partition are the same, by their leader epochs (KIP-279);
    without those, what both know to be committed."""
    epoch = min(one.latest_epoch, other.latest_epoch)
    while epoch >= 0:
        found, others = one.end_offset_for_epoch(epoch), other.end_offset_for_epoch(epoch)
        if found is None or others is None:
            break
        if found[0] == others[0]:
            return min(found[1], others[1], one.log_end_offset, other.log_end_offset)
        epoch = min(found[0], others[0])
    return min(one.high_watermark, other.high_watermark)


def longer_of(one: UnifiedLog, other: UnifiedLog) -> UnifiedLog | None:
    """Which of two logs of a partition has all that the other has; None: neither."""
    shorter, longer = sorted((one, other), key=lambda log: (log.log_end_offset, log.size))
    if shorter.log_end_offset == shorter.log_start_offset:
        return longer
    return longer if common_end(shorter, longer) >= shorter.log_end_offset else None
