"""Follower: keeps a table current with a log that grows, exactly once by the table's manifest.

It works in rounds. A round asks its source which offsets each partition holds now, compares them
with the offsets that the manifest has, and exports the difference: new records, new partitions and
new topics alike. A SplitWriter writes the splits, one at a time in this process or several at once
on a cluster; either way the round, the order of the splits and the commits are decided here.
Finished splits are committed together, when the interval has passed or COMMIT_BYTES are waiting.
The size of a split bounds the memory of a writing process. A round that takes longer than the
interval ends after the splits that are being written, and the rest is planned again: no partition
waits for the backlog of another.

Offsets that were deleted before they were exported become a row of the manifest without files,
which names them as damage: they are reported once, and not again by later runs.

Invariants: the table's ranges of a partition do not overlap; an offset below the first range of a
partition is never exported, so the first range is committed first; tmp holds nothing committed
after a commit.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Protocol

from kctl.counts import offset_range
from kctl.errors import KctlError, NotFoundError, StorageError, UnreachableError, UsageError
from kctl.export.compaction import Compactor
from kctl.export.expiry import Expired, Expiry
from kctl.export.export import ExportReport, ExportRequest, with_current_schema
from kctl.export.in_order import InOrder, too_early
from kctl.export.lake import publish
from kctl.export.live import RecordsGoneError
from kctl.export.live_plan import LiveSplit
from kctl.export.manifest import Manifest, ManifestRow
from kctl.export.rows import DamagedRange
from kctl.export.splits import Split, gaps
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.runtime.future import sleep
from kctl.runtime.runtime import Runtime

__all__ = [
    "Caught",
    "FollowSource",
    "Follower",
    "Held",
    "Outcome",
    "Postponed",
    "SplitWriter",
    "WriterHere",
]

# The largest file of a table that is followed: it bounds memory, and the time until a stop.
FILE_BYTES_MAX = 64 * 1024 * 1024
# Bytes of log in splits that wait for their commit.
COMMIT_BYTES = 256 * 1024 * 1024
# Splits that one round plans; the rest waits for the next.
ROUND_SPLITS_MAX = 1_000
# Old files are looked for at the first round, and then this often.
EXPIRE_EVERY_MS = 10 * 60 * 1000

_DELETED = "deleted"
Ranges = dict[TopicPartition, list[tuple[int, int]]]


@dataclass(slots=True)
class Held:
    """What the logs hold now."""

    # [first offset, end offset) of each partition.
    ranges: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # Where the export of a partition without rows begins; the first offset if it is not here.
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    # Partitions that cannot be read now, and why.
    failures: list[str] = field(default_factory=list)


class FollowSource(Protocol):
    """Where the records come from: brokers or directories."""

    async def look(self, request: ExportRequest, known: Iterable[TopicPartition]) -> Held:
        """Return what the logs hold now; `known` partitions need no beginning."""
        ...

    async def with_schema(self, request: ExportRequest) -> ExportRequest:
        """Return the request with the schema of its values, inferred if it must be."""
        ...

    async def plan(self, request: ExportRequest, wanted: Ranges) -> Sequence[Split | LiveSplit]:
        """Return the splits of offset ranges that `look` found, those of a partition in order."""
        ...

    def write(
        self, request: ExportRequest, split: Split | LiveSplit, attempt: str
    ) -> AsyncIterator[ManifestRow]:
        """Write a split's files; yield their rows. RecordsGoneError if its records were deleted."""
        ...


@dataclass(frozen=True, slots=True)
class Postponed:
    """A split that is not exported, or not to its end, and that a later round plans again."""

    # The partition, and its topic.
    name: str
    topic: str
    why: str
    # Records were deleted while they were read: the next round finds out which.
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a writer has finished. At this moment tmp holds no finished files but those of rows that
    it has yielded."""

    rows: Sequence[ManifestRow] = ()
    postponed: Sequence[Postponed] = ()


class SplitWriter(Protocol):
    """Where splits are written: in this process, or on a cluster."""

    def width(self) -> int:
        """Return how many splits are written at once."""
        ...

    def write(
        self, request: ExportRequest, splits: Sequence[Split | LiveSplit], attempt: str
    ) -> AsyncIterator[Outcome]:
        """Write the files of up to `width` splits, below the unique name `attempt`. Raise what a
        later round cannot remedy: StorageError, CorruptDataError, ..."""
        ...


class WriterHere:
    """Writes one split after the other in this process."""

    def __init__(self, source: FollowSource) -> None:
        self._source = source

    def width(self) -> int:
        """See SplitWriter."""
        return 1

    async def write(
        self, request: ExportRequest, splits: Sequence[Split | LiveSplit], attempt: str
    ) -> AsyncIterator[Outcome]:
        """See SplitWriter."""
        for split in splits:
            name = f"{split.topic}-{split.partition}"
            try:
                async for row in self._source.write(request, split, attempt):
                    yield Outcome([row])
            except RecordsGoneError as error:
                yield Outcome(postponed=[Postponed(name, split.topic, str(error), is_gone=True)])
            except KctlError as error:
                if not _passes(error):
                    raise
                why = f"cannot read {name}: {error}"
                yield Outcome(postponed=[Postponed(name, split.topic, why, is_gone=False)])


@dataclass(frozen=True, slots=True)
class Caught:
    """The state after a commit, for progress."""

    # Of this commit.
    rows: int
    log_bytes: int
    # Since the previous commit.
    elapsed_ms: int
    # Offsets that are in the logs and not in the table, as of the round's beginning.
    lag: int
    partitions: int
    # Of this commit.
    dead_letters: int = 0


class Follower:
    """Exports what is new, round after round."""

    def __init__(
        self,
        runtime: Runtime,
        source: FollowSource,
        request: ExportRequest,
        *,
        every_ms: int,
        writer: SplitWriter | None = None,
        compact_bytes: int | None = None,
        retention_ms: int | None = None,
        on_commit: Callable[[Caught], object] = lambda _caught: None,
        on_expired: Callable[[Expired], object] = lambda _expired: None,
        on_problem: Callable[[str], object] = lambda _why: None,
    ) -> None:
        """UsageError for options that a table kept current cannot have.

        `writer` writes the splits; without one, this process does. `compact_bytes` is the size up
        to which small files are merged, and `retention_ms` the age from which days and hours are
        removed, if they are. `on_problem` takes a line about what is lost or cannot be read now,
        each once in a row.
        """
        if request.options.replaces_partitions:
            raise UsageError(
                "--latest-per-key replaces whole partitions, so it cannot be followed",
                hint="--format delta or iceberg merges the latest records",
            )
        if every_ms < 1:
            raise UsageError("--every must be positive", hint="e.g. --every 30s")
        file_bytes = min(request.options.file_bytes, FILE_BYTES_MAX)
        self._request = replace(request, options=replace(request.options, file_bytes=file_bytes))
        self._runtime, self._source = runtime, source
        self._writer = writer or WriterHere(source)
        self._compactor = None
        if compact_bytes is not None:
            self._compactor = Compactor(request.out, request.options, compact_bytes)
        self._expiry = None
        if retention_ms is not None:
            self._expiry = Expiry(request.out, request.options, retention_ms)
        self._expire_at_ms: int | None = None
        self._on_expired = on_expired
        self._every_ms = every_ms
        self._on_commit, self._on_problem = on_commit, on_problem
        self.report = ExportReport()
        self._manifest: Manifest | None = None
        # Whether the lake's table has all rows that the manifest had before the next commit.
        self._is_published = False
        # Committed and waiting ranges, adjacent ones merged.
        self._done: Ranges = {}
        self._waiting: list[ManifestRow] = []
        self._order = InOrder(only_first=not request.options.merges_changes)
        # The first offset of each partition's rows, in the table or wanted.
        self._begins: dict[TopicPartition, int] = {}
        self._seen: set[TopicPartition] = set()
        self._broken: set[TopicPartition] = set()
        # What a later round tries again, and why.
        self._failing: dict[str, str] = {}
        self._lag = 0
        self._attempts = 0
        # Of this run, by topic.
        self.rows: dict[str, int] = {}
        self.log_bytes: dict[str, int] = {}
        self.dead_letters: dict[str, int] = {}
        self.commits = 0
        self.expired_files = 0
        # On the monotonic clock: the last commit, or the beginning; and a moment of which the table
        # has all that the logs held then, None if there was none.
        self.began_ms = self.committed_ms = self._now_ms()
        self.current_ms: int | None = None

    @property
    def lag(self) -> int:
        """Return the offsets that the last look found and that are not in the table."""
        return max(0, self._lag)

    @property
    def partitions(self) -> int:
        """Return the number of partitions that were seen."""
        return len(self._seen)

    def failures(self) -> list[str]:
        """Return what failed and is tried again, and what keeps the table from being complete."""
        return [*self._failing.values(), *self.report.problems]

    async def run(self) -> None:
        """Follow until the task is cancelled; what is finished by then is committed.

        Raise what the first look at the source raises, StorageError if the table cannot be written,
        and CorruptDataError for damage and RecordsGoneError for deleted records if the options ask
        for it.
        """
        # A task begins at once: the caller can only cancel it from its first pause on, and the
        # first round of a directory has none.
        await sleep(self._runtime.scheduler, 0)
        try:
            await self._open()
            while True:
                began_ms = self._now_ms()
                if await self.round():
                    round_ms = self._now_ms() - began_ms
                    self._expire()
                    await self._compact(began_ms)
                    # The next round may take as long, and ends when the interval does: a record
                    # that comes right after a look is in the table after `every_ms`.
                    passed_ms = self._now_ms() - began_ms + round_ms
                    await sleep(self._runtime.scheduler, max(0, self._every_ms - passed_ms))
        finally:
            self._commit()

    async def round(self) -> bool:
        """Export what is new; return whether nothing was left out."""
        if self._manifest is None:
            await self._open()
        looked_ms = self._now_ms()
        try:
            held = await self._source.look(self._request, self._done)
            self._note(held)
            splits = await self._source.plan(self._request, self._missing(held))
            if splits:
                self._request = with_current_schema(self._request)
        except KctlError as error:
            # A segment may be deleted between its listing and its reading.
            if not _passes(error) and not isinstance(error, StorageError):
                raise
            self._say_once("look", f"cannot look for new records: {error}")
            return True
        whole = len(splits) <= ROUND_SPLITS_MAX
        began_ms = self._now_ms()
        waiting = _in_turn(splits)[:ROUND_SPLITS_MAX]
        while waiting:
            if self._now_ms() - began_ms >= self._every_ms:
                whole = False
                break
            width = max(1, self._writer.width())
            whole = await self._export(waiting[:width]) and whole
            del waiting[:width]
        self._commit()
        if whole and not self._failing:
            self.current_ms = looked_ms
        return whole

    def _expire(self) -> None:
        """Remove old files: a bounded number, and the rest after the next round."""
        now_ms = self._now_ms()
        is_due = self._expire_at_ms is None or now_ms >= self._expire_at_ms
        if self._expiry is None or self._manifest is None or not is_due:
            return
        expired, paths = self._expiry.step(self._manifest, self._runtime.clock.wall_ms())
        self._expire_at_ms = now_ms + EXPIRE_EVERY_MS if expired.is_whole else now_ms
        if expired.files:
            if self._compactor is not None:
                self._compactor.leave_out(paths)
            self.expired_files += expired.files
            self._on_expired(expired)

    async def _compact(self, began_ms: int) -> None:
        """Merge small files until half of the interval has passed."""
        if self._compactor is None or self._manifest is None:
            return
        while self._now_ms() - began_ms < self._every_ms / 2:
            self._attempts += 1
            attempt = f"{self._request.run}-{self._attempts}"
            if not self._compactor.merge(self._manifest, attempt):
                break
            self._tidy(self._manifest)
            await sleep(self._runtime.scheduler, 0)

    async def _open(self) -> None:
        # A wrong address, topic or schema is an error of the caller. Later failures are retried.
        await self._source.look(self._request, ())
        self._request = with_current_schema(await self._source.with_schema(self._request))
        # The rows before them, with which their partition begins, may not be complete.
        manifest = Manifest.open(
            self._request.out, self._request.options, self._request.run, adopts_new=False
        )
        publish(self._request.out, self._request.options, manifest)
        self._is_published = True
        self.report.earlier_rows = sum(row.rows for row in manifest.rows)
        for key, ranges in manifest.done().items():
            partition, done = TopicPartition(*key), _merged(ranges)
            self._done[partition] = done
            self._begins[partition] = done[0][0]
            self._order.resume(partition, done[-1][1])
        if self._compactor is not None:
            for row in sorted(manifest.rows, key=lambda it: it.range):
                self._compactor.add(row)
        manifest.forget()
        self._manifest = manifest

    async def _export(self, splits: Sequence[Split | LiveSplit]) -> bool:
        self._attempts += 1
        attempt = f"{self._request.run}-{self._attempts}"
        whole = True
        async for outcome in self._writer.write(self._request, splits, attempt):
            for row in outcome.rows:
                self._add(row)
            for each in outcome.postponed:
                self._say_once(each.topic if each.is_gone else each.name, each.why)
                whole = whole and not each.is_gone
            self._commit_what_is_due()
            # Lets signals and monitoring in.
            await sleep(self._runtime.scheduler, 0)
        return whole

    def _missing(self, held: Held) -> Ranges:
        """Return the offsets to export; those that were deleted before become rows at once.

        UsageError for records before those that were merged.
        """
        wanted: Ranges = {}
        lag = 0
        for partition, (first, end) in held.ranges.items():
            done = self._done.get(partition, [])
            begin = self._begins.setdefault(partition, held.begins.get(partition, first))
            self._order.begin(partition, begin)
            if done and done[-1][1] > end:
                self._report(
                    partition,
                    f"{partition}: the log ends at {end}, before offset {done[-1][1]} that the "
                    "table has; the topic was created again, or the log lost records",
                )
                continue
            for low, high in gaps(begin, end, done):
                # Known before what is lost counts as passed, too.
                is_passed = self._order.has_passed(partition, low)
                if low < first:
                    self._lose(partition, low, min(high, first))
                if high > first:
                    if is_passed:
                        raise too_early(partition, max(low, first))
                    wanted.setdefault(partition, []).append((max(low, first), high))
                    lag += high - max(low, first)
        self._lag = lag
        self.report.partitions = len(self._seen)
        return wanted

    def _lose(self, partition: TopicPartition, first: int, end: int) -> None:
        is_one = first == end - 1
        gone = "was deleted before it was" if is_one else "were deleted before they were"
        lost = DamagedRange(
            str(partition), 0, 0, _DELETED, first, end - 1,
            f"{offset_range(first, end - 1)} {gone} exported",
        )  # fmt: skip
        if self._request.options.fails_on_damage:
            raise RecordsGoneError(
                f"{partition}: {lost.message}", hint="--on-damage skip reports them and goes on"
            )
        self._add(ManifestRow(*partition, first, end, damages=[lost]))

    def _note(self, held: Held) -> None:
        now = set(held.ranges)
        for why in held.failures:
            self._say_once(why, why)
        if not held.failures:
            # What fails again after this is reported again.
            self._failing.clear()
            for partition in sorted(self._seen - now):
                self._report(partition, f"{partition}: the partition is gone")
        self._seen |= now

    def _report(self, partition: TopicPartition, problem: str) -> None:
        """Report what keeps the table from being complete, once for each partition."""
        if partition not in self._broken:
            self._broken.add(partition)
            self._on_problem(problem)
            self.report.problems.append(problem)

    def _say_once(self, key: str, why: str) -> None:
        """Report what a later round tries again, until it succeeds."""
        if key not in self._failing:
            self._failing[key] = why
            self._on_problem(why)

    def _add(self, row: ManifestRow) -> None:
        self._waiting += self._order.add(row)
        partition = TopicPartition(row.topic, row.partition)
        done = self._done.get(partition, [])
        self._done[partition] = _merged([*done, (row.first_offset, row.end_offset)])
        self._lag -= row.end_offset - row.first_offset if not _is_lost(row) else 0
        for damage in row.damages:
            self._on_problem(f"{damage.path}: {damage.message}" if _is_lost(row) else str(damage))

    def _commit_what_is_due(self) -> None:
        is_due = self._now_ms() - self.committed_ms >= self._every_ms
        if is_due or sum(it.log_bytes for it in self._waiting) >= COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        rows, self._waiting = self._waiting, []
        if self._manifest is None or not rows:
            return
        self._manifest.commit(rows)
        are_new, self._is_published = self._is_published, False
        publish(self._request.out, self._request.options, self._manifest, are_new=are_new)
        self._is_published = True
        self._tidy(self._manifest)
        now_ms = self._now_ms()
        for row in rows:
            self.report.add(row)
            for counts, number in (
                (self.rows, row.rows), (self.log_bytes, row.log_bytes),
                (self.dead_letters, row.dead_letters),
            ):  # fmt: skip
                counts[row.topic] = counts.get(row.topic, 0) + number
            if self._compactor is not None:
                self._compactor.add(row)
        caught = Caught(
            sum(row.rows for row in rows), sum(row.log_bytes for row in rows),
            now_ms - self.committed_ms, self.lag, len(self._seen),
            sum(row.dead_letters for row in rows),
        )  # fmt: skip
        self.committed_ms = now_ms
        self.commits += 1
        self._on_commit(caught)

    def _tidy(self, manifest: Manifest) -> None:
        """Drop what is committed from memory. Remove tmp unless rows that are held back have their
        files there."""
        manifest.forget()
        if not self._order.holds_rows:
            manifest.close()

    def _now_ms(self) -> int:
        return self._runtime.clock.monotonic_ms()


def _is_lost(row: ManifestRow) -> bool:
    return any(damage.rule == _DELETED for damage in row.damages)


def _passes(error: KctlError) -> bool:
    """Return whether a later round may succeed."""
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, UnreachableError | NotFoundError)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and merged[-1][1] == first:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((first, end))
    return merged


def _in_turn(splits: Sequence[Split | LiveSplit]) -> list[Split | LiveSplit]:
    """Return the first splits of all partitions, then the second ones, and so on."""
    counts: dict[tuple[str, int], int] = {}
    ordered = []
    for split in splits:
        number = counts.get((split.topic, split.partition), 0)
        counts[split.topic, split.partition] = number + 1
        ordered.append((number, split.topic, split.partition, split))
    return [it[3] for it in sorted(ordered, key=lambda it: it[:3])]
