"""MetricsCollector: collects the figures of a cluster in the background, and serves them.

A scrape never waits for the cluster: it gets the text of the last round, with the age of each kind
of figures. A kind whose collection fails keeps its figures, and their age grows. Rounds follow each
other at an interval; one that takes longer is not joined by another.

The text is kept compressed: 1,000 groups with 100 partitions each have 20 MB of it.
"""

import zlib
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.cluster_figures import (
    GroupFigures,
    TopicFigures,
    group_figures,
    group_samples,
    log_dir_samples,
    topic_figures,
    topic_samples,
)
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.metrics import cluster_families as c
from kctl.metrics.family import Sample, Samples
from kctl.metrics.http_server import MetricsServer, Page, PageRequest
from kctl.metrics.metrics_port import MetricsPort
from kctl.metrics.page import health_pages, metrics_page
from kctl.metrics.process_samples import process_samples
from kctl.metrics.text import render
from kctl.model import Endpoint
from kctl.runtime.future import sleep
from kctl.runtime.process_facts import ProcessFacts
from kctl.runtime.turns import done_in_turns
from kctl.work import Work

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.latency_probe import LatencyProbe

INTERVAL_MS = 15_000
# A kind of figures that is older than this many intervals is not ready to be used.
INTERVALS_MAX = 4
TOPICS, GROUPS, LOG_DIRS = "topics", "groups", "log_dirs"


@dataclass(slots=True)
class Collected:
    """The last figures of one kind, as text."""

    # Pieces of text, each compressed.
    text: list[bytes] = field(default_factory=list)
    # Monotonic ms; None: never.
    collected_ms: int | None = None
    seconds: float = 0.0
    errors: int = 0
    # Why the last attempt failed.
    failure: str | None = None


class MetricsCollector:
    """Collects and serves the metrics of one cluster."""

    def __init__(
        self,
        admin: "AdminClient",
        process_facts: Callable[[], ProcessFacts],
        *,
        interval_ms: int = INTERVAL_MS,
        on_failure: Callable[[str], object] = lambda _why: None,
        probe: "LatencyProbe | None" = None,
    ) -> None:
        """Take an AdminClient; `on_failure` takes a line about figures that are not collected.
        `probe` is open; it probes while this runs."""
        self._probe = probe
        self._admin = admin
        self._runtime = admin.router.runtime
        self._process_facts = process_facts
        self._interval_ms = interval_ms
        self._on_failure = on_failure
        self.kinds = {kind: Collected() for kind in (TOPICS, GROUPS, LOG_DIRS)}
        self._topics = TopicFigures()
        self._has_new_topics = False

    def serve(self, endpoint: Endpoint | MetricsPort) -> MetricsServer:
        """Return a server that listens; raise KctlError."""
        pages = {"/metrics": self._metrics, **health_pages(self.reasons)}
        server = MetricsServer(self._runtime, endpoint, pages)
        server.start()
        return server

    async def run(
        self, endpoint: Endpoint | MetricsPort, on_listening: Callable[[MetricsServer], object]
    ) -> None:
        """Serve at `endpoint`, call `on_listening` with the server, and collect, round after
        round, until the task is cancelled. Raise KctlError if the port cannot be bound, and
        UnreachableError if no broker can be reached now."""
        # A wrong address is an error of the caller. Later failures are reported and retried.
        await self._admin.cluster.describe()
        server = self.serve(endpoint)
        on_listening(server)
        if self._probe is not None:
            self._probe.start()
        try:
            while True:
                began_ms = self._now_ms()
                await self.collect()
                left_ms = self._interval_ms - (self._now_ms() - began_ms)
                await sleep(self._runtime.scheduler, max(left_ms, self._interval_ms // 10))
        finally:
            server.close()

    async def collect(self) -> None:
        """Collect everything once; failures are noted."""
        self._has_new_topics = False
        await self._collect(GROUPS, self._collect_groups)
        await self._collect(TOPICS, self._collect_topics)
        await self._collect(LOG_DIRS, self._collect_log_dirs)

    async def _collect(self, kind: str, work: Callable[[], Awaitable[tuple[Samples, int]]]) -> None:
        collected = self.kinds[kind]
        began_ms = self._now_ms()
        try:
            samples, collected.errors = await work()
        except KctlError as error:
            collected.failure = str(error)
            self._on_failure(f"cannot collect {kind}: {error}")
            return
        collected.text = await done_in_turns(self._runtime.scheduler, _compressed(samples))
        collected.collected_ms = self._now_ms()
        collected.seconds = (collected.collected_ms - began_ms) / 1_000
        collected.failure = None

    async def _collect_topics(self) -> tuple[Samples, int]:
        if not self._has_new_topics:
            self._topics = await topic_figures(self._admin)
        return topic_samples(self._topics), self._topics.errors

    async def _collect_groups(self) -> tuple[Samples, int]:
        groups: dict[str, GroupFigures]
        groups, errors = await group_figures(self._admin, self._topics.partitions)
        # After the commits, so that no group is ahead of a partition's end.
        self._topics = await topic_figures(self._admin)
        self._has_new_topics = True
        return group_samples(groups, self._topics), errors

    async def _collect_log_dirs(self) -> tuple[Samples, int]:
        found = await self._admin.log_dirs.describe()
        return log_dir_samples(found), sum(it.error is not None for it in found)

    # --- pages -------------------------------------------------------------------------------

    def reasons(self) -> list[str]:
        """Return why the figures should not be relied on; nothing if they may be."""
        oldest_ms = self._now_ms() - INTERVALS_MAX * self._interval_ms
        return [
            f"{kind}: {collected.failure or self._age(collected)}"
            for kind, collected in self.kinds.items()
            if collected.collected_ms is None or collected.collected_ms < oldest_ms
        ]

    def _age(self, collected: Collected) -> str:
        if collected.collected_ms is None:
            return "not collected yet"
        return f"collected {(self._now_ms() - collected.collected_ms) // 1_000} s ago"

    def _metrics(self, request: PageRequest) -> Work[Page]:
        # Of one moment, whatever is collected meanwhile.
        texts = [list(it.text) for it in self.kinds.values()]
        page = yield from metrics_page(self._own_samples(), request.accept)
        body: list[bytes] = []
        for text in texts:
            for piece in text:
                body.append(zlib.decompress(piece))
                yield
        return Page([*body, *page.body], page.content_type)

    def _own_samples(self) -> Samples:
        now_ms = self._now_ms()
        kinds = list(self.kinds.items())
        for kind, it in kinds:
            if it.collected_ms is not None:
                yield Sample(c.COLLECTED_AGO, (kind,), (now_ms - it.collected_ms) / 1_000)
        for kind, it in kinds:
            yield Sample(c.COLLECT_SECONDS, (kind,), it.seconds)
        for kind, it in kinds:
            yield Sample(c.COLLECT_ERRORS, (kind,), it.errors + (it.failure is not None))
        if self._probe is not None:
            yield from self._probe.samples()
        yield from process_samples(self._process_facts())

    def _now_ms(self) -> int:
        return self._runtime.clock.monotonic_ms()


def _compressed(samples: Samples) -> Work[list[bytes]]:
    """Return the text of `samples`, which has only gauges and so is the same in both formats."""
    pieces = yield from render(samples)
    compressed = []
    for piece in pieces:
        compressed.append(zlib.compress(piece, 1))
        yield
    return compressed


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What a LatencyProbe beside the collector does."""

    topic: str
    interval_ms: int
    # Whether the topic is created if it does not exist.
    creates: bool = False


async def serve_metrics(
    admin: "AdminClient",
    process_facts: Callable[[], ProcessFacts],
    endpoint: MetricsPort,
    on_listening: Callable[[MetricsServer], object],
    *,
    interval_ms: int,
    say: Callable[[str], object],
    probe: ProbeSettings | None = None,
) -> None:
    """Collect and serve until cancelled, with a probe if wanted; raise what opening it raises."""
    if probe is None:
        collector = MetricsCollector(admin, process_facts, interval_ms=interval_ms, on_failure=say)
        await collector.run(endpoint, on_listening)
        return
    from kctl.admin.latency_probe import LatencyProbe

    probing = LatencyProbe(admin, probe.topic, interval_ms=probe.interval_ms, on_failure=say)
    collector = MetricsCollector(
        admin, process_facts, interval_ms=interval_ms, on_failure=say, probe=probing
    )
    try:
        await probing.open(creates=probe.creates, say=say)
        await collector.run(endpoint, on_listening)
    finally:
        probing.close()
