"""MirrorMetering: serves the metrics and the health of a mirror's worker over HTTP.

The figures are those of the worker's reports, summed by topic when a page is made. Partitions have
series of their own only once they stop: a mirror may have tens of thousands. A partition that has
moved to another worker keeps its share of the counters, and nothing else: its lag is the other's.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kctl.metrics import mirror_families as f
from kctl.metrics.family import Family, Number, Sample, Samples
from kctl.metrics.http_server import MetricsServer, Page, PageRequest
from kctl.metrics.page import health_pages, metrics_page
from kctl.mirror.copy_times import CopyTimes
from kctl.mirror.loss import Loss
from kctl.mirror.mm2_metering import Mm2Metering
from kctl.mirror.partition_report import PartitionReport
from kctl.mirror.raw_batches import CopiedRange
from kctl.model import TopicPartition
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
        # By partition of the source.
        self._times: dict[TopicPartition, CopyTimes] = {}
        mm2 = run.mm2
        name = run.settings.name
        self._mm2 = (
            Mm2Metering(mm2.source_alias, mm2.target_alias) if mm2 else Mm2Metering("", name)
        )
        self._has_turned = False
        run.on_turn = self.turned
        run.on_copied = self.copied
        run.on_checkpoints = self._mm2.add_checkpoints
        self._server = MetricsServer(
            run.target.router.runtime,
            port,
            {"/metrics": self._metrics, **health_pages(self.reasons)},
        )

    def start(self) -> MetricsServer:
        """Listen, and return what does; raise KctlError if that fails."""
        self._server.start()
        return self._server

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._server.close()

    def turned(self) -> None:
        """Note that the worker has begun."""
        self._has_turned = True

    def copied(self, ranges: Mapping[TopicPartition, CopiedRange], read_wall_ms: int) -> None:
        """Take what the worker's last turn has committed, and when it was read."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        for source, it in ranges.items():
            if it.copies:
                times = self._times.get(source)
                if times is None:
                    times = self._times[source] = CopyTimes(now_ms)
                times.add(it.copies, read_wall_ms, wall_ms, now_ms)

    def reasons(self) -> list[str]:
        """Return why the mirror is not ready: it has not begun, or does not copy everything."""
        if not self._has_turned:
            return ["the mirror has not begun to copy"]
        held = self._run.held
        found = [
            f"{it.source.topic}-{it.source.partition} stopped: {_reason(it.error)}"
            for key, it in self._run.reports.items()
            if it.error is not None and key in held
        ]
        found += [f"{name}: {text}" for name, text in self._run.report.topic_errors.items()]
        return found[:REASONS_MAX]

    def samples(self) -> Samples:
        """Yield what is known of each topic."""
        held = self._run.held
        # What was ever copied is counted; the rest is of partitions that are copied now.
        copied_topics: _Topics = {}
        topics: _Topics = {}
        for key in sorted(self._run.reports):
            it = self._run.reports[key]
            names = (it.source.topic, it.target.topic)
            copied_topics.setdefault(names, []).append(it)
            if key in held:
                topics.setdefault(names, []).append(it)
        sums: tuple[tuple[Family, Callable[[PartitionReport], int]], ...] = (
            (f.RECORDS, lambda it: it.records),
            (f.BYTES, lambda it: it.bytes),
            (f.RAW_BATCHES, lambda it: it.raw_batches),
            (f.REBUILT_BATCHES, lambda it: it.rebuilt_batches),
            (f.LOSSES, lambda it: len(it.losses) + isinstance(it.error, Loss)),
        )
        for family, value in sums:
            for names, reports in copied_topics.items():
                yield self._sample(family, names, sum(map(value, reports)))
        for names, reports in topics.items():
            yield self._sample(f.PARTITIONS, names, len(reports))
        now_ms = self._clock.monotonic_ms()
        yield from self._lags(topics, now_ms)
        for names, reports in topics.items():
            copied = [
                self._times[it.source].copied_ms for it in reports if it.source in self._times
            ]
            if copied:
                yield self._sample(f.SINCE_COPY, names, (now_ms - max(copied)) / 1000)
        yield from self._stopped(topics)
        mirror, counts = self._run.settings.name, self._run.counts
        yield Sample(f.TOPIC_ERRORS, (mirror,), len(self._run.report.topic_errors))
        if self._run.settings.exactly_once:
            yield Sample(f.TRANSACTIONS, (mirror, "committed"), counts.committed)
            yield Sample(f.TRANSACTIONS, (mirror, "aborted"), counts.aborted)
        yield Sample(f.FAILURES, (mirror,), counts.failed)
        targets = {self._run.reports[it].target: found for it, found in self._times.items()}
        held_targets = {self._run.reports[it].target for it in held if it in self._times}
        yield from self._mm2.samples(targets, held_targets, now_ms)

    def _lags(self, topics: _Topics, now_ms: int) -> Iterator[Sample]:
        found = []
        for names, reports in topics.items():
            known = [it for it in reports if it.end >= 0 and it.position >= 0]
            lag = sum(max(it.end - it.position, 0) for it in known)
            records = sum(it.records for it in reports)
            size = sum(it.bytes for it in reports)
            in_bytes = round(lag * size / records) if records else None if lag else 0
            behind = [it for it in known if it.end > it.position]
            ages = [self._age_ms(it, now_ms) for it in behind]
            oldest = [age for age in ages if age is not None]
            seconds = max(oldest) / 1000 if oldest else None if behind else 0
            if known:
                found.append((names, (lag, in_bytes, seconds)))
        for number, family in enumerate((f.LAG, f.LAG_BYTES, f.LAG_SECONDS)):
            for names, values in found:
                value = values[number]
                if value is not None:
                    yield self._sample(family, names, value)

    def _age_ms(self, it: PartitionReport, now_ms: int) -> int | None:
        """Return the age, at most, of the oldest record that is not copied: it came after the end
        was reached last, and is not older than the last one that was copied."""
        times = self._times.get(it.source)
        limits = [] if it.caught_up_ms < 0 else [now_ms - it.caught_up_ms]
        if times is not None and times.timestamp >= 0:
            limits.append(max(0, self._clock.wall_ms() - times.timestamp))
        return min(limits, default=None)

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


async def run_metered(
    run: "MirrorRun", port: "Endpoint | MetricsPort", on_start: Callable[[MetricsServer], object]
) -> "MirrorReport":
    """Run a mirror and serve its metrics meanwhile; `on_start` gets the server. Raise KctlError if
    that port cannot be listened on."""
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
