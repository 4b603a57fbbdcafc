"""Reads and writes files of committed offsets in the format of kafka-consumer-groups: CSV without a
header, `topic,partition,offset` for one group, `group,topic,partition,offset` for several.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`--export`, `--from-file`)
"""

import csv
from collections.abc import Mapping

from kctl.errors import UsageError
from kctl.lines import split_kept_lines
from kctl.model import TopicPartition

# Group -> partition -> offset.
Offsets = dict[str, dict[TopicPartition, int]]

_COLUMNS = ("group", "topic", "partition", "offset")
_SPECIAL = frozenset(',"\r\n ')
_OFFSET_MAX = 2**63 - 1
_PARTITION_MAX = 2**31 - 1


def format_offsets(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return the text of a file; the group is left out if there is only one."""
    lines = []
    for group_id in sorted(offsets):
        prefix = f"{_quoted(group_id)}," if len(offsets) > 1 else ""
        for partition in sorted(offsets[group_id]):
            topic, number = partition
            lines.append(f"{prefix}{topic},{number},{offsets[group_id][partition]}\n")
    return "".join(lines)


def parse_offsets(text: str, source: str, only_group: str | None = None) -> Offsets:
    """Return the offsets in a file, by group. Lines without a group belong to `only_group`. Raise
    UsageError, naming `source` and the line, for invalid lines."""
    found: Offsets = {}
    rows = csv.reader(split_kept_lines(text))
    try:
        for fields in rows:
            if not fields:
                continue
            group_id, partition, offset = _parse(fields, only_group)
            known = found.setdefault(group_id, {})
            if partition in known:
                raise ValueError(f"{partition} of group {group_id} appears twice")
            known[partition] = offset
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"{source}, line {rows.line_num}: {error}",
            hint="lines are topic,partition,offset or group,topic,partition,offset",
        ) from None
    return found


def _quoted(group_id: str) -> str:
    """Quote the id of a group, which may contain any character; topic names contain no special
    ones."""
    if _SPECIAL.isdisjoint(group_id):
        return group_id
    doubled = group_id.replace('"', '""')
    return f'"{doubled}"'


def _parse(fields: list[str], only_group: str | None) -> tuple[str, TopicPartition, int]:
    values = [field.strip() for field in fields]
    if len(values) not in (len(_COLUMNS) - 1, len(_COLUMNS)):
        raise ValueError(f"{len(values)} fields")
    group_id = values[0] if len(values) == len(_COLUMNS) else only_group
    if not group_id:
        raise ValueError("no group named")
    topic, partition, offset = values[-3:]
    if not topic:
        raise ValueError("no topic named")
    number = _number("partition", partition, _PARTITION_MAX)
    return group_id, TopicPartition(topic, number), _number("offset", offset, _OFFSET_MAX)


def _number(what: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise ValueError(f"{text!r} is not a valid {what}")
    return int(text)
