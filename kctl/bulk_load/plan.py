"""LoadPlan: what a table will be in a stopped broker's log directory, before anything is done.

A topic is in the directory with all its partitions, which then grow behind their ends, or not at
all, and is then made with partitions from 0 on. Nothing of the cluster's metadata is touched: what
a new topic's replicas are is said by who creates it; a broker takes the logs that lie there, and
an embedded store that is new adopts them.

Records get the partition's newest leader epoch, as if its last leader had written them.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.broker.topic_creation import check_topic_name
from kctl.bulk_load.tables import TableFormat, TablePart, find_parts, read_places
from kctl.errors import UsageError
from kctl.export.source import find_logs
from kctl.model import TopicPartition
from kctl.records.compression import LZ4
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import decode_epochs
from kctl.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    directory_name,
    parse_directory_name,
)

DEFAULT_SEGMENT_BYTES = 1 << 30
_ORDERS = ("timestamp", "offset")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How rows become records."""

    # None: each row's column topic.
    topic: str | None = None
    # Of a topic that is new.
    partitions: int | None = None
    # Whether rows with a partition go there; otherwise all go where their keys say.
    keeps_partitions: bool = True
    # A column; None: the order of the rows.
    order_by: str | None = None
    compression_type: int = LZ4
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    table_format: TableFormat | None = None

    def __post_init__(self) -> None:
        if self.order_by not in (None, *_ORDERS):
            raise UsageError(f"Cannot order by {self.order_by}", hint=f"by {' or '.join(_ORDERS)}")
        if not 1 << 14 <= self.segment_bytes < 1 << 31:
            raise UsageError("Segments have 16 KiB to 2 GiB")


@dataclass(frozen=True, slots=True)
class Target:
    """A partition, and where in it records are to be."""

    topic: str
    partition: int
    base_offset: int
    leader_epoch: int
    is_new: bool

    @property
    def name(self) -> str:
        """The name of its directory."""
        return directory_name(TopicPartition(self.topic, self.partition))


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """See the module."""

    directory: str
    parts: list[TablePart]
    options: LoadOptions
    # Of the plan, and of records that have no time.
    now_ms: int
    # Partitions by topic.
    counts: dict[str, int]
    targets: list[Target]
    # Rows by topic.
    rows_of: dict[str, int]

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(self.rows_of.values())


def fingerprint(parts: Sequence[TablePart], options: LoadOptions) -> str:
    """The same for the same import."""
    text = json.dumps([[asdict(part) for part in parts], asdict(options)], sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class _Places:
    """Where the rows of a topic want to go."""

    rows: int = 0
    # Highest partition that a row names; -1: none does.
    highest: int = -1
    # Rows that name none.
    free: int = 0


@dataclass(slots=True)
class TablePlaces:
    """The topics that a table's rows are for."""

    topics: dict[str, _Places] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(it.rows for it in self.topics.values())


def find_places(parts: Sequence[TablePart], options: LoadOptions) -> TablePlaces:
    """Read where the rows want to go; UsageError for a row without a topic."""
    places = TablePlaces()
    for part in parts:
        for batch in read_places(part):
            topics = batch.column("topic")
            if options.topic is not None:
                topics = pa.repeat(pa.scalar(options.topic), batch.num_rows)
            if topics.null_count:
                raise UsageError(
                    f"{part.url}: rows without a topic", hint="--topic NAME is for all rows"
                )
            _add(places, topics, batch.column("partition"), options)
    return places


def _add(places: TablePlaces, topics: pa.Array, numbers: pa.Array, options: LoadOptions) -> None:
    if not options.keeps_partitions:
        numbers = pa.nulls(len(numbers), pa.int32())
    grouped = pa.table([topics, numbers], names=["topic", "number"]).group_by("topic").aggregate(
        [("number", "min"), ("number", "max"), ("number", "count"), ([], "count_all")]
    )  # fmt: skip
    for row in grouped.to_pylist():
        found = places.topics.setdefault(row["topic"], _Places())
        found.rows += row["count_all"]
        found.free += row["count_all"] - row["number_count"]
        if row["number_count"]:
            found.highest = max(found.highest, row["number_max"])
            if row["number_min"] < 0:
                raise UsageError(f"A row of {row['topic']} is for partition {row['number_min']}")


def plan_load(
    disk: Disk, sources: Sequence[str], directory: str, options: LoadOptions, now_ms: int
) -> LoadPlan:
    """The plan; UsageError if the table or the directory do not fit."""
    parts = find_parts(sources, options.table_format)
    places = find_places(parts, options)
    if not places.rows:
        raise UsageError("The table has no rows")
    present = _present(disk, directory)
    if present and not disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
        raise UsageError(
            f"{directory} was not shut down in good order",
            hint="start its broker, which mends its logs, and stop it again",
        )
    counts = {}
    targets: list[Target] = []
    for topic, wanted in sorted(places.topics.items()):
        numbers = present.get(topic, [])
        count = counts[topic] = _count(directory, topic, wanted, numbers, options)
        targets += [_target(disk, directory, topic, it, is_new=not numbers) for it in range(count)]
    rows_of = {topic: wanted.rows for topic, wanted in places.topics.items()}
    return LoadPlan(directory, parts, options, now_ms, counts, targets, rows_of)


def _present(disk: Disk, directory: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in disk.list(directory) if disk.exists(directory) else []:
        parsed = parse_directory_name(name)
        if parsed is None or not disk.is_directory(f"{directory}/{name}"):
            continue
        if parsed.is_future:
            raise UsageError(
                f"{directory}/{name}: a replica is on the move",
                hint="start the broker until it has arrived",
            )
        if not parsed.is_delete:
            found.setdefault(parsed.topic_partition.topic, []).append(
                parsed.topic_partition.partition
            )
    return found


def _count(
    directory: str, topic: str, wanted: _Places, numbers: list[int], options: LoadOptions
) -> int:
    """How many partitions the topic has, or will have."""
    check_topic_name(topic)
    if numbers:
        count = len(numbers)
        if sorted(numbers) != list(range(count)) or options.partitions not in (None, count):
            raise UsageError(
                f"{directory} holds partitions {', '.join(map(str, sorted(numbers)))} of {topic}, "
                f"not all{f' {options.partitions}' if options.partitions else ''}",
                hint="import through the brokers: -b HOST:PORT",
            )
    elif options.partitions is not None:
        count = options.partitions
    elif not wanted.free:
        count = wanted.highest + 1
    else:
        raise UsageError(
            f"Topic {topic} is not in {directory} yet: how many partitions has it?",
            hint="--partitions N",
        )
    if wanted.highest >= count:
        raise UsageError(
            f"Rows of {topic} are for partition {wanted.highest}, of {count} partitions",
            hint="--repartition goes by their keys instead",
        )
    return count


def _target(disk: Disk, directory: str, topic: str, number: int, *, is_new: bool) -> Target:
    if is_new:
        return Target(topic, number, 0, 0, is_new=True)
    path = f"{directory}/{directory_name(TopicPartition(topic, number))}"
    (log,) = find_logs([path], [topic])
    epochs = f"{path}/{LEADER_EPOCH_CHECKPOINT}"
    entries = []
    if disk.exists(epochs) and disk.size(epochs):
        entries = decode_epochs(disk.read_file(epochs), epochs)
    epoch = entries[-1].epoch if entries else 0
    return Target(topic, number, log.end_offset, epoch, is_new=False)
