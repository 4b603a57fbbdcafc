"""GroupCoordinator: the groups of one partition of __consumer_offsets. Pure.

The front of the core: requests go to `membership`, `commits` and `cleanup`, which share the groups
and their timers; what the log confirms comes back through `replay`. One shard knows nothing of the
others, nor of disks, clocks and sockets; `kctl.broker.coordinator.runtime` drives it.

Invariants (checked in tests after every step): those of Group; a group in `groups` is not Dead;
a group's offsets equal what replaying the log's committed records gives.

Kafka 2.7: kafka.coordinator.group.GroupCoordinator; Kafka trunk: GroupCoordinatorShard.
"""

from collections.abc import Collection

from kctl.broker.coordinator.group.cleanup import Cleanup
from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.group_loader import GroupLoader
from kctl.broker.coordinator.group.membership import Membership
from kctl.broker.coordinator.group.offset_commits import OffsetCommits
from kctl.broker.coordinator.group.rebalance import Rebalance
from kctl.broker.coordinator.group.records import GroupRecord, OffsetRecord
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.outcome import NO_PRODUCER_ID, Moment, Outcome
from kctl.broker.coordinator.timers import TimerQueue
from kctl.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kctl.protocol.messages.list_groups import ListedGroup
from kctl.records.memory_records import Batch


class GroupCoordinator:
    """One shard; see the module."""

    def __init__(self, settings: GroupSettings) -> None:
        self.groups: dict[str, Group] = {}
        self.timers = TimerQueue()
        self._rebalance = Rebalance(settings, self.timers)
        self.membership = Membership(self.groups, self._rebalance, settings)
        self.commits = OffsetCommits(self.groups, self._rebalance, settings)
        self.cleanup = Cleanup(self.groups, self._rebalance, settings)
        self._loader: GroupLoader | None = GroupLoader(
            self.groups, self.commits, self._rebalance, settings
        )

    # The log

    def load(self, batch: Batch) -> None:
        """The next batch of the log that this shard is made from."""
        assert self._loader is not None
        self._loader.load(batch)

    def loaded(self, moment: Moment) -> Outcome:
        """That was all: requests may come."""
        assert self._loader is not None
        outcome = self._loader.finish(moment)
        if self._loader.unknown_records:
            outcome.event("group_records_skipped", count=self._loader.unknown_records)
        self._loader = None
        return outcome

    def replay(
        self, record: OffsetRecord | GroupRecord, record_offset: int, producer_id: int
    ) -> None:
        """A record that this shard wrote is committed, at `record_offset`."""
        if isinstance(record, GroupRecord):
            return  # the Write's `on_settled` moves the group, if its generation is still on
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

    def unload(self, moment: Moment) -> Outcome:
        """The partition moves away: whoever waits is sent to find its coordinator."""
        outcome = Outcome()
        for group in self.groups.values():
            self._rebalance.bury(group, moment, outcome)
        self.groups.clear()
        return outcome

    # Time

    def next_deadline_ms(self) -> int:
        """When to call `fire_timers` (monotonic)."""
        return self.timers.next_ms()

    def fire_timers(self, moment: Moment) -> Outcome:
        """Sessions, rebalances and pending members whose time is up."""
        outcome = Outcome()
        self.timers.fire_due(moment, outcome)
        return outcome

    # Looking

    def describe(self, group_id: str) -> DescribedGroup:
        """The group as DescribeGroups shows it; one that is not there is Dead."""
        group = self.groups.get(group_id)
        if group is None:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        is_stable = group.state is GroupState.STABLE
        protocol = group.protocol_name or ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.protocols.get(protocol, b"") if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ],
        )

    def list_groups(self, states: Collection[str]) -> list[ListedGroup]:
        """Groups in one of `states`; in any, if none is named."""
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
            )
            for group in self.groups.values()
            if not states or group.state.value in states
        ]
