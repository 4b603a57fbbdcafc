"""MirrorMetering: serves the metrics and the health of a mirror's worker over HTTP.

The figures are those of the worker's reports, summed by topic when a page is made. Partitions have
series of their own only once they stop: a mirror may have tens of thousands.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kctl.metrics import mirror_families as f
from kctl.metrics.family import Family, Number, Sample, Samples
from kctl.metrics.http_server import MetricsServer, Page, PageRequest
from kctl.metrics.page import health_page, metrics_page
from kctl.mirror.loss import Loss
from kctl.mirror.partition_report import PartitionReport
from kctl.protocol.error_codes import ApiError
from kctl.work import Work

if TYPE_CHECKING:
    from kctl.errors import KctlError
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.mirror.run import MirrorReport, MirrorRun
    from kctl.model import Endpoint

# Reasons that /readyz names at most; the metrics have all.
REASONS_MAX = 20

_Topics = dict[tuple[str, str], list[PartitionReport]]


class MirrorMetering:
    """Serves the metrics of `run`, from `start` to `close`."""

    def __init__(self, run: "MirrorRun", port: "Endpoint | MetricsPort") -> None:
        self._run = run
        self._clock = run.target.router.runtime.clock
        # Bytes copied, and when they were first seen, by topic.
        self._copied: dict[tuple[str, str], tuple[int, int]] = {}
        self._has_turned = False
        run.on_turn = self.turned
        self._server = MetricsServer(
            run.target.router.runtime,
            port,
            {
                "/metrics": self._metrics,
                "/healthz": self._alive,
                "/livez": self._alive,
                "/readyz": self._ready,
            },
        )

    def start(self) -> "Endpoint":
        """Listen, and return where; raise KctlError if that fails."""
        self._server.start()
        return self._server.endpoint

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._server.close()

    def turned(self) -> None:
        """Note which topics were copied from in the worker's last turn."""
        self._has_turned = True
        now_ms = self._clock.monotonic_ms()
        sums: dict[tuple[str, str], int] = {}
        for it in self._run.reports.values():
            key = (it.source.topic, it.target.topic)
            sums[key] = sums.get(key, 0) + it.bytes
        for key, size in sums.items():
            if size and size != self._copied.get(key, (0, 0))[0]:
                self._copied[key] = (size, now_ms)

    def reasons(self) -> list[str]:
        """Return why the mirror is not ready: it has not begun, or does not copy everything."""
        if not self._has_turned:
            return ["the mirror has not begun to copy"]
        found = [
            f"{it.source.topic}-{it.source.partition} stopped: {_reason(it.error)}"
            for it in self._run.reports.values()
            if it.error is not None
        ]
        found += [f"{name}: {text}" for name, text in self._run.report.topic_errors.items()]
        return found[:REASONS_MAX]

    def samples(self) -> Samples:
        """Yield what is known of each topic."""
        topics: _Topics = {}
        for key in sorted(self._run.reports):
            it = self._run.reports[key]
            topics.setdefault((it.source.topic, it.target.topic), []).append(it)
        sums: tuple[tuple[Family, Callable[[PartitionReport], int]], ...] = (
            (f.RECORDS, lambda it: it.records),
            (f.BYTES, lambda it: it.bytes),
            (f.RAW_BATCHES, lambda it: it.raw_batches),
            (f.REBUILT_BATCHES, lambda it: it.rebuilt_batches),
            (f.LOSSES, lambda it: len(it.losses) + isinstance(it.error, Loss)),
            (f.PARTITIONS, lambda _: 1),
        )
        for family, value in sums:
            for names, reports in topics.items():
                yield self._sample(family, names, sum(map(value, reports)))
        for names, reports in topics.items():
            known = [it.end - it.position for it in reports if it.end >= 0 and it.position >= 0]
            if known:
                yield self._sample(f.LAG, names, sum(max(lag, 0) for lag in known))
        now_ms = self._clock.monotonic_ms()
        for names, (_, copied_ms) in self._copied.items():
            yield self._sample(f.SINCE_COPY, names, (now_ms - copied_ms) / 1000)
        yield from self._stopped(topics)
        errors = len(self._run.report.topic_errors)
        yield Sample(f.TOPIC_ERRORS, (self._run.settings.name,), errors)

    def _stopped(self, topics: _Topics) -> Iterator[Sample]:
        for names, reports in topics.items():
            for it in reports:
                if it.error is not None:
                    more = (str(it.source.partition), _reason(it.error))
                    yield Sample(f.STOPPED, (self._run.settings.name, *names, *more), 1)

    def _sample(self, family: Family, names: tuple[str, str], value: Number) -> Sample:
        return Sample(family, (self._run.settings.name, *names), value)

    def _metrics(self, request: PageRequest) -> Work[Page]:
        return metrics_page(self.samples(), request.accept)

    def _alive(self, _request: PageRequest) -> Work[Page]:
        yield from ()
        return health_page(())

    def _ready(self, _request: PageRequest) -> Work[Page]:
        yield from ()
        return health_page(self.reasons())


async def run_metered(
    run: "MirrorRun", port: "Endpoint | MetricsPort", on_start: "Callable[[Endpoint], object]"
) -> "MirrorReport":
    """Run a mirror and serve its metrics meanwhile; `on_start` gets where. Raise KctlError if that
    port cannot be listened on."""
    metering = MirrorMetering(run, port)
    on_start(metering.start())
    try:
        return await run.run()
    finally:
        metering.close()


def _reason(error: "KctlError | Loss | None") -> str:
    """Return one of a few texts: a label with offsets in it would make a series per loss."""
    if isinstance(error, Loss):
        return str(error.kind.value)
    return error.code.name if isinstance(error, ApiError) else type(error).__name__
