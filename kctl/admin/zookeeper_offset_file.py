"""Reads and writes files of ExportZkOffsets: lines `/consumers/G/offsets/T/P:N`, one a partition.

The offset is what follows the last colon, so a topic's name may have colons, at which Apache
Kafka's importer fails; and an empty line does not end the file.

Kafka 0.7: kafka.tools.ExportZkOffsets, ImportZkOffsets (unchanged until Kafka 1.1)
"""

from collections.abc import Mapping

from kctl.errors import CorruptDataError, UsageError
from kctl.lines import split_lines
from kctl.model import TopicPartition
from kctl.store.consumer_znodes import (
    ConsumedPartition,
    decode_consumer_offset,
    offset_path,
    parse_partition,
)
from kctl.store.znodes import CONSUMERS

# Group -> partition -> offset.
ZooKeeperOffsets = dict[str, dict[ConsumedPartition, int]]


def format_zookeeper_offsets(offsets: Mapping[str, Mapping[ConsumedPartition, int]]) -> str:
    """Return the text of a file, with groups and partitions in order."""
    return "".join(
        f"{offset_path(group_id, *it)}:{offsets[group_id][it]}\n"
        for group_id in sorted(offsets)
        for it in sorted(offsets[group_id], key=lambda it: it.sort_key)
    )


def parse_zookeeper_offsets(text: str, source: str) -> ZooKeeperOffsets:
    """Return the offsets in a file, by group; raise UsageError, naming `source` and the line."""
    found: ZooKeeperOffsets = {}
    for number, line in enumerate(split_lines(text), 1):
        if not line.strip():
            continue
        try:
            group_id, partition, offset = _parse(line.strip())
            known = found.setdefault(group_id, {})
            if partition in known:
                raise ValueError(f"{partition} of group {group_id} appears twice")
            known[partition] = offset
        except (ValueError, CorruptDataError) as error:
            raise UsageError(
                f"{source}, line {number}: {error}",
                hint="lines are /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET",
            ) from None
    return found


def to_zookeeper(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> ZooKeeperOffsets:
    """Return offsets of Kafka as they are named in ZooKeeper."""
    return {
        group_id: {ConsumedPartition(*it): offset for it, offset in found.items()}
        for group_id, found in offsets.items()
    }


def of_kafka(
    offsets: Mapping[str, Mapping[ConsumedPartition, int]],
) -> dict[str, dict[TopicPartition, int]]:
    """Return offsets with the partitions of Kafka; raise UsageError for those of Kafka 0.7."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for group_id, partitions in offsets.items():
        known = found.setdefault(group_id, {})
        for partition, offset in partitions.items():
            named = partition.topic_partition
            if named is None:
                raise UsageError(
                    f"{partition} of group {group_id} is a partition of Kafka 0.7",
                    hint="its offset is a position in bytes, which has no meaning in Kafka",
                )
            known[named] = offset
    return found


def _parse(line: str) -> tuple[str, ConsumedPartition, int]:
    path, colon, digits = line.rpartition(":")
    words = path.split("/")
    if not colon or len(words) != 6 or f"/{words[1]}" != CONSUMERS or words[3] != "offsets":
        raise ValueError(f"{line[:80]!r} is not the path of an offset and the offset")
    _, _, group_id, _, topic, name = words
    partition = parse_partition(name)
    if not group_id or not topic or partition is None:
        raise ValueError(f"{path!r} is not the path of an offset")
    offset = decode_consumer_offset(digits.encode())
    if offset is None or offset < 0:
        raise ValueError(f"{digits!r} is not a valid offset")
    return group_id, ConsumedPartition(topic, partition), offset
