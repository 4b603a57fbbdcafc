"""A checker of what producers and consumers saw, in the manner of Jepsen's queue tests.

A History holds every write with the outcome its producer knows, every poll as its consumer saw it,
and a final read of everything. Values are unique, so each identifies its write. The checker relies
only on what clients observed: a write with an unknown outcome may exist or not, but if it does,
then once, in its place, and with the rest of its transaction.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum, auto

from kctl.lazy_dataclass import dataclass


class Outcome(Enum):
    """What a producer knows of a write, or of the transaction that it is in."""

    OK = auto()
    # It must never be visible to readers of committed data.
    ABORTED = auto()
    UNKNOWN = auto()


class Kind(Enum):
    """The kinds of anomalies."""

    # Acknowledged or committed, and missing from the last read.
    LOST_WRITE = auto()
    # Of an aborted transaction, and read as committed.
    ABORTED_READ = auto()
    # Read by a consumer, and missing from the last read: it was visible before it was committed.
    DIRTY_READ = auto()
    # Read, but never written.
    PHANTOM = auto()
    # At two offsets.
    DUPLICATE = auto()
    # A producer's later write before an earlier one, in one partition.
    REORDERED = auto()
    # A consumer went back without a seek.
    NON_MONOTONIC_POLL = auto()
    # A consumer skipped a value that it should have seen.
    SKIPPED = auto()
    # Two values at one offset.
    CONFLICT = auto()
    # A transaction of which only a part is visible.
    TORN_TRANSACTION = auto()


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly."""

    kind: Kind
    text: str
    # The value that is there twice, for a duplicate.
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.text}"


@dataclass(slots=True)
class Write:
    """A value; `number` orders the writes of its producer."""

    value: str
    producer: str
    number: int
    partition: int
    outcome: Outcome = Outcome.UNKNOWN
    # None: not in a transaction.
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer received it."""

    partition: int
    offset: int
    value: str


@dataclass(slots=True)
class Reader:
    """What one consumer saw, in its order; each partition was assigned to it once,
    from the start.
    """

    name: str
    is_committed_only: bool
    seen: list[Seen] = field(default_factory=list)

    def by_partition(self) -> dict[int, list[Seen]]:
        """Return the records that it saw, by partition."""
        parts = defaultdict(list)
        for seen in self.seen:
            parts[seen.partition].append(seen)
        return parts


@dataclass(slots=True)
class History:
    """A run; the last two readers began when every write had an outcome, and read everything."""

    writes: dict[str, Write] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    last_committed: Reader = field(
        default_factory=lambda: Reader("last committed", is_committed_only=True)
    )
    last_of_all: Reader = field(
        default_factory=lambda: Reader("last of all", is_committed_only=False)
    )

    def all_readers(self) -> list[Reader]:
        """Return all readers."""
        return [*self.readers, self.last_committed, self.last_of_all]


def check(history: History) -> list[Anomaly]:
    """Return every anomaly of a history."""
    found = [*_lost(history), *_torn(history), *_conflicts(history)]
    for reader in history.all_readers():
        found += _wrongly_read(history, reader)
        found += _not_in_order(history, reader)
        found += _skipped(history, reader)
    return found


def _lost(history: History) -> Iterator[Anomaly]:
    there = {seen.value for seen in history.last_committed.seen}
    for write in history.writes.values():
        if write.outcome is Outcome.OK and write.value not in there:
            yield Anomaly(Kind.LOST_WRITE, write.value)


def _torn(history: History) -> Iterator[Anomaly]:
    parts = defaultdict(list)
    for write in history.writes.values():
        if write.transaction is not None and write.outcome is Outcome.UNKNOWN:
            parts[write.transaction].append(write.value)
    there = {seen.value for seen in history.last_committed.seen}
    for transaction, values in parts.items():
        if 0 < len(there.intersection(values)) < len(values):
            yield Anomaly(Kind.TORN_TRANSACTION, transaction)


def _conflicts(history: History) -> Iterator[Anomaly]:
    values: dict[tuple[int, int], str] = {}
    for reader in history.all_readers():
        for seen in reader.seen:
            first = values.setdefault((seen.partition, seen.offset), seen.value)
            if first != seen.value:
                where = f"partition {seen.partition} offset {seen.offset}"
                yield Anomaly(Kind.CONFLICT, f"{where}: {first} and {seen.value}")


def _wrongly_read(history: History, reader: Reader) -> Iterator[Anomaly]:
    last = history.last_committed if reader.is_committed_only else history.last_of_all
    stays = {seen.value for seen in last.seen}
    for seen in reader.seen:
        write = history.writes.get(seen.value)
        text = f"{seen.value} by {reader.name}"
        if write is None or write.partition != seen.partition:
            yield Anomaly(Kind.PHANTOM, text)
        elif reader.is_committed_only and write.outcome is Outcome.ABORTED:
            yield Anomaly(Kind.ABORTED_READ, text)
        elif seen.value not in stays:
            yield Anomaly(Kind.DIRTY_READ, text)


def _not_in_order(history: History, reader: Reader) -> Iterator[Anomaly]:
    places: dict[str, tuple[int, int]] = {}
    ends: dict[int, int] = {}
    newest: dict[tuple[str, int], int] = {}
    for seen in reader.seen:
        text = f"{seen.value} at {seen.partition}/{seen.offset} by {reader.name}"
        if seen.offset <= ends.get(seen.partition, -1):
            yield Anomaly(Kind.NON_MONOTONIC_POLL, text)
            continue
        ends[seen.partition] = seen.offset
        if places.setdefault(seen.value, (seen.partition, seen.offset)) != (
            seen.partition,
            seen.offset,
        ):
            yield Anomaly(Kind.DUPLICATE, text, seen.value)
            continue
        write = history.writes.get(seen.value)
        if write is None:
            continue
        stream = (write.producer, seen.partition)
        if write.number < newest.get(stream, -1):
            yield Anomaly(Kind.REORDERED, text)
        newest[stream] = max(newest.get(stream, -1), write.number)


def _skipped(history: History, reader: Reader) -> Iterator[Anomaly]:
    last = history.last_committed if reader.is_committed_only else history.last_of_all
    everything = last.by_partition()
    for partition, seen in reader.by_partition().items():
        offsets = {it.offset for it in seen}
        for missed in _before(everything[partition], max(offsets)):
            if missed.offset not in offsets:
                yield Anomaly(Kind.SKIPPED, f"{missed.value} by {reader.name}")


def _before(seen: Iterable[Seen], end: int) -> Iterator[Seen]:
    return (it for it in seen if it.offset < end)
