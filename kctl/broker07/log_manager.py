"""LogManager07: the logs of a log directory, from its lock to its clean-shutdown file.

Start: the directory is locked and must not be a later Kafka's; `.kafka_cleanshutdown` is removed
durably before the first log is opened; without it the newest segment of each log is recovered. A
log that cannot be opened is offline, with a warning; Apache Kafka 0.7 does not start then.

Running: logs are created when they are first produced to. Ages of unflushed messages are looked at
every `log.default.flush.scheduler.interval.ms`, retention every `log.cleanup.interval.mins`.

Stop: everything is flushed, and `.kafka_cleanshutdown` is written if that succeeded.

Kafka 0.7: kafka.log.LogManager, kafka.log.Log.{append, maybeFlush, markDeletedWhile}
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from kctl.broker07.config import MS_PER_MINUTE, Broker07Config
from kctl.broker07.flusher import Flusher
from kctl.broker07.log import Log07, Segment
from kctl.errors import CorruptDataError, LockedError, StorageError, UsageError
from kctl.model import TopicPartition
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import DiskLock, make_durably
from kctl.runtime.future import sleep
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    OLD_LOG_SUFFIX,
)
from kctl.storage.segments07 import directory_name, has_clean_shutdown, parse_directory_name

FIRST_CLEANUP_MS = 60_000
# Logs that are looked at between two turns of the loop.
LOGS_PER_TURN = 200
# Larger sets are written off the loop: 100 MB take 200 ms.
WRITTEN_ON_LOOP_BYTES_MAX = 1024 * 1024


class LogManager07:
    """All logs of one broker."""

    def __init__(self, runtime: Runtime, config: Broker07Config) -> None:
        self._runtime = runtime
        self._config = config
        self._disk = runtime.disk
        self._trace = runtime.trace
        self._logs: dict[TopicPartition, Log07] = {}
        self._topics: dict[str, None] = {}
        self._flusher = Flusher(runtime, self._log_failed)
        self._lock: DiskLock | None = None
        # No further set is appended.
        self._is_stopping = False
        self._timers: dict[str, Timer] = {}
        # Called with a topic that has its first log.
        self.on_topic: Callable[[str], object] = lambda _topic: None

    @property
    def topics(self) -> Sequence[str]:
        """Return the topics that have a log here, in the order they got it."""
        return list(self._topics)

    @property
    def offline(self) -> Sequence[Log07]:
        """Return the logs that cannot be served."""
        return [log for log in self._logs.values() if log.failure is not None]

    # --- start and stop

    async def start(self) -> None:
        """Open the directory and its logs; UsageError if it is not one of Kafka 0.7's."""
        directory = self._config.log_dir
        try:
            make_durably(self._disk, directory)
            self._lock = self._disk.lock(f"{directory}/{LOCK_FILE}")
        except LockedError:
            raise
        except StorageError as error:
            raise UsageError(f"{directory} cannot be a log directory: {error}") from None
        self._check_kind(directory)
        is_clean = has_clean_shutdown(self._disk, directory)
        if is_clean:
            self._disk.remove(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
            self._disk.fsync_directory(directory)
        for name in self._disk.list(directory):
            path = f"{directory}/{name}"
            if self._disk.is_directory(path):
                await self._load(name, path, is_clean=is_clean)
        self._set_timer("flush", self._config.flush_check_ms, self._flush_old)
        self._set_timer("cleanup", FIRST_CLEANUP_MS, self._clean_up)

    def _check_kind(self, directory: str) -> None:
        """Raise UsageError for a directory in which 0.7 keeps nothing."""
        names = self._disk.list(directory)
        if not {META_PROPERTIES, *OFFSET_CHECKPOINTS}.isdisjoint(names):
            self._release()
            raise UsageError(
                f"{directory} is a log directory of Kafka 0.8 or later",
                hint="name one of Kafka 0.7, or a new one; `kctl serve` serves this one",
            )
        if any(name.endswith(OLD_LOG_SUFFIX) for name in names):
            self._release()
            raise UsageError(
                f"{directory} contains segments: it is the directory of a partition",
                hint="name the directory above it",
            )

    async def _load(self, name: str, path: str, *, is_clean: bool) -> None:
        topic_partition = parse_directory_name(name)
        if topic_partition is None or directory_name(topic_partition) != name:
            self._trace.warning(f"{path} is not served: its name is not TOPIC-PARTITION")
            return
        log = Log07(self._disk, self._config, self._config.log_dir, topic_partition)
        self._add(log)
        now_ms = self._runtime.clock.wall_ms()
        load = partial(log.load, now_ms, is_clean=is_clean)
        try:
            removed = await self._runtime.scheduler.background(load)
        except (CorruptDataError, StorageError) as error:
            log.failure = str(error)
            self._log_failed(log)
            return
        if removed:
            self._trace.warning(
                f"{path}: recovery removed {removed} bytes after the last whole message, at"
                f" {log.end}"
            )

    async def stop(self) -> None:
        """Flush everything and release the directory."""
        if self._lock is None:
            return
        for timer in self._timers.values():
            timer.cancel()
        self._is_stopping = is_clean = True
        for log in list(self._logs.values()):
            while log.writing is not None:
                await log.writing
            is_clean = await self._is_flushed(log) and is_clean
            log.close()
        try:
            if is_clean:
                self._disk.write_file(f"{self._config.log_dir}/{CLEAN_SHUTDOWN_FILE}", b"")
        finally:
            self._release()

    async def _is_flushed(self, log: Log07) -> bool:
        """Flush `log` if it must be; return whether it needs no recovery."""
        if log.failure is not None:
            return False
        if log.is_flushed and not log.unflushed_messages:
            return True
        try:
            await self._flusher.flush(log)
        except StorageError:
            return False
        return True

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # --- logs

    def get(self, topic_partition: TopicPartition) -> Log07 | None:
        """Return a log; None if there is none. StorageError if it is offline."""
        log = self._logs.get(topic_partition)
        if log is not None:
            log.check_online()
        return log

    def get_or_create(self, topic_partition: TopicPartition) -> Log07:
        """Return a log, which is created if there is none; StorageError."""
        log = self.get(topic_partition)
        if log is None:
            log = Log07(self._disk, self._config, self._config.log_dir, topic_partition)
            log.create(self._runtime.clock.wall_ms())
            self._add(log)
        return log

    def _add(self, log: Log07) -> None:
        self._logs[log.topic_partition] = log
        topic = log.topic_partition.topic
        if topic not in self._topics:
            self._topics[topic] = None
            self.on_topic(topic)

    def _log_failed(self, log: Log07) -> None:
        self._trace.warning(f"{log.topic_partition} is offline until the next start: {log.failure}")

    # --- appends

    async def append(self, log: Log07, data: Buffer, messages: int) -> None:
        """Append whole entries, and flush if that many messages ask for it; StorageError."""
        clock = self._runtime.clock
        while log.writing is not None or (
            log.is_due_to_roll(clock.wall_ms()) and not log.is_flushed
        ):
            await (log.writing or self._flusher.flush(log))
        log.check_online()
        if self._is_stopping:
            raise StorageError("the broker stops")
        now_ms = clock.wall_ms()
        if log.is_due_to_roll(now_ms):
            log.roll()
        await self._write(log, data, messages, now_ms)
        if log.unflushed_messages >= self._config.flush_messages:
            await self._flusher.flush(log)

    async def _write(self, log: Log07, data: Buffer, messages: int, now_ms: int) -> None:
        try:
            job = log.write_job(data)
            if len(data) > WRITTEN_ON_LOOP_BYTES_MAX:
                log.writing = self._runtime.scheduler.future()
                await self._runtime.scheduler.background(job)
            else:
                job()
        except StorageError as error:
            log.write_failed(error)
            if log.failure is not None:
                self._log_failed(log)
            raise
        else:
            log.written(len(data), messages, now_ms)
        finally:
            done, log.writing = log.writing, None
            if done is not None:
                done.set_result(None)

    async def _flush_old(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        for number, log in enumerate(list(self._logs.values()), 1):
            if number % LOGS_PER_TURN == 0:
                await sleep(self._runtime.scheduler, 0)
            is_old = now_ms - log.flushed_ms >= self._config.flush_ms_of(log.topic_partition.topic)
            if is_old and not log.is_flushed and log.failure is None:
                # The flusher reports a failure.
                self._flusher.flush(log)
        self._set_timer("flush", self._config.flush_check_ms, self._flush_old)

    # --- retention

    async def _clean_up(self) -> None:
        for number, log in enumerate(list(self._logs.values()), 1):
            if number % LOGS_PER_TURN == 0:
                await sleep(self._runtime.scheduler, 0)
            try:
                if log.failure is None:
                    await self._clean(log)
            except StorageError as error:
                self._trace.warning(f"{log.topic_partition}: no segments are deleted: {error}")
        self._set_timer("cleanup", self._config.cleanup_minutes * MS_PER_MINUTE, self._clean_up)

    async def _clean(self, log: Log07) -> None:
        topic = log.topic_partition.topic
        now_ms = self._runtime.clock.wall_ms()
        retention_ms = self._config.retention_ms_of(topic)
        await self._delete(log, list(log.expired(now_ms, retention_ms)))
        await self._delete(log, list(log.excess(self._config.retention_bytes_of(topic))))

    async def _delete(self, log: Log07, oldest: Sequence[Segment]) -> None:
        if not oldest:
            return
        count = len(oldest)
        if count == len(log.segments):
            if not log.segments[-1].size:
                log.renew(self._runtime.clock.wall_ms())
                count -= 1
            else:
                end = log.end
                while not log.is_at_rest:
                    await (log.writing or self._flusher.flush(log))
                if log.end != end:
                    # What has come in between is new.
                    count -= 1
                elif count == len(log.segments):
                    log.roll()
        paths = log.remove_oldest(count)
        if paths:
            self._trace.info(f"{log.topic_partition}: deletes {len(paths)} old segments")
            await self._runtime.scheduler.background(partial(self._remove, log, paths))

    def _remove(self, log: Log07, paths: Sequence[str]) -> None:
        # Oldest first, and durably: what is left after a crash has no hole.
        for path in paths:
            self._disk.remove(path)
            self._disk.fsync_directory(log.directory)

    def _set_timer(
        self, name: str, delay_ms: int, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        scheduler = self._runtime.scheduler
        self._timers[name] = scheduler.call_later(delay_ms, lambda: scheduler.spawn(work(), name))
