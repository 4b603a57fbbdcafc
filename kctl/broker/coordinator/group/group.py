"""Group: the members of one consumer group, the state they are in, and their offsets. Pure.

A group lives in generations. When membership changes it prepares a rebalance: members are told
to join again (PreparingRebalance) until all have or the time is up; the ones that did make the
next generation and learn it (CompletingRebalance); the leader among them computes who gets what
and sends it with its SyncGroup; when that is stored, all get theirs (Stable). Without members a
group is Empty, and lives on for its offsets; Dead is one that was deleted or moved away.

Everything that may change a group's state is `transition_to`, which knows the legal moves. An
illegal one raises and changes nothing. A group starts Empty, or, out of the log, Stable.

Invariants: the leader is a member; `static_members` maps exactly the instance ids of members;
`supported` counts for each protocol the members that know it; `awaiting_join_count` counts the
members with a `join_reply`; a pending member is no member; generations only rise.

Kafka 2.7: kafka.coordinator.group.GroupMetadata; KIP-345, KIP-394.
"""

from enum import Enum

from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.offsets import GroupOffsets
from kctl.broker.coordinator.outcome import Reply
from kctl.broker.coordinator.timers import Timer

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The value is the name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# From a state, the states it may move to.
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
    """One group; see the module."""

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "has_new_member",
        "initial_delay_left_ms",
        "initial_delay_ms",
        "join_timer",
        "leader_id",
        "members",
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
        self, group_id: str, join_timer: Timer, sync_timer: Timer, wall_ms: int | None
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        # When it came into its state (wall), None if an old record did not say.
        self.state_since_ms = wall_ms
        # None until the first member: a group that only keeps offsets.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        # In the order in which they joined.
        self.members: dict[str, Member] = {}
        # Instance id -> member id.
        self.static_members: dict[str, str] = {}
        # Member ids given out (KIP-394) that have not joined with it yet -> until when.
        self.pending_members: dict[str, Timer] = {}
        self.supported: dict[str, int] = {}
        self.awaiting_join_count = 0
        self.offsets = GroupOffsets()
        # Topics that the generation's members subscribe to; None: not known, so take all.
        self.subscribed_topics: set[str] | None = None
        # PreparingRebalance ends when it fires. During the first rebalance of an Empty group
        # it runs for `initial_delay_ms`, again while members come and time is left (KIP-134).
        self.join_timer = join_timer
        self.initial_delay_ms = 0
        self.initial_delay_left_ms: int | None = None
        self.has_new_member = False
        # Members of the generation that did not send SyncGroup yet, in order (KAFKA-12890).
        self.pending_sync: dict[str, None] = {}
        self.sync_timer = sync_timer
        # The generation whose assignment is on its way into the log.
        self.stored_generation = -1

    # States

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """Move to `state`; RuntimeError, and nothing changed, if that is no legal move."""
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(
                f"Group {self.group_id} cannot go from {self.state.value} to {state.value}"
            )
        self.state = state
        self.state_since_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return GroupState.PREPARING_REBALANCE in LEGAL_MOVES[self.state]

    @property
    def is_consumer_group(self) -> bool:
        """Whether its protocols are those of consumers, which the broker can read a little."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_all_joined(self) -> bool:
        """Every member waits for the next generation, and nobody is about to come."""
        return self.awaiting_join_count == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # Members

    def add(self, member: Member, protocol_type: str, reply: Reply | None) -> None:
        """Take `member` in; the first one decides the group's type and leads it."""
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
        """Let it go; another one leads if it did. Its replies are the caller's business."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self._count_protocols(member, -1)
        self.set_join_reply(member, None)
        self.pending_sync.pop(member.member_id, None)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member that came back its new id; it keeps place and leadership."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        del self.members[old_member_id]
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[member.group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            del self.pending_sync[old_member_id]
            self.pending_sync[new_member_id] = None

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        """It supports these from now on."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def set_join_reply(self, member: Member, reply: Reply | None) -> Reply | None:
        """Note who waits for the member's JoinGroup; returns who did before."""
        previous = member.join_reply
        self.awaiting_join_count += (reply is not None) - (previous is not None)
        member.join_reply = reply
        return previous

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member with that instance id, if there is one."""
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_fenced(self, member_id: str, instance_id: str | None) -> bool:
        """Another member id holds this instance id: the asker was replaced (KIP-345)."""
        if instance_id is None:
            return False
        return self.static_members.get(instance_id, member_id) != member_id

    def _count_protocols(self, member: Member, change: int) -> None:
        supported = self.supported
        for name in member.protocols:
            supported[name] = supported.get(name, 0) + change
            if not supported[name]:
                del supported[name]

    # Generations

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a member with these could join: one protocol must suit all."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported.get(name, 0) == count for name in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that all know and most put first; on a tie the one named first."""
        count = len(self.members)
        candidates = [name for name, known_by in self.supported.items() if known_by == count]
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Let one who joined lead; False if nobody did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = (m.member_id for m in self.members.values() if m.join_reply is not None)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True
