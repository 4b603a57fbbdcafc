"""BrokerMeter: counts requests, records and bytes of a broker that serves metrics.

It watches the requests of the server, and stands around what else it measures: the fast paths, the
ReplicaManager, the trace. A broker without metrics has none of these layers, so that it does not
even ask whether it is measured.

Invariant: a request is counted when its response is sent; one that is never answered is not.
"""

from bisect import bisect_left
from collections.abc import Callable

from kctl.broker.metering.request_parts import (
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    FETCH_NAMES,
    PENDING_MAX,
    RequestParts,
    Totals,
    fetch_name,
)
from kctl.broker.metering.response_errors import SEARCH, error_codes, success_counter
from kctl.broker.network.connection_host import FastPath
from kctl.broker.request import Request, RequestContext
from kctl.broker.request_times import RequestTimes
from kctl.metrics.histogram import SECONDS_BOUNDS, Histogram, HistogramValue, Window
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message
from kctl.runtime.trace import Trace
from kctl.runtime.watchdog import LoopWatchdog

# Requests of a fast path for each one that is timed: a clock costs as much as all counters.
TIMED_EVERY = 16
# The low byte of a request's version, after the API key.
_VERSION_BYTE = 3
_FETCH = ApiKey.FETCH
# More versions than any API has.
_VERSIONS_MAX = 32


class TopicCounters:
    """What a broker did for one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch",
        "failed_produce",
        "fetch_requests",
        "messages_in",
        "produce_requests",
        "replication_in",
        "replication_out",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    failed_fetch: int
    failed_produce: int
    fetch_requests: int
    messages_in: int
    produce_requests: int
    replication_in: int
    replication_out: int

    def add(self, other: "TopicCounters") -> None:
        """Add the counts of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TurnTimes:
    """How long the turns of a loop take. Most turns are no longer than the first bound: the loop
    counts all of them anyway, so only the others are observed."""

    def __init__(self) -> None:
        self._longer = Histogram()
        self._watchdog: LoopWatchdog | None = None
        # What the loop had counted before.
        self._turns = 0
        self._seconds = 0.0

    def start(self, watchdog: LoopWatchdog) -> None:
        """Measure from now on."""
        self._watchdog, self._turns, self._seconds = watchdog, watchdog.turns, watchdog.busy_seconds
        watchdog.measure_turns(self._longer.observe, SECONDS_BOUNDS[0])

    def stop(self) -> None:
        """Measure no longer."""
        if self._watchdog is not None:
            self._watchdog.measure_turns(None)

    def value(self) -> HistogramValue:
        """Return the turns since the start."""
        watchdog, longer = self._watchdog, self._longer
        if watchdog is None:
            return longer.value()
        short = watchdog.turns - self._turns - longer.count
        counts = (short, *longer.counts[1:])
        return HistogramValue(longer.bounds, counts, watchdog.busy_seconds - self._seconds)


class BrokerMeter:
    """The counts of one broker; read them at any time on its loop."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """Take a clock with microseconds."""
        self.seconds = seconds
        self.topics: dict[str, TopicCounters] = {}
        # The counts of topics that were deleted or have left this broker.
        self.former_topics = TopicCounters()
        # API -> by version; None: no such request yet.
        self._requests: dict[ApiKey, Totals] = {}
        # Add what fast paths and RequestParts have counted since.
        self._settle: list[Callable[[], None]] = []
        # By name, where the time of requests goes that took no fast path; `settle` first.
        self.parts: dict[str, RequestParts] = {}
        # The same by API, and by name for Fetch.
        self._parts_of: dict[ApiKey | str, RequestParts] = {}
        # (API, error code) -> responses, or elements of responses.
        self.errors: dict[tuple[ApiKey, int], int] = {}
        # (name, part of the time) -> what is subtracted for recent quantiles.
        self._windows: dict[tuple[str, str], Window] = {}
        self.turns = TurnTimes()
        self.fsyncs = Histogram()
        self.fsync_window = Window()
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.unclean_elections = 0

    # --- topics

    def topic(self, name: str) -> TopicCounters:
        """Return the counters of a topic."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters()
        return counters

    def replicated(self, topic: str, size: int) -> None:
        """Count bytes received from a leader."""
        self.topic(topic).replication_in += size

    # --- requests

    def settle(self) -> None:
        """Count all requests up to now, in `requests` and `parts`."""
        for settle in self._settle:
            settle()

    @property
    def requests(self) -> dict[ApiKey, Totals]:
        """Return API -> histograms by version; None: no such request yet."""
        self.settle()
        return self._requests

    def answered(self, request: Request, response: Message | None) -> None:
        """Count the errors of a response."""
        if response is not None:
            self._count_errors(request.api_key, error_codes(response))

    def _count_errors(self, api_key: ApiKey, codes: list[int]) -> None:
        for code in codes:
            key = (api_key, code)
            self.errors[key] = self.errors.get(key, 0) + 1

    def sent(self, request: Request, times: RequestTimes) -> None:
        """Count a request whose response is sent."""
        self._parts(request).observe(request.api_version, times, request.throttle_ms)

    def answered_at_once(self, request: Request, response: Message | None, took_ns: int) -> None:
        """Count a small request whose response was sent while its handler ran, and its errors."""
        api_key = request.api_key
        if api_key is not _FETCH:
            parts = self._parts_of.get(api_key)
        elif request.body.replica_id < 0:
            parts = self._parts_of.get(FETCH_CONSUMER)
        else:
            parts = self._parts_of.get(FETCH_FOLLOWER)
        if parts is None:
            parts = self._parts(request)
        if response is not None:
            successes = parts.count_successes(response)
            if successes == SEARCH:
                self._count_errors(api_key, error_codes(response))
            else:
                parts.successes += successes
        durations = parts.at_once_ns[request.api_version]
        durations.append(took_ns)
        if len(durations) >= PENDING_MAX:
            parts.settle()

    def _parts(self, request: Request) -> RequestParts:
        api_key = request.api_key
        which = fetch_name(request) if api_key is _FETCH else api_key
        parts = self._parts_of.get(which)
        if parts is None:
            parts = self._parts_of[which] = RequestParts(
                self._by_version(api_key), success_counter(api_key.response_class)
            )
            self.parts[which if isinstance(which, str) else api_key.title] = parts
            self._settle.append(parts.settle)
        return parts

    def fast_path(self, api_key: ApiKey, path: FastPath) -> FastPath:
        """Return `path`, measured: each request is counted, and one of TIMED_EVERY is timed and
        stands for those of its version that follow it. They are added when the next is timed, or
        when the counts are read."""
        seconds = self.seconds
        by_version = self._by_version(api_key)
        # The version of the request that was timed last, and its time.
        version = 0
        took = 0.0
        # How many more it stands for, and how many of those that it stood for are added.
        untimed = 0
        added = TIMED_EVERY

        def settle() -> None:
            nonlocal added
            _add(by_version, version, took, TIMED_EVERY - untimed - added)
            added = TIMED_EVERY - untimed

        def answer(frame: Buffer, send: Callable[[bytes], object], context: RequestContext) -> bool:
            nonlocal untimed, added, took, version
            if untimed:
                if not path(frame, send, context):
                    return False
                if frame[_VERSION_BYTE] == version:
                    untimed -= 1
                else:
                    _add(by_version, frame[_VERSION_BYTE], took, 1)
                return True
            began = seconds()
            if not path(frame, send, context):
                return False
            ended = seconds()
            settle()
            version, took = frame[_VERSION_BYTE], ended - began
            untimed, added = TIMED_EVERY - 1, 0
            return True

        self._settle.append(settle)
        return answer

    def _by_version(self, api_key: ApiKey) -> Totals:
        by_version = self._requests.get(api_key)
        if by_version is None:
            by_version = self._requests[api_key] = [None] * _VERSIONS_MAX
        return by_version

    def parts_of(self, api_key: ApiKey) -> list[RequestParts]:
        """Return the parts of an API's requests, which have several names if it is Fetch."""
        names = FETCH_NAMES if api_key is ApiKey.FETCH else (api_key.title,)
        return [self.parts[name] for name in names if name in self.parts]

    def window(self, name: str, part: str) -> Window:
        """Return the window of a part of the time of the requests of a name."""
        window = self._windows.get((name, part))
        if window is None:
            window = self._windows[name, part] = Window()
        return window

    def error_counts(self) -> dict[tuple[ApiKey, int], int]:
        """Return (API, code) -> count; 0: NONE. Each response of a fast path has one code, NONE."""
        counts = dict(self.errors)
        for api_key, by_version in self.requests.items():
            answered = sum(it.count for it in by_version if it is not None)
            parts = self.parts_of(api_key)
            fast = answered - sum(it.counted for it in parts)
            successes = sum(it.successes for it in parts)
            counts[api_key, 0] = counts.get((api_key, 0), 0) + fast + successes
        return counts


def _add(by_version: Totals, version: int, seconds: float, requests: int) -> None:
    """Count `requests` that took `seconds` each."""
    if requests:
        histogram = by_version[version]
        if histogram is None:
            histogram = by_version[version] = Histogram()
        histogram.counts[bisect_left(SECONDS_BOUNDS, seconds)] += requests
        histogram.total += requests * seconds


class MeteredTrace:
    """Counts events, and passes everything on."""

    def __init__(self, trace: Trace, meter: BrokerMeter) -> None:
        self._trace = trace
        self._meter = meter
        self.info = trace.info
        self.warning = trace.warning

    def event(self, name: str, /, **fields: object) -> None:
        """Record an event."""
        meter = self._meter
        if name == "isr_altered":
            before, after = fields["before"], fields["isr"]
            assert isinstance(before, int)
            assert isinstance(after, tuple)
            meter.isr_shrinks += len(after) < before
            meter.isr_expands += len(after) > before
        elif name == "unclean_election":
            meter.unclean_elections += 1
        self._trace.event(name, **fields)
