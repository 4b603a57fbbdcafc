"""RequestParts: where the time of the requests of one name goes, as histograms.

The name is that of the API; Fetch has two, one of consumers and one of followers, as in Apache
Kafka. Requests that a fast path serves are not here: `part_values` adds them when they are
read, from the difference to all requests of the API. Their time is local.

Kafka 2.7: kafka.network.RequestMetrics
"""

from collections.abc import Sequence

from kctl.broker.request import Request
from kctl.broker.request_times import RequestTimes
from kctl.metrics.histogram import Histogram, HistogramValue, joined

NS_PER_S = 1_000_000_000
_MS_PER_S = 1_000
FETCH_NAMES = FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"
# The parts of a request's time, in the order in which they pass.
PARTS = ("request_queue", "local", "remote", "throttle", "response_queue", "send")


def fetch_name(request: Request) -> str:
    """Return the name of a Fetch request, by its sender."""
    return FETCH_FOLLOWER if request.body.replica_id >= 0 else FETCH_CONSUMER


class RequestParts:
    """The times of the requests of one name."""

    __slots__ = ("total", "versions", *PARTS)

    request_queue: Histogram
    local: Histogram
    remote: Histogram
    throttle: Histogram
    response_queue: Histogram
    send: Histogram

    def __init__(self) -> None:
        self.total = Histogram()
        for name in PARTS:
            setattr(self, name, Histogram())
        # How many requests there were by version.
        self.versions: dict[int, int] = {}

    def observe(self, version: int, times: RequestTimes, throttle_ms: int) -> None:
        """Count one request."""
        self.versions[version] = self.versions.get(version, 0) + 1
        self.total.observe(times.total_ns / NS_PER_S)
        self.request_queue.observe(times.request_queue_ns / NS_PER_S)
        self.local.observe(times.local_ns / NS_PER_S)
        self.remote.observe(times.remote_ns / NS_PER_S)
        self.throttle.observe(throttle_ms / _MS_PER_S)
        self.response_queue.observe(times.response_queue_ns / NS_PER_S)
        self.send.observe(times.send_ns / NS_PER_S)


def part_values(total: HistogramValue, parts: Sequence[RequestParts]) -> dict[str, HistogramValue]:
    """Return the parts of the time of all requests of a name, by PARTS. `total` has all of them,
    `parts` those that took no fast path."""
    parts = parts or [RequestParts()]
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
