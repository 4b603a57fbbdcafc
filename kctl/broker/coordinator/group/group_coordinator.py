"""GroupCoordinator: the groups of one partition of __consumer_offsets. Pure.

The entry point of the core: requests go to `membership`, `commits` and `cleanup`, which share the
groups and their timers; committed records come back through `replay`. A shard is independent of
other shards and of disks, clocks and sockets; `kctl.broker.coordinator.runtime` drives it.

Invariants (tests check them after every step): those of Group; a group in `groups` is not Dead; a
group's offsets equal the result of replaying the log's committed records.

Kafka 2.7: kafka.coordinator.group.GroupCoordinator; Kafka trunk: GroupCoordinatorShard.
"""

from collections.abc import Collection

from kctl.broker.coordinator.group.cleanup import Cleanup
from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.group_loader import GroupLoader
from kctl.broker.coordinator.group.member_memory import MemberMemory
from kctl.broker.coordinator.group.membership import Membership
from kctl.broker.coordinator.group.offset_commits import OffsetCommits
from kctl.broker.coordinator.group.rebalance import Rebalance
from kctl.broker.coordinator.group.records import GroupRecord, OffsetRecord
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.outcome import Moment, Outcome
from kctl.broker.coordinator.timers import TimerQueue
from kctl.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kctl.protocol.messages.list_groups import ListedGroup
from kctl.records.memory_records import Batch
from kctl.records.record_batch import NO_PRODUCER_ID
from kctl.work import Work

# Groups and members examined per turn of the loop.
UNITS_PER_TURN = 500
# Groups that are listed in one turn.
LISTED_PER_TURN = 2_000


class GroupCoordinator:
    """One shard; see the module docstring."""

    def __init__(self, settings: GroupSettings, memory: MemberMemory | None = None) -> None:
        """Create an empty shard; `memory` is shared by the members of all shards."""
        self.groups: dict[str, Group] = {}
        self.timers = TimerQueue()
        self._rebalance = Rebalance(settings, self.timers, memory or MemberMemory())
        self.membership = Membership(self.groups, self._rebalance, settings)
        self.commits = OffsetCommits(self.groups, self._rebalance, settings)
        self.cleanup = Cleanup(self.groups, self._rebalance, settings)
        self._loader: GroupLoader | None = GroupLoader(
            self.groups, self.commits, self._rebalance, settings
        )

    # The log

    def load(self, batch: Batch) -> Work[None]:
        """Load the next batch of the log, in turns."""
        assert self._loader is not None
        return self._loader.load(batch)

    def loaded(self, moment: Moment) -> Work[Outcome]:
        """End loading: build the groups, in turns, from the records read."""
        assert self._loader is not None
        outcome = yield from self._loader.finish(moment)
        if self._loader.unknown_records:
            outcome.event("group_records_skipped", count=self._loader.unknown_records)
        self._loader = None
        return outcome

    def replay(
        self, record: OffsetRecord | GroupRecord, record_offset: int, producer_id: int
    ) -> None:
        """Apply a record that this shard wrote and that is now committed at `record_offset`."""
        if isinstance(record, GroupRecord):
            return  # the Write's `on_settled` updates the group, if its generation is still current
        group = self.groups.get(record.group_id)
        if group is None:
            return
        if producer_id == NO_PRODUCER_ID:
            group.offsets.replay(
                record.topic_partition, record.committed, record_offset, record.key
            )
        else:
            group.offsets.replay_in_transaction(
                producer_id, record.topic_partition, record.committed, record_offset, record.key
            )

    def unload(self, moment: Moment) -> Work[Outcome]:
        """Release the groups because the partition moves away; waiting members get NOT_COORDINATOR.

        A `yield` follows every UNITS_PER_TURN groups and members.
        """
        outcome, units = Outcome(), 0
        for group in list(self.groups.values()):
            units += 1 + len(group.members)
            self._rebalance.mark_dead(group, moment, outcome)
            if units >= UNITS_PER_TURN:
                units = 0
                yield
        self.groups.clear()
        return outcome

    # Time

    def next_deadline_ms(self) -> int:
        """Return when to call `fire_timers`, in monotonic milliseconds."""
        return self.timers.next_ms()

    def fire_timers(self, moment: Moment) -> Outcome:
        """Handle sessions, rebalances and pending members whose deadline has passed."""
        outcome = Outcome()
        self.timers.fire_due(moment, outcome)
        return outcome

    # Queries

    def describe(self, group_id: str) -> Work[DescribedGroup]:
        """Describe a group for DescribeGroups; one that does not exist is Dead.

        A `yield` follows every UNITS_PER_TURN members; what a group looks like does not change
        meanwhile.
        """
        group = self.groups.get(group_id)
        if group is None:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        is_stable = group.state is GroupState.STABLE
        protocol = group.protocol_name or ""
        described = DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol if is_stable else "",
        )
        facts = [
            (member, member.protocols.get(protocol, b""), member.assignment)
            for member in group.members.values()
        ]
        for number, (member, metadata, assignment) in enumerate(facts, 1):
            described.members.append(
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=metadata if is_stable else b"",
                    member_assignment=assignment if is_stable else b"",
                )
            )
            if number % UNITS_PER_TURN == 0:
                yield
        return described

    def list_groups(self, states: Collection[str]) -> Work[list[ListedGroup]]:
        """Return the groups in one of `states`, or all groups if `states` is empty.

        A `yield` follows every LISTED_PER_TURN groups.
        """
        listed: list[ListedGroup] = []
        for number, group in enumerate(list(self.groups.values()), 1):
            state = group.state.value
            if group.state is not GroupState.DEAD and (not states or state in states):
                listed.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type or "",
                        group_state=state,
                    )
                )
            if number % LISTED_PER_TURN == 0:
                yield
        return listed
