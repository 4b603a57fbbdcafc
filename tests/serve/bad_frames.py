"""Bad frames: 66 ways to speak wrongly to a broker, and what Apache Kafka 2.7.2 visibly answers.

A case is what goes over one new connection. What a peer can see is a word: `closed`, `waiting`
(neither closed nor answered), or `answered` with the error codes in the answer. `KAFKA` holds what
Apache Kafka 2.7.2 said; `STRICTER` the cases in which kctl says something else on purpose, each in
docs/compatibility.md too.
"""

import contextlib
import gzip
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetTopic,
)
from kctl.protocol.messages.produce import ProduceRequest
from kctl.protocol.schema import Message, Struct
from kctl.records.builder import RecordBatchBuilder
from kctl.records.checksum import crc32c
from kctl.records.legacy_builder import MessageSetBuilder
from tests.support.raw_requests import produce_request

TOPIC = "bad-frames"
T0_MS = 1_600_000_000_000
INT_MAX = 2**31 - 1
BOMB_BYTES = 256 * 1024 * 1024
# How long an answer may take; how long nothing must come to count as waiting.
ANSWER_S, WAITING_S = 30, 1
CLOSED, WAITING = "closed", "waiting"


@dataclass(frozen=True)
class Case:
    """One kind of invalid request; `data` returns every byte to send, sizes included."""

    name: str
    data: Callable[[], bytes]
    # What the answer is read as.
    api: ApiKey = ApiKey.METADATA
    version: int = 1
    # Whether the peer closes its half when all is sent.
    is_finished: bool = False


def answered(*codes: int) -> str:
    return " ".join(["answered", *map(str, sorted(codes))])


# Bytes


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def raw(api: int, version: int, body: bytes = b"", client_id: bytes = b"\0\x04test") -> bytes:
    return sized(struct.pack(">hhi", api, version, 5) + client_id + body)


def asked(message: Message, version: int, more: bytes = b"") -> bytes:
    assert message.api is not None
    body = b"".join(bytes(part) for part in encode(message, version)) + more
    tags = b"\0" if version >= message.api.flexible_from else b""
    return raw(int(message.api), version, tags + body)


def batch(count: int = 1, codec: int = 0, value: bytes = b"v", **options: object) -> bytearray:
    builder = RecordBatchBuilder(compression_type=codec, **options)  # type: ignore[arg-type]
    for _ in range(count):
        builder.append(timestamp=T0_MS, key=b"k", value=value)
    return bytearray(builder.build())


def with_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def changed(form: str, offset: int, value: int, count: int = 1) -> bytes:
    """A batch with one field of its header changed, and a checksum that fits."""
    data = batch(count)
    struct.pack_into(form, data, offset, value)
    return with_crc(data)


def packed_as(codec: int, records: bytes, count: int = 1) -> bytes:
    """Return a batch marked as compressed with `codec` that holds `records` uncompressed."""
    data = batch(count)[:61] + records
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    return with_crc(data)


def bomb(zip_records: Callable[[bytes], bytes], codec: int, size: int = BOMB_BYTES) -> bytes:
    """A batch with one record of `size` zero bytes that is small over the wire."""
    value = size - 16
    length = varint(value)
    # Attributes, timestamp and offset deltas, no key, the value, no headers.
    inner = b"\0\0\0\x01" + length + bytes(value) + b"\0"
    return packed_as(codec, zip_records(varint(len(inner)) + inner))


def varint(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def broken_lengths() -> bytes:
    """Return a batch whose only record states a length beyond its end."""
    data = batch()
    data[61] += 20
    return with_crc(data)


def legacy() -> bytes:
    builder = MessageSetBuilder(magic=0)
    builder.append(timestamp=-1, key=b"k", value=b"v")
    return builder.build()


# Cases


def frame(name: str, data: bytes, **options: object) -> Case:
    return Case(name, lambda: data, **options)  # type: ignore[arg-type]


def metadata(name: str, body: bytes, version: int = 1, **options: object) -> Case:
    return frame(name, raw(3, version, body), version=version, **options)


def produce(name: str, records: bytes | None, version: int = 3, **options: object) -> Case:
    message = produce_request(records, topic=TOPIC)  # type: ignore[arg-type]
    for key, value in options.items():
        setattr(message, key, value)
    return produced(name, message, version)


def produced(name: str, message: ProduceRequest, version: int = 3) -> Case:
    return Case(name, lambda: asked(message, version), ApiKey.PRODUCE, version)


def question(name: str, message: Message, version: int, more: bytes = b"") -> Case:
    assert message.api is not None
    return Case(name, lambda: asked(message, version, more), message.api, version)


def fetch_from(offset: int, partition: int = 0, **options: int) -> FetchRequest:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, topics=[FetchTopic(topic=TOPIC, partitions=[part])], **options
    )


def list_at(partition: int) -> ListOffsetRequest:
    part = ListOffsetPartition(partition_index=partition, timestamp=-1)
    return ListOffsetRequest(replica_id=-1, topics=[ListOffsetTopic(name=TOPIC, partitions=[part])])


def join(group: str, session_timeout_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def create(name: str, partitions: int = 1, replication_factor: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def elsewhere(partition: int, **options: object) -> ProduceRequest:
    message = produce_request(bytes(batch()), topic=TOPIC)
    message.topics[0].partitions[0].partition_index = partition
    for key, value in options.items():
        setattr(message, key, value)
    return message


HELLO = bytes.fromhex("160301002f0100002b0303") + bytes(38)
ALL_TOPICS = struct.pack(">i", -1)

FRAMES = [
    frame("size -1", struct.pack(">i", -1)),
    frame("size 0", struct.pack(">i", 0)),
    frame("the smallest size", struct.pack(">i", -(2**31))),
    frame("size over the limit", struct.pack(">i", 104_857_601)),
    frame("a header of 3 bytes", sized(b"\0\x03\0")),
    frame("a header without client id", sized(struct.pack(">hhi", 3, 1, 5))),
    frame("unknown api key", raw(999, 0)),
    frame("negative api key", raw(-1, 0)),
    frame("Metadata v99", raw(3, 99, ALL_TOPICS)),
    frame("Metadata v-1", raw(3, -1, ALL_TOPICS)),
    frame("a client id longer than the frame", raw(3, 1, ALL_TOPICS, b"\x7f\xfftest")),
    frame("a client id of length -2", raw(3, 1, ALL_TOPICS, b"\xff\xfe")),
    metadata("an array of 2^31-1", struct.pack(">i", INT_MAX)),
    metadata("an array of -2", struct.pack(">i", -2)),
    metadata("a compact array of 2^32-1", b"\0\xff\xff\xff\xff\x0f\0\0\0\0", 9),
    metadata("a varint that never ends", b"\0" + b"\xff" * 12, 9),
    metadata("a string of 32767", struct.pack(">ih", 1, 32767) + b"abc"),
    metadata("a string of -5", struct.pack(">ih", 1, -5)),
    metadata("null where none may be", struct.pack(">ih", 1, -1)),
    metadata("a body cut short", struct.pack(">ih", 2, 1) + b"a"),
    metadata("no body", b""),
    metadata("2^28 tags", b"\0\0\0\0\0\x80\x80\x80\x80\x01", 9),
    metadata("2^28 tags in the header", b"\x80\x80\x80\x80\x01", 9),
    metadata("a tag longer than the frame", b"\0\0\0\0\0\x01\x63\xff\x7f", 9),
    metadata("text that is not UTF-8", struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    metadata("garbage behind the body", ALL_TOPICS + b"garbage"),
    frame("HTTP", b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n"),
    frame("a TLS hello", HELLO),
    frame("ApiVersions v99", raw(18, 99, b"\0\0\0"), api=ApiKey.API_VERSIONS, version=0),
    frame("ApiVersions v3 cut short", raw(18, 3, b"\0\x10a"), api=ApiKey.API_VERSIONS, version=3),
    metadata("half-close behind a request", ALL_TOPICS, is_finished=True),
    frame("half-close inside a request", raw(3, 1, ALL_TOPICS)[:-2], is_finished=True),
    produce("magic 9", changed(">b", 16, 9)),
    produce("batch length -1", changed(">i", 8, -1)),
    produce("batch length 0", changed(">i", 8, 0)),
    produce("a huge batch length", changed(">i", 8, INT_MAX)),
    produce("null records", None),
    produce("empty records", b""),
    produce("random bytes as records", bytes(range(7, 207))),
    produced("acks=0 with an error", elsewhere(99, acks=0)),
    produce("a wrong checksum", bytes(batch()[:-1]) + b"x"),
    produce("more records counted", changed(">i", 57, 3)),
    produce("no records counted", changed(">i", 57, 0)),
    produce("-1 records counted", changed(">i", 57, -1)),
    produce("a wrong last offset delta", changed(">i", 23, 5)),
    produce("a wrong record length", broken_lengths()),
    produce("two batches", bytes(batch() + batch())),
    produce("a control batch", bytes(batch(is_control=True, producer_id=1, producer_epoch=0,
                                           base_sequence=0))),
    produce("magic 0 in v3", legacy()),
    produce("a cut batch", bytes(batch()[:-3])),
    produce("a batch and a cut one", bytes(batch() + batch()[:-3])),
    produce("codec 7", packed_as(7, b"\0" * 9)),
    produce("garbage for gzip", packed_as(1, b"not gzip at all")),
    produce("a batch over max.message.bytes", bytes(batch(value=bytes(2_000_000)))),
    produce("acks=5", bytes(batch()), acks=5),
    produced("a partition that is not there", elsewhere(99)),
    question("a topic name with slashes", create("a/../b"), 4),
    question("fetch from offset -5", fetch_from(-5), 4),
    question("a fetch session that is not there",
             fetch_from(0, session_id=77, session_epoch=3), 7),
    question("no group", join(""), 4),
    question("offsets of a partition that is not there", list_at(99), 1),
]  # fmt: skip

# What the cases about TOPIC need first.
TOPIC_CREATION = question("the topic", create(TOPIC), 4)

HEAVY = [
    question("CreateTopics of 2^31-1 partitions", create("vast", INT_MAX), 4),
    Case("a gzip bomb", lambda: asked(
        produce_request(bomb(gzip.compress, 1), topic=TOPIC), 3), ApiKey.PRODUCE, 3),
    frame("100 MiB announced", struct.pack(">i", 100 * 1024 * 1024) + b"0123456789"),
    Case("a million names", lambda: raw(
        3, 4, struct.pack(">i", 1_000_000) + b"\0\x01a" * 1_000_000 + b"\0"), version=4),
    Case("a million tags", lambda: raw(
        3, 9, b"\0\0\0\0\0" + b"\xc0\x84\x3d" + b"".join(
            uvarint(100 + tag) + b"\0" for tag in range(1_000_000))), version=9),
]  # fmt: skip


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


# What a peer sees


def visible(address: str, case: Case) -> str:
    """Send a case over a connection of its own; the word for what comes back."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_S) as peer:
        # The broker may close before it has read all.
        with contextlib.suppress(ConnectionError):
            peer.sendall(case.data())
            if case.is_finished:
                peer.shutdown(socket.SHUT_WR)
        return answer(peer, case)


def answer(peer: socket.socket, case: Case) -> str:
    is_waiting = KAFKA.get(case.name) == WAITING
    peer.settimeout(WAITING_S if is_waiting else ANSWER_S)
    try:
        size = struct.unpack(">i", receive(peer, 4))[0]
        response = receive(peer, size)
    except TimeoutError:
        return WAITING
    except ConnectionError:
        return CLOSED
    position = 4 + case.api.response_header_version(case.version)
    try:
        message = decode(case.api.response_class, case.version, response, position)
    except CorruptDataError as error:
        return f"unreadable: {error}"
    return answered(*set(codes(message)))


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = peer.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
    return data


def codes(struct_: Struct) -> list[int]:
    """Every error code that a message holds."""
    found = []
    for field in type(struct_).fields:
        value = getattr(struct_, field.name)
        if field.name == "error_code":
            found.append(value)
        elif isinstance(value, list):
            for element in value:
                found += codes(element) if isinstance(element, Struct) else []
    return found


# What Apache Kafka 2.7.2 answers; it closes for all the others.
_KAFKA_ANSWERS: dict[str, tuple[int, ...]] = {
    "a client id of length -2": (0,),
    "an array of -2": (0,),
    "text that is not UTF-8": (3,),
    "garbage behind the body": (0,),
    "ApiVersions v99": (35,),
    "half-close behind a request": (0,),
    "a wrong checksum": (2,),
    "more records counted": (87,),
    "no records counted": (87,),
    "-1 records counted": (87,),
    "a wrong last offset delta": (87,),
    "a wrong record length": (87,),
    "two batches": (87,),
    "a control batch": (87,),
    "magic 0 in v3": (87,),
    "a batch and a cut one": (0,),
    "codec 7": (-1,),
    "garbage for gzip": (-1,),
    "a batch over max.message.bytes": (10,),
    "acks=5": (21,),
    "a partition that is not there": (3,),
    "a topic name with slashes": (17,),
    "fetch from offset -5": (0, 1),
    "a fetch session that is not there": (70,),
    "no group": (24,),
    "offsets of a partition that is not there": (3,),
    "CreateTopics of 2^31-1 partitions": (-1,),
    "a gzip bomb": (0,),
    "a million names": (3,),
    "a million tags": (0,),
}
KAFKA: dict[str, str] = {
    case.name: answered(*_KAFKA_ANSWERS[case.name]) if case.name in _KAFKA_ANSWERS else CLOSED
    for case in (*FRAMES, *HEAVY)
}
KAFKA["100 MiB announced"] = WAITING
# Where kctl says something else on purpose: docs/compatibility.md, "Different on purpose".
STRICTER: dict[str, str] = {
    "codec 7": answered(2),
    "garbage for gzip": answered(2),
    "CreateTopics of 2^31-1 partitions": answered(37),
    "a million names": CLOSED,
    "a million tags": CLOSED,
}
# An Apache Kafka with a small heap is of no use to anybody afterwards.
OUT_OF_REACH = {"CreateTopics of 2^31-1 partitions"}
