"""Group: the members of one consumer group, its state, and its offsets. Pure.

A group moves through generations. When membership changes it prepares a rebalance: members are
asked to rejoin (PreparingRebalance) until all have, or until the rebalance timeout. Those that
rejoined form the next generation and receive it (CompletingRebalance). The leader among them
computes the assignment and sends it with its SyncGroup. When the assignment is in the log, every
member receives its part (Stable). A group without members is Empty and keeps its offsets; a group
that was deleted or moved away is Dead.

Every change of state goes through `transition_to`, which knows the legal moves. An illegal move
raises and changes nothing. A new group is Empty; one loaded from the log with members is Stable.

Invariants: the leader is a member; `static_members` maps exactly the instance ids of members;
`supported` counts for each protocol the members that support it; `awaiting_join_count` counts the
members with a `join_reply`; a pending member is not a member; generations only increase.

Kafka 2.7: kafka.coordinator.group.GroupMetadata; KIP-345, KIP-394.
"""

from collections.abc import Mapping
from enum import Enum

from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.member_memory import MemberMemory, size_of
from kctl.broker.coordinator.group.offsets import GroupOffsets
from kctl.broker.coordinator.outcome import Reply
from kctl.broker.coordinator.timers import Timer

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The state of a group; the value is its name in responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# From each state, the states it may move to.
LEGAL_MOVES = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.PREPARING_REBALANCE: (
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
        GroupState.DEAD,
    ),
    GroupState.COMPLETING_REBALANCE: (
        GroupState.STABLE,
        GroupState.PREPARING_REBALANCE,
        GroupState.DEAD,
    ),
    GroupState.STABLE: (GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.DEAD: (GroupState.DEAD,),
}


class Group:
    """One consumer group; the module docstring gives its states and invariants."""

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "has_new_member",
        "initial_delay_left_ms",
        "initial_delay_ms",
        "join_timer",
        "leader_id",
        "member_bytes",
        "members",
        "memory",
        "offsets",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "stored_generation",
        "subscribed_topics",
        "supported",
        "sync_timer",
    )

    def __init__(
        self,
        group_id: str,
        join_timer: Timer,
        sync_timer: Timer,
        wall_ms: int | None,
        memory: MemberMemory | None = None,
    ) -> None:
        self.group_id = group_id
        # Counts the bytes that members hold; `member_bytes` is this group's share.
        self.memory = memory or MemberMemory()
        self.member_bytes = 0
        self.state = GroupState.EMPTY
        # Wall time of the last change of state; None if the record is too old to state it.
        self.state_since_ms = wall_ms
        # None until the first member joins: a group that only stores offsets.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        # In the order in which they joined.
        self.members: dict[str, Member] = {}
        # Instance id -> member id.
        self.static_members: dict[str, str] = {}
        # Member ids assigned (KIP-394) but not yet used to join -> the timer of their expiry.
        self.pending_members: dict[str, Timer] = {}
        self.supported: dict[str, int] = {}
        self.awaiting_join_count = 0
        self.offsets = GroupOffsets()
        # Topics to which the members of the generation subscribe; None: unknown, so treat as all.
        self.subscribed_topics: set[str] | None = None
        # PreparingRebalance ends when this timer fires. In the first rebalance of an Empty group it
        # runs for `initial_delay_ms`, and again while members arrive and time is left (KIP-134).
        self.join_timer = join_timer
        self.initial_delay_ms = 0
        self.initial_delay_left_ms: int | None = None
        self.has_new_member = False
        # Members of the generation that have not sent SyncGroup yet, in order (KAFKA-12890).
        self.pending_sync: dict[str, None] = {}
        self.sync_timer = sync_timer
        # The generation whose assignment is being written to the log.
        self.stored_generation = -1

    # States

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """Move to `state`; raise RuntimeError and change nothing if the move is illegal."""
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(
                f"Group {self.group_id} cannot move from {self.state.value} to {state.value}"
            )
        self.state = state
        self.state_since_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        """Return whether a rebalance may begin."""
        return GroupState.PREPARING_REBALANCE in LEGAL_MOVES[self.state]

    @property
    def is_consumer_group(self) -> bool:
        """Return whether this is a consumer group, whose protocol metadata the broker can parse."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_all_joined(self) -> bool:
        """Return whether every member has rejoined and no pending member is left."""
        return self.awaiting_join_count == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of any member, 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # Members

    def add(self, member: Member, protocol_type: str, reply: Reply | None) -> None:
        """Add `member`; the first one sets the group's protocol type and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count_protocols(member, 1)
        self.set_join_reply(member, reply)

    def remove(self, member: Member) -> None:
        """Remove `member` and pick another leader if it led; the caller answers its pending
        requests."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self._count_protocols(member, -1)
        self.set_join_reply(member, None)
        self.pending_sync.pop(member.member_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a returning static member its new id; it keeps its place and leadership."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        del self.members[old_member_id]
        member.member_id = new_member_id
        self._count_bytes(len(new_member_id) - len(old_member_id))
        self.members[new_member_id] = member
        self.static_members[member.group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            del self.pending_sync[old_member_id]
            self.pending_sync[new_member_id] = None

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        """Replace the assignment protocols that `member` supports."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def set_join_reply(self, member: Member, reply: Reply | None) -> Reply | None:
        """Record the reply of the member's JoinGroup; return the previous one, or None."""
        previous = member.join_reply
        self.awaiting_join_count += (reply is not None) - (previous is not None)
        member.join_reply = reply
        return previous

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member with that instance id, or None."""
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_fenced(self, member_id: str, instance_id: str | None) -> bool:
        """Return whether another member id holds this instance id, so that this one was replaced
        (KIP-345)."""
        if instance_id is None:
            return False
        return self.static_members.get(instance_id, member_id) != member_id

    def has_room_for(self, member_id: str, name_bytes: int, protocols: dict[str, bytes]) -> bool:
        """Return whether a member that joins or rejoins may hold `protocols`."""
        known = self.members.get(member_id)
        if known is not None:
            change = size_of(0, protocols) - size_of(0, known.protocols)
        else:
            change = size_of(name_bytes + len(self.group_id), protocols)
            if member_id in self.pending_members:
                change -= self._pending_bytes(member_id)
        return self.memory.has_room(self.member_bytes, change)

    def has_room_for_assignments(self, assignments: Mapping[str, bytes]) -> bool:
        """Return whether each member may hold its part of `assignments` (by member id)."""
        change = sum(map(len, assignments.values()))
        change -= sum(len(member.assignment) for member in self.members.values())
        return self.memory.has_room(self.member_bytes, change)

    def set_assignment(self, member: Member, assignment: bytes) -> None:
        """Set the member's part of the generation's assignment."""
        self._count_bytes(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def _count_bytes(self, change: int) -> None:
        self.member_bytes += change
        self.memory.held_bytes += change

    def forget_members(self) -> None:
        """Release the memory of the members of a group that is now Dead."""
        self.memory.held_bytes -= self.member_bytes
        self.member_bytes = 0

    def _count_protocols(self, member: Member, change: int) -> None:
        name_bytes = member.name_bytes + len(self.group_id)
        self._count_bytes(change * size_of(name_bytes, member.protocols, member.assignment))
        supported = self.supported
        for name in member.protocols:
            supported[name] = supported.get(name, 0) + change
            if not supported[name]:
                del supported[name]

    # Pending members

    def add_pending(self, member_id: str, timer: Timer) -> None:
        """Reserve `member_id` until `timer` fires."""
        self.pending_members[member_id] = timer
        self._count_bytes(self._pending_bytes(member_id))

    def remove_pending(self, member_id: str) -> Timer | None:
        """End the reservation of `member_id`; return its timer, or None if there is none."""
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            self._count_bytes(-self._pending_bytes(member_id))
        return timer

    def _pending_bytes(self, member_id: str) -> int:
        return size_of(len(member_id) + len(self.group_id), {})

    # Generations

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Return whether a member with these protocols could join: all members must share one of
        them."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported.get(name, 0) == count for name in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol that all members support and most prefer; the first one named wins a
        tie."""
        count = len(self.members)
        candidates = {
            name: None
            for name, supporter_count in self.supported.items()
            if supporter_count == count
        }
        if len(candidates) == 1:
            return next(iter(candidates))
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(iter(member.protocols))
            if choice not in candidates:
                choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Make a member that has rejoined the leader; return False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = (m.member_id for m in self.members.values() if m.join_reply is not None)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True
