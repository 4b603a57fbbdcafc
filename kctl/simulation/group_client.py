"""GroupClient: a simulated member of a consumer group that checks the responses it gets.

It joins, syncs (its leader assigns by range), sends heartbeats between its polls, commits, leaves,
or dies without notice. All members of a group share a `GroupRecord` of the responses they received:
- in one generation a partition belongs to one member (or static instance);
- a commit of a generation is rejected once a member received its assignment of a later one;
- the committed offset that a member starts from is not before any that was acknowledged, nor after
  any that a member tried to commit, except for a while after its coordinator was deposed.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.AbstractCoordinator, ConsumerCoordinator;
KIP-345, KIP-394, KIP-447.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from kctl.client.assignment import assign_by_range, decode_assignment, encode_assignment
from kctl.client.retry import error_codes
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    encode_blob,
)
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kctl.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.protocol.schema import Message
from kctl.runtime.future import sleep
from kctl.simulation.cluster import SimCluster

SESSION_TIMEOUT_MS = 1_500
REBALANCE_TIMEOUT_MS = 1_500
HEARTBEAT_INTERVAL_MS = 300
CALL_TIMEOUT_MS = 800
PAUSE_MS = 40
# Stale responses in a row from a deposed coordinator that does not know of its successor yet.
STALE_ANSWERS_MAX = 100
ASSIGNOR = "range"
# The member must join again.
_LOST = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


@dataclass(slots=True)
class GroupRecord:
    """What the members of one group received, taken together."""

    # The newest generation of which a member has received its assignment.
    newest_generation: int = -1
    # (generation, partition) -> member id or instance id.
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    # The highest offsets acknowledged, and the highest that a member may have committed.
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    attempted: dict[TopicPartition, int] = field(default_factory=dict)
    generations: int = 0

    def note_attempt(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note offsets that are about to be committed."""
        for partition, offset in offsets.items():
            self.attempted[partition] = max(offset, self.attempted.get(partition, 0))

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note offsets whose commit was acknowledged."""
        for partition, offset in offsets.items():
            self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))


@dataclass(slots=True)
class Membership:
    """A member's place in one generation."""

    member_id: str = ""
    generation_id: int = -1
    instance_id: str | None = None


class GroupClient:
    """A member of `group_id`, from its first join to its end."""

    def __init__(
        self,
        cluster: SimCluster,
        router: Router,
        group_id: str,
        record: GroupRecord,
        partition_counts: Mapping[str, int],
        instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.record = record
        # Responses in a row that returned less than was acknowledged.
        self._stale_answers = 0
        self.place = Membership(instance_id=instance_id)
        self.must_join = True
        # A younger process has the instance id, so this member must not rejoin.
        self.is_fenced = False
        self._cluster = cluster
        self._router = router
        self._scheduler = router.runtime.scheduler
        self._clock = router.runtime.clock
        self._partition_counts = partition_counts
        self._heartbeat_ms = 0

    async def join(self) -> list[TopicPartition]:
        """Join until there is an assignment and return its partitions; empty if the member is
        fenced.
        """
        while not self.is_fenced:
            joined = await self._join_group()
            if joined is None:
                continue
            answer = await self._sync_group(joined)
            if answer is None:
                continue
            self.must_join = False
            self._heartbeat_ms = self._clock.monotonic_ms()
            return self._note_assignment(decode_assignment(answer.assignment))
        return []

    async def _join_group(self) -> JoinGroupResponse | None:
        subscription = encode_blob(ConsumerProtocolSubscription(topics=[*self._partition_counts]))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.place.member_id,
            group_instance_id=self.place.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription)],
        )
        answer = await self._ask(request, REBALANCE_TIMEOUT_MS + CALL_TIMEOUT_MS)
        if answer is None:
            return None
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.place.member_id = answer.member_id
        if answer.error_code:
            return None
        self.place.member_id, self.place.generation_id = answer.member_id, answer.generation_id
        return answer  # type: ignore[no-any-return]  # by its API

    async def _sync_group(self, joined: JoinGroupResponse) -> Any:
        assigned = {}
        if joined.leader == self.place.member_id:
            wishes = {it.member_id: [*self._partition_counts] for it in joined.members}
            assigned = assign_by_range(wishes, self._partition_counts)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.place.generation_id,
            member_id=self.place.member_id,
            group_instance_id=self.place.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=[
                SyncGroupRequestAssignment(member_id=who, assignment=encode_assignment(partitions))
                for who, partitions in assigned.items()
            ],
        )
        answer = await self._ask(request, REBALANCE_TIMEOUT_MS + CALL_TIMEOUT_MS)
        return None if answer is None or answer.error_code else answer

    def _note_assignment(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        record, place = self.record, self.place
        if place.generation_id > record.newest_generation:
            record.newest_generation = place.generation_id
            record.generations += 1
        who = place.instance_id or place.member_id
        for partition in partitions:
            owner = record.owners.setdefault((place.generation_id, partition), who)
            if owner != who:
                self._cluster.fail(
                    f"{self.group_id}: {partition} belongs to {owner} and {who} in generation "
                    f"{place.generation_id}"
                )
        return partitions

    async def heartbeat(self) -> None:
        """Send a heartbeat if it is due; sets `must_join` if the coordinator requires
        a new join.
        """
        if self._clock.monotonic_ms() - self._heartbeat_ms < HEARTBEAT_INTERVAL_MS:
            return
        self._heartbeat_ms = self._clock.monotonic_ms()
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.place.generation_id,
            member_id=self.place.member_id,
            group_instance_id=self.place.instance_id,
        )
        await self._ask(request)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit positions as a member of this generation; return whether the commit was
        acknowledged.
        """
        record, place = self.record, self.place
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id=place.generation_id,
            member_id=place.member_id,
            group_instance_id=place.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for (topic, number), offset in sorted(offsets.items())
            ],
        )
        record.note_attempt(offsets)
        newest = record.newest_generation
        answer = await self._ask(request)
        if answer is None or any(error_codes(answer)):
            return False
        self.check_generation(newest)
        record.note_committed(offsets)
        return True

    def check_generation(self, newest: int) -> None:
        """Check a commit acknowledged after `newest` was the newest generation with
        an assignment.
        """
        if newest > self.place.generation_id:
            self._cluster.fail(
                f"{self.group_id}: a commit of generation {self.place.generation_id} is accepted "
                f"in generation {newest}"
            )

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """Return the committed offsets, 0 for partitions without one, or None if they are unknown
        now.

        Waits for commits of open transactions (KIP-447).
        """
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, []).append(number)
        floor = dict(self.record.acknowledged)
        request = OffsetFetchRequest(
            group_id=self.group_id,
            topics=[
                OffsetFetchRequestTopic(name=t, partition_indexes=n) for t, n in topics.items()
            ],
            require_stable=True,
        )
        answer = await self._ask(request)
        if answer is None or any(error_codes(answer)):
            return None
        found = {
            TopicPartition(topic.name, item.partition_index): max(item.committed_offset, 0)
            for topic in answer.topics
            for item in topic.partitions
        }
        wrong = [self._wrong(it, offset, floor.get(it, 0)) for it, offset in found.items()]
        if not any(wrong):
            self._stale_answers = 0
            return found
        # A deposed coordinator that does not know it returns old offsets, as Apache Kafka 2.7.2
        # does.
        self._stale_answers += 1
        if self._stale_answers > STALE_ANSWERS_MAX:
            self._cluster.fail(f"{self.group_id}: {', '.join(filter(None, wrong))}")
        await sleep(self._scheduler, PAUSE_MS)
        return None

    def _wrong(self, partition: TopicPartition, offset: int, floor: int) -> str:
        ceiling = self.record.attempted.get(partition, 0)
        if floor <= offset <= ceiling:
            return ""
        return (
            f"{partition} is at {offset}; {floor} was acknowledged, up to {ceiling} was committed"
        )

    async def leave(self) -> None:
        """Give up the partitions at once, if the request reaches the coordinator."""
        members = [
            MemberIdentity(member_id=self.place.member_id, group_instance_id=self.place.instance_id)
        ]
        await self._ask(LeaveGroupRequest(group_id=self.group_id, members=members))

    async def _ask(self, request: Message, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        """Return the response, or None; sets `must_join` if the member lost its place."""
        try:
            answer = await self._router.send_to_coordinator(
                self.group_id, request, timeout_ms=timeout_ms
            )
        except KctlError:
            await sleep(self._scheduler, PAUSE_MS)
            return None
        codes = {ErrorCode(code) for code in error_codes(answer)}
        if codes & _LOST:
            self.must_join = True
        if ErrorCode.UNKNOWN_MEMBER_ID in codes:
            self.place.member_id = ""
        if ErrorCode.FENCED_INSTANCE_ID in codes:
            self.is_fenced = True
        if (
            ErrorCode.UNKNOWN_SERVER_ERROR in codes
            or ErrorCode.INCONSISTENT_GROUP_PROTOCOL in codes
        ):
            self._cluster.fail(f"{self.group_id}: {type(request).__name__} meets {codes}")
        return answer
