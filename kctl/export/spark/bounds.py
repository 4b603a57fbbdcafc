"""Bounds: where a query begins and ends, resolved from its options to the offsets of each
partition.

Nothing here connects to a broker or reads a file: a place reports which partitions exist, which
offsets each one holds (`Ranges`: [first, end)) and which offset a timestamp denotes.

Rules, which are those of Spark's Kafka source:
- For each end, `...Timestamp` takes precedence over `...OffsetsByTimestamp`, and that over
  `...Offsets`. By default a batch begins at the earliest offsets, a stream at the latest.
- Offsets or times given as JSON name exactly the partitions of the query.
- An end after the last record is the latest offset. A start after the last record is an error, or
  the latest offset if startingOffsetsByTimestampStrategy says so.
- Offsets that a log does not hold, whether deleted or beyond its end, are data loss: an error, or
  skipped if failOnDataLoss is false. A batch that ends before it begins is always an error.
- The times -1 and -2 denote the latest and the earliest offset, as in ListOffsets.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider (getKafkaOffsetRangeLimit,
validateBatchOptions), KafkaOffsetReaderAdmin
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum, StrEnum, auto

from kctl.errors import KctlError, UsageError
from kctl.export.live_plan import Ranges
from kctl.export.spark.admission import Offsets
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

# Their values in JSON.
LATEST, EARLIEST = -1, -2
_STRATEGY = "startingOffsetsByTimestampStrategy"
SKIP_HINT = "failOnDataLoss=false reads the records that exist"
_INT64_MAX = 2**63 - 1
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")

Get = Callable[[str], str | None]


class DataLossError(KctlError):
    """Records that a query must read no longer exist, and failOnDataLoss is true."""


class BoundKind(Enum):
    """The form in which an end of a query is given."""

    EARLIEST = auto()
    LATEST = auto()
    # An offset, or a time in milliseconds, of each partition.
    OFFSETS = auto()
    TIMES = auto()
    # One time for all partitions.
    TIME = auto()


class NoMatch(StrEnum):
    """What to do with a start after which a partition has no record."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a query, and the option that sets it, for error messages."""

    kind: BoundKind
    option: str
    values: Mapping[TopicPartition, int] = field(default_factory=dict)
    time_ms: int = 0

    def times(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the times, in milliseconds, whose offsets must be looked up.

        UsageError if the option does not name exactly the partitions.
        """
        if self.kind not in (BoundKind.TIME, BoundKind.TIMES):
            return {}
        if self.kind is BoundKind.TIMES:
            self._check_partitions(partitions)
        times = {it: self.values.get(it, self.time_ms) for it in partitions}
        return {it: time_ms for it, time_ms in times.items() if time_ms >= 0}

    def offsets(
        self,
        available: Ranges,
        found: Mapping[TopicPartition, int | None],
        on_no_match: NoMatch = NoMatch.LATEST,
    ) -> dict[TopicPartition, int]:
        """Return the offset of each available partition; `found` holds those of `times`.

        UsageError if the option does not name exactly the partitions, or if a time has no match.
        """
        if self.kind is BoundKind.OFFSETS:
            self._check_partitions(available)
        return {
            partition: self._offset(partition, available, found, on_no_match)
            for partition in available
        }

    def _offset(
        self,
        partition: TopicPartition,
        available: Ranges,
        found: Mapping[TopicPartition, int | None],
        on_no_match: NoMatch,
    ) -> int:
        first, end = available[partition]
        if self.kind is BoundKind.EARLIEST:
            return first
        if self.kind is BoundKind.LATEST:
            return end
        value = self.values.get(partition, self.time_ms)
        if value in (EARLIEST, LATEST):
            return first if value == EARLIEST else end
        if self.kind is BoundKind.OFFSETS:
            return value
        match = found[partition]
        if match is not None:
            return match
        if on_no_match is NoMatch.ERROR:
            raise UsageError(
                f"{self.option}: {partition} has no record at or after {value}",
                hint=f"{_STRATEGY}=latest begins such partitions at their ends",
            )
        return end

    def is_latest(self, partition: TopicPartition) -> bool:
        """Return whether the query names the end of the partition's log, not an offset or time."""
        is_named = self.kind is BoundKind.OFFSETS and self.values.get(partition) == LATEST
        return self.kind is BoundKind.LATEST or is_named

    def _check_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        expected = set(partitions)
        missing = sorted(expected.difference(self.values))
        if missing:
            raise UsageError(
                f"{self.option} lacks {missing[0]}: it must name every partition that is read",
                hint="-2 means earliest and -1 latest" if self.kind is BoundKind.OFFSETS else None,
            )
        unknown = sorted(set(self.values).difference(expected))
        if unknown:
            raise UsageError(f"{self.option} names {unknown[0]}, which is not read")


def start_bound(get: Get, default: BoundKind) -> Bound:
    """Return where the query begins; UsageError if an option is invalid."""
    return _bound(get, "starting", default)


def end_bound(get: Get) -> Bound:
    """Return where a batch ends; UsageError if an option is invalid."""
    return _bound(get, "ending", BoundKind.LATEST)


def no_match(get: Get) -> NoMatch:
    """Return startingOffsetsByTimestampStrategy; UsageError if it is invalid."""
    text = get(_STRATEGY)
    try:
        return NoMatch.ERROR if text is None else NoMatch(text.lower())
    except ValueError:
        raise UsageError(f"{_STRATEGY} is neither error nor latest: {text}") from None


def check_batch(start: Bound, end: Bound) -> None:
    """Raise UsageError if a batch cannot have these ends, whatever the logs hold."""
    for bound, kind, offset in (
        (start, BoundKind.LATEST, LATEST), (end, BoundKind.EARLIEST, EARLIEST),
    ):  # fmt: skip
        if bound.kind is kind:
            raise UsageError(f"{bound.option} of a batch cannot be {kind.name.lower()}")
        for partition, value in bound.values.items():
            if bound.kind is BoundKind.OFFSETS and value == offset:
                raise UsageError(
                    f"{bound.option} of a batch cannot be {kind.name.lower()} ({offset}), as of "
                    f"{partition}"
                )
    if start.kind is end.kind and start.values and end.values:
        _check_pair(start, end)


def _check_pair(start: Bound, end: Bound) -> None:
    unpaired = sorted(set(start.values).symmetric_difference(end.values))
    if unpaired:
        raise UsageError(
            f"{start.option} and {end.option} name different partitions: one lacks {unpaired[0]}"
        )
    for partition, first in start.values.items():
        if first > end.values[partition] >= 0:
            raise UsageError(
                f"{partition}: {start.option} ({first}) is after {end.option} "
                f"({end.values[partition]})"
            )


def _bound(get: Get, which: str, default: BoundKind) -> Bound:
    option = f"{which}Timestamp"
    text = get(option)
    if text is not None:
        return Bound(BoundKind.TIME, option, time_ms=_time(option, text))
    option = f"{which}OffsetsByTimestamp"
    text = get(option)
    if text is not None:
        return Bound(BoundKind.TIMES, option, _by_partition(option, text, "times"))
    option = f"{which}Offsets"
    text = get(option)
    if text is None:
        return Bound(default, option)
    name = text.strip().lower()
    if name in ("earliest", "latest"):
        return Bound(BoundKind[name.upper()], option)
    return Bound(BoundKind.OFFSETS, option, _by_partition(option, text, "offsets"))


def _time(option: str, text: str) -> int:
    if _NUMBER.fullmatch(text.strip()) is None:
        raise UsageError(f"{option} is not a number of milliseconds: {text}")
    return _checked(option, int(text))


def _checked(option: str, value: int) -> int:
    if not EARLIEST <= value <= _INT64_MAX:
        raise UsageError(f"{option} is out of range: {value}")
    return value


def _by_partition(option: str, text: str, what: str) -> dict[TopicPartition, int]:
    try:
        found = {
            TopicPartition(topic, int(partition)): _integer(value)
            for topic, by_partition in json.loads(text).items()
            for partition, value in by_partition.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        example = '{"orders": {"0": 23, "1": -1}}'
        if what == "times":
            example = '{"orders": {"0": 1700000000000, "1": 1700000000000}}'
        raise UsageError(
            f"{option} is not {what} of partitions: {text}", hint=f"e.g. {example}"
        ) from None
    return {partition: _checked(option, value) for partition, value in found.items()}


def _integer(value: object) -> int:
    if type(value) is not int:
        raise ValueError(value)
    return value


def batch_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    available: Ranges,
    *,
    fails: bool,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets [first, end) that a batch reads, for each partition where there are any.

    UsageError if a range ends before it begins; DataLossError if the log does not hold all of it
    and the query `fails` on data loss.
    """
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition, (earliest, latest) in sorted(available.items()):
        first, end = starts[partition], ends[partition]
        if first > end:
            raise UsageError(f"{partition}: the start, {first}, is after the end, {end}")
        if first < end and fails and end > latest:
            raise DataLossError(
                f"{partition} ends at {latest}, and the query at {end}",
                hint=f"-1 means the latest offset; {SKIP_HINT}",
            )
        first = _existing(partition, first, end, earliest, fails=fails)
        end = min(end, latest)
        if first < end:
            ranges[partition] = (first, end)
    return ranges


def stream_ranges(
    start: Offsets, end: Offsets, available: Ranges, *, fails: bool
) -> dict[TopicPartition, tuple[int, int]]:
    """Return what a stream's batch between two offsets reads from logs that hold the `available`
    offsets.

    A new partition begins at its first offset. DataLossError if the stream `fails` on data loss,
    and records or a whole partition that it still has to read no longer exist.
    """
    _expect_all(start, end, available, fails=fails)
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition, (earliest, _latest) in sorted(available.items()):
        stop = _of(end, partition)
        if stop is None:
            continue
        first = _of(start, partition)
        if first is None:
            # A partition created after the stream began is read from offset 0.
            first = 0
        if stop < first and fails:
            raise DataLossError(
                f"{partition} ends at {stop}, before {first}, this stream's position: the topic "
                "was deleted and created again, or startingOffsets are beyond its end",
                hint="begin with a new checkpoint, or set failOnDataLoss=false",
            )
        first = _existing(partition, first, stop, earliest, fails=fails)
        if first < stop:
            ranges[partition] = (first, stop)
    return ranges


def _expect_all(start: Offsets, end: Offsets, available: Ranges, *, fails: bool) -> None:
    known = {TopicPartition(it, int(number)) for it in end for number in end[it]}
    known |= {TopicPartition(it, int(number)) for it in start for number in start[it]}
    deleted = sorted(known.difference(available))
    if deleted and fails:
        raise DataLossError(f"{deleted[0]} was deleted while this stream reads it", hint=SKIP_HINT)


def _existing(
    partition: TopicPartition, first: int, end: int, earliest: int, *, fails: bool
) -> int:
    """Return where reading of [first, end) begins in a log that begins at `earliest`."""
    if first < earliest and first < end and fails:
        raise DataLossError(
            f"{partition} begins at {earliest}: its records from {first} on were deleted",
            hint=SKIP_HINT,
        )
    return max(first, earliest)


def _of(offsets: Offsets, partition: TopicPartition) -> int | None:
    return offsets.get(partition.topic, {}).get(str(partition.partition))
