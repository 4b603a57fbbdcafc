"""Heavy requests: what one peer can send to keep a broker busy, up to 100 MiB a request.

`send_heavy` sends one of them over as many connections as it takes and waits for what comes back.
"""

import contextlib
import gzip
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.records.compression import CompressionType, compress
from tests.serve import bad_frames
from tests.support.raw_requests import produce_request

MIB = 1024 * 1024
# The most elements that a client's request may hold.
ELEMENTS = 100_000
TIMEOUT_S = 120


@dataclass(frozen=True)
class Heavy:
    """One request, sent over `connections` connections at once."""

    name: str
    data: Callable[[], bytes]
    connections: int = 1
    # Whether something comes back, an answer or the end of the connection.
    is_ended: bool = True


def produced(records: bytes) -> bytes:
    return bad_frames.asked(produce_request(records, topic=bad_frames.TOPIC), 7)


def large(size: int, codec: int = 0) -> bytes:
    """A produce request with one batch of `size` bytes."""
    return produced(bytes(bad_frames.batch(codec=codec, value=bytes(size))))


def bomb(codec: int) -> bytes:
    def zip_records(records: bytes) -> bytes:
        if codec == CompressionType.GZIP:
            return gzip.compress(records, 6)
        return compress(codec, records)

    # snappy makes 1/21 of it at best.
    size = 16 * MIB if codec == CompressionType.SNAPPY else bad_frames.BOMB_BYTES
    return produced(bad_frames.bomb(zip_records, codec, size))


def many_names() -> bytes:
    topics = [MetadataRequestTopic(name=f"n{n}") for n in range(ELEMENTS)]
    return bad_frames.asked(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8)


def many_partitions_fetched() -> bytes:
    parts = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1)
        for n in range(ELEMENTS - 1)
    ]
    topics = [FetchTopic(topic=bad_frames.TOPIC, partitions=parts)]
    return bad_frames.asked(FetchRequest(replica_id=-1, max_wait_ms=0, topics=topics), 11)


def many_offsets() -> bytes:
    parts = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=1)
        for n in range(ELEMENTS - 1)
    ]
    topics = [OffsetCommitRequestTopic(name=bad_frames.TOPIC, partitions=parts)]
    return bad_frames.asked(OffsetCommitRequest(group_id="heavy", topics=topics), 2)


def many_topics_created() -> bytes:
    topics = [
        CreatableTopic(name=f"no/{n}", num_partitions=1, replication_factor=1)
        for n in range(ELEMENTS)
    ]
    return bad_frames.asked(CreateTopicsRequest(topics=topics, timeout_ms=1000), 4)


def requests() -> Iterator[Heavy]:
    for case in bad_frames.HEAVY:
        if bad_frames.KAFKA.get(case.name) != bad_frames.WAITING:
            yield Heavy(case.name, case.data)
    announced = struct.pack(">i", 100 * MIB) + b"0123456789"
    yield Heavy("slowloris: 100 MiB announced, 10 bytes", lambda: announced, 200, is_ended=False)
    yield Heavy("100 MiB in one batch, refused", lambda: large(99 * MIB))
    yield Heavy("100 MiB of zeros", lambda: struct.pack(">i", 100 * MIB) + bytes(100 * MIB))
    yield Heavy("16 batches of 900 kB", lambda: large(900_000), 16)
    for codec in (1, 2, 3, 4):
        label = CompressionType(codec).label
        yield Heavy(f"a {label} bomb in 16 requests", lambda codec=codec: bomb(codec), 16)
    yield Heavy("100,000 names in Metadata", many_names)
    yield Heavy("100,000 partitions in Fetch", many_partitions_fetched)
    yield Heavy("100,000 partitions in OffsetCommit", many_offsets)
    yield Heavy("100,000 names in CreateTopics", many_topics_created)


def send_heavy(address: str, heavy: Heavy, data: bytes, dwell_s: float = 1) -> None:
    """Send `data` over all its connections, and wait for what comes back."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(heavy.connections):
            peer = socket.create_connection((host, int(port)), TIMEOUT_S)
            stack.callback(peer.close)
            peers.append(peer)
            # The broker may close before it has read all.
            with contextlib.suppress(ConnectionError):
                peer.sendall(data)
        if not heavy.is_ended:
            peers[0].settimeout(dwell_s)
            with contextlib.suppress(TimeoutError):
                peers[0].recv(1)
            return
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                size = struct.unpack(">i", bad_frames.receive(peer, 4))[0]
                bad_frames.receive(peer, size)
