"""Connections of clients of Kafka 0.7: order, mishaps, and the memory that they may take."""

import tracemalloc

import pytest

from kctl.broker07 import server
from kctl.protocol.framing import SMALL_FRAME_MAX
from kctl.protocol.kafka07 import (
    PARTS_MAX,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    decode_multifetch_answer,
    encode_request,
)
from kctl.records.message07 import encode_entry, message_set, messages
from kctl.runtime.disk import FileSlice
from tests.support.golden07 import golden07_json
from tests.support.kafka07_world import Kafka07World

HELLO = message_set([b"hello"])
FETCH = encode_request(FetchRequest("t", 0, 0, 300))
OFFSETS = encode_request(OffsetsRequest("t", 0, -1, 10))


@pytest.fixture
def world():
    return Kafka07World().start()


def test_what_apache_kafkas_clients_send_is_served():
    """Its producers choose any partition; what they read was produced to partition 0."""
    world = Kafka07World({"log.flush.interval": "1"}).start()
    answers = 0
    for conversation in golden07_json("clients.json")["connections"]:
        client = world.connect()
        wanted = b""
        for event in conversation:
            frames = b"".join(map(bytes.fromhex, event.get("frames", [])))
            if event["from"] == "client":
                assert client.take() == wanted
                wanted = b""
                client.write(frames)
                world.settle()
            else:
                wanted += frames
                answers += bool(frames)
        assert not client.is_closed
    assert answers == 5
    sent = [b"single", b"a", b"", b"c", b"m1", b"sn1", b"sn2", b"sn3"]
    stored = world.read_all("talk", 0)
    assert [it for it in stored if it in sent[:1] + sent[4:5]] == [b"single", b"m1"]


def test_an_unexpected_error_is_logged_with_its_traceback_below_the_line(world, monkeypatch):
    """Also right after a complaint about the same client."""
    found = []
    monkeypatch.setattr(world.runtime.trace, "warning", lambda *line: found.append(line))
    peer = ("h", 7)
    world.server.complain(peer, "a reason")
    world.server.failed(peer, ValueError("a defect"))
    complaint, (message, detail) = found
    assert complaint == ("closes the connection of h:7: a reason",)
    assert message == "Unexpected error in a request of h:7"
    assert detail.splitlines()[-1] == "ValueError: a defect"


def test_a_fetch_is_sent_from_the_file(world):
    world.produce("t", 0, HELLO)
    client = world.connect()
    client.write(FETCH)
    assert [type(part) for part in client.parts] == [bytes, FileSlice]


def test_requests_are_served_in_order_also_while_one_waits_for_the_disk(world):
    client = world.connect()
    client.write(encode_request(ProduceRequest("t", 0, HELLO)) + FETCH + OFFSETS)
    assert client.received == b"", "the flush has not run"
    world.settle()
    assert client.take().hex() == (
        "00000011" + "0000" + HELLO.hex() + "00000016" + "0000" + "00000002"
        "000000000000000f" + "0000000000000000"
    )  # fmt: skip


def test_the_next_request_waits_until_the_answer_is_read(world):
    world.produce("t", 0, HELLO)
    client = world.connect()
    client.read_slowly()
    client.write(FETCH * 3)
    world.settle()
    assert client.received.count(HELLO) == 1
    client.read_all()
    world.settle()
    assert client.received.count(HELLO) == 3


def test_a_client_that_floods_is_not_read_from_while_a_request_is_in_flight(world):
    world.produce("t", 0, HELLO)
    client = world.connect()
    client.read_slowly()
    client.write(FETCH * 2_000)
    assert client.is_paused
    client.read_all()
    world.settle()
    assert not client.is_paused
    assert client.received.count(HELLO) == 2_000


def test_a_client_that_has_shut_down_its_side_gets_its_answers(world):
    client = world.connect()
    client.write(encode_request(ProduceRequest("t", 0, HELLO)) + FETCH)
    assert client.receiver.eof_received()
    world.settle()
    assert HELLO in client.take()
    assert client.is_closed


def test_a_connection_that_ends_while_its_set_is_flushed_loses_nothing(world):
    client = world.connect()
    client.write(encode_request(ProduceRequest("t", 0, HELLO)))
    client.close()
    world.settle()
    assert world.fetch("t", 0, 0).message_set == HELLO
    assert world.server.connection_count == 1


def test_half_a_request_is_waited_for(world):
    client = world.connect()
    client.write(OFFSETS[:7])
    world.advance(3_600_000)
    assert not client.is_closed
    client.write(OFFSETS[7:])
    assert client.take()


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(4), b"\xff" * 4, b"\0\0\0\2\0\5", b"\x16\x03\x01\x02\0\x01"],
)
def test_garbage_closes_its_connection_and_no_other(world, garbage):
    other, client = world.connect(), world.connect()
    client.write(garbage + OFFSETS)
    world.settle()
    assert client.is_closed
    assert client.take() == b""
    assert world.exchange(OFFSETS, other)
    assert len(world.warnings) == 1


def test_no_clients_text_breaks_its_line_of_the_log(world):
    for topic in ("a\nb", "a\x1b[2Jb"):
        world.exchange(encode_request(ProduceRequest(topic, 0, HELLO)))
        world.advance(2_000)
    assert len(world.warnings) == 2
    assert all(line.isprintable() for line in world.warnings)


# --- memory and time


def test_memory_is_taken_for_what_arrived_not_for_what_is_announced(world):
    tracemalloc.start()
    try:
        for _ in range(50):
            world.connect().write(b"\x06\0\0\0\0\0\0\1t")
        assert tracemalloc.get_traced_memory()[0] < 10 << 20
    finally:
        tracemalloc.stop()


def test_beyond_the_memory_of_all_requests_the_largest_is_closed(world, monkeypatch):
    monkeypatch.setattr(server, "RECEIVED_BYTES_MAX", 1 << 20)
    clients = [world.connect() for _ in range(5)]
    large = b"\x06\0\0\0" + bytes(10 * SMALL_FRAME_MAX)
    for client in clients:
        client.write(large)
    world.settle()
    assert [client.is_closed for client in clients].count(True) >= 1
    assert not clients[-1].is_closed or not clients[0].is_closed
    assert world.server._held_bytes <= 1 << 20
    for client in clients:
        client.close()
    world.settle()
    assert world.server._held_bytes == 0


def turns_of_another(world, data):
    """How often another client was served while the requests in `data` were."""
    client, other = world.connect(), world.connect()
    client.write(data)
    served = 0
    while world.server._handlers is not None and world.runtime.scheduler.turn():
        other.write(OFFSETS)
        served += bool(other.take())
    return client, served


def test_the_largest_multifetch_gives_others_a_turn(world):
    world.produce("t", 0, HELLO)
    request = MultiFetchRequest([FetchRequest("t", 0, 0, 300)] * PARTS_MAX)
    client, served = turns_of_another(world, encode_request(request))
    assert served >= PARTS_MAX // 1_000
    answers = decode_multifetch_answer(client.take()[4:])
    assert len(answers) == PARTS_MAX
    assert all(answer.message_set == HELLO for answer in answers)


def test_the_largest_multiproduce_gives_others_a_turn(world):
    world.config.partitions_by_topic["many"] = 2_000
    parts = [ProduceRequest("many", number, b"") for number in range(2_000)]
    _, served = turns_of_another(world, encode_request(MultiProduceRequest(parts)))
    assert served >= 2_000 // 50
    assert len(world.files()) == 2_000


def test_a_set_of_many_messages_gives_others_a_turn(world):
    sent = encode_entry(b"") * 60_000
    _, served = turns_of_another(world, encode_request(ProduceRequest("t", 0, sent)))
    assert served >= 30
    assert len(list(messages(world.fetch("t", 0, 0).message_set))) == 60_000


def test_the_size_of_an_answer_fits_its_field(world):
    """2,147,483,647 bytes are the most that a size can say: the last parts get nothing."""
    world.produce("t", 0, HELLO)
    log = world.logs.get(("t", 0))
    log.visible_end = log.end = log.segments[-1].size = 1 << 30  # More than is there.
    request = MultiFetchRequest([FetchRequest("t", 0, 0, (1 << 31) - 1)] * 3)
    task = world.server.begin(encode_request(request)[4:])
    world.settle()
    header, *parts = task.result()
    assert int.from_bytes(header[:4], "big") + 4 == len(header) + sum(map(len, parts))
    assert int.from_bytes(header[:4], "big") == (1 << 31) - 1
    assert next(len(part) for part in parts if isinstance(part, FileSlice)) == 1 << 30


def test_the_server_ends_requests_in_flight_before_it_closes(world):
    idle, busy = world.connect(), world.connect()
    busy.write(encode_request(ProduceRequest("t", 0, HELLO)) + FETCH)
    closed = world.server.close()
    world.settle()
    assert closed.done
    assert idle.is_closed
    assert busy.is_closed
    assert busy.received == b"", "the next request is not served any more"
    assert Kafka07World(disk=world.stop()).start().read_all("t", 0) == [b"hello"]
