"""GroupMember: a member of a consumer group, from its first JoinGroup to its LeaveGroup.

States: OUT -> join -> STABLE -> (rebalance, or the coordinator forgot the member) -> REJOIN -> join
... Heartbeats are sent in the background while the loop runs. They only record what the coordinator
answers; the consumer checks `must_rejoin` between polls, so that it commits offsets first. A
heartbeat that reaches no coordinator is followed by the next one: the coordinator says whether the
session is over. The leader of the group assigns partitions by range, Kafka's default, for all
members.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.AbstractCoordinator, ConsumerCoordinator,
org.apache.kafka.clients.consumer.RangeAssignor; KIP-62, KIP-394
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from kctl.client.assignment import assign_by_range, decode_assignment, encode_assignment
from kctl.client.offsets import commit_codes, commit_topics
from kctl.client.results import raise_for
from kctl.errors import KctlError, TimedOutError, UnreachableError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.internal.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_blob,
    encode_blob,
)
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kctl.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.messages.offset_commit import OffsetCommitRequest
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.runtime.scheduler import Timer

ASSIGNOR = "range"
_JOINS_MAX = 50
# Errors of the coordinator after which the member must join again.
_REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class MemberState(Enum):
    """The states of a member."""

    OUT = auto()
    STABLE = auto()
    REJOIN = auto()


class GroupMember:
    """The membership of `group_id`, subscribed to `topics`."""

    def __init__(
        self,
        router: "Router",
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_interval_ms: int = 3_000,
    ) -> None:
        self.group_id = group_id
        self.topics = list(topics)
        self.state = MemberState.OUT
        self.member_id = ""
        self.generation_id = -1
        # A permanent error that ended the heartbeats; the next `check` raises it.
        self._fatal: KctlError | None = None
        self._router = router
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._timer: Timer | None = None

    @property
    def must_rejoin(self) -> bool:
        """Return whether the member no longer owns its assignment."""
        return self.state is not MemberState.STABLE

    async def join(self) -> list[TopicPartition]:
        """Join the group and return the assigned partitions. This waits for other members, at most
        for the rebalance timeout."""
        self._stop_heartbeats()
        self._fatal = None
        # Whatever fails below: an earlier assignment is no longer its own.
        self.rejoin()
        for _ in range(_JOINS_MAX):
            try:
                joined = await self._join_group()
                assignment = await self._sync_group(joined)
            except ApiError as error:
                self._note(error)
                continue
            self.state = MemberState.STABLE
            self._schedule_heartbeat()
            return assignment
        raise TimedOutError(f"Group {self.group_id} keeps rebalancing")

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to other topics, from the next `join` on, which becomes due."""
        if list(topics) != self.topics:
            self.topics = list(topics)
            self.rejoin()

    def rejoin(self) -> None:
        """Make a `join` due: the caller's last request showed that the generation is over."""
        if self.state is MemberState.STABLE:
            self.state = MemberState.REJOIN

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit offsets as this member; a rebalance in progress only sets `must_rejoin`."""
        if not offsets or self.state is MemberState.OUT:
            return
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            topics=commit_topics(offsets, metadata),
        )
        response = await self._router.send_to_coordinator(self.group_id, request)
        for code in commit_codes(response).values():
            if code:
                self._note(ApiError(code))

    async def leave(self, timeout_ms: int | None = None) -> None:
        """Give up the partitions at once, not after the session timeout. Raise UnreachableError if
        the coordinator does not answer within `timeout_ms` (None: the router's)."""
        self._stop_heartbeats()
        if self.state is MemberState.OUT or not self.member_id:
            return
        self.state = MemberState.OUT
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        if await self._router.max_version(ApiKey.LEAVE_GROUP, timeout_ms) >= 3:
            members = [MemberIdentity(member_id=self.member_id)]
            request = LeaveGroupRequest(group_id=self.group_id, members=members)
        await self._router.send_to_coordinator(self.group_id, request, timeout_ms=timeout_ms)

    def check(self) -> None:
        """Raise the permanent error that ended the heartbeats, if any, once; a `join` is due
        then."""
        error, self._fatal = self._fatal, None
        if error is not None:
            raise error

    async def _join_group(self) -> JoinGroupResponse:
        subscription = encode_blob(ConsumerProtocolSubscription(topics=self.topics))
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription)],
        )
        response: JoinGroupResponse = await self._router.send_to_coordinator(
            self.group_id, request, timeout_ms=self._rebalance_timeout_ms + 5_000
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        raise_for(response.error_code)
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        return response

    async def _sync_group(self, joined: JoinGroupResponse) -> list[TopicPartition]:
        assignments: dict[str, list[TopicPartition]] = {}
        if joined.leader == self.member_id:
            assignments = await self._assign(joined)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encode_assignment(partitions)
                )
                for member_id, partitions in assignments.items()
            ],
        )
        response = await self._router.send_to_coordinator(
            self.group_id, request, timeout_ms=self._rebalance_timeout_ms + 5_000
        )
        raise_for(response.error_code)
        return decode_assignment(response.assignment)

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        wishes = {
            member.member_id: decode_blob(ConsumerProtocolSubscription, member.metadata).topics
            for member in joined.members
        }
        topics = sorted({topic for wished in wishes.values() for topic in wished})
        view = await self._router.refresh(topics)
        return assign_by_range(wishes, {topic: len(view.partitions_of(topic)) for topic in topics})

    def _note(self, error: ApiError) -> None:
        """Treat a coordinator's error as a reason to join again, or raise it."""
        if error.code not in _REJOIN:
            raise error
        self.state = MemberState.REJOIN
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _schedule_heartbeat(self) -> None:
        scheduler = self._router.runtime.scheduler
        self._timer = scheduler.call_later(
            self._heartbeat_interval_ms, lambda: scheduler.spawn(self._heartbeat(), "heartbeat")
        )

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id
        )
        timer = self._timer
        try:
            response = await self._router.send_to_coordinator(self.group_id, request)
            raise_for(response.error_code)
        except KctlError as error:
            if timer is self._timer:
                self._take_failure(error)
        if timer is not self._timer:
            return  # joined again or left meanwhile: this response is outdated
        if self.state is MemberState.STABLE:
            self._schedule_heartbeat()

    def _take_failure(self, error: KctlError) -> None:
        """Treat the error of a heartbeat as one that may pass, as a reason to join again, or as
        permanent."""
        if isinstance(error, UnreachableError):
            return
        if isinstance(error, ApiError) and error.code.retriable:
            return
        if not isinstance(error, ApiError) or error.code not in _REJOIN:
            self._fatal = error
            self.rejoin()
            return
        self._note(error)

    def _stop_heartbeats(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
