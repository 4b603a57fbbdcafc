"""GroupLoader: rebuilds groups from a partition of __consumer_offsets, read from its start. Pure.

Records apply in the order of the log. Only the last record of a group matters, so groups are built
at the end. Offsets committed in a transaction take effect when its commit marker is read; those of
a transaction that is still open stay pending.

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.offset_commits import OffsetCommits
from kctl.broker.coordinator.group.rebalance import Rebalance
from kctl.broker.coordinator.group.records import GroupRecord, OffsetRecord, read_record
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.group.subscriptions import subscribed_topics
from kctl.broker.coordinator.outcome import Moment, Outcome
from kctl.protocol.internal.consumer_offsets import GroupMetadataValue
from kctl.records.control import ControlRecordType, control_record_type
from kctl.records.memory_records import Batch
from kctl.records.record_batch import NO_PRODUCER_ID, RecordBatch
from kctl.work import Work

# Groups and members built per turn of the loop, and the metadata that they hold.
UNITS_PER_TURN = 500
METADATA_BYTES_PER_UNIT = 32
# Records loaded per turn: each is decoded, about 5 microseconds.
RECORDS_PER_TURN = 1_000


class GroupLoader:
    """Fills `groups`; used for one load and then discarded."""

    def __init__(
        self,
        groups: dict[str, Group],
        commits: OffsetCommits,
        rebalance: Rebalance,
        settings: GroupSettings,
    ) -> None:
        self._groups = groups
        self._commits = commits
        self._rebalance = rebalance
        self._settings = settings
        # Group id -> its last record.
        self._metadata: dict[str, GroupMetadataValue] = {}
        # Records of types that 2.7 does not know.
        self.unknown_records = 0
        # Records and ended offsets since the last turn.
        self._units = 0

    def load(self, batch: Batch) -> Work[None]:
        """Load the next batch of the log; raise CorruptDataError if it cannot be parsed.

        A `yield` follows every RECORDS_PER_TURN records, also those of several batches, and every
        ENDED_PER_TURN offsets of a transaction that ends. The next batch is loaded afterwards:
        nothing reads the groups before all are loaded.
        """
        producer_id = NO_PRODUCER_ID
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                yield from self._load_marker(batch)
                return
            if batch.is_transactional:
                producer_id = batch.producer_id
        for record in batch.records():
            if self._units >= RECORDS_PER_TURN:
                self._units = 0
                yield
            self._units += 1
            read = read_record(record.key, record.value)
            if isinstance(read, OffsetRecord):
                self._load_offset(read, record.offset, producer_id)
            elif isinstance(read, GroupRecord):
                self._load_group(read)
            else:
                self.unknown_records += 1

    def _load_marker(self, batch: RecordBatch) -> Work[None]:
        for record in batch.records():
            kind = control_record_type(record.key)
            self._units += yield from self._commits.ending_transaction(
                batch.producer_id, is_commit=kind is ControlRecordType.COMMIT
            )

    def _load_offset(self, read: OffsetRecord, record_offset: int, producer_id: int) -> None:
        group = self._groups.get(read.group_id)
        if group is None:
            if read.committed is None:
                return
            # The start of its state is unknown; expiry uses the commit times of its offsets.
            group = self._rebalance.new_group(read.group_id, None)
            self._groups[read.group_id] = group
        offsets = group.offsets
        if producer_id == NO_PRODUCER_ID:
            offsets.replay(read.topic_partition, read.committed, record_offset, read.key)
        else:
            self._commits.note_pending(producer_id, read.group_id)
            offsets.replay_in_transaction(
                producer_id, read.topic_partition, read.committed, record_offset, read.key
            )

    def _load_group(self, read: GroupRecord) -> None:
        if read.metadata is None:
            self._metadata.pop(read.group_id, None)
        else:
            self._metadata[read.group_id] = read.metadata

    def finish(self, moment: Moment) -> Work[Outcome]:
        """Build the groups from the records read and start their members' sessions.

        A `yield` follows every UNITS_PER_TURN.
        """
        outcome, units = Outcome(), 0
        groups = self._groups
        for group_id in [g for g, group in groups.items() if group.offsets.is_empty]:
            del groups[group_id]
        for group_id, metadata in self._metadata.items():
            group = groups.get(group_id)
            if group is None:
                group = groups[group_id] = self._rebalance.new_group(group_id, None)
            yield from self._restore(group, metadata, moment)
            group.subscribed_topics = yield from subscribed_topics(group)
            metadata_bytes = sum(len(stored.subscription) for stored in metadata.members)
            units += 1 + len(group.members) + metadata_bytes // METADATA_BYTES_PER_UNIT
            if len(group.members) > self._settings.group_size_max:
                # The limit was lowered: rebalance, so that members can commit before some are
                # rejected.
                self._rebalance.prepare(group, "it exceeds its size limit", moment, outcome)
            if units >= UNITS_PER_TURN:
                units = 0
                yield
        return outcome

    def _restore(self, group: Group, metadata: GroupMetadataValue, moment: Moment) -> Work[None]:
        protocol_type = metadata.protocol_type or None
        for number, stored in enumerate(metadata.members, 1):
            member = Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.rebalance_timeout,
                session_timeout_ms=stored.session_timeout,
                protocols={metadata.protocol or "": bytes(stored.subscription)},
                assignment=bytes(stored.assignment),
            )
            group.add(member, protocol_type or "", None)
            deadline_ms = moment.monotonic_ms + member.session_timeout_ms
            self._rebalance.start_session(group, member, deadline_ms)
            if number % UNITS_PER_TURN == 0:
                yield
        group.protocol_type = protocol_type
        group.protocol_name = metadata.protocol
        group.generation_id = metadata.generation
        if metadata.leader in group.members:
            group.leader_id = metadata.leader
        if group.members:
            # Not a transition: a group that is stored with members was Stable.
            group.state = GroupState.STABLE
        since_ms = metadata.current_state_timestamp
        group.state_since_ms = None if since_ms < 0 else since_ms
