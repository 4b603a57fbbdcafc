"""CopyTimes: how old records were when they were read, and when their copies were committed.

Figures are those of the last 30 to 60 seconds, as Kafka's metrics have them: two windows of 30
seconds, the older of which is dropped when the newer is full. Records of a batch that passes
through are not decoded: its oldest counts for the largest figure, its newest for the smallest, and
the middle of both for the mean.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorMetrics; org.apache.kafka.common.metrics.stats
"""

from collections.abc import Iterable
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.mirror.raw_batches import BatchCopy
from kctl.records.record_batch import read_header

WINDOW_MS = 30_000


@dataclass(slots=True)
class WindowFigures:
    """What was counted since `since_ms`: events, their sum, the least and the most."""

    since_ms: int
    count: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None

    def add(self, count: int, total: int, least: int, most: int) -> None:
        """Count events."""
        self.count += count
        self.total += total
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    @property
    def mean(self) -> float | None:
        """Return the mean of the events; None without any."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Windows:
    """The current window and the one before."""

    current: WindowFigures
    before: WindowFigures | None = None

    def add(self, now_ms: int, count: int, total: int, least: int, most: int) -> None:
        """Count events of `now_ms`, which never goes back."""
        self._move(now_ms)
        self.current.add(count, total, least, most)

    def figures(self, now_ms: int) -> WindowFigures:
        """Return the figures of both windows."""
        self._move(now_ms)
        sums = WindowFigures(self.current.since_ms if self.before is None else self.before.since_ms)
        for it in (self.before, self.current):
            if it is not None and it.least is not None and it.most is not None:
                sums.add(it.count, it.total, it.least, it.most)
        return sums

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Return events and their sum per second."""
        figures = self.figures(now_ms)
        # As Kafka has it: what was counted a moment ago is no rate yet.
        elapsed_ms = max(WINDOW_MS, now_ms - figures.since_ms)
        return figures.count * 1000 / elapsed_ms, figures.total * 1000 / elapsed_ms

    def _move(self, now_ms: int) -> None:
        windows = (now_ms - self.current.since_ms) // WINDOW_MS
        if windows <= 0:
            return
        begin = self.current.since_ms + windows * WINDOW_MS
        self.before = self.current if windows == 1 else WindowFigures(begin - WINDOW_MS)
        self.current = WindowFigures(begin)


@dataclass(slots=True)
class CopyTimes:
    """The times of one partition; `since_ms` is monotonic, as every `now_ms` is."""

    since_ms: int
    records: int = 0
    bytes: int = 0
    # Of the newest record of the last batch, in milliseconds.
    age_ms: int | None = None
    latency_ms: int | None = None
    # Timestamp of the last record that was copied, -1 if it has none.
    timestamp: int = -1
    copied_ms: int = -1
    ages: Windows = field(init=False)
    latencies: Windows = field(init=False)
    sizes: Windows = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        self.ages, self.latencies, self.sizes = (
            Windows(WindowFigures(self.since_ms)) for _ in range(3)
        )

    def add(
        self, copies: Iterable[BatchCopy], read_wall_ms: int, written_wall_ms: int, now_ms: int
    ) -> None:
        """Take batches that were read and committed at these times."""
        for copy in copies:
            self.records += copy.count
            self.bytes += copy.size
            self.copied_ms = now_ms
            self.sizes.add(now_ms, copy.count, copy.size, copy.size, copy.size)
            header = read_header(copy.data)
            newest, oldest = header.max_timestamp, header.base_timestamp
            self.timestamp = newest
            if newest < 0:
                continue
            oldest = min(oldest, newest) if oldest >= 0 else newest
            middle = (oldest + newest) // 2
            self.age_ms = max(0, read_wall_ms - newest)
            self.latency_ms = max(0, written_wall_ms - newest)
            for windows, at in ((self.ages, read_wall_ms), (self.latencies, written_wall_ms)):
                mean = max(0, at - middle)
                windows.add(
                    now_ms, copy.count, mean * copy.count, max(0, at - newest), max(0, at - oldest)
                )
