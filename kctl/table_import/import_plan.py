"""LoadPlan: the result of importing a table into a stopped broker's log directory, before any
change.

A topic either has all its partitions in the directory, and the import appends to them, or none, and
the import creates them from 0 on. Cluster metadata is not changed: a new topic's replicas are
decided when it is created afterwards. A broker accepts the logs in its directory, and a new
embedded store adopts them.

Records get the partition's newest leader epoch, as if its last leader had written them.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, field

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.arrow_files.log_discovery import find_logs
from kctl.configs.topic_name import check_topic_name
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.records.compression import LZ4
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import decode_epochs
from kctl.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    IMPORTED_FILE,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    directory_name,
    parse_directory_name,
)
from kctl.table_import.tables import TableFormat, TablePart, find_parts, read_places, read_rows

DEFAULT_SEGMENT_BYTES = 1 << 30
_ORDERS = ("timestamp", "offset")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How rows become records."""

    # None: the column topic of each row.
    topic: str | None = None
    # Number of partitions of a new topic.
    partitions: int | None = None
    # Whether a row's column partition is used; otherwise the key determines the partition.
    keeps_partitions: bool = True
    # A column; None: rows keep their order.
    order_by: str | None = None
    compression_type: int = LZ4
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    table_format: TableFormat | None = None
    # Of CSV: the text of a null key or value.
    null_text: str | None = None

    def __post_init__(self) -> None:
        if self.order_by not in (None, *_ORDERS):
            raise UsageError(
                f"Cannot order by {self.order_by}", hint=f"columns: {', '.join(_ORDERS)}"
            )
        if not 1 << 14 <= self.segment_bytes < 1 << 31:
            raise UsageError("The segment size must be from 16 KiB to 2 GiB")


@dataclass(frozen=True, slots=True)
class Target:
    """A partition, and the offset and epoch of the records that it receives."""

    topic: str
    partition: int
    base_offset: int
    leader_epoch: int
    is_new: bool

    @property
    def name(self) -> str:
        """Return the name of the partition's directory."""
        return directory_name(TopicPartition(self.topic, self.partition))


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What an import will write, and where."""

    directory: str
    parts: list[TablePart]
    options: LoadOptions
    # The time of the plan, and of records without a timestamp.
    now_ms: int
    # Partitions by topic.
    counts: dict[str, int]
    targets: list[Target]
    # Rows by topic.
    rows_of: dict[str, int]
    # Whether the directory holds logs already.
    has_logs: bool

    @property
    def rows(self) -> int:
        """Return the number of rows of all topics."""
        return sum(self.rows_of.values())


def fingerprint(parts: Sequence[TablePart], options: LoadOptions) -> str:
    """Return a hash that identifies an import: its parts and options."""
    text = json.dumps([[asdict(part) for part in parts], asdict(options)], sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class _Places:
    """The partitions that a topic's rows name."""

    rows: int = 0
    # Highest partition named by a row; -1 if none is.
    highest: int = -1
    # Rows that name no partition.
    free: int = 0


@dataclass(slots=True)
class TablePlaces:
    """The topics that a table's rows name."""

    topics: dict[str, _Places] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return the number of rows of all topics."""
        return sum(it.rows for it in self.topics.values())


def find_places(parts: Sequence[TablePart], options: LoadOptions) -> TablePlaces:
    """Read which topics and partitions the rows name; UsageError for a row without a topic."""
    return _places(parts, options, read_places)


def check_rows(parts: Sequence[TablePart], options: LoadOptions, now_ms: int) -> TablePlaces:
    """Decode every row as an import does, and return what `find_places` returns.

    UsageError, which names the file, for a row that cannot be imported.
    """
    return _places(parts, options, lambda part: read_rows(part, now_ms))


def _places(
    parts: Sequence[TablePart],
    options: LoadOptions,
    read: Callable[[TablePart], Iterator[pa.RecordBatch]],
) -> TablePlaces:
    places = TablePlaces()
    for part in parts:
        for batch in read(part):
            topics = batch.column("topic")
            if options.topic is not None:
                topics = pa.repeat(pa.scalar(options.topic), batch.num_rows)
            if topics.null_count:
                raise UsageError(
                    f"{part.url}: rows have no topic", hint="--topic NAME sets it for all rows"
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
                raise UsageError(f"A row of {row['topic']} names partition {row['number_min']}")


def plan_load(
    disk: Disk, sources: Sequence[str], directory: str, options: LoadOptions, now_ms: int
) -> LoadPlan:
    """Return the plan; UsageError if the table does not match the directory."""
    parts = find_parts(sources, options.table_format, options.null_text)
    places = find_places(parts, options)
    if not places.rows:
        raise UsageError("The table has no rows")
    present = _present(disk, directory)
    if present and not _is_clean(disk, directory):
        raise UsageError(
            f"{directory} was not shut down cleanly",
            hint="start its broker, which recovers the logs, and stop it again",
        )
    counts = {}
    targets: list[Target] = []
    for topic, wanted in sorted(places.topics.items()):
        numbers = present.get(topic, [])
        count = counts[topic] = _count(directory, topic, wanted, numbers, options)
        targets += [_target(disk, directory, topic, it, is_new=not numbers) for it in range(count)]
    rows_of = {topic: wanted.rows for topic, wanted in places.topics.items()}
    return LoadPlan(
        directory, parts, options, now_ms, counts, targets, rows_of, has_logs=bool(present)
    )


def _is_clean(disk: Disk, directory: str) -> bool:
    """Return whether the logs of `directory` need no recovery: their broker stopped cleanly, or
    imports wrote all of them, durably, and no broker has run since.

    A broker writes meta.properties or checkpoints before it accepts records.
    """
    if disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
        return True
    return disk.exists(f"{directory}/{IMPORTED_FILE}") and not any(
        disk.exists(f"{directory}/{name}") for name in (META_PROPERTIES, *OFFSET_CHECKPOINTS)
    )


def _present(disk: Disk, directory: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in disk.list(directory) if disk.exists(directory) else []:
        parsed = parse_directory_name(name)
        if parsed is None or not disk.is_directory(f"{directory}/{name}"):
            continue
        if parsed.is_future:
            raise UsageError(
                f"{directory}/{name}: a replica is being moved between directories",
                hint="run the broker until the move has finished",
            )
        if not parsed.is_delete:
            found.setdefault(parsed.topic_partition.topic, []).append(
                parsed.topic_partition.partition
            )
    return found


def _count(
    directory: str, topic: str, wanted: _Places, numbers: list[int], options: LoadOptions
) -> int:
    """Return the number of partitions that the topic has or will have."""
    check_topic_name(topic)
    if numbers:
        count = len(numbers)
        if sorted(numbers) != list(range(count)) or options.partitions not in (None, count):
            raise UsageError(
                f"{directory} holds partition{'s' * (count > 1)} "
                f"{', '.join(map(str, sorted(numbers)))} of {topic}, "
                f"not all{f' {options.partitions}' if options.partitions else ''}",
                hint="import through the brokers: -b HOST:PORT",
            )
    elif options.partitions is not None:
        count = options.partitions
    elif not wanted.free:
        count = wanted.highest + 1
    else:
        raise UsageError(
            f"Topic {topic} is not in {directory}, so its number of partitions is unknown",
            hint="--partitions N",
        )
    if wanted.highest >= count:
        raise UsageError(
            f"Rows of {topic} name partition {wanted.highest}, but it has "
            f"{counted(count, 'partition')}",
            hint="--repartition assigns partitions by key instead",
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
