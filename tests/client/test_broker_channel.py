"""BrokerChannel against a ScriptedBroker over loopback."""

import struct

import pytest

from kctl.client import broker_channel
from kctl.client.broker_channel import BrokerChannel, ChannelState
from kctl.errors import CorruptDataError, TimedOutError, UnreachableError, UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.list_groups import ListGroupsRequest
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.testing.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.support.raw_requests import produce_request

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.fixture
def broker(loop):
    broker = ScriptedBroker(loop.runtime).start()
    yield broker
    broker.stop()


def open_channel(loop, broker, **options):
    channel = BrokerChannel(loop.runtime, broker.host, broker.port, **options)
    loop.run(channel.connect())
    return channel


def old_broker(loop, api_versions=0):
    """Return roughly the versions of Apache Kafka 0.10.0."""
    return ScriptedBroker(
        loop.runtime,
        versions={
            ApiKey.API_VERSIONS: (0, api_versions),
            ApiKey.METADATA: (0, 1),
            ApiKey.HEARTBEAT: (0, 0),
        },
    ).start()


def test_the_newest_common_version_is_used(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=27))
    channel = open_channel(loop, broker)
    assert loop.run(channel.send(HEARTBEAT)).error_code == 27
    (request,) = broker.requests(ApiKey.HEARTBEAT)
    assert request.api_version == ApiKey.HEARTBEAT.max_version
    assert request.body == HEARTBEAT
    assert request.client_id == "kctl"


def test_the_broker_receives_the_client_id(loop, broker):
    open_channel(loop, broker, client_id="me")
    (request,) = broker.requests(ApiKey.API_VERSIONS)
    assert request.api_version == 3
    assert request.client_id == "me"
    assert request.body.client_software_name == "kctl"


@pytest.mark.parametrize("newest", [0, 2])
def test_an_old_broker_is_asked_again_in_a_version_it_has(loop, newest):
    broker = old_broker(loop, newest)
    channel = open_channel(loop, broker)
    assert [it.api_version for it in broker.requests(ApiKey.API_VERSIONS)] == [3, newest]
    assert channel.version_of(ApiKey.METADATA) == 1
    assert channel.has_api(ApiKey.HEARTBEAT)
    assert not channel.has_api(ApiKey.HEARTBEAT, 1)
    broker.stop()


def test_an_api_the_broker_lacks_is_a_clear_error(loop):
    broker = old_broker(loop)
    channel = open_channel(loop, broker)
    with pytest.raises(ApiError, match="does not know ListGroups") as caught:
        loop.run(channel.send(ListGroupsRequest()))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert not channel.has_api(ApiKey.LIST_GROUPS)
    broker.stop()


def test_requests_are_pipelined_and_answered_in_order(loop, broker):
    broker.answer(
        ApiKey.HEARTBEAT,
        *[HeartbeatResponse(throttle_time_ms=number) for number in range(10)],
    )
    channel = open_channel(loop, broker)
    futures = [channel.request(HEARTBEAT) for _ in range(10)]
    assert channel.in_flight == 10
    assert [loop.wait(future).throttle_time_ms for future in futures] == list(range(10))
    assert channel.in_flight == 0


def wide_response(count):
    answers = [
        FetchablePartitionResponse(partition=number, record_set=b"x" * 20)
        for number in range(count)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partition_responses=answers)])


def decoding_watched(monkeypatch):
    """Return the list to which the parts of all messages that are decoded in turns are added."""
    parts = []

    def decoding(*arguments):
        work = original(*arguments)
        while True:
            try:
                next(work)
            except StopIteration as stop:
                return stop.value
            parts.append(None)
            yield

    original = broker_channel.decoding
    monkeypatch.setattr(broker_channel, "decoding", decoding)
    return parts


def test_a_large_response_is_decoded_in_turns(loop, broker, monkeypatch):
    parts = decoding_watched(monkeypatch)
    response = wide_response(5_000)
    broker.answer(ApiKey.FETCH, response, wide_response(3))
    channel = open_channel(loop, broker)
    assert loop.run(channel.send_in_turns(FetchRequest())) == response
    assert len(parts) >= 4
    parts.clear()
    assert loop.run(channel.send_in_turns(FetchRequest())) == wide_response(3)
    assert parts == []


def test_a_large_response_that_cannot_be_decoded_closes_the_channel(loop, broker, monkeypatch):
    def decoding(*_arguments):
        yield
        raise CorruptDataError("a response")

    monkeypatch.setattr(broker_channel, "decoding", decoding)
    broker.answer(ApiKey.FETCH, wide_response(5_000))
    channel = open_channel(loop, broker)
    with pytest.raises(UnreachableError, match="does not speak Kafka's protocol"):
        loop.run(channel.send_in_turns(FetchRequest()))
    assert channel.state is ChannelState.CLOSED


def test_a_version_can_be_required(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    channel = open_channel(loop, broker)
    loop.run(channel.send(HEARTBEAT, version=1))
    assert broker.requests(ApiKey.HEARTBEAT)[0].api_version == 1


def test_a_produce_without_acks_is_done_when_it_is_sent(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=1))
    broker.answer(ApiKey.PRODUCE, lambda request: SILENCE)
    channel = open_channel(loop, broker)
    assert channel.request(produce_request(b"abc", acks=0)).result() is None
    assert channel.in_flight == 0
    loop.until(lambda: broker.requests(ApiKey.PRODUCE))


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
def test_answers_of_any_size_arrive(loop, broker, size):
    data = bytes(range(250)) * (size // 250)
    partition = FetchablePartitionResponse(record_set=data)
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partition_responses=[partition])]
    )
    broker.answer(ApiKey.FETCH, response)
    channel = open_channel(loop, broker)
    first = loop.run(channel.send(FetchRequest()))
    second = loop.run(channel.send(FetchRequest()))
    for answer in (first, second):
        assert bytes(answer.responses[0].partition_responses[0].record_set) == data


def test_a_late_response_closes_the_channel_and_fails_later_requests(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, SILENCE)
    channel = open_channel(loop, broker)
    behind = channel.request(MetadataRequest(topics=[]))
    late = channel.request(HEARTBEAT, timeout_ms=1)
    with pytest.raises(TimedOutError, match=f"{broker.port} did not answer Heartbeat in time"):
        loop.wait(late)
    assert channel.state is ChannelState.CLOSED
    assert behind.done


def test_a_shorter_deadline_after_a_longer_one_is_kept(loop, broker):
    broker.answer(ApiKey.METADATA, SILENCE)
    channel = open_channel(loop, broker)
    channel.request(MetadataRequest(topics=[]), timeout_ms=1_000_000)
    with pytest.raises(TimedOutError, match="Heartbeat"):
        loop.wait(channel.request(HEARTBEAT, timeout_ms=1))


def test_a_lost_connection_fails_requests_in_flight(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, SILENCE)
    channel = open_channel(loop, broker)
    closed = []
    channel.when_closed(closed.append)
    future = channel.request(HEARTBEAT)
    loop.until(lambda: broker.requests(ApiKey.HEARTBEAT))
    broker.drop_connections()
    with pytest.raises(UnreachableError, match=f"lost the connection to 127.0.0.1:{broker.port}"):
        loop.wait(future)
    assert closed == [channel]
    with pytest.raises(UnreachableError):
        loop.run(channel.send(HEARTBEAT))


def test_a_broker_that_hangs_up_on_the_handshake_is_unreachable(loop, broker):
    broker.answer(ApiKey.API_VERSIONS, HANG_UP)
    with pytest.raises(UnreachableError, match="lost the connection"):
        open_channel(loop, broker)


def test_a_broker_that_is_silent_in_the_handshake_times_out(loop, broker):
    broker.answer(ApiKey.API_VERSIONS, SILENCE)
    channel = BrokerChannel(loop.runtime, broker.host, broker.port)
    with pytest.raises(TimedOutError, match="did not answer ApiVersions"):
        loop.run(channel.connect(timeout_ms=20))
    assert channel.state is ChannelState.CLOSED


def test_a_broker_that_is_lost_right_after_its_last_response_is_unreachable(loop, broker):
    """Found by simulation: a process that was suspended sees both events in one turn of the
    loop."""

    class LostAtOnce(BrokerChannel):
        def buffer_updated(self, count):
            super().buffer_updated(count)
            self.connection_lost(None)

    channel = LostAtOnce(loop.runtime, broker.host, broker.port)
    with pytest.raises(UnreachableError, match="closed by the peer"):
        loop.run(channel.connect())
    assert channel.state is ChannelState.CLOSED


def test_a_refused_connection_is_unreachable(loop, broker):
    broker.stop()
    with pytest.raises(UnreachableError, match="refused"):
        open_channel(loop, broker)


class Babbler:
    """A server that answers anything with fixed bytes."""

    def __init__(self, transport, answer):
        self.transport = transport
        self.answer = answer
        self.buffer = memoryview(bytearray(1000))

    def get_buffer(self):
        return self.buffer

    def buffer_updated(self, _count):
        self.transport.send([self.answer])

    def connection_lost(self, _error):
        pass


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">ii", 4, 77),
        struct.pack(">i", 2) + b"ab",
        struct.pack(">iih", 6, 0, 0),
        struct.pack(">i", -5),
    ],
)
def test_a_server_of_another_protocol_is_reported(loop, answer):
    listener = loop.runtime.network.listen(
        "127.0.0.1", 0, lambda transport: Babbler(transport, answer)
    )
    channel = BrokerChannel(loop.runtime, "127.0.0.1", listener.port)
    with pytest.raises(UnreachableError, match="does not speak Kafka's protocol"):
        loop.run(channel.connect())
    listener.close()


@pytest.mark.parametrize(
    ("answer", "protocol"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        # An alert of TLS 1.2: unexpected_message.
        (b"\x15\x03\x03\x00\x02\x02\x0a", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ],
)
def test_a_port_that_speaks_another_protocol_is_named(loop, answer, protocol):
    listener = loop.runtime.network.listen(
        "127.0.0.1", 0, lambda transport: Babbler(transport, answer)
    )
    channel = BrokerChannel(loop.runtime, "127.0.0.1", listener.port)
    with pytest.raises(UnreachableError, match=f"speaks {protocol}, not Kafka") as refused:
        loop.run(channel.connect())
    assert "listener" in refused.value.hint
    listener.close()


def test_closing_fails_requests_in_flight(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, SILENCE)
    channel = open_channel(loop, broker)
    future = channel.request(HEARTBEAT)
    channel.close()
    channel.close()
    with pytest.raises(UnreachableError, match="was closed"):
        loop.wait(future)


def test_requests_in_flight_are_bounded(loop, broker):
    broker.answer(ApiKey.HEARTBEAT, SILENCE)
    channel = open_channel(loop, broker, in_flight_max=2)
    channel.request(HEARTBEAT)
    channel.request(HEARTBEAT)
    with pytest.raises(UsageError, match="2 requests"):
        channel.request(HEARTBEAT)


def test_nothing_can_be_sent_before_connect(loop, broker):
    channel = BrokerChannel(loop.runtime, broker.host, broker.port)
    with pytest.raises(UnreachableError, match="not connected"):
        loop.run(channel.send(HEARTBEAT))
