"""What must hold for every group after every step, whatever was asked of it."""

from kctl.broker.coordinator.group.group import GroupState
from kctl.broker.coordinator.group.member_memory import size_of


def check_groups(shard):
    """AssertionError if a group of the shard contradicts itself."""
    for group_id, group in shard.groups.items():
        assert group.group_id == group_id
        assert group.state is not GroupState.DEAD
        check_membership(group)
        check_state(group)
        check_offsets(group.offsets)


def check_membership(group):
    members = group.members
    assert all(member.member_id == name for name, member in members.items())
    assert (group.leader_id in members) if members else group.leader_id is None
    static = {m.group_instance_id: m.member_id for m in members.values() if m.is_static}
    assert group.static_members == static
    assert group.awaiting_join_count == sum(m.join_reply is not None for m in members.values())
    counts = {}
    for member in members.values():
        for name in member.protocols:
            counts[name] = counts.get(name, 0) + 1
    assert group.supported == counts
    assert group.member_bytes == sum(held_bytes(group))
    assert not set(group.pending_members) & set(members)
    assert all(member.session.is_set for member in members.values()), "a session that never ends"


def held_bytes(group):
    """What each member and each pending member holds."""
    group_bytes = len(group.group_id)
    for member in group.members.values():
        yield size_of(group_bytes + member.name_bytes, member.protocols, member.assignment)
    for member_id in group.pending_members:
        yield size_of(group_bytes + len(member_id), {})


def check_offsets(offsets):
    counts = {}
    for pending in offsets.pending_by_producer.values():
        for topic_partition in pending:
            counts[topic_partition] = counts.get(topic_partition, 0) + 1
    assert offsets.pending_counts == counts


def check_state(group):
    if group.state is GroupState.EMPTY:
        assert not group.members
    if group.state is GroupState.PREPARING_REBALANCE:
        assert group.join_timer.is_set, "a rebalance that never ends"
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        assert group.members
        assert group.protocol_name in group.supported
        assert group.supported[group.protocol_name] == len(group.members)
    if group.state is GroupState.COMPLETING_REBALANCE:
        assert group.sync_timer.is_set
    else:
        assert not any(m.sync_reply for m in group.members.values()), (
            "a SyncGroup that will never be answered"
        )
