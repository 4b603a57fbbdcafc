"""SimpleConsumer on the wire of Kafka 0.7, and what Apache Kafka 0.7's own client sent."""

import asyncio
import struct
import threading

import pytest

from kctl.errors import CorruptDataError, TimedOutError, UnreachableError, UsageError
from kctl.kafka import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchRequest,
    MessageTooLargeError,
    SimpleConsumer,
    TopicPartition,
    aio,
)
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.kafka07 import (
    SIZE_BYTES,
    OffsetsRequest,
    decode_fetch_answer,
    decode_multifetch_answer,
    decode_offsets_answer,
    decode_request,
    encode_header,
    encode_offsets_answer,
)
from kctl.protocol.kafka07 import FetchRequest as Fetch07
from kctl.records.compression import GZIP
from kctl.records.message07 import (
    CutMessageError,
    compressed_set,
    encode_entry,
    message_set,
    messages,
)
from tests.kafka.scripted_peer07 import CLOSE, SILENCE, ScriptedPeer07
from tests.support.golden07 import golden07_json


@pytest.fixture
def peer():
    peers = []

    def start(answer):
        peers.append(ScriptedPeer07(answer))
        return peers[-1]

    yield start
    for it in peers:
        it.close()


@pytest.fixture
def consumer_of():
    consumers = []

    def make(peer, **options):
        consumers.append(SimpleConsumer(*peer.address, kafka_07=True, **options))
        return consumers[-1]

    yield make
    for it in consumers:
        it.close()


def serve(log):
    """Return an answer to fetches from the bytes of one log."""

    def answer(frame):
        request = decode_request(frame[4:])
        data = log[request.offset : request.offset + request.bytes_max]
        return encode_header(0, len(data)) + data

    return answer


def java_conversation():
    """Requests of Apache Kafka 0.7's SimpleConsumer, and the answers of its server."""
    connections = golden07_json("clients.json")["connections"]
    (steps,) = [it for it in connections if len(it) > 3]
    frames = [bytes.fromhex(frame) for step in steps for frame in step.get("frames", [])]
    return dict(zip(frames[::2], frames[1::2], strict=True))


def test_a_conversation_equals_that_of_the_java_client(peer, consumer_of):
    golden = java_conversation()
    server = peer(golden.__getitem__)
    consumer = consumer_of(server)
    topic = "talk3"
    found = consumer.fetch(FetchRequest(topic, 0, 0, 1000))
    messages = [(it.message, it.offset, it.next_offset) for it in found]
    assert messages == [(b"explicit partition", 0, 28)]
    asked = [FetchRequest(topic, 0, 0, 1000), FetchRequest(topic, 0, 28, 1000),
             FetchRequest(topic, 0, 9999, 1000)]  # fmt: skip
    first, second, third = consumer.multifetch(asked)
    assert [it.message for it in first] == [b"explicit partition"]
    assert (list(second), second.next_offset) == ([], 28)
    with pytest.raises(ApiError) as caught:
        list(third)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert consumer.get_offsets_before(topic, 0, LATEST_TIME, 10) == [28, 0]
    assert server.requests[:3] == list(golden)[:3]


def whole_frame(text):
    """The frame that a recorded text is, or None."""
    try:
        frame = bytes.fromhex(text)
    except (TypeError, ValueError):
        return None
    is_whole = len(frame) > 5 and len(frame) == 4 + int.from_bytes(frame[:4], signed=True)
    return frame if is_whole else None


def recorded_reads():
    """Requests that read and their answers, of Apache Kafka 0.7, as (name, request, answer)."""
    for conversation in golden07_json("conversations.json")["conversations"]:
        for step in conversation["steps"]:
            request, answer = whole_frame(step.get("send")), whole_frame(step.get("gets"))
            if None in (request, answer) or request[4:6] not in (b"\0\1", b"\0\2", b"\0\4"):
                continue
            # The consumer sends a single fetch as a FETCH.
            if len(getattr(decode_request(request[4:]), "parts", "ab")) > 1:
                yield conversation["name"], request, answer


def outcome(iterate):
    """The payloads and offsets of messages up to an error, and the kind of that error."""
    found = []
    try:
        found.extend((bytes(it[0]), it[1]) for it in iterate())
    except (CutMessageError, MessageTooLargeError):
        return found, "cut"
    except (CorruptDataError, ApiError) as error:
        return found, type(error)
    return found, None


def expected_outcome(answer, part):
    if 0 < len(answer.message_set) == part.bytes_max < SIZE_BYTES:
        # Kafka 0.7's client yields nothing, for ever; ours asks for more.
        return [], "cut"

    def iterate():
        if answer.error:
            raise ApiError(answer.error)
        for found in messages(answer.message_set, part.offset):
            yield found.message.payload, found.offset

    return outcome(iterate)


def test_recorded_requests_and_answers_of_the_server_are_understood(peer, consumer_of):
    golden = list(recorded_reads())
    assert len(golden) > 50
    answers = [answer for _, _, answer in golden]
    server = peer(lambda _: answers.pop(0))
    # Nothing is fetched again: the answers are what they were.
    consumer = consumer_of(server, buffer_size=1, buffer_size_max=1)
    for name, request, answer in golden:
        asked = decode_request(request[4:])
        if isinstance(asked, OffsetsRequest):
            arguments = (asked.topic, asked.partition, asked.time_ms, asked.count_max)
            expected = list(decode_offsets_answer(answer[4:]).offsets)
            assert consumer.get_offsets_before(*arguments) == expected, name
            continue
        parts = [asked] if isinstance(asked, Fetch07) else asked.parts
        if isinstance(asked, Fetch07):
            decoded = [decode_fetch_answer(answer[4:])]
        else:
            decoded = decode_multifetch_answer(answer[4:])
        sets = consumer.multifetch(
            [FetchRequest(it.topic, it.partition, it.offset, it.bytes_max) for it in parts]
        )
        for found, part, expected in zip(sets, parts, decoded, strict=True):
            ours = outcome(lambda found=found: ((it.message, it.next_offset) for it in found))
            assert ours == expected_outcome(expected, part), name


def test_messages_in_compressed_sets_have_the_sets_offset(peer, consumer_of):
    inside = compressed_set(message_set([b"b", b"c"]), GZIP)
    log = encode_entry(b"a") + inside + encode_entry(b"d")
    first, last = len(encode_entry(b"a")), len(log)
    found = consumer_of(peer(serve(log))).fetch(FetchRequest("t", 0, 0))
    assert [tuple(it[:3]) for it in found] == [
        (0, first, b"a"),
        (first, first, b"b"),
        (first, first + len(inside), b"c"),
        (first + len(inside), last, b"d"),
    ]
    assert found.next_offset == last


def test_a_message_that_is_cut_at_the_end_is_left_for_the_next_fetch(peer, consumer_of):
    log = encode_entry(b"x" * 50) + encode_entry(b"y" * 50)
    consumer = consumer_of(peer(serve(log)))
    found = consumer.fetch(FetchRequest("t", 0, 0, 100))
    assert [it.message for it in found] == [b"x" * 50]
    again = consumer.fetch(FetchRequest("t", 0, found.next_offset, 100))
    assert [it.message for it in again] == [b"y" * 50]


def test_a_message_larger_than_the_buffer_doubles_it(peer, consumer_of):
    log = encode_entry(b"x" * 5_000)
    server = peer(serve(log))
    found = consumer_of(server, buffer_size=1_000).fetch(FetchRequest("t", 0, 0))
    assert [it.message for it in found] == [b"x" * 5_000]
    assert [decode_request(it[4:]).bytes_max for it in server.requests] == [1_000, 8_000]


def test_a_buffer_that_does_not_reach_the_size_of_a_message_is_doubled(peer, consumer_of):
    server = peer(serve(encode_entry(b"x" * 100)))
    found = consumer_of(server).fetch(FetchRequest("t", 0, 0, 2))
    assert [it.message for it in found] == [b"x" * 100]
    assert [decode_request(it[4:]).bytes_max for it in server.requests] == [2, 4, 128]


def test_a_message_larger_than_every_buffer_is_named(peer, consumer_of):
    server = peer(serve(encode_entry(b"x" * 9_000)))
    consumer = consumer_of(server, buffer_size=1_000, buffer_size_max=4_000)
    found = consumer.fetch(FetchRequest("t", 3, 0))
    with pytest.raises(MessageTooLargeError, match="t-3 is larger than 4000 bytes") as caught:
        list(found)
    assert caught.value.bytes_needed == 9_010


def test_damage_is_reported_where_it_is(peer, consumer_of):
    log = bytearray(encode_entry(b"good") + encode_entry(b"bad"))
    log[-1] ^= 1
    found = iter(consumer_of(peer(serve(bytes(log)))).fetch(FetchRequest("t", 0, 0)))
    assert next(found).message == b"good"
    with pytest.raises(CorruptDataError, match="checksum"):
        next(found)


def test_a_lost_connection_is_opened_again_once(peer, consumer_of):
    answers = [CLOSE, encode_offsets_answer([7]), CLOSE, CLOSE, encode_offsets_answer([8])]
    server = peer(lambda _: answers.pop(0))
    consumer = consumer_of(server)
    assert consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1) == [7]
    with pytest.raises(UnreachableError, match="lost the connection"):
        consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1)
    assert consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1) == [8]
    assert server.connections == 4


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(peer, consumer_of):
    answers = [SILENCE, encode_offsets_answer([2])]
    server = peer(lambda _: answers.pop(0))
    consumer = consumer_of(server, socket_timeout_ms=300)
    with pytest.raises(TimedOutError):
        consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1)
    assert consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1) == [2]
    assert server.connections == 2


def test_threads_take_turns_on_one_connection(peer, consumer_of):
    def answer(frame):
        return encode_offsets_answer([decode_request(frame[4:]).partition])

    server = peer(answer)
    consumer = consumer_of(server)
    found = {}

    def ask(number):
        found[number] = consumer.get_offsets_before("t", number, LATEST_TIME, 1)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert found == {number: [number] for number in range(20)}
    assert server.connections == 1


@pytest.mark.parametrize("garbage", [struct.pack(">i", -5), struct.pack(">i", 1 << 30) + b"x" * 99])
def test_a_server_of_another_protocol_is_named(peer, consumer_of, garbage):
    consumer = consumer_of(peer(lambda _: garbage), socket_timeout_ms=500)
    with pytest.raises(UnreachableError):
        consumer.fetch(FetchRequest("t", 0, 0))


def test_what_the_07_wire_lacks_is_refused(peer, consumer_of):
    consumer = consumer_of(peer(lambda _: CLOSE))
    with pytest.raises(UsageError, match="in ZooKeeper"):
        consumer.commit_offsets("g", {TopicPartition("t", 0): 1})
    with pytest.raises(UsageError, match="in ZooKeeper"):
        consumer.fetch_offsets("g", [TopicPartition("t", 0)])
    with pytest.raises(UsageError, match="cannot wait"):
        consumer.fetch(FetchRequest("t", 0, 0), max_wait_ms=5)
    with pytest.raises(UsageError):
        SimpleConsumer("localhost", 1, buffer_size=0)


def test_a_coroutine_of_asyncio_reads_the_same(peer):
    server = peer(serve(encode_entry(b"a")))

    async def read():
        async with aio.SimpleConsumer(*server.address, kafka_07=True) as consumer:
            return [it.message for it in await consumer.fetch(FetchRequest("t", 0, 0))]

    assert asyncio.run(read()) == [b"a"]
