"""LogFactory: opens logs: new ones, those found in a log directory, and renamed ones.

Kafka 2.7: kafka.log.LogManager (`loadLog`, `getOrCreateLog`), kafka.log.Log (`apply`)
"""

from collections.abc import Callable

from kctl.broker.log.local_log import LocalLog, RemoveFiles
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_directory import LogDirectory
from kctl.broker.log.log_loader import UNKNOWN_OFFSET, LoadedLog, LoadRequest, LogLoader
from kctl.broker.log.open_segments import OpenSegments
from kctl.broker.log.unified_log import UnifiedLog
from kctl.configs.config_key import LONG_MAX
from kctl.model import TopicPartition
from kctl.runtime.runtime import Runtime


class LogFactory:
    """Opens logs with the parameters that all logs of a broker share."""

    def __init__(
        self,
        runtime: Runtime,
        remove_files: RemoveFiles,
        on_rolled: Callable[[UnifiedLog], object],
        *,
        open_segments_max: int,
        producer_expiration_ms: int,
    ) -> None:
        self._runtime = runtime
        self.open_segments = OpenSegments(open_segments_max)
        self._producer_expiration_ms = producer_expiration_ms
        self._remove_files = remove_files
        self._on_rolled = on_rolled

    def create(
        self, directory: LogDirectory, tp: TopicPartition, path: str, config: LogConfig
    ) -> UnifiedLog:
        """Create a log in a new directory. Raise StorageError."""
        is_new = self._runtime.disk.make_directory(path)
        request = self._request(tp, path, config, had_clean_shutdown=True, is_new=is_new)
        loaded = self._load(request)
        return self._log(directory.path, request, loaded, is_durable=False)

    def load(
        self,
        directory: LogDirectory,
        tp: TopicPartition,
        path: str,
        config: LogConfig,
        *,
        is_future: bool = False,
    ) -> UnifiedLog:
        """Open an existing log and recover it after an unclean shutdown.

        Raise CorruptDataError or StorageError.
        """
        cleaned_offset = directory.cleaned_offsets.get(tp, 0)
        # Missing offsets do not indicate loss in a compacted log, nor in a directory that was
        # copied here without its checkpoints. A future log has the gaps of the current one.
        may_have_gaps = is_future or config.is_compacted or not directory.has_recovery_points
        request = self._request(
            tp,
            path,
            config,
            had_clean_shutdown=directory.had_clean_shutdown,
            recovery_point=directory.recovery_points.get(tp, 0),
            log_start_offset=directory.log_start_offsets.get(tp, UNKNOWN_OFFSET),
            gaps_allowed_below=LONG_MAX if may_have_gaps else cleaned_offset,
        )
        loaded = self._load(request)
        return self._log(
            directory.path,
            request,
            loaded,
            is_durable=request.had_clean_shutdown,
            claimed=max(request.recovery_point, cleaned_offset),
            cleaned_offset=cleaned_offset,
        )

    def reopen(self, closed: UnifiedLog, path: str, config: LogConfig) -> UnifiedLog:
        """Return the log that continues a closed one, whose directory is now called `path`; the
        disk is not read (Kafka 2.7: `Log.renameDir`)."""
        request = self._request(closed.topic_partition, path, config, had_clean_shutdown=True)
        local, end = closed.local, closed.log_end_offset
        loaded = LoadedLog(
            local.segments.moved_to(path),
            closed.log_start_offset,
            # Closing made everything durable, whatever truncations are still announced.
            end,
            end,
            *closed.release(path),
            local.announced,
        )
        log_dir = closed.log_directory
        log = self._log(log_dir, request, loaded, is_durable=True, claimed=local.claimed)
        log.update_high_watermark(closed.high_watermark)
        return log

    def _request(
        self,
        tp: TopicPartition,
        path: str,
        config: LogConfig,
        *,
        had_clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = UNKNOWN_OFFSET,
        gaps_allowed_below: int = 0,
        is_new: bool = False,
    ) -> LoadRequest:
        return LoadRequest(
            tp,
            path,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            had_clean_shutdown=had_clean_shutdown,
            now_ms=self._runtime.clock.wall_ms(),
            gaps_allowed_below=gaps_allowed_below,
            producer_expiration_ms=self._producer_expiration_ms,
            is_new=is_new,
        )

    def _load(self, request: LoadRequest) -> LoadedLog:
        runtime = self._runtime
        return LogLoader(runtime.disk, runtime.trace, self.open_segments, request).load()

    def _log(
        self,
        log_dir: str,
        request: LoadRequest,
        loaded: LoadedLog,
        *,
        is_durable: bool,
        claimed: int = 0,
        cleaned_offset: int = 0,
    ) -> UnifiedLog:
        local = LocalLog(
            self._runtime.disk,
            self._runtime.entropy,
            self.open_segments,
            request.directory,
            request.config,
            loaded.segments,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
            remove_files=self._remove_files,
            is_durable=is_durable,
            claimed=claimed,
            announced=loaded.announced,
            cleaned_offset=cleaned_offset,
        )
        clock, on_rolled = self._runtime.clock, self._on_rolled
        return UnifiedLog(request.topic_partition, log_dir, local, loaded, clock, on_rolled)
