"""`read` returns a DataFrame that satisfies a SQL condition and reads only what can satisfy it.

    from kctl.export.spark import read
    read(spark, "broker1:9092", where="partition = 1 and offset > 1000", subscribe="orders")

The condition becomes ranges of offsets when the DataFrame is made. Spark then filters the rows by
the same condition, unless the ranges hold exactly the rows that satisfy it. So every query over the
DataFrame is correct, however often and with whatever further filters it is used: nothing is pushed
down while Spark plans a query.

Ranges that all have an end are divided into tasks at once (`planned_read`). Otherwise they are
options of the data source, `assign`, `startingOffsets` and `endingOffsets`, and the first query
finds the ends.

A lower bound of times selects by the time indexes. An upper bound does only where the log proves
that no earlier time follows (`PartitionLog.end_before_time`), or the caller vouches for it.
"""

import json
import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from pyspark.errors import PySparkException

from kctl.counts import counted
from kctl.errors import UsageError
from kctl.export.live_plan import Ranges
from kctl.export.options import ExportOptions
from kctl.export.spark.bounds import EARLIEST, LATEST
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import Place, place_of
from kctl.export.spark.planned_read import SPLITS_MAX, frame_of
from kctl.export.spark.predicate import Predicate, Region, parse_predicate
from kctl.export.spark.source import KctlDataSource
from kctl.export.splits import Split
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

__all__ = ["PartitionRead", "ReadPlan", "explain", "read"]

_HOSTS = re.compile(r"[^/,\s]+:\d+(,\s*[^/,\s]+:\d+)*")
_SERVERS = "kafka.bootstrap.servers"
_STRATEGIES = ("assign", "subscribe")
_ENDS = ("starting", "ending")
_TIME_OPEN = (
    "  no end by time: earlier times may follow a later one; disorder_ms=N vouches that none is"
    " more than N ms earlier"
)


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """What is read of one partition, of the offsets [first, end) that it holds."""

    partition: TopicPartition
    first: int
    end: int
    # [start, stop); equal if nothing is read.
    start: int
    stop: int
    # Whether it is part of the DataFrame: it may hold matching rows later.
    is_read: bool = True
    # Of files: the ranges of segments to read, and all of the log. 0 for brokers.
    bytes: int = 0
    all_bytes: int = 0
    segments: int = 0
    all_segments: int = 0
    # Offsets at the end that the condition's times exclude.
    later: int = 0
    # Whether the condition has an upper bound of times that excludes no offset.
    is_time_open: bool = False

    def __str__(self) -> str:
        if not self.is_read:
            return f"{self.partition}: not read"
        text = (
            f"{self.partition}: offsets {self.start} to {self.stop} of {self.first} to {self.end}"
        )
        if self.all_segments:
            text += (
                f", {self.segments} of {counted(self.all_segments, 'segment')},"
                f" {self.bytes} of {self.all_bytes} bytes"
            )
        if self.later:
            text += f", {self.later} later ones left out"
        if self.is_time_open:
            text += ", no end by time"
        return text


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What `read` would read now. As text: a line for each partition."""

    partitions: tuple[PartitionRead, ...]
    # Parts of the condition that select no offsets; Spark applies them to the rows.
    unused: tuple[str, ...]

    @property
    def offsets(self) -> int:
        """Return the number of offsets to read."""
        return sum(it.stop - it.start for it in self.partitions)

    def __str__(self) -> str:
        held = sum(it.end - it.first for it in self.partitions)
        count = sum(it.stop > it.start for it in self.partitions)
        where = f"in {count} of {counted(len(self.partitions), 'partition')}"
        lines = [f"reads {self.offsets} of {counted(held, 'offset')}, {where}"]
        lines += [f"  {it}" for it in self.partitions]
        lines += [f"  selects no offsets: {it}" for it in self.unused]
        if any(it.is_time_open for it in self.partitions):
            lines.append(_TIME_OPEN)
        return "\n".join(lines)


def read(
    spark: Any,
    place: str,
    where: str | None = None,
    *,
    disorder_ms: int | None = None,
    **options: str,
) -> Any:
    """Return a DataFrame of the rows that satisfy `where`, a condition in Spark's SQL.

    `place` is a log directory or brokers (`host:port,...`); `options` are those of the data source,
    by default all topics except internal ones. With `disorder_ms` the caller vouches that no
    record's time is further behind that of an earlier record of its partition, so that upper bounds
    of times select offsets too; 0 means that times never decrease. UsageError for wrong options.
    Spark reports a condition that is not valid.
    """
    given = _with_place(place, options)
    reader = spark.read.format("kctl")
    if where is None:
        return reader.options(**given).load()
    source, predicate = _checked(spark, given, where, disorder_ms)
    schema = KctlDataSource(given).schema()
    names = [column.split(" ", 1)[0] for column in schema.split(", ")]
    reading = source.export_options(tuple(names))
    with closing(place_of(source)) as opened:
        available = opened.available(reading.isolation)
        bounds = _bounds(opened, available, predicate, reading, disorder_ms)
        has_ends = all(end != LATEST for _start, end in bounds.ranges.values())
        splits = opened.splits(_resolved(bounds.ranges, available), reading) if has_ends else []
    if has_ends and len(splits) <= SPLITS_MAX:
        frame = frame_of(spark, source, reading, schema, splits)
    else:
        kept = {name: it for name, it in given.items() if not name.startswith(_STRATEGIES)}
        frame = reader.options(**(kept | _ranges(bounds.ranges))).load()
    return frame if bounds.is_exact else frame.where(where)


def _resolved(ranges: Ranges, available: Ranges) -> Ranges:
    return {
        partition: (available[partition][0] if start == EARLIEST else start, end)
        for partition, (start, end) in ranges.items()
    }


def explain(
    spark: Any,
    place: str,
    where: str | None = None,
    *,
    disorder_ms: int | None = None,
    **options: str,
) -> ReadPlan:
    """Return what `read` with the same arguments would read now; as text, a line for each
    partition."""
    source, predicate = _checked(spark, _with_place(place, options), where or "true", disorder_ms)
    reading = source.export_options(("offset",))
    with closing(place_of(source)) as opened:
        available = opened.available(reading.isolation)
        bounds = _bounds(opened, available, predicate, reading, disorder_ms)
        reads = tuple(
            _described(opened, partition, ends, bounds, reading)
            for partition, ends in sorted(available.items())
        )
    return ReadPlan(reads, tuple(predicate.unused) if where else ())


def _ranges(bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, str]:
    """Return the options that read these offsets."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, number), (start, end) in bounds.items():
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = start
        ends.setdefault(topic, {})[str(number)] = end
    return {
        "assign": json.dumps(assigned), "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }  # fmt: skip


def _with_place(place: str, options: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    is_live = _HOSTS.fullmatch(place.strip()) is not None
    if given.keys() & {"path", _SERVERS}:
        raise UsageError("The place is an argument of its own, not an option")
    if is_live and not any(name.startswith(_STRATEGIES) for name in given):
        given["subscribepattern"] = ".*"
    return {_SERVERS if is_live else "path": place, **given}


def _checked(
    spark: Any, given: Mapping[str, str], where: str, disorder_ms: int | None
) -> tuple[SourceOptions, Predicate]:
    if disorder_ms is not None and disorder_ms < 0:
        raise UsageError(f"disorder_ms is negative: {disorder_ms}")
    source = SourceOptions(given)
    for name in given:
        if name.startswith(_ENDS):
            raise UsageError(f"{name} and a condition: write the range into the condition")
    source.check_batch()
    return source, parse_predicate(where, lambda text: _micros(spark, text))


def _micros(spark: Any, text: str) -> int | None:
    """Return a constant of SQL as microseconds since 1970; None if it is not one."""
    try:
        row = spark.sql(f"select unix_micros(cast(({text}) as timestamp))").first()
    except PySparkException:
        return None
    value = None if row is None else row[0]
    return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a condition selects of each partition."""

    # [start, end) of the partitions that may hold matching rows, now or later, for the options.
    ranges: Mapping[TopicPartition, tuple[int, int]]
    # Where records at and after the condition's upper bound of times begin.
    cuts: Mapping[TopicPartition, int]
    # The partitions with such a bound.
    timed: Mapping[TopicPartition, int]
    # Whether all rows of these ranges satisfy the condition, whatever is added to the logs.
    is_exact: bool


def _bounds(
    place: Place,
    available: Ranges,
    predicate: Predicate,
    reading: ExportOptions,
    disorder_ms: int | None,
) -> _Bounds:
    found: dict[TopicPartition, Region] = {}
    for partition, (first, _end) in sorted(available.items()):
        region = predicate.root.region(partition)
        if not region.is_empty and (region.high is None or region.high > first):
            found[partition] = region
    by_time = _at_times(place, {it: region.time_ms for it, region in found.items()}, reading)
    timed = {
        partition: region.time_end_ms
        for partition, region in found.items()
        if region.time_end_ms is not None and region.time_end_ms >= 0
    }
    cuts = _cuts(place, available, timed, reading, disorder_ms)
    ranges = {}
    # A part that is not understood may be invalid, which Spark reports.
    is_exact = not predicate.unused
    for partition, region in found.items():
        first, end = available[partition]
        low = region.low
        if partition in by_time:
            # Without a record at or after the time, records that come later may match.
            at = by_time[partition]
            low = max(low, end if at is None else at)
        low = min(low, end)
        high = LATEST if region.high is None or region.high > end else region.high
        if partition in cuts:
            high = cuts[partition] if high == LATEST else min(high, cuts[partition])
        if high == LATEST or high > max(low, first):
            ranges[partition] = (EARLIEST if low <= first else low, high)
            is_open = high == LATEST and region.high is not None
            is_exact = is_exact and region.is_exact and region.low <= end and not is_open
    return _Bounds(ranges, cuts, timed, is_exact)


def _at_times(
    place: Place, times: Mapping[TopicPartition, int | None], reading: ExportOptions
) -> dict[TopicPartition, int | None]:
    """Return the first offset at or after each time that is given; None if there is none."""
    given = {it: time_ms for it, time_ms in times.items() if time_ms is not None and time_ms >= 0}
    return place.offsets_for_times(given, reading.isolation) if given else {}


def _cuts(
    place: Place,
    available: Ranges,
    timed: Mapping[TopicPartition, int],
    reading: ExportOptions,
    disorder_ms: int | None,
) -> dict[TopicPartition, int]:
    """Return the offsets from which on no record is before the time, where there are any."""
    found = dict(place.ends_before_times(timed)) if timed else {}
    if disorder_ms is not None:
        # What follows a record of that time is at most so much earlier.
        late: dict[TopicPartition, int | None] = {
            partition: time_ms + disorder_ms for partition, time_ms in timed.items()
        }
        for partition, at in _at_times(place, late, reading).items():
            if at is not None:
                found[partition] = min(at, found.get(partition, at))
    return {it: max(at, available[it][0]) for it, at in found.items() if at < available[it][1]}


def _described(
    place: Place,
    partition: TopicPartition,
    ends: tuple[int, int],
    bounds: _Bounds,
    reading: ExportOptions,
) -> PartitionRead:
    first, end = ends
    selected = bounds.ranges.get(partition)
    cut = bounds.cuts.get(partition, end)
    whole = place.splits({partition: ends}, reading) if end > first else []
    pieces = _pieces(whole)
    sizes = {"all_bytes": sum(it.size for it in whole), "all_segments": len(pieces)}
    if selected is None:
        return PartitionRead(partition, first, end, first, first, is_read=False, **sizes)
    start = first if selected[0] == EARLIEST else selected[0]
    stop = end if selected[1] == LATEST else selected[1]
    part = place.splits({partition: (start, stop)}, reading) if stop > start else []
    return PartitionRead(
        partition, first, end, start, stop, bytes=sum(it.size for it in part),
        segments=len(_pieces(part)), **sizes, later=end - cut if stop == cut else 0,
        is_time_open=partition in bounds.timed and cut == end,
    )  # fmt: skip


def _pieces(splits: Any) -> set[str]:
    return {piece.url for split in splits if isinstance(split, Split) for piece in split.pieces}
