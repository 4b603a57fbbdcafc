"""Places: where the data source finds records, be it files or brokers; the same questions to both.

An instance lives for one question of Spark's planner, or one task.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from kctl.errors import UsageError
from kctl.export.live_plan import (
    LiveSplit,
    Ranges,
    cut_evenly,
    live_partitions,
    live_ranges,
    plan_ranges,
)
from kctl.export.options import ExportOptions, Isolation
from kctl.export.partition_log import PartitionLog
from kctl.export.rows import SplitReader
from kctl.export.source import find_logs
from kctl.export.spark.admission import Offsets, offsets_of
from kctl.export.spark.brokers import OpenConnection, fetched
from kctl.export.spark.options import SourceOptions
from kctl.export.splits import Split, plan_log
from kctl.model import Position, PositionKind, TopicPartition
from kctl.records.columnar import RecordColumns

# Splits of less than this cost more than they bring.
_SPLIT_BYTES_MIN = 64 * 1024


class Place(Protocol):
    """What `Files` and `Brokers` answer."""

    def splits(self, options: ExportOptions) -> Sequence[Any]:
        """Those of the range that the options name; at least `minPartitions` if they can be."""

    def first_offsets(self) -> Offsets:
        """Where a stream without a checkpoint begins: startingOffsets, by default the ends."""

    def ranges(self, options: ExportOptions) -> Ranges:
        """What logs hold now; to an open transaction if only committed records count."""

    def splits_between(self, start: Offsets, end: Offsets, options: ExportOptions) -> Sequence[Any]:
        """Those of a batch; a partition that is new begins at its begin. UsageError if records
        are gone and that is failure."""


def place_of(options: SourceOptions) -> Place:
    """Where the options say."""
    return _Files(options) if options.path is not None else _Brokers(options)


def chunks_of(
    options: SourceOptions, split: Split | LiveSplit, reading: ExportOptions
) -> Iterator[RecordColumns]:
    """The records of a split."""
    if isinstance(split, LiveSplit):
        return fetched(options.connection, split, reading)
    return SplitReader(split, reading).chunks()


class _Files:
    """A log directory."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs = list(_wanted_logs(options))

    def splits(self, options: ExportOptions) -> list[Split]:
        """See Place."""
        wanted = self._options.min_partitions
        if wanted:
            size = sum(segment.size for log in self._logs for segment in log.segments)
            options = replace(options, file_bytes=max(_SPLIT_BYTES_MIN, size // wanted))
        bound = self._options.bound
        return [
            split
            for log in self._logs
            for split in plan_log(
                log, options,
                (bound("starting", log.topic_partition), bound("ending", log.topic_partition)),
            )
        ]  # fmt: skip

    def first_offsets(self) -> Offsets:
        """See Place."""
        offsets = {}
        for log in self._logs:
            at = self._options.bound("starting", log.topic_partition)
            start = log.resolve(at) if self._options.is_start_given else log.end_offset
            offsets[log.topic_partition] = max(start, log.start_offset)
        return offsets_of(offsets)

    def ranges(self, options: ExportOptions) -> Ranges:
        """See Place."""
        ranges = {}
        for log in self._logs:
            end = log.end_offset
            if options.isolation is Isolation.READ_COMMITTED:
                first_unstable = log.transactions()[1]
                end = end if first_unstable is None else min(end, first_unstable)
            ranges[log.topic_partition] = (log.start_offset, end)
        return ranges

    def splits_between(self, start: Offsets, end: Offsets, options: ExportOptions) -> list[Split]:
        """See Place."""
        starts = {log.topic_partition: log.start_offset for log in self._logs}
        ranges = _ranges_between(start, end, starts, fails=options.fails_on_damage)
        splits: list[Split] = []
        for log in self._logs:
            if log.topic_partition in ranges:
                first, stop = ranges[log.topic_partition]
                bounds = _at(first), _at(stop)
                splits += plan_log(log, options, bounds)
        return splits


class _Brokers:
    """A live cluster."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def splits(self, options: ExportOptions) -> list[LiveSplit]:
        """See Place."""
        with self._options.connection.open() as opened:
            ranges = self._ranges(opened, self._bound("starting"), self._bound("ending"), options)
        return self._cut(ranges, options)

    def first_offsets(self) -> Offsets:
        """See Place."""
        start = self._bound("starting") if self._options.is_start_given else _latest
        options = self._options.export_options(())
        with self._options.connection.open() as opened:
            ranges = self._ranges(opened, start, _latest, options)
        return offsets_of({it: first for it, (first, _end) in ranges.items()})

    def ranges(self, options: ExportOptions) -> Ranges:
        """See Place."""
        with self._options.connection.open() as opened:
            return self._ranges(opened, _earliest, _latest, options)

    def splits_between(
        self, start: Offsets, end: Offsets, options: ExportOptions
    ) -> list[LiveSplit]:
        """See Place."""
        starts = {it: first for it, (first, _end) in self.ranges(options).items()}
        ranges = _ranges_between(start, end, starts, fails=options.fails_on_damage)
        return self._cut(ranges, options)

    def _bound(self, which: str) -> Callable[[TopicPartition], Position]:
        return lambda topic_partition: self._options.bound(which, topic_partition)

    def _ranges(
        self,
        opened: OpenConnection,
        start: Callable[[TopicPartition], Position],
        end: Callable[[TopicPartition], Position],
        options: ExportOptions,
    ) -> Ranges:
        async def ask() -> Ranges:
            pattern = self._options.get("subscribePattern")
            topics = ["*"] if pattern is not None else self._options.subscribed()
            found = _chosen(self._options, await live_partitions(opened.admin, topics))
            return await live_ranges(opened.admin, found, start, end, options.isolation)

        return opened.run(ask())

    def _cut(self, ranges: Ranges, options: ExportOptions) -> list[LiveSplit]:
        """One split a partition, or parts of about the same length if there should be more."""
        splits = plan_ranges(ranges, options)
        total = sum(split.end_offset - split.first_offset for split in splits)
        wanted = self._options.min_partitions
        if wanted <= len(splits):
            return splits
        return [
            replace(split, first_offset=first, end_offset=end)
            for split in splits
            for first, end in cut_evenly(
                split.first_offset, split.end_offset,
                max(1, -(-wanted * (split.end_offset - split.first_offset) // total)),
            )
        ]  # fmt: skip


def _latest(_topic_partition: TopicPartition) -> Position:
    return Position(PositionKind.LATEST)


def _earliest(_topic_partition: TopicPartition) -> Position:
    return Position(PositionKind.EARLIEST)


def _at(offset: int) -> Position:
    return Position(PositionKind.OFFSET, offset)


def _wanted_logs(options: SourceOptions) -> list[PartitionLog]:
    path = options.path
    assert path is not None
    patterns = ["*"] if options.get("subscribePattern") is not None else options.subscribed()
    logs = {log.topic_partition: log for log in find_logs([path], patterns)}
    return [logs[it] for it in _chosen(options, logs)]


def _chosen(options: SourceOptions, known: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those that `subscribePattern` and `assign` mean."""
    found = sorted(known)
    pattern = options.get("subscribePattern")
    if pattern is not None:
        matches = re.compile(pattern).fullmatch
        found = [it for it in found if matches(it.topic)]
    assigned = options.assigned()
    if not assigned:
        return found
    wanted = {TopicPartition(topic, it) for topic, numbers in assigned.items() for it in numbers}
    missing = sorted(wanted.difference(found))
    if missing:
        raise UsageError(f"assign: there is no {missing[0]}")
    return [it for it in found if it in wanted]


def _ranges_between(
    start: Offsets, end: Offsets, starts: dict[TopicPartition, int], *, fails: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """What lies between two offsets of a stream, where `starts` says what is still there."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for topic_partition, earliest in starts.items():
        topic, number = topic_partition
        stop = end.get(topic, {}).get(str(number))
        if stop is None:
            continue
        first = start.get(topic, {}).get(str(number), earliest)
        if first < earliest and first < stop and fails:
            raise UsageError(
                f"{topic_partition} begins at {earliest} now: the records from {first} on are gone",
                hint="failOnDataLoss=false goes on at the first that is there",
            )
        if stop < first and fails:
            raise UsageError(
                f"{topic_partition} ends at {stop} now, before {first}, which was read: it was "
                "made anew",
                hint="begin with a new checkpoint, or failOnDataLoss=false",
            )
        ranges[topic_partition] = (max(first, earliest), stop)
    return ranges
