"""Membership: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of one shard. Pure.

Requests are checked in the order of Kafka 2.7: whether another member holds the instance id
(FENCED), whether the member is known, whether the generation is current. Only then does the group's
state matter.

Kafka 2.7: kafka.coordinator.group.GroupCoordinator; KIP-345 (static members), KIP-394 (member id
required), KIP-389 (group.max.size), KIP-559 (protocol checked in SyncGroup).
"""

from collections.abc import Sequence
from dataclasses import field

from kctl.broker.coordinator.group.append_errors import group_error
from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.member_memory import PROTOCOLS_MAX
from kctl.broker.coordinator.group.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    GenerationFacts,
    Rebalance,
    assignment_response,
    join_error,
)
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.outcome import Later, Moment, Outcome, Reply, Settled, Write
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kctl.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from kctl.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kctl.work import Work, parts

# Length of what is added to a client's id or instance id to make a member id: "-" and a uuid.
UUID_BYTES = 37
# Assignments of a SyncGroup request that are read per turn of the loop.
ASSIGNMENTS_PER_TURN = 2_000
# Plain integers, because heartbeats are frequent.
_NONE = int(ErrorCode.NONE)
_UNKNOWN_MEMBER_ID = int(ErrorCode.UNKNOWN_MEMBER_ID)
_ILLEGAL_GENERATION = int(ErrorCode.ILLEGAL_GENERATION)
_REBALANCE_IN_PROGRESS = int(ErrorCode.REBALANCE_IN_PROGRESS)
_UNKNOWN_SERVER_ERROR = int(ErrorCode.UNKNOWN_SERVER_ERROR)
_FENCED_INSTANCE_ID = int(ErrorCode.FENCED_INSTANCE_ID)


@dataclass(slots=True)
class JoinAttempt:
    """A JoinGroup request with facts from the connection and the runtime."""

    body: JoinGroupRequest
    client_id: str
    client_host: str
    # A dynamic member must rejoin with the id it is assigned before it is admitted (KIP-394).
    is_member_id_required: bool
    # A random uuid, for a member without a member id.
    uuid: str
    # Takes the JoinGroupResponse.
    reply: Reply
    _protocols: dict[str, bytes] | None = field(default=None, init=False)

    @property
    def name_bytes(self) -> int:
        """Return the length of the ids and names of a new member."""
        instance_id = self.body.group_instance_id or ""
        member_id_bytes = len(instance_id or self.client_id) + UUID_BYTES
        return member_id_bytes + len(instance_id) + len(self.client_id) + len(self.client_host)

    @property
    def protocols(self) -> dict[str, bytes]:
        """Return name -> metadata, in order of preference."""
        found = self._protocols
        if found is None:
            found = {protocol.name: protocol.metadata for protocol in self.body.protocols}
            self._protocols = found
        return found


class Membership:
    """The members of the shard's groups."""

    def __init__(
        self, groups: dict[str, Group], rebalance: Rebalance, settings: GroupSettings
    ) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._settings = settings

    # JoinGroup

    def join(self, attempt: JoinAttempt, moment: Moment) -> Outcome:
        """Handle JoinGroup; the reply comes at once, or when the next generation begins."""
        outcome = Outcome()
        body = attempt.body
        bounds = self._settings
        timeout_ms = body.session_timeout_ms
        if not bounds.session_timeout_min_ms <= timeout_ms <= bounds.session_timeout_max_ms:
            error = join_error(ErrorCode.INVALID_SESSION_TIMEOUT, body.member_id)
            return outcome.reply(attempt.reply, error)
        group = self._groups.get(body.group_id)
        if group is None:
            if body.member_id:
                error = join_error(ErrorCode.UNKNOWN_MEMBER_ID, body.member_id)
                return outcome.reply(attempt.reply, error)
            # The shard registers the group only when it gets a member or a pending member.
            group = self._rebalance.new_group(body.group_id, moment.wall_ms)
        self._join_group(group, attempt, moment, outcome)
        self._rebalance.maybe_complete(group, moment, outcome)
        return outcome

    def _join_group(
        self, group: Group, attempt: JoinAttempt, moment: Moment, outcome: Outcome
    ) -> None:
        body = attempt.body
        code = _NONE
        if not self._has_room(group, attempt):
            self._reject(group, attempt, moment, outcome)
        elif not group.supports(body.protocol_type, attempt.protocols):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif not body.member_id:
            self._join_without_id(group, attempt, moment, outcome)
        elif body.member_id in group.pending_members and body.group_instance_id is None:
            self._add_member(group, body.member_id, attempt, moment, outcome)
        elif group.is_fenced(body.member_id, body.group_instance_id):
            code = ErrorCode.FENCED_INSTANCE_ID
        elif body.member_id not in group.members or (
            body.group_instance_id is not None
            and body.group_instance_id not in group.static_members
        ):
            code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            self._rejoin(group, group.members[body.member_id], attempt, moment, outcome)
        if code != _NONE:
            outcome.reply(attempt.reply, join_error(code, body.member_id))

    def _has_room(self, group: Group, attempt: JoinAttempt) -> bool:
        member_id = attempt.body.member_id
        return (
            self._has_place(group, member_id)
            and len(attempt.body.protocols) <= PROTOCOLS_MAX
            and group.has_room_for(member_id, attempt.name_bytes, attempt.protocols)
        )

    def _has_place(self, group: Group, member_id: str) -> bool:
        size_max = self._settings.group_size_max
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Count the members that wait, not all members: a group that exceeds a lowered limit
            # then loses the members that rejoin last.
            waits = member is not None and member.join_reply is not None
            return waits or group.awaiting_join_count < size_max
        return member is not None or len(group.members) < size_max

    def _reject(self, group: Group, attempt: JoinAttempt, moment: Moment, outcome: Outcome) -> None:
        member = group.members.get(attempt.body.member_id)
        if member is not None:
            reason = f"{member.member_id} found no room as it joined again"
            self._rebalance.remove(group, member, reason, moment, outcome)
        outcome.reply(attempt.reply, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))

    def _join_without_id(
        self, group: Group, attempt: JoinAttempt, moment: Moment, outcome: Outcome
    ) -> None:
        body = attempt.body
        static = group.static_member(body.group_instance_id)
        if static is not None:
            member_id = f"{body.group_instance_id}-{attempt.uuid}"
            self._replace_static(group, static, member_id, attempt, moment, outcome)
            return
        if body.group_instance_id is not None:
            member_id = f"{body.group_instance_id}-{attempt.uuid}"
        else:
            member_id = f"{attempt.client_id}-{attempt.uuid}"
        if attempt.is_member_id_required:
            self._groups[group.group_id] = group
            deadline_ms = moment.monotonic_ms + body.session_timeout_ms

            def expired(then: Moment, result: Outcome) -> None:
                self._drop_pending(group, member_id, then, result)

            self._rebalance.add_pending(group, member_id, deadline_ms, expired)
            outcome.reply(attempt.reply, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add_member(group, member_id, attempt, moment, outcome)

    def _add_member(
        self, group: Group, member_id: str, attempt: JoinAttempt, moment: Moment, outcome: Outcome
    ) -> None:
        body = attempt.body
        member = Member(
            member_id=member_id,
            group_instance_id=body.group_instance_id,
            client_id=attempt.client_id,
            client_host=attempt.client_host,
            rebalance_timeout_ms=body.rebalance_timeout_ms,
            session_timeout_ms=body.session_timeout_ms,
            protocols=attempt.protocols,
            is_new=True,
        )
        self._groups[group.group_id] = group
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.has_new_member = True
        self._rebalance.drop_pending(group, member_id)
        group.add(member, body.protocol_type, attempt.reply)
        deadline_ms = moment.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._rebalance.start_session(group, member, deadline_ms)
        self._rebalance.maybe_prepare(group, f"{member_id} joined", moment, outcome)

    def _rejoin(
        self,
        group: Group,
        member: Member,
        attempt: JoinAttempt,
        moment: Moment,
        outcome: Outcome,
    ) -> None:
        has_same = member.has_same_protocols(attempt.protocols)
        is_leader = group.leader_id == member.member_id
        if group.state is GroupState.EMPTY:
            error = join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
            outcome.reply(attempt.reply, error)
        elif (group.state is GroupState.COMPLETING_REBALANCE and has_same) or (
            # A leader that rejoins wants a rebalance, for example because a topic gained
            # partitions.
            group.state is GroupState.STABLE and has_same and not is_leader
        ):
            # Nothing has changed, so the response was probably lost: return the current generation.
            members = group.members.values() if is_leader else ()
            response = GenerationFacts(group, members).response(member.member_id)
            outcome.reply(attempt.reply, response)
        else:
            self._wait_for_join(group, member, attempt, outcome)
            reason = f"{member.member_id} joined again"
            self._rebalance.maybe_prepare(group, reason, moment, outcome)

    def _wait_for_join(
        self, group: Group, member: Member, attempt: JoinAttempt, outcome: Outcome
    ) -> None:
        group.set_protocols(member, attempt.protocols)
        replaced = group.set_join_reply(member, attempt.reply)
        if replaced is not None:
            # The member retried over another connection; the request on the old one must not hang.
            outcome.reply(replaced, join_error(_REBALANCE_IN_PROGRESS, member.member_id))

    def _replace_static(
        self,
        group: Group,
        member: Member,
        new_member_id: str,
        attempt: JoinAttempt,
        moment: Moment,
        outcome: Outcome,
    ) -> None:
        """Assign a new id to a static member that rejoins without one, and fence the holder of the
        old id. There is no rebalance if the generation can stay as it is."""
        old_member_id, old_protocols = member.member_id, member.protocols
        old_leader_id = group.leader_id
        fenced = join_error(_FENCED_INSTANCE_ID, old_member_id)
        self._rebalance.answer_join(group, member, fenced, outcome)
        if member.sync_reply is not None:
            outcome.reply(member.sync_reply, SyncGroupResponse(error_code=_FENCED_INSTANCE_ID))
            member.sync_reply = None
        group.rename(member, new_member_id)
        self._rebalance.renew_session(member, moment.monotonic_ms)
        self._wait_for_join(group, member, attempt, outcome)
        outcome.event("group_static_member_replaced", group=group.group_id,
                      instance=member.group_instance_id, member=new_member_id)  # fmt: skip
        if group.state is not GroupState.STABLE or (group.select_protocol() != group.protocol_name):
            reason = f"static member {member.group_instance_id} joined again"
            self._rebalance.maybe_prepare(group, reason, moment, outcome)
            return
        generation_id = group.generation_id

        def settled(code: int, then: Moment) -> Outcome:
            result = Outcome()
            if (
                group.state is not GroupState.STABLE
                or group.generation_id != generation_id
                or group.members.get(new_member_id) is not member
            ):
                return result  # a rebalance has begun and will reply
            # Name the old leader id: a leader would compute an assignment, which a Stable group
            # drops.
            response = GenerationFacts(group, ()).response(new_member_id)
            response.leader = old_leader_id or ""
            if code != _NONE:
                group.set_protocols(member, old_protocols)
                group.rename(member, old_member_id)
                self._rebalance.renew_session(member, then.monotonic_ms)
                response.error_code = group_error(code)
                response.member_id = ""
            self._rebalance.answer_join(group, member, response, result)
            return result

        assignments = {m.member_id: m.assignment for m in group.members.values()}
        self._store(self._storing(group, assignments, settled), settled, outcome)

    # SyncGroup

    def sync(self, body: SyncGroupRequest, reply: Reply, moment: Moment) -> Outcome:
        """Handle SyncGroup; the reply comes at once, or when the leader's assignment is in the
        log."""
        outcome = Outcome()
        group = self._groups.get(body.group_id)
        code = self._check(group, body.member_id, body.group_instance_id, body.generation_id)
        if code != _NONE or group is None:
            return outcome.reply(reply, SyncGroupResponse(error_code=code))
        if _differs(body.protocol_type, group.protocol_type) or _differs(
            body.protocol_name, group.protocol_name
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group.state is GroupState.EMPTY:
            code = _UNKNOWN_MEMBER_ID
        elif group.state is GroupState.PREPARING_REBALANCE:
            code = _REBALANCE_IN_PROGRESS
        if code != _NONE:
            return outcome.reply(reply, SyncGroupResponse(error_code=code))
        member = group.members[body.member_id]
        group.pending_sync.pop(member.member_id, None)
        if group.state is GroupState.STABLE:
            self._rebalance.renew_session(member, moment.monotonic_ms)
            return outcome.reply(reply, assignment_response(group, member))
        if member.sync_reply is not None:
            error = SyncGroupResponse(error_code=_REBALANCE_IN_PROGRESS)
            outcome.reply(member.sync_reply, error)
        member.sync_reply = reply
        if group.leader_id == member.member_id:
            self._store_assignment(group, body, outcome)
        return outcome

    def _store_assignment(self, group: Group, body: SyncGroupRequest, outcome: Outcome) -> None:
        generation_id = group.generation_id
        if group.stored_generation == generation_id:
            return  # the leader retried: its first assignment is already being written
        group.stored_generation = generation_id
        assignments = dict.fromkeys(group.members, b"")

        def settled(code: int, moment: Moment) -> Outcome:
            result = Outcome()
            if (
                group.state is not GroupState.COMPLETING_REBALANCE
                or group.generation_id != generation_id
            ):
                return result
            if code == _NONE:
                self._rebalance.assign(group, assignments, moment, result)
            else:
                group.stored_generation = -1
                self._rebalance.fail_syncs(group, group_error(code), moment, result)
                reason = "the assignment could not be stored"
                self._rebalance.maybe_prepare(group, reason, moment, result)
            return result

        work = self._storing_given(group, body.assignments, assignments, settled)
        self._store(work, settled, outcome)

    def _storing_given(
        self,
        group: Group,
        given: Sequence[SyncGroupRequestAssignment],
        assignments: dict[str, bytes],
        settled: Settled,
    ) -> Work[Outcome]:
        """Store what the leader gave to the members that `assignments` has."""
        generation_id = group.generation_id
        for number, part in enumerate(parts(given, ASSIGNMENTS_PER_TURN)):
            if number:
                yield
            for item in part:
                if item.member_id in assignments:
                    assignments[item.member_id] = item.assignment
        is_current = group.generation_id == generation_id
        if group.state is not GroupState.COMPLETING_REBALANCE or not is_current:
            return Outcome()  # the rebalance that began meanwhile has replied
        if not group.has_room_for_assignments(assignments):
            # An assignment too large to hold is rejected in the same way as one too large to store.
            refused = Write((), lambda _, then: settled(int(ErrorCode.MESSAGE_TOO_LARGE), then))
            return Outcome(writes=[refused])
        return (yield from self._storing(group, assignments, settled))

    def _store(self, work: Work[Outcome], settled: Settled, outcome: Outcome) -> None:
        """Write the current generation to the log, in turns; `settled` says what follows."""

        def failed(then: Moment) -> Outcome | None:
            return settled(_UNKNOWN_SERVER_ERROR, then)

        outcome.later.append(Later(work, failed))

    def _storing(
        self, group: Group, assignments: dict[str, bytes], settled: Settled
    ) -> Work[Outcome]:
        record = yield from self._rebalance.generation_record(group, assignments)
        return Outcome() if record is None else Outcome(writes=[Write([record], settled)])

    # Heartbeat

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now_ms: int,
    ) -> int:
        """Renew the member's session and return the error code; nothing else changes."""
        group = self._groups.get(group_id)
        code = self._check(group, member_id, instance_id, generation_id)
        if code or group is None:
            return code
        if group.state is GroupState.EMPTY:
            return _UNKNOWN_MEMBER_ID
        self._rebalance.renew_session(group.members[member_id], now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return _REBALANCE_IN_PROGRESS
        return _NONE

    def _check(
        self, group: Group | None, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        if group is None:
            return _UNKNOWN_MEMBER_ID
        if instance_id is not None and group.is_fenced(member_id, instance_id):
            return _FENCED_INSTANCE_ID
        if member_id not in group.members:
            return _UNKNOWN_MEMBER_ID
        if generation_id != group.generation_id:
            return _ILLEGAL_GENERATION
        return _NONE

    # LeaveGroup

    def leave(
        self, group_id: str, leaving: Sequence[MemberIdentity], reply: Reply, moment: Moment
    ) -> Outcome:
        """Remove each of `leaving` or report its own error."""
        outcome = Outcome()
        group = self._groups.get(group_id)
        responses = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=self._leave(group, identity, moment, outcome),
            )
            for identity in leaving
        ]
        # Reply to the leaving member first, then to the members whose rebalance this completes.
        outcome.replies.insert(0, (reply, LeaveGroupResponse(error_code=0, members=responses)))
        return outcome

    def _leave(
        self, group: Group | None, identity: MemberIdentity, moment: Moment, outcome: Outcome
    ) -> int:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if group is None:
            return _UNKNOWN_MEMBER_ID
        # An administrator names only the instance (KIP-345).
        if member_id and group.is_fenced(member_id, instance_id):
            return _FENCED_INSTANCE_ID
        if member_id in group.pending_members and instance_id is None:
            self._drop_pending(group, member_id, moment, outcome)
            return _NONE
        member = group.static_member(instance_id) or group.members.get(member_id)
        if member is None:
            return _UNKNOWN_MEMBER_ID
        self._rebalance.remove(group, member, "it left", moment, outcome)
        return _NONE

    def _drop_pending(self, group: Group, member_id: str, moment: Moment, outcome: Outcome) -> None:
        """End the reservation of `member_id`, and forget a group that never had anything else."""
        self._rebalance.drop_pending(group, member_id)
        self._rebalance.maybe_complete(group, moment, outcome)
        is_unused = (
            group.state is GroupState.EMPTY
            and group.generation_id == 0
            and group.offsets.is_empty
            and not group.pending_members
        )
        if is_unused:
            self._rebalance.mark_dead(group, moment, outcome)
            del self._groups[group.group_id]


def _differs(claimed: str | None, current: str | None) -> bool:
    """Return whether the values contradict; None (before SyncGroup v5) contradicts nothing."""
    return claimed is not None and claimed != current


__all__ = ["JoinAttempt", "JoinGroupResponse", "Membership"]
