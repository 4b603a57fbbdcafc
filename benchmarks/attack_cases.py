"""The attacks of `benchmarks.attacks`: what each one sends to a broker.

An attack checks the responses it gets: it raises if the broker was not made to do the work that the
attack is named for.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from benchmarks.group_members import Crowd
from benchmarks.servers import Client, Server, leaders
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_topics import (
    CreatableTopic,
    CreateableTopicConfig,
    CreateTopicsRequest,
)
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.leave_group import LeaveGroupRequest
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetTopic,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import CompressionType
from tests.support.raw_requests import produce_request

MIB = 1024 * 1024
T0_MS = 1_600_000_000_000
TIMEOUT_MS = 60_000
# The largest fetch that the attack asks for.
FETCH_BYTES_MAX = 50 * MIB
# Records of the batch that is small on the wire, and the size of each: 98 MiB in all.
BOMB_RECORDS, BOMB_RECORD_BYTES = 98, MIB
QUIET_S = 3


@dataclass(frozen=True)
class Target:
    """A broker under attack; `scale` is 1, or 0.1 for a quick run."""

    server: Server
    scale: float

    @property
    def port(self) -> int:
        """The broker's port."""
        return self.server.port

    def count(self, number: int) -> int:
        """Return `number` to scale, at least 1."""
        return max(1, int(number * self.scale))

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a connection of its own."""
        client = Client(self.port)
        try:
            yield client
        finally:
            client.close()

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic and wait until each partition has a leader."""
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1,
            configs=[
                CreateableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )  # fmt: skip
        with self.client() as client:
            response = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 4)
            _check(response.topics[0].error_code, ErrorCode.REQUEST_TIMED_OUT)
            while leaders(client, name) < partitions:
                time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker does not know it."""
        with self.client() as client:
            response = client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 3)
            _check(response.responses[0].error_code, ErrorCode.REQUEST_TIMED_OUT)
            while leaders(client, name) >= 0:
                time.sleep(0.01)

    def produce(self, topic: str, records: bytes) -> None:
        """Produce one batch to partition 0."""
        with self.client() as client:
            response = client.ask(produce_request(records, topic=topic), 7)
        _check(response.responses[0].partitions[0].error_code)


@dataclass(frozen=True)
class Attack:
    """What is done to a broker; `run` is repeated until there are enough samples."""

    name: str
    run: Callable[[Target], None]
    # What must exist before the measurement begins.
    prepare: Callable[[Target], None] = lambda _: None


class AttackError(RuntimeError):
    """The broker did not do the work that the attack is about."""


def _check(code: int, *allowed: int) -> None:
    if code and code not in allowed:
        raise AttackError(ErrorCode(code).name)


# Records


@cache
def _small_records(count: int, size: int) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(timestamp=T0_MS, key=None, value=bytes(size))
    return builder.build()


@cache
def _bomb(count: int) -> bytes:
    """`count` MiB of zeros in a few kB of zstd; only the last record has a later timestamp, so a
    search for that one reads all of them."""
    builder = RecordBatchBuilder(compression_type=CompressionType.ZSTD)
    for number in range(1, count + 1):
        builder.append(
            timestamp=T0_MS + (number == count), key=None, value=bytes(BOMB_RECORD_BYTES)
        )
    return builder.build()


def _down_conversion(records: int, size: int) -> Attack:
    topic = "converted"

    def prepare(target: Target) -> None:
        target.create_topic(topic)

    def run(target: Target) -> None:
        for _ in range(20):
            target.produce(topic, _small_records(target.count(records), size))
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES_MAX)
        fetch = FetchRequest(
            replica_id=-1, max_wait_ms=100, min_bytes=1,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )  # fmt: skip
        with target.client() as client:
            response = client.ask(fetch, 2)
        fetched = response.responses[0].partition_responses[0]
        _check(fetched.error_code)
        if not fetched.record_set:
            raise AttackError("no records")

    return Attack(f"20 batches of {records:,} records of {size} bytes, fetched as v2", run, prepare)


def _recompression(target: Target) -> None:
    for _ in range(target.count(10)):
        target.produce("recompressed", _bomb(target.count(BOMB_RECORDS)))


def _walked_batch(target: Target) -> None:
    target.create_topic("walked")
    target.produce("walked", _bomb(target.count(BOMB_RECORDS)))


def _search_by_time(target: Target) -> None:
    part = ListOffsetPartition(partition_index=0, timestamp=T0_MS + 1)
    topic = ListOffsetTopic(name="walked", partitions=[part])
    with target.client() as client:
        for _ in range(target.count(20)):
            response = client.ask(ListOffsetRequest(replica_id=-1, topics=[topic]), 1)
            found = response.topics[0].partitions[0]
            _check(found.error_code)
            if found.offset != target.count(BOMB_RECORDS) - 1:
                raise AttackError(f"found offset {found.offset}")


# Topics and groups


def _wide_topic(target: Target) -> None:
    target.create_topic("wide", target.count(5_000))
    target.delete_topic("wide")


def _coordinators(target: Target) -> None:
    """Wait until the broker coordinates the groups of every partition of their topic."""
    target.server.wait_for_coordinators([f"probe-{number}" for number in range(500)])


def _group_of_many(target: Target) -> None:
    crowd = Crowd(target.port, "many", groups=1, size=target.count(5_000))
    crowd.rebalance(1)
    crowd.leave()


def _many_groups(target: Target) -> None:
    crowd = Crowd(target.port, "group", groups=target.count(12_400), size=1)
    crowd.rebalance(1)
    crowd.leave()


def _large_members(target: Target, *, do_leave: bool) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(4 * MIB))]
    with target.client() as client:
        for number in range(target.count(160)):
            group = f"large-{number}"
            joined = client.ask(JoinGroupRequest(
                group_id=group, session_timeout_ms=300_000, rebalance_timeout_ms=300_000,
                protocol_type="consumer", protocols=protocols,
            ), 3)  # fmt: skip
            if do_leave:
                _check(joined.error_code)
                left = client.ask(LeaveGroupRequest(group_id=group, member_id=joined.member_id), 1)
                _check(left.error_code)
            else:
                # A broker may bound what members hold.
                _check(joined.error_code, ErrorCode.GROUP_MAX_SIZE_REACHED)


# Connections


def _half_sent(target: Target) -> None:
    begun = struct.pack(">i", 100 * MIB) + bytes(2 * MIB)
    with ExitStack() as stack:
        for _ in range(target.count(40)):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", target.port)))
            peer.settimeout(0.2)
            # The broker stops reading when its memory for requests is used up.
            with contextlib.suppress(OSError):
                peer.sendall(begun)
        for _ in range(10):
            target.produce("half-sent", _small_records(1, 200_000))
        time.sleep(2 * target.scale)


ATTACKS = (
    Attack("nothing", lambda target: time.sleep(QUIET_S * target.scale)),
    _down_conversion(100_000, 0),
    _down_conversion(8_000, 100),
    Attack(
        "10 zstd batches of 98 MiB, recompressed with gzip",
        _recompression,
        lambda target: target.create_topic("recompressed", compression_type="gzip"),
    ),
    Attack("20 ListOffsets by time in a zstd batch of 98 MiB", _search_by_time, _walked_batch),
    Attack("a topic of 5,000 partitions, created and deleted", _wide_topic),
    Attack("a group of 5,000 members, who join and leave", _group_of_many, _coordinators),
    Attack("12,400 groups, whose members join and leave", _many_groups, _coordinators),
    Attack(
        "160 members with 4 MiB of metadata, who leave at once",
        lambda target: _large_members(target, do_leave=True),
        _coordinators,
    ),
    Attack(
        "160 members with 4 MiB of metadata, who stay",
        lambda target: _large_members(target, do_leave=False),
        _coordinators,
    ),
    Attack(
        "40 half-sent requests of 100 MiB, and 200 kB from others",
        _half_sent,
        lambda target: target.create_topic("half-sent"),
    ),
)
