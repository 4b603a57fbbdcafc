"""Members of consumer groups, thousands of them in one thread: each has a connection of its own and
is a generator that yields what it asks, or how long it waits, and gets the answer.

No member fetches: the load is on the coordinator. Versions are the last ones that are not flexible,
so that an answer's header is its correlation id alone.
"""

import heapq
import selectors
import socket
import struct
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.protocol.schema import Message

VERSIONS = {
    JoinGroupRequest: 5, SyncGroupRequest: 3, HeartbeatRequest: 3, LeaveGroupRequest: 3,
    OffsetCommitRequest: 7,
}  # fmt: skip
CLIENT_ID = b"benchmark"
TIMEOUT_S = 120
SESSION_TIMEOUT_MS = 30_000
HEARTBEAT_S = 0.1
RECEIVE_BYTES = 65_536

_request_head = struct.Struct(f">ihhih{len(CLIENT_ID)}s")
_size = struct.Struct(">i")

# Yields a request and is sent its answer, or yields seconds to wait.
Story = Generator["Message | float", Any, None]


@dataclass(slots=True, eq=False)
class Group:
    """What its members know in common: which generation has all of them."""

    name: str
    size: int
    full_generation: int = -1


@dataclass(slots=True, eq=False)
class GroupMember:
    """One member; a Crowd runs its generators."""

    group: Group
    connection: socket.socket
    member_id: str = ""
    generation: int = -1
    received: bytearray = field(default_factory=bytearray)
    asked: type[Message] | None = None

    def join(self, metadata: bytes) -> Story:
        """Until the group's generation has all its members, and this one its assignment."""
        self.generation = -1
        while self.generation < 0 or self.generation != self.group.full_generation:
            if self.generation < 0:
                yield from self._join_once(metadata)
                continue
            yield HEARTBEAT_S
            answer = yield HeartbeatRequest(
                group_id=self.group.name, generation_id=self.generation, member_id=self.member_id
            )
            if answer.error_code:
                self.generation = -1

    def _join_once(self, metadata: bytes) -> Story:
        protocol = JoinGroupRequestProtocol(name="range", metadata=metadata)
        answer = yield JoinGroupRequest(
            group_id=self.group.name, session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS, member_id=self.member_id,
            protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return
        if answer.error_code:
            raise RuntimeError(f"JoinGroup: {ErrorCode(answer.error_code).name}")
        is_full = len(answer.members) == self.group.size
        synced = yield SyncGroupRequest(
            group_id=self.group.name, generation_id=answer.generation_id, member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=it.member_id, assignment=metadata)
                for it in answer.members
            ],
        )  # fmt: skip
        if not synced.error_code:
            self.generation = answer.generation_id
            if is_full:
                self.group.full_generation = answer.generation_id

    def commit(self, topic: str, times: int) -> Story:
        """An offset of one partition, again and again."""
        for offset in range(times):
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=""
            )
            answer = yield OffsetCommitRequest(
                group_id=self.group.name, generation_id=self.generation, member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
            )  # fmt: skip
            code = answer.topics[0].partitions[0].error_code
            if code:
                raise RuntimeError(f"OffsetCommit: {ErrorCode(code).name}")

    def leave(self) -> Story:
        """Go."""
        yield LeaveGroupRequest(
            group_id=self.group.name, members=[MemberIdentity(member_id=self.member_id)]
        )


class Crowd:
    """All members of some groups of equal size."""

    def __init__(self, port: int, prefix: str, groups: int, size: int) -> None:
        self.groups = [Group(f"{prefix}-{number}", size) for number in range(groups)]
        self.members = [
            GroupMember(group, _connect(port)) for _ in range(size) for group in self.groups
        ]
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.connection, selectors.EVENT_READ, member)
        self._stories: dict[GroupMember, Story] = {}
        self._waiting: list[tuple[float, int, GroupMember]] = []

    def rebalance(self, round_number: int) -> float:
        """Everybody joins with something new to say; seconds until all have their assignments."""
        for group in self.groups:
            group.full_generation = -1
        metadata = b"\0\0\0\0\0\1\0\1t" + _size.pack(4) + _size.pack(round_number)
        return self.tell((member, member.join(metadata)) for member in self.members)

    def commit(self, topic: str, times: int) -> float:
        """Everybody commits `times`; seconds until all are answered."""
        return self.tell((member, member.commit(topic, times)) for member in self.members)

    def leave(self) -> None:
        """Everybody leaves, and their connections are closed."""
        self.tell((member, member.leave()) for member in self.members)
        self._selector.close()
        for member in self.members:
            member.connection.close()

    def tell(self, stories: "Iterable[tuple[GroupMember, Story]]") -> float:
        """Run the stories to their ends; seconds."""
        begin = time.perf_counter()
        self._stories = dict(stories)
        for member in list(self._stories):
            self._go_on(member, None)
        while self._stories:
            if time.perf_counter() > begin + TIMEOUT_S:
                raise RuntimeError(f"{len(self._stories)} members are not done")
            self._wait()
        return time.perf_counter() - begin

    def _wait(self) -> None:
        now = time.perf_counter()
        pause = max(0.0, self._waiting[0][0] - now) if self._waiting else 1.0
        for key, _ in self._selector.select(pause):
            self._receive(key.data)
        now = time.perf_counter()
        while self._waiting and self._waiting[0][0] <= now:
            self._go_on(heapq.heappop(self._waiting)[2], None)

    def _go_on(self, member: GroupMember, answer: Any) -> None:
        try:
            wish = self._stories[member].send(answer)
        except StopIteration:
            del self._stories[member]
            return
        if isinstance(wish, float):
            entry = (time.perf_counter() + wish, id(member), member)
            heapq.heappush(self._waiting, entry)
            return
        version = VERSIONS[type(wish)]
        body = b"".join(encode(wish, version))
        head = _request_head.pack(
            _request_head.size - 4 + len(body), int(wish.api), version, 0, len(CLIENT_ID), CLIENT_ID
        )
        member.asked = type(wish)
        member.connection.sendall(head + body)

    def _receive(self, member: GroupMember) -> None:
        data = member.connection.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError(f"the broker closed a connection of {member.group.name}")
        member.received += data
        if (
            len(member.received) < 4
            or len(member.received) < 4 + _size.unpack_from(member.received)[0]
        ):
            return
        asked = member.asked
        assert asked is not None
        # After the size and the correlation id.
        answer = decode(asked.api.response_class, VERSIONS[asked], bytes(member.received), 8)
        member.received.clear()
        self._go_on(member, answer)


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
