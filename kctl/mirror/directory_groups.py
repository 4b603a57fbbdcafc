"""Reads what groups have committed from the __consumer_offsets of a directory.

A group keeps its offsets in one partition of __consumer_offsets. A damaged partition is left out as
a whole: the commits after the damage are unknown, and those before it would lead groups back. The
commits of a transaction that is still open are not read, nor what follows it.

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager (`loadGroupsAndOffsets`)
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kctl.client.offsets import CommittedOffset
from kctl.dump import decoders
from kctl.dump.later_records import LaterRecord
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import PREFIX
from kctl.mirror.places import LogReader
from kctl.mirror.proof.records import decode
from kctl.model import TopicPartition
from kctl.protocol.internal.consumer_protocol import PROTOCOL_TYPE
from kctl.records.record import Record

if TYPE_CHECKING:
    from kctl.arrow_files.partition_log import PartitionLog

# The names that Kafka 4.x gives to the types of keys are numbers; these are of committed offsets.
_OFFSET_TYPES = frozenset({"0", "1"})


@dataclass(slots=True)
class StoredGroups:
    """The groups of one partition of __consumer_offsets."""

    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    # By group; groups that only commit offsets have none.
    protocol_types: dict[str, str] = field(default_factory=dict)

    def of_consumers(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the offsets of the groups of consumers; without those of mirrors and Connect."""
        return {
            group: offsets
            for group, offsets in self.offsets.items()
            if offsets
            and not group.startswith(PREFIX)
            and self.protocol_types.get(group) in (None, "", PROTOCOL_TYPE)
        }

    def add(self, record: Record) -> None:
        """Apply the next record of the partition; CorruptDataError if it is none of the topic."""
        found = decoders.decode_group_record(record)
        if isinstance(found, LaterRecord):
            self._add_later(found)
        elif isinstance(found, decoders.StoredGroup):
            group, value = found.key.group, found.value
            self.protocol_types[group] = "" if value is None else value.protocol_type
        else:
            key, committed = found.key, found.value
            self._set(
                key.group, TopicPartition(key.topic, key.partition),
                None if committed is None else CommittedOffset(
                    committed.offset, committed.leader_epoch, committed.metadata
                ),
            )  # fmt: skip

    def _add_later(self, found: LaterRecord) -> None:
        """Apply a record that Kafka 2.7 does not know: 4.x writes offsets with more fields."""
        if found.key is None or found.key.fields["type"] not in _OFFSET_TYPES:
            return
        at: Mapping[str, Any] = found.key.fields["data"]
        data = None if found.value is None else found.value["data"]
        self._set(
            at["group"], TopicPartition(at["topic"], at["partition"]),
            None if data is None else CommittedOffset(
                data["offset"], data.get("leaderEpoch", -1), data["metadata"]
            ),
        )  # fmt: skip

    def _set(
        self, group: str, partition: TopicPartition, committed: CommittedOffset | None
    ) -> None:
        offsets = self.offsets.setdefault(group, {})
        if committed is None:
            offsets.pop(partition, None)
        else:
            offsets[partition] = committed


def read_stored_groups(log: "PartitionLog", end: int) -> StoredGroups:
    """Return the groups in a partition of __consumer_offsets before the offset `end`; raise
    CorruptDataError if something of it cannot be read."""
    found = StoredGroups()
    reader = LogReader(log, end)
    offset = log.start_offset
    while offset < end:
        chunk = reader.read(offset)
        records, damages = decode(chunk.batches, offset, end, ignores_timestamps=False)
        for damage in [*chunk.damages, *damages]:
            raise CorruptDataError(f"{log.topic_partition}: {damage}")
        for at, (timestamp, key, value, headers) in zip(
            records.offsets.tolist(), records.identities, strict=True
        ):
            found.add(Record(at, timestamp, key, value, headers))
        if chunk.is_last or chunk.next_offset <= offset:
            break
        offset = chunk.next_offset
    return found
