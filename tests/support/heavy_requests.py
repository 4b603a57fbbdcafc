"""Heavy requests: what one peer can send to keep a broker busy, up to 100 MiB a request.

`send_heavy` sends one of them over as many connections as it takes and waits for what comes back.
"""

import contextlib
import gzip
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.records.compression import CompressionType, compress
from kctl.records.legacy_builder import MessageSetBuilder
from tests.serve import bad_frames
from tests.support.filled_requests import array_paths, filled
from tests.support.raw_requests import produce_request

MIB = 1024 * 1024
# The most elements that a client's request may hold, and room for those around them.
ELEMENTS = 30_000 - 10
TIMEOUT_S = 120
# A topic with many partitions, which takes 100 MiB in one request.
WIDE_TOPIC, WIDE_PARTITIONS = "wide", 100
WIDE_TOPIC_CREATION = bad_frames.question(
    "the wide topic", bad_frames.create(WIDE_TOPIC, WIDE_PARTITIONS), 4
)


@dataclass(frozen=True)
class Heavy:
    """One request, sent over `connections` connections at once."""

    name: str
    data: Callable[[], bytes]
    connections: int = 1
    # Whether something comes back, an answer or the end of the connection.
    is_ended: bool = True


def requests() -> Iterator[Heavy]:
    """All of them."""
    for case in bad_frames.HEAVY:
        if bad_frames.KAFKA.get(case.name) != bad_frames.WAITING:
            yield Heavy(case.name, case.data)
    yield from refused_requests()
    yield from produce_requests()
    yield from group_requests()
    yield from topic_requests()
    for api in ApiKey:
        yield from filled_requests(api)


# Requests that are too large in some way


def refused_requests() -> Iterator[Heavy]:
    announced = struct.pack(">i", 100 * MIB) + b"0123456789"
    yield Heavy("100 MiB announced, 10 bytes sent", lambda: announced, 100, is_ended=False)
    begun = struct.pack(">i", 100 * MIB) + bytes(2 * MIB)
    yield Heavy("100 MiB announced, 2 MiB sent", lambda: begun, 100, is_ended=False)
    yield Heavy("100 MiB of garbage", lambda: struct.pack(">i", 100 * MIB) + b"\xff" * 100 * MIB)
    yield Heavy(
        "5 million tags in ApiVersions",
        lambda: bad_frames.raw(
            18, 3, b"\0\2a\2b" + bad_frames.uvarint(5_000_000) + b"\x64\0" * 5_000_000
        ),
    )
    yield Heavy(
        "5 million empty names in Metadata",
        lambda: bad_frames.raw(3, 4, struct.pack(">i", 5_000_000) + b"\0\0" * 5_000_000 + b"\0"),
    )
    yield Heavy("33 million partitions in OffsetFetch", lambda: bad_frames.raw(
        9, 5, b"\0\1g" + struct.pack(">ih", 1, 1) + b"t"
        + struct.pack(">i", 26_000_000) + bytes(104_000_000)))  # fmt: skip


# Produce


def produced(records: bytes, version: int = 7) -> bytes:
    message = produce_request(records, topic=bad_frames.TOPIC)
    if version < 3:
        message.transactional_id = ""
    return bad_frames.asked(message, version)


def produced_widely(records: bytes, version: int = 7) -> bytes:
    """The same records for each of many partitions."""
    parts = [
        PartitionProduceData(partition_index=number, records=records)
        for number in range(WIDE_PARTITIONS)
    ]
    topics = [TopicProduceData(name=WIDE_TOPIC, partitions=parts)]
    return bad_frames.asked(ProduceRequest(acks=1, timeout_ms=30_000, topics=topics), version)


def large(size: int) -> bytes:
    """One batch with one record."""
    return bytes(bad_frames.batch(value=bytes(size)))


def small_records(size: int, codec: int = 0) -> bytes:
    """One batch of `size` bytes with as many records of 10 bytes as fit."""
    return bytes(bad_frames.batch(size // 10, codec=codec, value=b"v"))


def old_messages(size: int, codec: int = 0, magic: int = 1) -> bytes:
    """A message set of `size` bytes, before it is compressed, of messages as small as they get."""
    builder = MessageSetBuilder(magic=magic, compression_type=codec)
    for number in range(size // 35):
        builder.append(timestamp=bad_frames.T0_MS + number, key=None, value=b"v")
    return builder.build()


def tiny_batches() -> bytes:
    parts = [
        PartitionProduceData(partition_index=number, records=bytes(bad_frames.batch()))
        for number in range(ELEMENTS)
    ]
    topics = [TopicProduceData(name=WIDE_TOPIC, partitions=parts)]
    return bad_frames.asked(ProduceRequest(acks=1, timeout_ms=30_000, topics=topics), 7)


def bomb(codec: int) -> bytes:
    def zip_records(records: bytes) -> bytes:
        if codec == CompressionType.GZIP:
            return gzip.compress(records, 6)
        return compress(codec, records)

    # snappy makes 1/21 of it at best.
    size = 16 * MIB if codec == CompressionType.SNAPPY else bad_frames.BOMB_BYTES
    return bad_frames.bomb(zip_records, codec, size)


def produce_requests() -> Iterator[Heavy]:
    yield Heavy("100 MiB in one batch", lambda: produced(large(99 * MIB)))
    yield Heavy("95 MB in 100 batches", lambda: produced_widely(large(950_000)))
    yield Heavy("95 MB in 9 million records", lambda: produced_widely(small_records(950_000)))
    yield Heavy("95 MB in many batches for one partition", lambda: produced(large(1000) * 90_000))
    yield Heavy("the same in version 2", lambda: produced(large(1000) * 90_000, 2))
    yield Heavy("30,000 partitions with a batch each", tiny_batches)
    yield Heavy("16 batches of 900 kB", lambda: produced(large(900_000)), 16)
    yield Heavy("900 kB of old messages", lambda: produced(old_messages(900_000), 2))
    yield Heavy("90 MB of old messages", lambda: produced_widely(old_messages(900_000), 2))
    yield Heavy("30 MB of old messages, zipped", lambda: produced(old_messages(30 * MIB, 1), 2))
    for codec in (1, 2, 3, 4):
        label = CompressionType(codec).label
        yield Heavy(f"a {label} bomb", lambda codec=codec: produced(bomb(codec)), 16)
        yield Heavy(
            f"100 {label} bombs in a request", lambda codec=codec: produced_widely(bomb(codec))
        )
        yield Heavy(
            f"10 MB of small records under {label}",
            lambda codec=codec: produced(small_records(10_000_000, codec)),
        )


# Groups and topics


def group_requests() -> Iterator[Heavy]:
    def join(metadata: bytes) -> bytes:
        message = bad_frames.join("heavy")
        message.protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
        return bad_frames.asked(message, 3)

    def sync() -> bytes:
        assignments = [SyncGroupRequestAssignment(member_id="m", assignment=bytes(99 * MIB))]
        return bad_frames.asked(SyncGroupRequest(group_id="heavy", assignments=assignments), 2)

    yield Heavy("JoinGroup with 99 MiB of metadata", lambda: join(bytes(99 * MIB)))
    yield Heavy("SyncGroup with an assignment of 99 MiB", sync)
    message = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer")
    message.protocols = [
        JoinGroupRequestProtocol(name=f"{n:x}", metadata=bytes(900)) for n in range(ELEMENTS)
    ]
    yield Heavy("JoinGroup with 30,000 protocols", lambda: bad_frames.asked(message, 3))


def topic_requests() -> Iterator[Heavy]:
    def create(count: int, form: str, *, validate_only: bool) -> bytes:
        topics = [
            CreatableTopic(name=form.format(n), num_partitions=1, replication_factor=1)
            for n in range(count)
        ]
        message = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
        return bad_frames.asked(message, 4)

    for name, *how in (
        ("30,000 bad names in CreateTopics", ELEMENTS, "no/{}", False),
        ("30,000 topics in CreateTopics, to validate", ELEMENTS, "t{}", True),
        ("2,000 topics in CreateTopics", 2_000, "topic{}", False),
    ):
        count, form, validate_only = how
        yield Heavy(name, lambda c=count, f=form, v=validate_only: create(c, f, validate_only=v))


# Every API


def filled_requests(api: ApiKey) -> Iterator[Heavy]:
    """Every array of the last version, one by one, as long as it may be."""
    # Topics are created above.
    if api == ApiKey.CREATE_TOPICS:
        return
    version = api.max_version
    for path in array_paths(api.request_class, version):

        def data(path: tuple[str, ...] = path) -> bytes:
            message = filled(api.request_class, version, path, ELEMENTS, WIDE_TOPIC)
            return bad_frames.asked(message, version)

        yield Heavy(f"{api.name.lower()}: {'.'.join(path)}", data)


def send_heavy(address: str, heavy: Heavy, data: bytes, dwell_s: float = 1) -> None:
    """Send `data` over all its connections, and wait for what comes back."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(heavy.connections):
            peer = socket.create_connection((host, int(port)), TIMEOUT_S)
            stack.callback(peer.close)
            peers.append(peer)
            peer.settimeout(TIMEOUT_S if heavy.is_ended else dwell_s)
            # The broker may close the connection, or stop reading, before it has read everything.
            with contextlib.suppress(ConnectionError, TimeoutError):
                peer.sendall(data)
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                try:
                    size = struct.unpack(">i", bad_frames.receive(peer, 4))[0]
                except TimeoutError:
                    if heavy.is_ended:
                        raise
                    return
                bad_frames.receive(peer, size)
