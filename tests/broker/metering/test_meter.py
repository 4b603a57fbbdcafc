"""What a meter counts of events and responses, and when a broker is ready."""

import json
from types import SimpleNamespace

import pytest

from kctl.broker.metering import meter as meter_module
from kctl.broker.metering.health import Readiness
from kctl.broker.metering.meter import (
    ERRORS_SEARCHED_MAX,
    TIMED_EVERY,
    BrokerMeter,
    MeteredTrace,
    error_codes,
)
from kctl.metrics.http_server import PageRequest
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
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


def test_error_codes_are_found_at_any_depth_of_a_response():
    assert error_codes(HeartbeatResponse(error_code=25)) == [25]
    assert error_codes(HeartbeatResponse()) == []
    topics = [MetadataResponseTopic(name=str(n), error_code=3 * (n % 2)) for n in range(10)]
    assert error_codes(MetadataResponse(topics=topics)) == [3] * 5


def test_a_response_of_any_size_costs_a_bounded_search():
    topics = [MetadataResponseTopic(name="a", error_code=3) for _ in range(3 * ERRORS_SEARCHED_MAX)]
    assert len(error_codes(MetadataResponse(topics=topics))) < ERRORS_SEARCHED_MAX


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


def test_a_request_that_its_fast_path_leaves_is_not_counted_there(meter):
    answer = meter.fast_path(ApiKey.PRODUCE, lambda *_: False)
    assert not answer(FRAME, None, None)
    assert meter.requests[ApiKey.PRODUCE][VERSION] is None


def test_a_request_in_slices_is_one_request(meter, now):
    sent = []
    whole = SimpleNamespace(send=sent.append, api_key=ApiKey.HEARTBEAT, api_version=2, whole=None)
    handle = meter.on_request(lambda _request: None)
    for _ in range(3):
        handle(SimpleNamespace(whole=whole))
    now.seconds = 0.3
    whole.send(HeartbeatResponse(error_code=int(ErrorCode.ILLEGAL_GENERATION)))
    histogram = meter.requests[ApiKey.HEARTBEAT][2]
    assert histogram.count == 1
    assert histogram.total == pytest.approx(0.3)
    assert len(sent) == 1
    assert meter.error_counts() == {(ApiKey.HEARTBEAT, 22): 1, (ApiKey.HEARTBEAT, 0): 0}


def ready_services():
    cache = SimpleNamespace(controller_id=1, is_broker_alive=lambda _: True)
    logs = SimpleNamespace(live_log_dirs=["/data"])
    return SimpleNamespace(metadata_cache=cache, broker_id=1, log_manager=logs)


def test_a_broker_is_ready_between_its_start_and_its_stop():
    readiness = Readiness()

    def page():
        return at_once(readiness.readyz(PageRequest("/readyz", {}, "")))

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


def test_what_the_search_of_errors_knows_of_a_class_is_kept():
    error_codes(HeartbeatResponse())
    assert meter_module._plans[HeartbeatResponse] == ("error_code", ())
