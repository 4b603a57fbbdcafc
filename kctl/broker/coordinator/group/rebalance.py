"""Rebalance: moves a group from one generation to the next. Pure.

`prepare` asks the members (through their heartbeats) to rejoin and sets the join timer. A rebalance
completes as soon as every member waits in JoinGroup, or when the timer fires. Members that did not
rejoin are then removed, except static members, which keep their place until their session expires.
The first rebalance of an Empty group always waits `group.initial.rebalance.delay.ms`, and again
while members keep arriving, so that a group that starts up does not rebalance for each member.

Then the leader has the rebalance timeout to send the assignment, and the other members to request
theirs. Members that do not are removed (KAFKA-12890: without this a group could stay in
CompletingRebalance forever, because members that wait for the coordinator need no heartbeats).

Kafka 2.7: kafka.coordinator.group.GroupCoordinator, DelayedJoin, InitialDelayedJoin; KIP-134.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.member_memory import MemberMemory
from kctl.broker.coordinator.group.records import GroupRecord, group_record, stored_member
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.group.subscriptions import subscribed_topics
from kctl.broker.coordinator.outcome import Later, Moment, Outcome, Reply, ReplyStream, Write
from kctl.broker.coordinator.timers import Timer, TimerQueue
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.consumer_offsets import MemberMetadata
from kctl.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.messages.sync_group import SyncGroupResponse
from kctl.work import Work, at_once, parts, while_wanted

# How long a new member may wait for its first generation. After that it must retry, because its
# client may be gone (its socket is not read while it waits).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# Members added to a group's record per turn of the loop.
MEMBERS_PER_TURN = 1_000
# Members that are removed in one turn because they did not rejoin or sync in time.
REMOVED_PER_TURN = 500


class Rebalance:
    """The transitions between generations, for all groups of a shard."""

    def __init__(self, settings: GroupSettings, timers: TimerQueue, memory: MemberMemory) -> None:
        self._settings = settings
        self._timers = timers
        self._memory = memory

    def new_group(self, group_id: str, wall_ms: int | None) -> Group:
        """Return an Empty group that is not yet registered."""
        join_timer = Timer(lambda moment, outcome: self._on_join_timeout(group, moment, outcome))
        sync_timer = Timer(lambda moment, outcome: self._on_sync_timeout(group, moment, outcome))
        group = Group(group_id, join_timer, sync_timer, wall_ms, self._memory)
        return group

    def start_session(self, group: Group, member: Member, deadline_ms: int) -> None:
        """Start the session of a new member, which expires at `deadline_ms` unless renewed."""
        member.session = Timer(partial(self._on_session_timeout, group, member))
        self._timers.set(member.session, deadline_ms)

    def renew_session(self, member: Member, now_ms: int) -> None:
        """Extend the member's session to its full timeout from now."""
        self._timers.set(member.session, now_ms + member.session_timeout_ms)

    # Joining

    def maybe_prepare(self, group: Group, reason: str, moment: Moment, outcome: Outcome) -> None:
        """Begin a rebalance unless one is already being prepared."""
        if group.can_rebalance:
            self.prepare(group, reason, moment, outcome)

    def prepare(self, group: Group, reason: str, moment: Moment, outcome: Outcome) -> None:
        """Begin a rebalance; fail pending SyncGroups, because no assignment will follow."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, moment, outcome)
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, moment.wall_ms)
        self._timers.cancel(group.sync_timer)
        group.pending_sync.clear()
        outcome.event(
            "group_preparing_rebalance",
            group=group.group_id,
            generation=group.generation_id,
            reason=reason,
        )
        timeout_ms = group.rebalance_timeout_ms
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._timers.set(group.join_timer, moment.monotonic_ms + delay_ms)
        else:
            group.initial_delay_left_ms = None
            self._timers.set(group.join_timer, moment.monotonic_ms + timeout_ms)
            self.maybe_complete(group, moment, outcome)

    def maybe_complete(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        """Complete the rebalance if all members have rejoined; the initial delay is never
        shortened."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay_left_ms is None
            and group.has_all_joined
        ):
            self._complete(group, moment, outcome)

    def _on_join_timeout(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        left_ms = group.initial_delay_left_ms
        if left_ms and group.has_new_member:
            group.has_new_member = False
            group.initial_delay_left_ms = max(left_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = min(self._settings.initial_rebalance_delay_ms, left_ms)
            self._timers.set(group.join_timer, moment.monotonic_ms + group.initial_delay_ms)
            return
        self._complete(group, moment, outcome)

    def _complete(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        group.has_new_member = False
        group.initial_delay_left_ms = None
        members = group.members.values()
        absent = [m for m in members if m.join_reply is None and not m.is_static]
        for member in absent[:REMOVED_PER_TURN]:
            self._timers.cancel(member.session)
            group.remove(member)
            outcome.event("group_member_did_not_rejoin", group=group.group_id,
                          member=member.member_id)  # fmt: skip
        if len(absent) > REMOVED_PER_TURN:
            self._timers.set(group.join_timer, moment.monotonic_ms)
            return
        if not group.elect_joined_leader() and group.members:
            # Only absent static members are left: wait until one rejoins or its session expires.
            self._timers.set(group.join_timer, moment.monotonic_ms + group.rebalance_timeout_ms)
            return
        self._timers.cancel(group.join_timer)
        group.generation_id += 1
        if group.members:
            self._begin_generation(group, moment, outcome)
        else:
            self._become_empty(group, moment, outcome)

    def _begin_generation(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        group.protocol_name = group.select_protocol()
        group.subscribed_topics = None
        outcome.later.append(Later(self._learn_topics(group)))
        group.transition_to(GroupState.COMPLETING_REBALANCE, moment.wall_ms)
        group.pending_sync = dict.fromkeys(group.members)
        self._timers.set(group.sync_timer, moment.monotonic_ms + group.rebalance_timeout_ms)
        outcome.event(
            "group_generation",
            group=group.group_id,
            generation=group.generation_id,
            members=len(group.members),
            leader=group.leader_id,
        )
        waiting: list[tuple[Member, Reply]] = []
        for member in group.members.values():
            reply = group.set_join_reply(member, None)
            if reply is not None:
                waiting.append((member, reply))
            if reply is None or not member.is_new:
                self.renew_session(member, moment.monotonic_ms)
        facts = GenerationFacts(group, group.members.values())
        outcome.streams.append(self._responses(group, facts, waiting, moment))

    def _responses(
        self,
        group: Group,
        facts: "GenerationFacts",
        waiting: Sequence[tuple[Member, Reply]],
        moment: Moment,
    ) -> ReplyStream:
        """Yield the replies of the generation that began at `moment`."""
        is_large = len(waiting) > MEMBERS_PER_TURN
        if is_large:
            yield None
        for member, reply in waiting:
            member_id = member.member_id
            if member.is_new and group.members.get(member_id) is member:
                # Its session was as long as a new member may take to join. To end it earlier is
                # more work than to extend those of the others.
                member.is_new = False
                self.renew_session(member, moment.monotonic_ms)
            yield reply, facts.response(member_id)
            if is_large and member_id == facts.leader_id:
                yield None

    def _learn_topics(self, group: Group) -> Work[Outcome]:
        generation_id = group.generation_id

        def is_current() -> bool:
            return group.generation_id == generation_id

        # Of the generations of a group, the topics of only one are read at a time.
        topics = yield from while_wanted(subscribed_topics(group), is_current)
        if is_current():
            group.subscribed_topics = topics
        return Outcome()

    def _become_empty(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        group.protocol_name = None
        group.subscribed_topics = set() if group.is_consumer_group else None
        group.transition_to(GroupState.EMPTY, moment.wall_ms)
        outcome.event("group_empty", group=group.group_id, generation=group.generation_id)
        # If this write fails, the last generation reappears after a failover and times out.
        record = at_once(group_record(group, [], self._settings.group_value_version))
        outcome.writes.append(Write([record]))

    def answer_join(
        self, group: Group, member: Member, response: JoinGroupResponse, outcome: Outcome
    ) -> None:
        """Reply to the member's pending JoinGroup, if any."""
        reply = group.set_join_reply(member, None)
        if reply is not None:
            outcome.reply(reply, response)

    # Syncing

    def generation_record(
        self, group: Group, assignments: Mapping[str, bytes]
    ) -> Work[GroupRecord | None]:
        """Return the record of the current generation, each member with its assignment; None if
        the generation or the group's state ends before the record is complete.

        Each turn adds MEMBERS_PER_TURN members, and then encodes as many.
        """
        generation_id, state = group.generation_id, group.state
        stored: list[MemberMetadata] = []
        for part in parts(list(group.members.values()), MEMBERS_PER_TURN):
            if stored:
                yield
                if group.state is not state or group.generation_id != generation_id:
                    return None
            stored += [
                stored_member(group, member, assignments.get(member.member_id, b""))
                for member in part
            ]
        record = yield from group_record(group, stored, self._settings.group_value_version)
        return record if group.state is state and group.generation_id == generation_id else None

    def assign(
        self, group: Group, assignments: Mapping[str, bytes], moment: Moment, outcome: Outcome
    ) -> None:
        """Make the group Stable, now that its assignment is in the log, and reply to waiting
        members."""
        for member in group.members.values():
            group.set_assignment(member, assignments.get(member.member_id, b""))
        group.transition_to(GroupState.STABLE, moment.wall_ms)
        outcome.event("group_stable", group=group.group_id, generation=group.generation_id)
        facts = group.protocol_type, group.protocol_name
        outcome.streams.append(
            (
                reply,
                SyncGroupResponse(
                    error_code=0,
                    protocol_type=facts[0],
                    protocol_name=facts[1],
                    assignment=assignment,
                ),
            )
            for reply, assignment in self._take_sync_replies(group, moment)
        )

    def fail_syncs(self, group: Group, code: int, moment: Moment, outcome: Outcome) -> None:
        """Clear the generation's assignment and fail the pending SyncGroups with `code`."""
        for member in group.members.values():
            group.set_assignment(member, b"")
        outcome.streams.append(
            (reply, SyncGroupResponse(error_code=code))
            for reply, _ in self._take_sync_replies(group, moment)
        )

    def _take_sync_replies(self, group: Group, moment: Moment) -> list[tuple[Reply, bytes]]:
        """Remove and return the pending SyncGroup replies, each with its member's assignment."""
        waiting: list[tuple[Reply, bytes]] = []
        for member in group.members.values():
            if member.sync_reply is not None:
                waiting.append((member.sync_reply, member.assignment))
                member.sync_reply = None
                self.renew_session(member, moment.monotonic_ms)
        return waiting

    def _on_sync_timeout(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = [group.members[i] for i in group.pending_sync if i in group.members]
        for member in late[:REMOVED_PER_TURN]:
            self.expel(group, member, outcome)
        if len(late) > REMOVED_PER_TURN:
            self._timers.set(group.sync_timer, moment.monotonic_ms)
            return
        group.pending_sync.clear()
        # Without an assignment under way the members that sent SyncGroup would wait forever.
        is_assigned = group.stored_generation == group.generation_id
        if late or (group.state is GroupState.COMPLETING_REBALANCE and not is_assigned):
            reason = f"{len(late)} members did not send SyncGroup in time"
            self.maybe_prepare(group, reason, moment, outcome)

    # Leaving

    def remove(
        self, group: Group, member: Member, reason: str, moment: Moment, outcome: Outcome
    ) -> None:
        """Remove a member and rebalance its partitions among the others."""
        self.expel(group, member, outcome)
        outcome.event(
            "group_member_removed", group=group.group_id, member=member.member_id, reason=reason
        )
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.maybe_prepare(group, reason, moment, outcome)
        else:
            self.maybe_complete(group, moment, outcome)

    def expel(self, group: Group, member: Member, outcome: Outcome) -> None:
        """Remove a member; its pending requests get UNKNOWN_MEMBER_ID, so that a live client
        requests a new id."""
        if member.join_reply is not None:
            self.answer_join(group, member, join_error(ErrorCode.UNKNOWN_MEMBER_ID), outcome)
        if member.sync_reply is not None:
            outcome.reply(
                member.sync_reply, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            )
            member.sync_reply = None
        self._end_session(member)
        group.remove(member)

    def _end_session(self, member: Member) -> None:
        self._timers.cancel(member.session)
        # The timer and the member refer to each other: without this, both would stay in memory
        # until the next garbage collection.
        member.session = Timer(_nothing)

    def _on_session_timeout(
        self, group: Group, member: Member, moment: Moment, outcome: Outcome
    ) -> None:
        if group.members.get(member.member_id) is not member:
            return
        if member.is_waiting and not member.is_new:
            self.renew_session(member, moment.monotonic_ms)
            return
        self.remove(group, member, "its session timed out", moment, outcome)

    # Pending members

    def add_pending(
        self,
        group: Group,
        member_id: str,
        deadline_ms: int,
        on_expired: Callable[[Moment, Outcome], None],
    ) -> None:
        """Reserve `member_id` for a member that must join with it before `deadline_ms`."""
        timer = Timer(on_expired)
        group.add_pending(member_id, timer)
        self._timers.set(timer, deadline_ms)

    def drop_pending(self, group: Group, member_id: str) -> None:
        """Cancel the reservation of `member_id`, if any."""
        timer = group.remove_pending(member_id)
        if timer is not None:
            self._timers.cancel(timer)

    # The end

    def mark_dead(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        """Make a group Dead that was deleted or moves away; pending requests get
        NOT_COORDINATOR."""
        not_coordinator = ErrorCode.NOT_COORDINATOR
        for member in group.members.values():
            reply = group.set_join_reply(member, None)
            if reply is not None:
                outcome.reply(reply, join_error(not_coordinator, member.member_id))
            if member.sync_reply is not None:
                outcome.reply(member.sync_reply, SyncGroupResponse(error_code=not_coordinator))
                member.sync_reply = None
            self._end_session(member)
        for member_id in list(group.pending_members):
            self.drop_pending(group, member_id)
        group.forget_members()
        self._timers.cancel(group.join_timer)
        self._timers.cancel(group.sync_timer)
        group.transition_to(GroupState.DEAD, moment.wall_ms)


def _nothing(_moment: Moment, _outcome: Outcome) -> None:
    """Do nothing: the callback of a session that has ended."""


def join_error(code: int, member_id: str = "") -> JoinGroupResponse:
    """Return the response to a JoinGroup that failed."""
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_type=None, protocol_name=None, leader="",
        member_id=member_id, members=[],
    )  # fmt: skip


# (member id, instance id, metadata for the chosen protocol)
JoinedMember = tuple[str, str | None, bytes]


class GenerationFacts:
    """The content of the JoinGroup responses of a group's current generation, captured at once:
    the group may change before the last of them is sent."""

    def __init__(self, group: Group, members: Iterable[Member]) -> None:
        """Capture the facts; the leader's response lists `members`."""
        name = group.protocol_name or ""
        self._generation_id = group.generation_id
        self._protocol_type = group.protocol_type
        self._protocol_name = group.protocol_name
        self.leader_id = group.leader_id or ""
        self._members: list[JoinedMember] = [
            (member.member_id, member.group_instance_id, member.protocols[name])
            for member in members
        ]

    def response(self, member_id: str) -> JoinGroupResponse:
        """Return the response for one member; only the leader receives the list of members."""
        members = self._members if member_id == self.leader_id else ()
        return JoinGroupResponse(
            error_code=0,
            generation_id=self._generation_id,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol_name,
            leader=self.leader_id,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=member_id, group_instance_id=instance_id, metadata=metadata
                )
                for member_id, instance_id, metadata in members
            ],
        )


def assignment_response(group: Group, member: Member) -> SyncGroupResponse:
    """Return the SyncGroup response with the member's part of the current assignment."""
    return SyncGroupResponse(
        error_code=0,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
