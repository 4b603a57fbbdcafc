"""RequestParts: where the time of the requests of one name goes, as histograms.

The name is that of the API; Fetch has two, one of consumers and one of followers, as in Apache
Kafka. Requests that a fast path serves are not here: `part_values` adds them when they are
read, from the difference to all requests of the API. Their time is local. So is that of small
requests that are answered at once, of which only the duration is kept.

Kafka 2.7: kafka.network.RequestMetrics
"""

from collections.abc import Sequence

from kctl.broker.metering.response_errors import SuccessCounter
from kctl.broker.request import Request
from kctl.broker.request_times import RequestTimes
from kctl.metrics.histogram import Histogram, HistogramValue, joined

NS_PER_S = 1_000_000_000
_MS_PER_S = 1_000
FETCH_NAMES = FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"
# Requests whose times are kept until they are counted together, in about a fifth of a millisecond.
PENDING_MAX = 256
# Where a kept request has its total time.
_TOTAL_AT = 2
# The parts of a request's time, in the order in which they pass.
PARTS = ("request_queue", "local", "remote", "throttle", "response_queue", "send")


# Version -> the total times of requests; None: no such request yet.
Totals = list[Histogram | None]


def fetch_name(request: Request) -> str:
    """Return the name of a Fetch request, by its sender."""
    return FETCH_FOLLOWER if request.body.replica_id >= 0 else FETCH_CONSUMER


class RequestParts:
    """The times of the requests of one name. They are kept as they are, and counted when there are
    PENDING_MAX of them or `settle` is called."""

    __slots__ = (
        "_by_version", "_pending", "at_once", "at_once_ns", "count_successes", "successes", "total",
        "versions", *PARTS,
    )  # fmt: skip

    request_queue: Histogram
    local: Histogram
    remote: Histogram
    throttle: Histogram
    response_queue: Histogram
    send: Histogram

    def __init__(self, by_version: "Totals", count_successes: SuccessCounter) -> None:
        """Take the histograms of all requests of the API, in which these are counted as well, and
        what counts the error codes of their responses."""
        self.count_successes = count_successes
        self._by_version = by_version
        self._pending: list[tuple[int, ...]] = []
        # Of requests that are answered at once: their durations by version, until there are
        # PENDING_MAX of a version, and those counted.
        self.at_once_ns: list[list[int]] = [[] for _ in by_version]
        self.at_once = Histogram()
        # Their error codes that are NONE, if a response has no other.
        self.successes = 0
        # Of those that are not: the total time.
        self.total = Histogram()
        for name in PARTS:
            setattr(self, name, Histogram())
        # How many requests there were by version.
        self.versions: dict[int, int] = {}

    def observe(self, version: int, times: RequestTimes, throttle_ms: int) -> None:
        """Count one request."""
        pending = self._pending
        pending.append((version, throttle_ms, *times.durations_ns()))
        if len(pending) >= PENDING_MAX:
            self.settle()

    def settle(self) -> None:
        """Count what is kept."""
        for version, durations in enumerate(self.at_once_ns):
            if durations:
                self._count_total(version, durations)
                self.at_once.observe_all(durations, NS_PER_S)
                durations.clear()
        pending = self._pending
        if not pending:
            return
        versions, throttle, total, queue, local, remote, response_queue, send = map(
            list, zip(*pending, strict=True)
        )
        for version in set(versions):
            self._count_total(version, [each[_TOTAL_AT] for each in pending if each[0] == version])
        self.throttle.observe_all(throttle, _MS_PER_S)
        self.total.observe_all(total, NS_PER_S)
        self.request_queue.observe_all(queue, NS_PER_S)
        self.local.observe_all(local, NS_PER_S)
        self.remote.observe_all(remote, NS_PER_S)
        self.response_queue.observe_all(response_queue, NS_PER_S)
        self.send.observe_all(send, NS_PER_S)
        pending.clear()

    def _count_total(self, version: int, durations_ns: list[int]) -> None:
        self.versions[version] = self.versions.get(version, 0) + len(durations_ns)
        histogram = self._by_version[version]
        if histogram is None:
            histogram = self._by_version[version] = Histogram()
        histogram.observe_all(durations_ns, NS_PER_S)

    @property
    def counted(self) -> int:
        """Return how many requests are counted."""
        return self.total.count + self.at_once.count


def part_values(total: HistogramValue, parts: Sequence[RequestParts]) -> dict[str, HistogramValue]:
    """Return the parts of the time of all requests of a name, by PARTS. `total` has all of them,
    `parts` those that took no fast path."""
    parts = parts or [RequestParts([], lambda _: 0)]
    slow_total = joined([it.total for it in parts])
    fast = [all_ - slow for all_, slow in zip(total.counts, slow_total.counts, strict=True)]
    values = {}
    for name in PARTS:
        value = joined([getattr(it, name) for it in parts])
        counts, seconds = list(value.counts), value.total
        if name == "local":
            counts = [mine + more for mine, more in zip(counts, fast, strict=True)]
            seconds += total.total - slow_total.total
        else:
            counts[0] += sum(fast)
        values[name] = HistogramValue(value.bounds, counts, seconds)
    return values
