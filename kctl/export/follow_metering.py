"""FollowMetering: serves the metrics and the health of a Follower over HTTP.

The Follower and the server share one thread: a page waits while a file of the table is written.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kctl.metrics import follow_families as f
from kctl.metrics.family import Sample, Samples
from kctl.metrics.http_server import MetricsServer, Page, PageRequest
from kctl.metrics.page import health_pages, metrics_page
from kctl.work import Work

if TYPE_CHECKING:
    from kctl.export.follow import Follower
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.model import Endpoint
    from kctl.runtime.runtime import Runtime

# Reasons that /readyz names at most.
REASONS_MAX = 20


class FollowMetering:
    """Serves the metrics of `follower`, from `start` to `close`."""

    def __init__(
        self, runtime: "Runtime", follower: "Follower", port: "Endpoint | MetricsPort"
    ) -> None:
        self._follower = follower
        self._clock = runtime.clock
        pages = {"/metrics": self._metrics, **health_pages(self.reasons)}
        self._server = MetricsServer(runtime, port, pages)

    def start(self) -> MetricsServer:
        """Listen, and return the server; raise KctlError if that fails."""
        self._server.start()
        return self._server

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._server.close()

    def reasons(self) -> list[str]:
        """Return why the table is not kept current: no round has ended, or something fails."""
        found = list(self._follower.failures())
        if self._follower.current_ms is None:
            found.insert(0, "the table has not caught up with the logs yet")
        return found[:REASONS_MAX]

    def samples(self) -> Samples:
        """Yield what is known of the run."""
        follower, now_ms = self._follower, self._clock.monotonic_ms()
        for family, counts in (
            (f.ROWS, follower.rows), (f.LOG_BYTES, follower.log_bytes),
            (f.DEAD_LETTERS, follower.dead_letters),
        ):  # fmt: skip
            for topic in sorted(counts):
                yield Sample(family, (topic,), counts[topic])
        report = follower.report
        yield Sample(f.COMMITS, (), follower.commits)
        yield Sample(f.LOST_RANGES, (), len(report.damages) + len(report.problems))
        yield Sample(f.EXPIRED_FILES, (), follower.expired_files)
        yield Sample(f.PARTITIONS, (), follower.partitions)
        yield Sample(f.LAG, (), follower.lag)
        # A table that never catches up must not look like one without a lag.
        current_ms = follower.began_ms if follower.current_ms is None else follower.current_ms
        yield Sample(f.LAG_SECONDS, (), (now_ms - current_ms) / 1000)
        if follower.commits:
            yield Sample(f.SINCE_COMMIT, (), (now_ms - follower.committed_ms) / 1000)

    def _metrics(self, request: PageRequest) -> Work[Page]:
        return metrics_page(self.samples(), request.accept)


async def run_metered(
    runtime: "Runtime",
    follower: "Follower",
    port: "Endpoint | MetricsPort",
    on_start: Callable[[MetricsServer], object],
) -> None:
    """Run a Follower and serve its metrics meanwhile; `on_start` gets the server. Raise KctlError
    if that port cannot be listened on, and what `Follower.run` raises."""
    metering = FollowMetering(runtime, follower, port)
    on_start(metering.start())
    try:
        await follower.run()
    finally:
        metering.close()
