"""BrokerMeter: counts requests, records and bytes of a broker that serves metrics.

It stands around what it measures: the handler of requests, the fast paths, the ReplicaManager, the
trace. A broker without metrics has none of these layers, so that it does not even ask whether it is
measured.

Invariant: a request is counted when its response is handed over; one that is never answered is not.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from kctl.broker.network.connection_host import FastPath
from kctl.broker.request import Request, RequestContext
from kctl.metrics.histogram import SECONDS_BOUNDS, Histogram, Window
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Struct
from kctl.runtime.trace import Trace

# Elements of a response that are searched for error codes.
ERRORS_SEARCHED_MAX = 1_000
# Requests of a fast path for each one that is timed: a clock costs as much as all counters.
TIMED_EVERY = 8
# The low byte of a request's version, after the API key.
_VERSION_BYTE = 3
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


class BrokerMeter:
    """The counts of one broker; read them at any time on its loop."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """Take a clock with microseconds."""
        self.seconds = seconds
        self.topics: dict[str, TopicCounters] = {}
        # The counts of topics that were deleted or have left this broker.
        self.former_topics = TopicCounters()
        # API -> by version; None: no such request yet.
        self.requests: dict[ApiKey, list[Histogram | None]] = {}
        # (API, error code) -> responses, or elements of responses.
        self.errors: dict[tuple[ApiKey, int], int] = {}
        self.windows: dict[ApiKey, Window] = {}
        self.turns = Histogram()
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

    def on_request(self, handle: Callable[[Request], None]) -> Callable[[Request], None]:
        """Return `handle`, measured."""
        sent, seconds = self._sent, self.seconds

        def handle_measured(request: Request) -> None:
            # Of a request in slices, the whole is measured, from its first slice on.
            whole = request if request.whole is None else request.whole
            if type(whole.send) is not partial:
                whole.send = partial(sent, whole.send, whole.api_key, whole.api_version, seconds())
            handle(request)

        return handle_measured

    def fast_path(self, api_key: ApiKey, path: FastPath) -> FastPath:
        """Return `path`, measured: each request is counted, and one of TIMED_EVERY is timed and
        stands for those that follow it."""
        seconds = self.seconds
        by_version = self._by_version(api_key)
        untimed = 0
        took = 0.0
        bucket = 0

        def answer(frame: Buffer, send: Callable[[bytes], object], context: RequestContext) -> bool:
            nonlocal untimed, took, bucket
            if untimed:
                if not path(frame, send, context):
                    return False
                untimed -= 1
            else:
                began = seconds()
                if not path(frame, send, context):
                    return False
                took = seconds() - began
                bucket = bisect_left(SECONDS_BOUNDS, took)
                untimed = TIMED_EVERY - 1
            histogram = by_version[frame[_VERSION_BYTE]]
            if histogram is None:
                histogram = by_version[frame[_VERSION_BYTE]] = Histogram()
            histogram.counts[bucket] += 1
            histogram.total += took
            return True

        return answer

    def _by_version(self, api_key: ApiKey) -> list[Histogram | None]:
        by_version = self.requests.get(api_key)
        if by_version is None:
            by_version = self.requests[api_key] = [None] * _VERSIONS_MAX
            self.windows[api_key] = Window()
        return by_version

    def _sent(
        self,
        send: Callable[[Message | None], None],
        api_key: ApiKey,
        version: int,
        began: float,
        response: Message | None,
    ) -> None:
        send(response)
        took = self.seconds() - began
        by_version = self.requests.get(api_key) or self._by_version(api_key)
        histogram = by_version[version]
        if histogram is None:
            histogram = by_version[version] = Histogram()
        histogram.counts[bisect_left(SECONDS_BOUNDS, took)] += 1
        histogram.total += took
        if response is not None:
            for code in error_codes(response):
                key = (api_key, code)
                self.errors[key] = self.errors.get(key, 0) + 1

    def error_counts(self) -> dict[tuple[ApiKey, int], int]:
        """Return (API, code) -> count; responses without an error have the code 0."""
        counts = {key: count for key, count in self.errors.items() if key[1]}
        for api_key, by_version in self.requests.items():
            answered = sum(it.count for it in by_version if it is not None)
            failed = sum(count for (key, _), count in counts.items() if key is api_key)
            counts[api_key, 0] = max(answered - failed, 0)
        return counts


def error_codes(response: Message) -> list[int]:
    """Return the error codes, other than 0, of a response and of its first ERRORS_SEARCHED_MAX
    elements."""
    found: list[int] = []
    left = ERRORS_SEARCHED_MAX
    pending: list[Struct] = [response]
    while pending and left > 0:
        element = pending.pop()
        left -= 1
        code_name, arrays = _plan(type(element))
        code = getattr(element, code_name) if code_name else 0
        if code:
            found.append(int(code))
        for name in arrays:
            nested = getattr(element, name)
            if nested:
                pending.extend(nested[:left])
    return found


_plans: dict[type[Struct], tuple[str, tuple[str, ...]]] = {}


def _plan(cls: type[Struct]) -> tuple[str, tuple[str, ...]]:
    """Return the field of a class with its error code, or "", and its arrays of structs."""
    plan = _plans.get(cls)
    if plan is None:
        code = next((it.name for it in cls.fields if it.name.endswith("error_code")), "")
        structs = [
            it.name for it in cls.fields if it.kind == "array" and isinstance(it.element, type)
        ]
        plan = _plans[cls] = (code, tuple(structs))
    return plan


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
