"""FutureLogs: replicas that move from one log directory of this broker to another.

A future log is a copy that grows beside the current log, in `<topic>-<partition>.<uuid>-future`.
When it has caught up it replaces the current log in this order: it is closed and made durable; its
directory gets the current log's name; the current log is renamed to `-delete`. Each name is durable
before the next step.

After a crash in between, the next start completes or reverts the replacement: a future log beside a
current one continues to grow; of two current logs the one that contains the other remains; a future
log without a current one becomes the current log if every log directory is available.

Invariants: a future log holds a prefix of the current log and nothing else, so truncations of the
current log apply to it; the two are never in the same log directory; the current log is not
compacted meanwhile.

Kafka 2.7: kafka.log.LogManager (`futureLogs`, `replaceCurrentWithFutureLog`); KIP-113
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_directory import LogDirectory
from kctl.broker.log.log_factory import LogFactory
from kctl.broker.log.truncation import PreparedTruncation
from kctl.broker.log.unified_log import UnifiedLog
from kctl.configs.config_key import LONG_MAX
from kctl.errors import CorruptDataError, StorageError
from kctl.model import TopicPartition
from kctl.runtime.runtime import Runtime
from kctl.storage.layout import directory_name, future_directory_name
from kctl.work import Work, while_wanted

UUID_BYTES = 16


class FutureLogs:
    """The future logs of a broker, by partition."""

    def __init__(
        self,
        runtime: Runtime,
        logs: Mapping[TopicPartition, UnifiedLog],
        directories: Mapping[str, LogDirectory],
        factory: LogFactory,
        retire: Callable[[UnifiedLog], None],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """Create an empty collection.

        `logs` are the current logs, as they change; `retire` closes a log and removes its files;
        `on_failure` takes the log directory that failed and the reason.
        """
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
        """Return whether the partition has a future log."""
        return topic_partition in self._logs

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """Return the partition's future log, or None."""
        return self._logs.get(topic_partition)

    def all(self) -> list[UnifiedLog]:
        """Return every future log."""
        return list(self._logs.values())

    def count_in(self, log_dir: str) -> int:
        """Return the number of future logs in one log directory."""
        return sum(1 for log in self._logs.values() if log.log_directory == log_dir)

    # --- start -------------------------------------------------------------------------------

    def load(
        self, directory: LogDirectory, tp: TopicPartition, path: str, config: LogConfig
    ) -> None:
        """Open a future log found at the start; a damaged copy is recreated empty. Raise
        StorageError."""
        if tp in self._logs:
            self._trace.warning(f"{path}: {tp} is already moving to {self._logs[tp].directory}")
            self._disk.remove_tree(path)
            return
        try:
            log = self._factory.load(directory, tp, path, _future_config(config), is_future=True)
            if not directory.had_clean_shutdown:
                cut_to_durable(log)
        except CorruptDataError as error:
            self._trace.warning(f"{path}: the copy is damaged and starts over: {error}")
            self._disk.remove_tree(path)
            log = self._create(directory, tp, config, may_be_known=True)
        log.update_high_watermark(directory.high_watermarks.get(tp, 0))
        self._logs[tp] = log

    def reconcile_with_current(self) -> None:
        """Remove or truncate future logs that disagree with the current ones, after all are
        loaded."""
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
        """Return the partitions that have only a future log."""
        return [tp for tp in self._logs if tp not in self._current]

    # --- moving ------------------------------------------------------------------------------

    def create(self, tp: TopicPartition, log_dir: str, *, may_be_known: bool) -> UnifiedLog:
        """Return a new, empty future log of a partition that has none. Raise StorageError.

        `may_be_known`: the directory's checkpoints may still mention a deleted log of the
        partition.
        """
        directory, config = self._directories[log_dir], self._current[tp].config
        log = self._create(directory, tp, config, may_be_known=may_be_known)
        self._logs[tp] = log
        return log

    def _create(
        self, directory: LogDirectory, tp: TopicPartition, config: LogConfig, *, may_be_known: bool
    ) -> UnifiedLog:
        path = self._new_path(directory, tp)
        log = self._factory.create(directory, tp, path, _future_config(config))
        if may_be_known:
            # The checkpoints may still mention a deleted log of the partition.
            log.local.announce(0)
        return log

    def _new_path(self, directory: LogDirectory, tp: TopicPartition) -> str:
        uuid_hex = self._runtime.entropy.random_bytes(UUID_BYTES).hex()
        return f"{directory.path}/{future_directory_name(tp, uuid_hex)}"

    def delete(self, tp: TopicPartition) -> None:
        """Delete the partition's future log, if any: the move is cancelled or the partition is
        deleted."""
        log = self._logs.pop(tp, None)
        if log is not None:
            try:
                self._retire(log)
            except StorageError as error:
                self._on_failure(log.log_directory, str(error))

    def log_dir_failed(self, log_dir: str) -> list[UnifiedLog]:
        """Remove the future logs in a directory that is offline, and return them for the caller to
        abandon."""
        gone = [tp for tp, log in self._logs.items() if log.log_directory == log_dir]
        return [self._logs.pop(tp) for tp in gone]

    def prepare_truncation(
        self, tp: TopicPartition, offset: int
    ) -> Work[PreparedTruncation | None]:
        """Return what `current_truncated` needs in order to be short, if anything; in steps."""
        log = self._logs.get(tp)
        if log is None:
            return None
        try:
            work = while_wanted(log.prepare_truncation(offset), lambda: self._logs.get(tp) is log)
            return (yield from work)
        except (StorageError, CorruptDataError):
            # The truncation itself reports it.
            return None

    def current_truncated(
        self, tp: TopicPartition, offset: int, prepared: PreparedTruncation | None = None
    ) -> None:
        """Truncate the future log as the current log was, to `offset`."""
        self._change(tp, lambda log: log.truncate_to(offset, prepared))

    def current_restarted(self, tp: TopicPartition, offset: int) -> None:
        """Empty the future log as the current log was; it continues at `offset`."""
        self._change(tp, lambda log: log.truncate_fully_and_start_at(offset))

    def _change(self, tp: TopicPartition, change: Callable[[UnifiedLog], object]) -> None:
        log = self._logs.get(tp)
        if log is not None:
            try:
                change(log)
            except StorageError as error:
                self._on_failure(log.log_directory, str(error))

    # --- completion --------------------------------------------------------------------------

    def take_cleaned_offset(self, tp: TopicPartition) -> None:
        """Copy the cleaned offset of the current log to the future log."""
        future, current = self._logs[tp], self._current[tp]
        future.local.cleaned_offset = min(current.local.cleaned_offset, future.log_end_offset)

    def replace_current(self, tp: TopicPartition) -> UnifiedLog:
        """Replace the current log with the future log, which has caught up, and return the new log.

        The current log still exists and is the caller's to retire. Raise StorageError if the future
        log's directory failed; the current log then stays.
        """
        current, future = self._current[tp], self._logs[tp]
        if future.log_end_offset != current.log_end_offset:
            raise RuntimeError(f"{tp}: the future log has not caught up with the current log")
        if current.latest_epoch > future.latest_epoch:
            # A leader's epoch begins before its first record.
            future.maybe_assign_epoch_start_offset(current.latest_epoch, future.log_end_offset)
        future.update_high_watermark(current.high_watermark)
        future.producer_state.serve_like(current.producer_state)
        self.take_cleaned_offset(tp)
        log = self._rename(future, current.config)
        log.maybe_increment_log_start_offset(current.log_start_offset)
        log.local.cleaned_offset = future.local.cleaned_offset
        return log

    def promote(self, tp: TopicPartition, config: LogConfig) -> UnifiedLog:
        """Make the future log the partition's log, because the current one is gone. Raise
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


def _future_config(config: LogConfig) -> LogConfig:
    """Return the config for a future log, whose appends need no flush."""
    return replace(config, flush_messages=LONG_MAX)


def cut_to_durable(log: UnifiedLog) -> None:
    """Truncate a future log to its durable part, so that the rest is copied again: after a crash it
    may have holes where the current log, which is deleted in the end, has none."""
    log.truncate_to(log.local.end_before(log.recovery_point))


def common_end(one: UnifiedLog, other: UnifiedLog) -> int:
    """Return the offset up to which two replicas of a partition agree, by their leader epochs
    (KIP-279); without epochs, the lower high watermark."""
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
    """Return the log that contains the other one, or None if neither does."""
    shorter, longer = sorted((one, other), key=lambda log: (log.log_end_offset, log.size))
    if shorter.log_end_offset == shorter.log_start_offset:
        return longer
    return longer if common_end(shorter, longer) >= shorter.log_end_offset else None
