"""Places: the same interface to log directories and live brokers, for the data source.

A place exists for one call of Spark's planner. `bounds` decides which offsets are read.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Protocol

from kctl.admin.topics import TopicDescription
from kctl.arrow_files.files import Files
from kctl.arrow_files.log_discovery import TOPICS_NAMED_MAX, find_logs
from kctl.arrow_files.partition_log import PartitionLog
from kctl.client.offsets import NO_OFFSET
from kctl.errors import CorruptDataError, NotFoundError
from kctl.export.live_plan import LiveSplit, Ranges, cut_evenly, live_ranges, plan_ranges
from kctl.export.options import ExportOptions, Isolation
from kctl.export.rows import SplitReader, unreadable_end
from kctl.export.spark.admission import Offsets, offsets_of
from kctl.export.spark.bounds import (
    SKIP_HINT,
    Bound,
    BoundKind,
    DataLossError,
    NoMatch,
    batch_ranges,
    stream_ranges,
)
from kctl.export.spark.brokers import OpenConnection, fetched
from kctl.export.spark.options import SourceOptions
from kctl.export.splits import Split, plan_log
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.constants import INTERNAL_TOPICS
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.columnar import RecordColumns
from kctl.runtime.real.paths import absolute

# Smaller splits cost more than they save.
_SPLIT_BYTES_MIN = 64 * 1024
Times = Mapping[TopicPartition, int]


class Place(Protocol):
    """The interface that `_Files` and `_Brokers` share."""

    def available(self, isolation: Isolation) -> Ranges:
        """Return the offsets that each partition of the query holds now.

        With read_committed they end at the first open transaction. NotFoundError if a named topic
        or partition does not exist.
        """

    def offsets_for_times(
        self, times: Times, isolation: Isolation
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each time, in milliseconds; None if there is none."""

    def ends_before_times(self, times: Times, /) -> dict[TopicPartition, int]:
        """Return the offsets from which on every record is proven to be at or after each time, in
        milliseconds, where there are any."""

    def splits(self, ranges: Ranges, options: ExportOptions) -> Sequence[Any]:
        """Return splits of the offset ranges, in the number and size that the options request."""

    def check_ends(self, partitions: Iterable[TopicPartition], options: ExportOptions, /) -> None:
        """Raise CorruptDataError for damage where these logs end, which no split reads, if the
        options ask for it."""

    def close(self) -> None:
        """Release connections."""


def place_of(options: SourceOptions) -> Place:
    """Return the source that the options name; it must be closed."""
    return _Files(options) if options.path is not None else _Brokers(options)


def batch_splits(options: SourceOptions, reading: ExportOptions) -> Sequence[Any]:
    """Return the splits of a batch.

    UsageError for options that do not match the logs, DataLossError if records no longer exist and
    the query fails on data loss, CorruptDataError if a log that it reads to its end has a last
    segment without any readable batch.
    """
    with closing(place_of(options)) as place:
        available = place.available(reading.isolation)
        start, end = options.start(BoundKind.EARLIEST), options.end
        starts = _resolved(place, start, available, reading.isolation, options.on_no_match)
        ends = _resolved(place, end, available, reading.isolation, NoMatch.LATEST)
        ranges = batch_ranges(starts, ends, available, fails=options.fails_on_data_loss)
        place.check_ends([it for it in available if end.is_latest(it)], reading)
        return place.splits(ranges, reading)


def first_offsets(options: SourceOptions, isolation: Isolation) -> Offsets:
    """Return where a stream without a checkpoint begins; by default at the ends of the logs."""
    with closing(place_of(options)) as place:
        available = place.available(isolation)
        start = options.start(BoundKind.LATEST)
        return offsets_of(_resolved(place, start, available, isolation, options.on_no_match))


def available_ranges(options: SourceOptions, isolation: Isolation) -> Ranges:
    """Return the offsets that each partition of the query holds now."""
    with closing(place_of(options)) as place:
        return place.available(isolation)


def stream_splits(
    options: SourceOptions, start: Offsets, end: Offsets, reading: ExportOptions
) -> Sequence[Any]:
    """Return the splits of a stream's batch.

    DataLossError if records no longer exist and the query fails on data loss.
    """
    with closing(place_of(options)) as place:
        available = place.available(reading.isolation)
        ranges = stream_ranges(start, end, available, fails=options.fails_on_data_loss)
        return place.splits(ranges, reading)


def commit_offsets(options: SourceOptions, end: Offsets) -> None:
    """Commit the offsets that a stream has reached to the group that the options name, if any.

    The stream never reads them: its checkpoint is what counts. Partitions of topics that were
    deleted have none; what that means for the stream, its next batch decides. ApiError if the group
    has members.
    """
    group = options.committing_group
    if group is None:
        return
    offsets = {
        TopicPartition(topic, int(number)): offset
        for topic, by_partition in end.items()
        for number, offset in by_partition.items()
    }
    with options.connection.open() as opened:
        for result in opened.run(opened.admin.offsets.commit(group, offsets)):
            error = result.error
            is_gone = (
                isinstance(error, ApiError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if error is not None and not is_gone:
                raise error


def chunks_of(
    options: SourceOptions, split: Split | LiveSplit, reading: ExportOptions
) -> Iterator[RecordColumns]:
    """Yield the records of a split; DataLossError if some no longer exist and the query fails on
    it."""
    fails = options.fails_on_data_loss
    if isinstance(split, LiveSplit):
        return fetched(options.connection, split, reading, skips_deleted=not fails)
    return _existing_chunks(split, reading, fails=fails)


def _existing_chunks(
    split: Split, reading: ExportOptions, *, fails: bool
) -> Iterator[RecordColumns]:
    """Yield the records of a split's files, without those deleted since the split was made."""
    pieces = []
    for piece in split.pieces:
        files, path = Files.of(piece.url)
        if files.find(path) is not None:
            pieces.append(piece)
        elif fails:
            raise DataLossError(
                f"{split.topic}-{split.partition}: {piece.url} was deleted before it was read",
                hint=SKIP_HINT,
            )
    with _hinting():
        yield from SplitReader(replace(split, pieces=tuple(pieces)), reading).chunks()


@contextmanager
def _hinting() -> Iterator[None]:
    """Make the errors of damage name the option of a query that reads all other records."""
    try:
        yield
    except CorruptDataError as error:
        raise CorruptDataError(str(error), hint=SKIP_HINT) from None


def _resolved(
    place: Place, bound: Bound, available: Ranges, isolation: Isolation, on_no_match: NoMatch
) -> dict[TopicPartition, int]:
    times = bound.times(available)
    found = place.offsets_for_times(times, isolation) if times else {}
    return bound.offsets(available, found, on_no_match)


class _Files:
    """A log directory."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs = _wanted_logs(options)

    def available(self, isolation: Isolation) -> Ranges:
        """See Place."""
        return {it: (log.start_offset, _end(log, isolation)) for it, log in self._logs.items()}

    def offsets_for_times(
        self, times: Times, isolation: Isolation
    ) -> dict[TopicPartition, int | None]:
        """See Place."""
        found: dict[TopicPartition, int | None] = {}
        for partition, time_ms in times.items():
            log = self._logs[partition]
            offset = log.offset_for_time(time_ms)
            found[partition] = offset if offset < _end(log, isolation) else None
        return found

    def ends_before_times(self, times: Times) -> dict[TopicPartition, int]:
        """See Place."""
        ends = {it: self._logs[it].end_before_time(time_ms) for it, time_ms in times.items()}
        return {it: end for it, end in ends.items() if end < self._logs[it].end_offset}

    def splits(self, ranges: Ranges, options: ExportOptions) -> list[Split]:
        """See Place."""
        wanted = self._options.min_partitions
        if wanted:
            logs = [self._logs[it] for it in ranges]
            size = sum(segment.size for log in logs for segment in log.segments)
            options = replace(options, file_bytes=max(_SPLIT_BYTES_MIN, size // wanted))
        most = self._options.max_records_per_partition
        return [
            split
            for partition, (first, end) in ranges.items()
            for low, high in _cut_to(first, end, most)
            for split in plan_log(self._logs[partition], options, (_at(low), _at(high)))
        ]

    def check_ends(self, partitions: Iterable[TopicPartition], options: ExportOptions) -> None:
        """See Place."""
        with _hinting():
            for partition in partitions:
                unreadable_end(self._logs[partition], options)

    def close(self) -> None:
        """See Place."""


class _Brokers:
    """A live cluster."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection: OpenConnection = options.connection.open()

    def available(self, isolation: Isolation) -> Ranges:
        """See Place."""
        admin = self._connection.admin

        async def list_ranges() -> Ranges:
            topics = await admin.topics.list_topics()
            partitions = _live_partitions(self._options, topics)
            return await live_ranges(admin, partitions, _earliest, _latest, isolation)

        return self._connection.run(list_ranges())

    def offsets_for_times(
        self, times: Times, isolation: Isolation
    ) -> dict[TopicPartition, int | None]:
        """See Place."""
        level = int(isolation is Isolation.READ_COMMITTED)
        listing = self._connection.admin.offsets.list_offsets(times, isolation_level=level)
        found: dict[TopicPartition, int | None] = {}
        for partition, listed in self._connection.run(listing).items():
            if listed.error is not None:
                raise listed.error
            found[partition] = listed.offset if listed.offset != NO_OFFSET else None
        return found

    def ends_before_times(self, _times: Times) -> dict[TopicPartition, int]:
        """See Place. Brokers index the first record at or after a time, which proves nothing."""
        return {}

    def splits(self, ranges: Ranges, options: ExportOptions) -> list[LiveSplit]:
        """See Place."""
        splits = plan_ranges(ranges, options)
        total = sum(split.end_offset - split.first_offset for split in splits)
        wanted = self._options.min_partitions
        most = self._options.max_records_per_partition
        return [
            replace(split, first_offset=low, end_offset=high)
            for split in splits
            for first, end in cut_evenly(
                split.first_offset, split.end_offset,
                1 if wanted <= len(splits)
                else max(1, -(-wanted * (split.end_offset - split.first_offset) // total)),
            )
            for low, high in _cut_to(first, end, most)
        ]  # fmt: skip

    def check_ends(self, _partitions: Iterable[TopicPartition], _options: ExportOptions) -> None:
        """See Place. A broker serves whole batches only."""

    def close(self) -> None:
        """See Place."""
        self._connection.close()


def _cut_to(first: int, end: int, most: int | None) -> list[tuple[int, int]]:
    """Divide [first, end) into ranges of at most `most` offsets."""
    return cut_evenly(first, end, 1 if most is None else -(-(end - first) // most))


def _end(log: PartitionLog, isolation: Isolation) -> int:
    if isolation is not Isolation.READ_COMMITTED:
        return log.end_offset
    first_unstable = log.transactions()[1]
    return log.end_offset if first_unstable is None else min(log.end_offset, first_unstable)


def _latest(_topic_partition: TopicPartition) -> Position:
    return Position(PositionKind.LATEST)


def _earliest(_topic_partition: TopicPartition) -> Position:
    return Position(PositionKind.EARLIEST)


def _at(offset: int) -> Position:
    return Position(PositionKind.OFFSET, offset)


def _wanted_logs(options: SourceOptions) -> dict[TopicPartition, PartitionLog]:
    path = options.path
    assert path is not None
    is_everything = options.topics() is None and options.get("subscribePattern") is None
    logs = find_logs(absolute([path]), [] if is_everything else ["*"])
    known = {log.topic_partition: log for log in logs}
    return {it: known[it] for it in _chosen(options, known)}


def _live_partitions(
    options: SourceOptions, topics: Sequence[TopicDescription]
) -> list[TopicPartition]:
    known = [TopicPartition(it.name, each.partition) for it in topics for each in it.partitions]
    return _chosen(options, known)


def _chosen(options: SourceOptions, known: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that the query reads; NotFoundError if one that it names does not
    exist."""
    found = sorted(known)
    named = options.topics()
    if named is None:
        if options.get("subscribePattern") is None:
            return found
        names = {it.topic for it in found}.difference(INTERNAL_TOPICS)
        chosen = {name for name in names if options.chooses(name)}
        return [it for it in found if it.topic in chosen]
    _expect_topics(named, {it.topic for it in found})
    assigned = options.assigned()
    if options.get("assign") is None:
        return [it for it in found if it.topic in named]
    missing = sorted(set(assigned).difference(found))
    if missing:
        raise NotFoundError(f"assign: {missing[0]} does not exist")
    return [it for it in found if it in assigned]


def _expect_topics(named: Iterable[str], known: set[str]) -> None:
    for name in named:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            listed = ", ".join(sorted(known)[:TOPICS_NAMED_MAX]) or "none"
            hint = f"did you mean {near[0]}?" if near else f"topics: {listed}"
            raise NotFoundError(f"No topic {name}", hint=hint)
