"""What a meter counts of events and responses, and when a broker is ready."""

import json
from types import SimpleNamespace

import pytest

from kctl.broker.metering.health import Readiness
from kctl.broker.metering.meter import (
    TIMED_EVERY,
    BrokerMeter,
    MeteredTrace,
    TurnTimes,
)
from kctl.broker.metering.request_parts import PENDING_MAX
from kctl.broker.metering.request_samples import request_samples
from kctl.broker.metering.response_errors import (
    ERRORS_SEARCHED_MAX,
    SEARCH,
    error_codes,
    success_counter,
)
from kctl.broker.request_times import RequestTimes
from kctl.metrics.histogram import Histogram, SummaryValue, joined
from kctl.metrics.http_server import PageRequest
from kctl.metrics.page import health_pages
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.runtime.watchdog import TURN_MS_MAX, LoopWatchdog
from kctl.store.interface import SessionState
from kctl.work import at_once
from tests.support.real_loop import RecordingTrace

VERSION = 8
FRAME = bytes([0, 0, 0, VERSION, 1, 2, 3])


@pytest.fixture
def now():
    return SimpleNamespace(seconds=0.0)


@pytest.fixture
def meter(now):
    return BrokerMeter(lambda: now.seconds)


def test_an_isr_that_loses_a_replica_shrinks_and_one_that_gains_it_expands(meter):
    recorded = RecordingTrace()
    trace = MeteredTrace(recorded, meter)
    trace.event("isr_altered", partition="orders-0", isr=(1, 2), before=3)
    trace.event("isr_altered", partition="orders-0", isr=(1, 2, 3), before=2)
    trace.event("isr_altered", partition="orders-0", isr=(1, 2, 3), before=3)
    trace.event("unclean_election", partition="orders-0", leader=2)
    trace.warning("careful")
    assert (meter.isr_shrinks, meter.isr_expands, meter.unclean_elections) == (1, 1, 1)
    assert len(recorded.events) == 4
    assert recorded.warnings == ["careful"]


def test_each_element_of_a_response_has_an_error_code_or_none():
    assert error_codes(HeartbeatResponse(error_code=25)) == [25]
    assert error_codes(HeartbeatResponse()) == [0]
    partitions = [MetadataResponsePartition(error_code=5)]
    topics = [
        MetadataResponseTopic(name=str(n), error_code=3 * (n % 2), partitions=partitions)
        for n in range(10)
    ]
    assert sorted(error_codes(MetadataResponse(topics=topics))) == [0] * 5 + [3] * 5


def test_a_response_that_reports_on_its_elements_has_a_code_only_if_it_fails_as_a_whole():
    assert error_codes(FetchResponse(error_code=0)) == []
    assert error_codes(FetchResponse(error_code=70)) == [70]


def test_a_response_of_any_size_costs_a_bounded_search():
    topics = [MetadataResponseTopic(name="a", error_code=3) for _ in range(3 * ERRORS_SEARCHED_MAX)]
    assert len(error_codes(MetadataResponse(topics=topics))) == ERRORS_SEARCHED_MAX


def test_every_request_of_a_fast_path_is_counted_and_one_in_a_few_is_timed(meter, now):
    clock_reads = []

    def path(_frame, _send, _context):
        now.seconds += 0.002
        return True

    meter.seconds = lambda: clock_reads.append(0) or now.seconds
    answer = meter.fast_path(ApiKey.PRODUCE, path)
    for _ in range(3 * TIMED_EVERY):
        assert answer(FRAME, None, None)
    histogram = meter.requests[ApiKey.PRODUCE][VERSION]
    assert histogram.count == 3 * TIMED_EVERY
    assert histogram.total == pytest.approx(0.002 * 3 * TIMED_EVERY)
    assert len(clock_reads) == 3 * 2
    assert meter.error_counts() == {(ApiKey.PRODUCE, 0): 3 * TIMED_EVERY}


def test_requests_of_several_versions_are_counted_at_any_moment(meter, now):
    def path(_frame, _send, _context):
        now.seconds += 0.002
        return True

    answer = meter.fast_path(ApiKey.PRODUCE, path)
    expected = {}
    for number in range(5 * TIMED_EVERY):
        version = 8 if number % 3 else 7
        answer(bytes((0, 0, 0, version)), None, None)
        expected[version] = expected.get(version, 0) + 1
        by_version = meter.requests[ApiKey.PRODUCE]
        found = {at: it.count for at, it in enumerate(by_version) if it is not None}
        assert found == expected
    assert sum(it.total for it in by_version if it is not None) == pytest.approx(
        0.002 * 5 * TIMED_EVERY
    )


def test_a_request_that_its_fast_path_leaves_is_not_counted_there(meter):
    answer = meter.fast_path(ApiKey.PRODUCE, lambda *_: False)
    assert not answer(FRAME, None, None)
    assert meter.requests[ApiKey.PRODUCE][VERSION] is None


def test_turns_are_counted_whether_they_are_observed_or_not():
    """A turn of at most the first bound is only counted by the loop."""
    watchdog = LoopWatchdog(SimpleNamespace(monotonic_ms=lambda: 0))
    times = TurnTimes()

    def turn(seconds):
        watchdog.turns += 1
        watchdog.busy_seconds += seconds
        if seconds > watchdog.noted_seconds:
            watchdog.turn_ended(seconds, ())

    turn(0.5)
    assert sum(times.value().counts) == 0
    times.start(watchdog)
    for seconds in (0.00002, 0.0001, 0.0002, 0.03):
        turn(seconds)
    value = times.value()
    expected = Histogram()
    for seconds in (0.00002, 0.0001, 0.0002, 0.03):
        expected.observe(seconds)
    assert value.counts == expected.value().counts
    assert value.total == pytest.approx(expected.total)
    times.stop()
    assert watchdog.noted_seconds == TURN_MS_MAX / 1000


def request(api_key, version, throttle_ms=0, **body):
    return SimpleNamespace(
        api_key=api_key, api_version=version, throttle_ms=throttle_ms, body=SimpleNamespace(**body)
    )


def pass_through(meter, whole, *, local_s=(), remote_s=0.0, response=None):
    """Let a request pass on a clock of its own; its handler is called for each of `local_s`."""
    now = [0.0]
    times = RequestTimes(lambda: round(now[0] * 1e9), (meter,))

    def work(seconds):
        now[0] += seconds

    handle = times.timed(work)
    for seconds in local_s:
        handle(seconds)
    now[0] += remote_s
    times.answered(whole, response)
    times.posted()
    times.sent(whole)
    times.sent(whole)


def test_a_request_in_slices_is_one_request(meter):
    whole = request(ApiKey.HEARTBEAT, 2)
    response = HeartbeatResponse(error_code=int(ErrorCode.ILLEGAL_GENERATION))
    pass_through(meter, whole, local_s=(0.1, 0.1, 0.1), remote_s=0.5, response=response)
    histogram = meter.requests[ApiKey.HEARTBEAT][2]
    assert histogram.count == 1
    assert histogram.total == pytest.approx(0.8)
    assert meter.parts["Heartbeat"].local.total == pytest.approx(0.3)
    assert meter.error_counts() == {(ApiKey.HEARTBEAT, 22): 1, (ApiKey.HEARTBEAT, 0): 0}


def samples(meter):
    """(name without its prefix, labels) -> sum and count of a summary, or value."""
    found = {}
    for sample in request_samples(meter, 0):
        value = sample.value
        if isinstance(value, SummaryValue):
            value = (round(value.total), value.observed)
        found[sample.family.name.removeprefix("kafka_network_requestmetrics_"), sample.labels] = (
            value
        )
    return found


def test_fetch_is_counted_as_a_whole_and_by_who_sends_it(meter):
    consumer = request(ApiKey.FETCH, 11, throttle_ms=40, replica_id=-1)
    pass_through(meter, consumer, local_s=(0.002,), remote_s=0.5)
    for _ in range(2):
        pass_through(meter, request(ApiKey.FETCH, 12, replica_id=3), local_s=(0.004,))
    found = samples(meter)
    counts = {
        labels: value for (name, labels), value in found.items() if name.endswith("requests_total")
    }
    assert counts == {
        ("Fetch", "11"): 1,
        ("Fetch", "12"): 2,
        ("FetchConsumer", "11"): 1,
        ("FetchFollower", "12"): 2,
    }
    # Milliseconds.
    for part, consumers, followers in (
        ("totaltimems", 502, 8), ("localtimems", 2, 8), ("remotetimems", 500, 0),
        ("throttletimems", 40, 0), ("requestqueuetimems", 0, 0), ("responsesendtimems", 0, 0),
    ):  # fmt: skip
        assert found[part, ("FetchConsumer",)] == (consumers, 1), part
        assert found[part, ("FetchFollower",)] == (followers, 2), part
        assert found[part, ("Fetch",)] == (consumers + followers, 3), part


def test_the_time_of_a_fast_path_is_local(meter, now):
    def path(_frame, _send, _context):
        now.seconds += 0.002
        return True

    answer = meter.fast_path(ApiKey.PRODUCE, path)
    for _ in range(5):
        answer(FRAME, None, None)
    pass_through(meter, request(ApiKey.PRODUCE, VERSION), local_s=(0.03,), remote_s=0.7)
    found = samples(meter)
    assert found["totaltimems", ("Produce",)] == (740, 6)
    assert found["localtimems", ("Produce",)] == (40, 6)
    assert found["remotetimems", ("Produce",)] == (700, 6)
    assert found["responsequeuetimems", ("Produce",)] == (0, 6)


def ready_services():
    cache = SimpleNamespace(controller_id=1, is_broker_alive=lambda _: True)
    logs = SimpleNamespace(live_log_dirs=["/data"])
    return SimpleNamespace(metadata_cache=cache, broker_id=1, log_manager=logs)


def test_a_broker_is_ready_between_its_start_and_its_stop():
    readiness = Readiness()
    readyz = health_pages(readiness.reasons)["/readyz"]

    def page():
        return at_once(readyz(PageRequest("/readyz", {}, "")))

    assert page().status == 503
    assert json.loads(page().body[0])["reasons"] == ["the broker is starting"]
    readiness.services, readiness.is_running = ready_services(), True
    assert page().status == 200
    readiness.is_stopping = True
    assert readiness.reasons() == ["the broker is stopping"]


def test_a_broker_that_cannot_serve_says_why():
    readiness = Readiness()
    readiness.services, readiness.is_running = ready_services(), True
    readiness.session = SessionState.SUSPENDED
    readiness.services.metadata_cache.controller_id = None
    readiness.services.metadata_cache.is_broker_alive = lambda _: False
    readiness.services.log_manager.live_log_dirs = []
    assert readiness.reasons() == [
        "the session with the metadata store is suspended",
        "no controller is known",
        "the controller does not know this broker",
        "all log directories have failed",
    ]


def test_the_search_of_errors_looks_into_nested_and_null_arrays():
    first = [FetchablePartitionResponse(partition=n, error_code=n % 2) for n in range(3)]
    topics = [FetchableTopicResponse(partition_responses=it) for it in (first, [], first[:1])]
    assert error_codes(FetchResponse(responses=topics)) == [0, 1, 0, 0]
    codes = {it.response_class: error_codes(it.response_class()) for it in ApiKey}
    assert {tuple(it) for it in codes.values()} == {(), (0,)}
    assert codes[DescribeClientQuotasResponse] == [0]


def filled(cls, size):
    """A struct whose arrays of structs have `size` elements each, or are null."""
    arrays = {}
    for field in cls.fields:
        if field.kind == "array" and isinstance(field.element, type):
            elements = [filled(field.element, size) for _ in range(size)]
            arrays[field.name] = elements if size or field.nullable is None else None
    return cls(**arrays)


def structs(struct):
    """The struct, and all in its arrays."""
    yield struct
    for field in type(struct).fields:
        if field.kind == "array" and isinstance(field.element, type):
            for element in getattr(struct, field.name) or ():
                yield from structs(element)


def test_a_count_of_successes_is_that_of_the_codes_that_a_search_finds():
    for api in ApiKey:
        cls = api.response_class
        count = success_counter(cls)
        for response in (filled(cls, size) for size in range(3)):
            assert count(response) == len(error_codes(response)), api
            for struct in structs(response):
                if not hasattr(struct, "error_code"):
                    continue
                struct.error_code = 7
                codes = error_codes(response)
                assert count(response) == (SEARCH if any(codes) else len(codes)), api
                struct.error_code = 0
    topics = [MetadataResponseTopic(name="a") for _ in range(ERRORS_SEARCHED_MAX + 1)]
    assert success_counter(MetadataResponse)(MetadataResponse(topics=topics)) == SEARCH


def test_many_requests_are_counted_together_as_they_are_one_by_one(meter):
    # More than are kept, of two versions, each with a time of its own.
    durations = [number * 0.00001 for number in range(2 * PENDING_MAX + 3)]
    expected = {2: Histogram(), 3: Histogram()}
    for number, seconds in enumerate(durations):
        version = 2 + number % 2
        expected[version].observe(seconds)
        pass_through(meter, request(ApiKey.HEARTBEAT, version), local_s=(seconds,))
    found = meter.requests[ApiKey.HEARTBEAT]
    parts = meter.parts["Heartbeat"]
    for version, histogram in expected.items():
        assert found[version].counts == histogram.counts
        assert found[version].total == pytest.approx(histogram.total)
        assert parts.versions[version] == histogram.count
    both = joined(list(expected.values()))
    assert tuple(parts.local.counts) == tuple(both.counts)
    assert parts.local.total == pytest.approx(both.total)
    assert parts.remote.counts[0] == len(durations)


def test_requests_between_the_parts_of_a_page_are_in_the_totals_and_in_the_parts(meter):
    page = request_samples(meter, 0)
    pass_through(meter, request(ApiKey.HEARTBEAT, 2), local_s=(0.1,))
    first = next(page)
    pass_through(meter, request(ApiKey.HEARTBEAT, 2), local_s=(0.1,))
    found = {it.family.name: it.value for it in (first, *page)}
    total = found["kafka_network_requestmetrics_totaltimems"]
    local = found["kafka_network_requestmetrics_localtimems"]
    assert total.observed == local.observed == 2
    assert local.total == pytest.approx(200)
