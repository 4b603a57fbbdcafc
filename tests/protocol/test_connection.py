"""Connections: both sides of one conversation, wired together without a network."""

import random  # noqa: TID251 - only ever seeded

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode_at, encode
from kctl.protocol.connection import BrokerConnection, ClientConnection, read_request
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.framing import BufferPool
from kctl.protocol.headers import RequestHeader, ResponseHeader
from kctl.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.protocol.instances import Instances, all_messages
from tests.protocol.mutations import mutate


def deliver(parts, connection):
    """Deliver `parts` to the other side and return the events that they cause."""
    data = b"".join(parts)
    events = []
    while data:
        buffer = connection.get_buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        connection.buffer_updated(count)
        while (event := connection.next_event()) is not None:
            events.append(event)
        connection.release()
    return events


class ConnectionPair:
    """A client and a broker, connected in memory."""

    def __init__(self, client_id="someone"):
        self.client = ClientConnection(client_id)
        self.broker = BrokerConnection(pool=BufferPool())

    def ask(self, request, version):
        _, parts = self.client.send_request(request, version)
        (event,) = deliver(parts, self.broker)
        return event

    def answer(self, event, response):
        (answer,) = deliver(self.broker.send_response(event, response), self.client)
        return answer


def raw(api_key, version, rest=b"", client_id=b"\x00\x01c"):
    header = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    body = header + (5).to_bytes(4, "big") + client_id + rest
    return [len(body).to_bytes(4, "big") + body]


def test_every_api_and_version_crosses_both_ways():
    pair = ConnectionPair()
    instances = Instances(seed=1)
    for api, cls, version in all_messages():
        if cls is not api.request_class:
            continue
        request = instances.message(cls, version)
        event = pair.ask(request, version)
        assert (event.api_key, event.api_version) == (api, version)
        assert event.client_id == (None if (api, version) == (7, 0) else "someone")
        assert event.body == request
        response = instances.message(api.response_class, version)
        if api is ApiKey.API_VERSIONS:
            response.error_code = 0
        answer = pair.answer(event, response)
        assert (answer.api_key, answer.api_version) == (api, version)
        assert answer.correlation_id == event.correlation_id
        assert answer.body == response


@pytest.mark.parametrize("client_id", ["", None, "żółw", "x" * 300])
def test_headers_read_by_hand_are_those_of_the_schema(client_id):
    for version, header_version in ((3, 1), (4, 2)):
        _, parts = ClientConnection(client_id).send_request(HeartbeatRequest(), version)
        frame = b"".join(parts)[4:]
        header, position = decode_at(RequestHeader, header_version, frame)
        assert header == RequestHeader(
            request_api_key=12, request_api_version=version, client_id=client_id
        )
        assert frame[position:] == b"".join(encode(HeartbeatRequest(), version))
        broker = BrokerConnection()
        (event,) = deliver(parts, broker)
        assert event.client_id == client_id
        parts = broker.send_response(event, HeartbeatResponse())
        header, position = decode_at(ResponseHeader, header_version - 1, b"".join(parts)[4:])
        assert header.correlation_id == event.correlation_id


def test_unknown_tags_in_headers_are_skipped():
    tagged = b"\x02\x01\x00\x07\x03abc"
    body = b"".join(encode(HeartbeatRequest(group_id="g"), 4))
    (event,) = deliver(raw(12, 4, tagged + body), BrokerConnection())
    assert event.body.group_id == "g"


def test_correlation_ids_count_up_and_answers_come_in_order():
    pair = ConnectionPair()
    requests = [pair.client.send_request(MetadataRequest(), 1)[1] for _ in range(3)]
    assert pair.client.unanswered == 3
    for number, parts in enumerate(requests):
        (event,) = deliver(parts, pair.broker)
        assert event.correlation_id == number
        pair.answer(event, MetadataResponse())
    assert pair.client.unanswered == 0


def test_an_answer_out_of_turn_is_corrupt():
    pair = ConnectionPair()
    first = pair.ask(MetadataRequest(), 1)
    pair.client.send_request(MetadataRequest(), 1)
    first.correlation_id = 1
    with pytest.raises(CorruptDataError, match="response 1 came where 0 was due"):
        pair.answer(first, MetadataResponse())


def test_a_response_without_a_request_is_corrupt():
    pair = ConnectionPair()
    event = pair.ask(MetadataRequest(), 1)
    parts = pair.broker.send_response(event, MetadataResponse())
    deliver(parts, pair.client)
    with pytest.raises(CorruptDataError, match="to no request"):
        deliver(parts, pair.client)
    with pytest.raises(CorruptDataError, match="without a correlation id"):
        deliver([b"\0\0\0\2ab"], ClientConnection("c"))


def test_a_produce_without_acks_waits_for_no_answer():
    pair = ConnectionPair()
    _, parts = pair.client.send_request(ProduceRequest(acks=0), 8, is_answered=False)
    assert len(deliver(parts, pair.broker)) == 1
    pair.broker.end_request()
    assert pair.client.unanswered == 0
    pair.answer(pair.ask(MetadataRequest(), 1), MetadataResponse())


def test_record_data_of_a_large_request_are_views_of_its_buffer():
    pair = ConnectionPair()
    records = bytes(range(256)) * 1_000
    topic = TopicProduceData(partitions=[PartitionProduceData(records=records)])
    event = pair.ask(ProduceRequest(topics=[topic]), 8)
    received = event.body.topics[0].partitions[0].records
    assert isinstance(received, memoryview)
    assert len(received) == len(records)
    assert event.size == 256_000 + 17 + 26


def test_record_data_are_sent_as_the_same_object():
    class FileSlice:
        def __len__(self):
            return 1_000_000

    records = FileSlice()
    topic = TopicProduceData(partitions=[PartitionProduceData(records=records)])
    _, parts = ClientConnection("c").send_request(ProduceRequest(topics=[topic]), 8)
    assert parts[1] is records
    assert parts[0][:4] == (len(parts[0]) - 4 + 1_000_000).to_bytes(4, "big")


def test_api_versions_of_an_unknown_version_is_answered_in_version_0():
    """KIP-511: the client cannot know what the broker speaks before it has asked."""
    broker = BrokerConnection()
    (event,) = deliver(raw(18, 99, b"\x00whatever"), broker)
    assert (event.api_key, event.api_version) == (ApiKey.API_VERSIONS, 99)
    assert event.body == ApiVersionsRequest()
    key = ApiVersionsResponseKey(api_key=18, max_version=3)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[key])
    frame = b"".join(broker.send_response(event, response))
    assert frame == (
        b"\0\0\0\x10" + b"\0\0\0\5" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12" + b"\0\0" + b"\0\3"
    )


def test_a_client_that_asked_too_much_reads_the_answer_in_version_0():
    pair = ConnectionPair()
    event = pair.ask(ApiVersionsRequest(client_software_name="kctl"), 3)
    event.api_version = 99  # as an old broker would see it
    key = ApiVersionsResponseKey(api_key=18, max_version=2)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[key])
    answer = pair.answer(event, response)
    assert answer.api_version == 0
    assert answer.body == response


@pytest.mark.parametrize(
    "frame",
    [
        raw(52, 0),
        raw(-1, 0),
        raw(1_000, 0),
        raw(3, 10),
        raw(3, -1),
        [b"\0\0\0\0"],
        [b"\0\0\0\5\0\3\0\1\0"],
        raw(3, 1, client_id=b"\x00\x09c"),
        raw(3, 9, client_id=b"\x00\x01c"),
        raw(3, 9, b"\xff\xff\xff\xff\xff\xff"),
        raw(3, 9, b"\x01\x05"),
        raw(3, 1, b"\x7f\xff\xff\xff"),
    ],
    ids=[
        "raft API", "negative API", "API of a newer Kafka", "version too new", "negative version",
        "empty frame", "header cut", "client id cut", "header tags missing", "endless varint",
        "header tag cut", "absurd array",
    ],
)  # fmt: skip
def test_a_request_that_kafka_answers_by_closing_is_corrupt(frame):
    with pytest.raises(CorruptDataError):
        deliver(frame, BrokerConnection())


def test_broken_requests_are_read_or_corrupt_and_nothing_else():
    rng = random.Random(18)
    client = ClientConnection("client")
    requests = [case for case in all_messages() if case[1] is case[0].request_class]
    frames = []
    for _, cls, version in requests:
        _, parts = client.send_request(Instances(version).message(cls, version), version)
        frames.append(b"".join(parts)[4:])
    refused = 0
    for _ in range(20_000):
        try:
            read_request(mutate(rng.choice(frames), rng))
        except CorruptDataError:
            refused += 1
    assert 0 < refused < 20_000


def test_broken_responses_are_read_or_corrupt_and_nothing_else():
    rng = random.Random(19)
    responses = [case for case in all_messages() if case[1] is case[0].response_class]
    refused = 0
    for api, cls, version in responses:
        pair = ConnectionPair()
        event = pair.ask(api.request_class(), version)
        parts = pair.broker.send_response(event, Instances(version).message(cls, version))
        frame = b"".join(parts)[4:]
        for _ in range(30):
            client = ClientConnection("client")
            client.send_request(api.request_class(), version)
            broken = mutate(frame, rng)
            try:
                deliver([len(broken).to_bytes(4, "big"), broken], client)
            except CorruptDataError:
                refused += 1
    assert 0 < refused < 30 * len(responses)


def test_what_follows_a_request_inside_its_frame_is_ignored():
    (event,) = deliver(raw(3, 0, b"\0\0\0\0 and more"), BrokerConnection())
    assert event.body == MetadataRequest()


def test_controlled_shutdown_v0_has_no_client_id():
    _, parts = ClientConnection("c").send_request(ControlledShutdownRequest(broker_id=3), 0)
    assert b"".join(parts) == b"\0\0\0\x0c" + b"\0\7\0\0" + b"\0\0\0\0" + b"\0\0\0\3"


def test_several_requests_of_one_chunk_come_one_by_one():
    broker = BrokerConnection(pool=BufferPool())
    client = ClientConnection("c")
    frames = [b"".join(client.send_request(MetadataRequest(), 1)[1]) for _ in range(50)]
    events = deliver(frames, broker)
    while len(events) < len(frames):
        assert broker.next_event() is None, "the request before it is in flight"
        broker.end_request()
        events.append(broker.next_event())
    assert [event.correlation_id for event in events] == list(range(50))


def test_only_requests_are_sent():
    with pytest.raises(ValueError, match="RequestHeader is not a request"):
        ClientConnection("c").send_request(RequestHeader(), 1)


def test_a_request_that_cannot_be_encoded_uses_no_correlation_id():
    pair = ConnectionPair()
    with pytest.raises(Exception, match="not 99"):
        pair.client.send_request(MetadataRequest(), 99)
    assert pair.client.unanswered == 0
    assert pair.ask(MetadataRequest(), 1).correlation_id == 0


def test_responses_are_produced_in_the_version_of_the_request():
    pair = ConnectionPair()
    event = pair.ask(ProduceRequest(), 0)
    assert pair.answer(event, ProduceResponse(throttle_time_ms=7)).body == ProduceResponse()
