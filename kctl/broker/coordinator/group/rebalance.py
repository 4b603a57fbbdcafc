"""Rebalance: how a group gets from one generation to the next. Pure.

`prepare` tells the members (through their heartbeats) to join again and sets the join timer. A
rebalance completes as soon as every member waits in JoinGroup, or when the timer fires: then who
did not come is out, but for static members, whose place is kept until their session ends. The
first rebalance of an Empty group always waits `group.initial.rebalance.delay.ms`, and again while
members keep coming, so that a group that starts up together does not rebalance for each of them.

Then the leader has the rebalance timeout to send the assignment, and everybody else to ask for
theirs; who does not is out (KAFKA-12890: without this a group could wait for ever in
CompletingRebalance, as members that wait for the coordinator need no heartbeats).

Kafka 2.7: kafka.coordinator.group.GroupCoordinator, DelayedJoin, InitialDelayedJoin; KIP-134.
"""

from collections.abc import Mapping
from functools import partial

from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.records import group_record
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.group.subscriptions import subscribed_topics
from kctl.broker.coordinator.outcome import Moment, Outcome, Write
from kctl.broker.coordinator.timers import Timer, TimerQueue
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.messages.sync_group import SyncGroupResponse

# A member that is new may wait this long for its first generation; then it has to ask again,
# as its client may be gone (its socket is not read while it waits).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class Rebalance:
    """The way from generation to generation, for all groups of a shard."""

    def __init__(self, settings: GroupSettings, timers: TimerQueue) -> None:
        self._settings = settings
        self._timers = timers

    def new_group(self, group_id: str, wall_ms: int | None) -> Group:
        """An Empty group that nobody knows yet."""
        join_timer = Timer(lambda moment, outcome: self._join_time_is_up(group, moment, outcome))
        sync_timer = Timer(lambda moment, outcome: self._sync_time_is_up(group, moment, outcome))
        group = Group(group_id, join_timer, sync_timer, wall_ms)
        return group

    def start_session(self, group: Group, member: Member, deadline_ms: int) -> None:
        """The member that is new in `group` must be heard of before `deadline_ms`."""
        member.session = Timer(partial(self._session_is_over, group, member))
        self._timers.set(member.session, deadline_ms)

    def renew_session(self, member: Member, now_ms: int) -> None:
        """It was heard of: its silence counts from now."""
        self._timers.set(member.session, now_ms + member.session_timeout_ms)

    # Joining

    def maybe_prepare(self, group: Group, reason: str, moment: Moment, outcome: Outcome) -> None:
        """Begin a rebalance unless one is being prepared already."""
        if group.can_rebalance:
            self.prepare(group, reason, moment, outcome)

    def prepare(self, group: Group, reason: str, moment: Moment, outcome: Outcome) -> None:
        """Begin a rebalance; who waits for an assignment learns that there will be none."""
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
        """End the preparation if nobody is missing, but never the initial delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_delay_left_ms is None
            and group.has_all_joined
        ):
            self._complete(group, moment, outcome)

    def _join_time_is_up(self, group: Group, moment: Moment, outcome: Outcome) -> None:
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
        for member in [m for m in group.members.values() if m.join_reply is None]:
            if not member.is_static:
                self._timers.cancel(member.session)
                group.remove(member)
                outcome.event("group_member_did_not_rejoin", group=group.group_id,
                              member=member.member_id)  # fmt: skip
        group.has_new_member = False
        group.initial_delay_left_ms = None
        if not group.elect_joined_leader() and group.members:
            # Only static members that are away: wait for one, or for their sessions to end.
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
        group.subscribed_topics = subscribed_topics(group)
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
        for member in group.members.values():
            member.is_new = False
            self.renew_session(member, moment.monotonic_ms)
            self.answer_join(group, member, generation_response(group, member), outcome)

    def _become_empty(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        group.protocol_name = None
        group.subscribed_topics = subscribed_topics(group)
        group.transition_to(GroupState.EMPTY, moment.wall_ms)
        outcome.event("group_empty", group=group.group_id, generation=group.generation_id)
        # If this is not stored the last generation comes back after a failover, and times out.
        outcome.writes.append(self.store(group, {}))

    def answer_join(
        self, group: Group, member: Member, response: JoinGroupResponse, outcome: Outcome
    ) -> None:
        """Tell whoever waits for the member's JoinGroup, if somebody does."""
        reply = group.set_join_reply(member, None)
        if reply is not None:
            outcome.reply(reply, response)

    # Syncing

    def store(self, group: Group, assignments: Mapping[str, bytes]) -> Write:
        """The group as it is to be found in the log, each member with its assignment."""
        return Write([group_record(group, assignments, self._settings.group_value_version)])

    def assign(
        self, group: Group, assignments: Mapping[str, bytes], moment: Moment, outcome: Outcome
    ) -> None:
        """The generation's assignment is in the log: the group is Stable, all may know."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(GroupState.STABLE, moment.wall_ms)
        outcome.event("group_stable", group=group.group_id, generation=group.generation_id)
        for member in group.members.values():
            if member.sync_reply is not None:
                self._answer_sync(member, assignment_response(group, member), moment, outcome)

    def fail_syncs(self, group: Group, code: int, moment: Moment, outcome: Outcome) -> None:
        """There is no assignment for this generation; who waits for one has to know."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                self._answer_sync(member, SyncGroupResponse(error_code=code), moment, outcome)

    def _answer_sync(
        self, member: Member, response: SyncGroupResponse, moment: Moment, outcome: Outcome
    ) -> None:
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            self.renew_session(member, moment.monotonic_ms)
            outcome.reply(reply, response)

    def _sync_time_is_up(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = [group.members[i] for i in group.pending_sync if i in group.members]
        group.pending_sync.clear()
        for member in late:
            self.expel(group, member, outcome)
        if late:
            reason = f"{len(late)} members did not send SyncGroup in time"
            self.maybe_prepare(group, reason, moment, outcome)

    # Leaving

    def remove(
        self, group: Group, member: Member, reason: str, moment: Moment, outcome: Outcome
    ) -> None:
        """The member is gone; the others share what it had."""
        self.expel(group, member, outcome)
        outcome.event(
            "group_member_removed", group=group.group_id, member=member.member_id, reason=reason
        )
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.maybe_prepare(group, reason, moment, outcome)
        else:
            self.maybe_complete(group, moment, outcome)

    def expel(self, group: Group, member: Member, outcome: Outcome) -> None:
        """Out it goes. If it waits it learns that it is unknown, so that it asks for a new
        id if it is still there."""
        self.answer_join(group, member, join_error(ErrorCode.UNKNOWN_MEMBER_ID), outcome)
        if member.sync_reply is not None:
            outcome.reply(
                member.sync_reply, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            )
            member.sync_reply = None
        self._timers.cancel(member.session)
        group.remove(member)

    def _session_is_over(
        self, group: Group, member: Member, moment: Moment, outcome: Outcome
    ) -> None:
        if group.members.get(member.member_id) is not member:
            return
        if member.is_waiting and not member.is_new:
            self.renew_session(member, moment.monotonic_ms)
            return
        self.remove(group, member, "its session timed out", moment, outcome)

    # Pending members

    def add_pending(self, group: Group, member_id: str, deadline_ms: int) -> None:
        """`member_id` was given to somebody, who should join with it before `deadline_ms`."""

        def expired(moment: Moment, outcome: Outcome) -> None:
            self.drop_pending(group, member_id)
            self.maybe_complete(group, moment, outcome)

        timer = group.pending_members[member_id] = Timer(expired)
        self._timers.set(timer, deadline_ms)

    def drop_pending(self, group: Group, member_id: str) -> None:
        """Nobody is to join with `member_id` any more; fine if nobody was."""
        timer = group.pending_members.pop(member_id, None)
        if timer is not None:
            self._timers.cancel(timer)

    # The end

    def bury(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        """The group was deleted or moves away: Dead. Who waits is sent to look for its
        coordinator."""
        not_coordinator = ErrorCode.NOT_COORDINATOR
        for member in group.members.values():
            response = join_error(not_coordinator, member.member_id)
            self.answer_join(group, member, response, outcome)
            if member.sync_reply is not None:
                outcome.reply(member.sync_reply, SyncGroupResponse(error_code=not_coordinator))
                member.sync_reply = None
            self._timers.cancel(member.session)
        for member_id in list(group.pending_members):
            self.drop_pending(group, member_id)
        self._timers.cancel(group.join_timer)
        self._timers.cancel(group.sync_timer)
        group.transition_to(GroupState.DEAD, moment.wall_ms)


def join_error(code: int, member_id: str = "") -> JoinGroupResponse:
    """The answer to a JoinGroup that failed."""
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_type=None, protocol_name=None, leader="",
        member_id=member_id, members=[],
    )  # fmt: skip


def generation_response(group: Group, member: Member) -> JoinGroupResponse:
    """The current generation as `member` is told of it: only the leader learns of the others,
    and what each says for the chosen protocol."""
    name = group.protocol_name or ""
    members = []
    if member.member_id == group.leader_id:
        members = [
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.group_instance_id,
                metadata=other.protocols[name],
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=0,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def assignment_response(group: Group, member: Member) -> SyncGroupResponse:
    """The member's part of the current assignment."""
    return SyncGroupResponse(
        error_code=0,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
