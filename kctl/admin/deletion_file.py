"""Parses the file of kafka-delete-records: the offset before which records are deleted, by
partition.

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 42}]}

Pure. Kafka 2.7: kafka.admin.DeleteRecordsCommand (parseOffsetJsonStringWithoutDedup); KIP-107
"""

from kctl.admin.json_file import parse_items, typed
from kctl.errors import UsageError
from kctl.model import Position, PositionKind, TopicPartition

# The offset that stands for the high watermark.
HIGH_WATERMARK = -1
_HINT = "the format is that of kafka-delete-records --offset-json-file"


def parse_deletion_offsets(text: str, name: str) -> dict[TopicPartition, Position]:
    """Return the positions in a file, by partition; -1 is the end of the partition.

    Raise UsageError that names the file and the place.
    """
    found: dict[TopicPartition, Position] = {}
    for index, item in enumerate(parse_items(text, "partitions", name, _HINT)):
        place = f"{name}: partitions[{index}]"
        partition = TopicPartition(
            typed(item, "topic", str, place), typed(item, "partition", int, place)
        )
        offset = typed(item, "offset", int, place)
        if offset < HIGH_WATERMARK:
            raise UsageError(
                f"{place}: offset {offset} is not valid", hint="-1 stands for the high watermark"
            )
        if partition in found:
            raise UsageError(f"{place}: {partition} appears twice")
        is_end = offset == HIGH_WATERMARK
        found[partition] = (
            Position(PositionKind.LATEST) if is_end else Position(PositionKind.OFFSET, offset)
        )
    if not found:
        raise UsageError(f"{name} names no partition", hint=_HINT)
    return found
