"""MirrorWorker: copies its share of a mirror's partitions, one turn after the other.

A turn reads what has arrived at the source, writes it, and commits: in one transaction the records,
the runs of the map and the positions, or, at least once, in this order. While it writes, the next
fetch is under way. All that a worker remembers can be read from the target again: after any failure
it aborts, gets new numbers, reads the committed positions, and continues there (`_recover`).

Workers of one name are members of one group of the target, and share its partitions by range. Their
commits are checked against the group's generation (KIP-447), so a worker that lost a partition
cannot move its position.

Invariants: a position is committed only after, or together with, all records before it; in
transactions nothing of a turn is visible unless all of it is.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorSourceTask; KIP-447, KIP-618
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.client.group_member import GroupMember
from kctl.client.offsets import OffsetsClient
from kctl.client.producer_transaction import GROUP_FENCING_VERSION, ProducerTransaction
from kctl.errors import CorruptDataError, KctlError, UnreachableError, UsageError
from kctl.mirror.formats import (
    MappedRun,
    MirrorPosition,
    encode_run,
    group_of,
    map_topic_of,
    transactional_id_of,
)
from kctl.mirror.joined_batches import join_small
from kctl.mirror.kept_choice import NOT_KEPT
from kctl.mirror.loss import Loss, LossKind, OnLoss
from kctl.mirror.map_topic import HiddenRunsError, read_map
from kctl.mirror.offset_map import OffsetMap, continues, joined
from kctl.mirror.partition_report import PartitionReport, TurnCounts
from kctl.mirror.position_commits import commit_positions, positions_after
from kctl.mirror.raw_batches import NOT_MAPPED, CopiedRange, keyed_batches
from kctl.mirror.record_changes import Change, change_ranges
from kctl.mirror.settings import TRANSACTION_TIMEOUT_MS, MirroredTopics, MirrorSettings
from kctl.mirror.source_ends import SourceEnds
from kctl.mirror.starting_positions import Beginnings, StartingPositions
from kctl.mirror.target_writer import OF_BATCHES, TOO_LARGE, TargetWriter, WriteFailedError
from kctl.mirror.witness import changed_since, rewritten_before
from kctl.model import TopicPartition
from kctl.protocol.acl import AUTHORIZATION_ERRORS
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.future import CancelledError, sleep

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.mirror.sources import MirrorSource, ReadBatches

# How long a worker tries again without any progress.
FAILURES_IN_A_ROW_MAX = 60
_BACKOFF_MS = 500
# How long a worker that ends waits for each response of the target.
CLOSE_TIMEOUT_MS = 5_000
# How often a worker that is done looks where the others are.
_LOOK_MS = 500
# How often a worker looks whether partitions without a leader can be read.
WAIT_MS = 10_000
# How often the choice of topics is kept again: a broker lets what a group has committed expire if
# none of its members subscribes to the topic, as to that of the map.
KEEP_CHOICE_MS = 600_000
# Another worker has this one's transactional id.
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# The group has gone on without this worker.
_REJOIN = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
# A permission that is missing stays missing until someone acts.
_FORBIDDEN = frozenset(AUTHORIZATION_ERRORS.values())
_HOPELESS = (UsageError, CorruptDataError, HiddenRunsError)
_NOTHING_BEGUN = Beginnings({}, {}, {}, {})


OnCopied = Callable[[Mapping[TopicPartition, CopiedRange], int], object]


class MirrorWorker:
    """Copies from `source` to `target`; `say` gets lines for the user."""

    def __init__(
        self,
        source: "MirrorSource",
        target: "Router",
        settings: MirrorSettings,
        topics: MirroredTopics,
        say: Callable[[str], object],
    ) -> None:
        self.reports: dict[TopicPartition, PartitionReport] = {}
        # The map of this worker's partitions, if groups are carried over.
        self.maps: dict[TopicPartition, OffsetMap] | None = None
        # Is called with the runs of each turn, once they are committed.
        self.on_runs: Callable[[list[MappedRun]], object] = lambda _: None
        # Is called with what was copied, once it is committed, and when it was read (wall clock).
        self.on_copied: OnCopied = lambda _ranges, _read_ms: None
        self.counts = TurnCounts()
        # What is done to each record; None: batches are copied as they are.
        self.change: Change | None = None
        # What the mirror keeps about its topics; see `kept_choice`.
        self.choice = NOT_KEPT
        self.topics = topics
        self._source = source
        self._target = target
        self._settings = settings
        self._say = say
        self._group = group_of(settings.name)
        self._map = TopicPartition(map_topic_of(settings.name), 0)
        self._member = self._new_member()
        self._assigned: list[TopicPartition] = []
        transaction = None
        if settings.exactly_once:
            transaction = ProducerTransaction(
                target, transactional_id_of(settings.name, settings.worker),
                timeout_ms=TRANSACTION_TIMEOUT_MS,
            )  # fmt: skip
        self._writer = TargetWriter(target, transaction)
        self._reader = source.reader()
        self._starting = StartingPositions(source, target, settings)
        # The last run of each partition, which the next may continue.
        self._last_runs: dict[TopicPartition, MappedRun] = {}
        self._ends = SourceEnds(source)
        # Partitions that cannot be read now, and why; when to look for them again.
        self._waiting: Mapping[TopicPartition, KctlError] = {}
        self._look_again_ms = 0
        # With `until_end`, the partitions of the target that the whole mirror copies, and where.
        self._goal: dict[TopicPartition, int] | None = None
        self._look_ms = 0
        # Partitions whose last copied record was compared with the source's.
        self._examined: frozenset[TopicPartition] = frozenset()
        # Partitions of which it is still to be compared, and where they begin.
        self._unexamined: dict[TopicPartition, int] = {}
        # Partitions whose topic took no joined batch: its max.message.bytes is low.
        self._unjoined: set[TopicPartition] = set()
        # Where partitions begin whose positions the next turn commits.
        self._begun: Beginnings | None = None
        self._is_open = False
        self._failures = 0
        self._not_before_ms = 0
        # When the choice of topics is kept again.
        self._keep_choice_ms = 0

    async def is_done(self) -> bool:
        """Return whether, with `until_end`, all partitions of the mirror are at their ends, those
        of other workers too. A partition that stopped is done: this worker leaves, and the next one
        that gets it reports it as well."""
        if not self._is_open or not self._settings.until_end or self._member.must_rejoin:
            return False
        read_ends = self._reader.ends
        is_share_done = not self._waiting and all(
            self.reports[p].error is not None or self._ends.is_reached(p, at.offset, read_ends)
            for p, at in self._reader.positions.items()
        )
        if not is_share_done or self.has_failed or self._goal is None:
            return is_share_done
        others = [it for it in self._goal if it not in self._assigned]
        if not others or self._monotonic_ms() < self._look_ms:
            return not others
        self._look_ms = self._monotonic_ms() + _LOOK_MS
        try:
            found = await OffsetsClient(self._target).committed(self._group, others)
        except KctlError:
            # The next turn meets it as well, and recovers.
            return False
        return all(it in found and found[it].offset >= self._goal[it] for it in others)

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Return the partitions of the source that the group has assigned to this worker."""
        by_target = self.topics.sources
        return frozenset(
            TopicPartition(by_target[it.topic], it.partition)
            for it in self._assigned
            if it.topic in by_target
        )

    @property
    def has_failed(self) -> bool:
        """Return whether a partition has stopped because of an error or a loss."""
        return any(report.error is not None for report in self.reports.values())

    def mirror(self, topics: MirroredTopics) -> None:
        """Copy these topics from the next turn on."""
        if topics != self.topics:
            # The leader of the group assigns partitions that were added when it joins again.
            self.topics = topics
            self._member.subscribe(sorted(topics.targets.values()))
            self._member.rejoin()

    async def turn(self) -> None:
        """Read, write and commit once; raise KctlError if no retry would help."""
        try:
            await self._begin_turn()
            found = await self._reader.poll()
            read_ms = self._now_ms()
            for topic in sorted(found.unknown):
                self._say(f"warning: the source no longer knows topic {topic}")
            await self._examine_witnesses(found)
            if self.change is not None:
                failures = change_ranges(found.ranges, self.change, self._unjoined)
                for partition, failure in failures.items():
                    self._reader.stop([partition], failure)
                    found.stopped[partition] = failure
            for partition, error in found.stopped.items():
                await self._on_stopped(partition, error)
            if found.ranges or self._begun is not None:
                await self._write(found.ranges)
            if found.ranges:
                self.on_copied(found.ranges, read_ms)
            self._note_ends()
            self._failures = 0
        except CancelledError:
            raise
        except WriteFailedError as error:
            await self._on_refused(error)
        except KctlError as error:
            await self._on_failure(error)

    async def _begin_turn(self) -> None:
        self._member.check()
        is_due = self._waiting and self._monotonic_ms() >= self._look_again_ms
        if self._member.must_rejoin or not self._is_open or is_due:
            await self._recover()
        if self._monotonic_ms() >= self._keep_choice_ms:
            await self._keep_choice()
        await self._pause_for_throttle()

    async def close(self) -> None:
        """Abort what is open, and leave the group, unless the target is away."""
        self._reader.close()
        with suppress(UnreachableError):
            try:
                if self._is_open and self._writer.transaction is not None:
                    await self._abort(self._writer.transaction)
            finally:
                await self._member.leave(CLOSE_TIMEOUT_MS)

    async def _abort(self, transaction: ProducerTransaction) -> None:
        try:
            await transaction.end(commit=False, timeout_ms=CLOSE_TIMEOUT_MS)
        except ApiError as error:
            # The commit whose response was not awaited, as a signal came, was or is carried out.
            if error.code not in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS):
                raise

    # Beginning

    async def _recover(self) -> None:
        """Join the group, and continue where the target says."""
        self._is_open = False
        self._reader.close()
        await self._check_fencing()
        await self._writer.open()
        if self._member.must_rejoin:
            by_target = self.topics.sources
            self._assigned = [
                it
                for it in await self._member.join()
                if self._source.holds(TopicPartition(by_target[it.topic], it.partition))
            ]
        partitions = self._assigned
        begun = await self._starting.find(partitions, self.topics, with_maps=self.maps is not None)
        positions = begun.positions
        if self.maps is not None:
            self.maps = begun.maps
        waiting = begun.unreadable | await self._ends.find(positions)
        if self._settings.until_end and self._goal is None:
            self._goal = await self._ends.goal(self.topics)
        self._last_runs.clear()
        by_target = self.topics.sources
        for partition in partitions:
            source = TopicPartition(by_target[partition.topic], partition.partition)
            report = self.reports.setdefault(source, PartitionReport(source, partition))
            if report.error is None and source in positions:
                report.position = positions[source].offset
                if report.end < 0:
                    report.end = self._ends.get(source)
        stopped = {s for s, r in self.reports.items() if r.error is not None}
        self._wait_for({it: error for it, error in waiting.items() if it not in stopped})
        stopped |= waiting.keys()
        self._reader.assign(
            {source: at for source, at in positions.items() if source not in stopped},
            self.topics.topic_ids,
            frozenset(self._unjoined),
        )
        self._begun = begun if begun.uncommitted else None
        self._is_open = True
        self._unexamined = {
            source: at.offset
            for source, at in positions.items()
            if source not in stopped and source not in self._examined
        }

    async def _examine_witnesses(self, found: "ReadBatches") -> None:
        """Stop partitions whose last copied record is another one now. Each is examined when the
        worker begins, and when its topic has been unknown for a while.

        The reader has compared the epochs before: they say where a truncated log parts from what
        was copied, which the last record does not.
        """
        positions = self._reader.positions
        again = {it: positions[it].offset for it in found.reappeared if it in positions}
        # A failure here is followed by another attempt.
        self._examined -= frozenset(again)
        begins, self._unexamined = self._unexamined | again, {}
        wanted = frozenset(begins) - found.stopped.keys()
        if not wanted:
            return
        maps = await read_map(self._target, self._settings.name, wanted, only_last=True)
        at = positions
        # After a loss that was passed over on request, the map ends in another copy or beyond.
        mapped = {
            it: offsets
            for it, offsets in maps.items()
            # A record that was changed on the way differs.
            if not at[it].changes
            and offsets.copy == at[it].copy
            and (offsets.source_end or 0) <= begins[it]
        }
        changed = await changed_since(self._source, self._target, mapped)
        self._examined |= wanted
        for partition, error in changed.items():
            self._reader.stop([partition], error)
            found.ranges.pop(partition, None)
            self.reports[partition].position = begins[partition]
            found.stopped[partition] = error

    async def _keep_choice(self) -> None:
        """Commit which topics the mirror selects; a rebalance in progress delays it."""
        try:
            await self._member.commit({self._map: 0}, {self._map: self.choice})
        except ApiError as error:
            if error.code != ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            self._say(
                "warning: the names of the topics are too long to be kept in the target: kctl"
                " mirror status does not list topics of which nothing is copied yet"
            )
            self.choice = NOT_KEPT
            await self._member.commit({self._map: 0}, {self._map: self.choice})
        if not self._member.must_rejoin:
            self._keep_choice_ms = self._monotonic_ms() + KEEP_CHOICE_MS

    async def _check_fencing(self) -> None:
        if not self._settings.exactly_once or self._settings.worker == "1":
            return
        if await self._target.max_version(ApiKey.TXN_OFFSET_COMMIT) < GROUP_FENCING_VERSION:
            raise UsageError(
                "Several workers need a target of Kafka 2.5 or later for exactly once",
                hint="run one worker, or add --at-least-once",
            )

    def _wait_for(self, waiting: Mapping[TopicPartition, KctlError]) -> None:
        """Look again later for partitions that cannot be read now."""
        for partition in sorted(waiting.keys() - self._waiting.keys()):
            self._say(f"warning: {partition} waits until it can be read: {waiting[partition]}")
        self._waiting = waiting
        self._look_again_ms = self._monotonic_ms() + WAIT_MS

    # Copying

    async def _write(self, ranges: Mapping[TopicPartition, CopiedRange]) -> None:
        for source, found in ranges.items():
            if source not in self._unjoined:
                found.copies = join_small(found.copies)
        batches = {
            self.reports[source].target: found.copies
            for source, found in ranges.items()
            if found.copies
        }
        begun = self._begun or _NOTHING_BEGUN
        transaction = self._writer.transaction
        if transaction is not None:
            if batches or begun.uncommitted:
                await transaction.add([*batches, self._map])
            await transaction.add_group(self._group)
        offsets = await self._writer.write(batches)
        runs = self._runs_of(ranges, offsets)
        mapped = [*begun.runs(self.topics), *runs]
        if mapped:
            await self._write_map(mapped)
        read = positions_after(self._reader.positions, ranges, self._settings.changes)
        await self._commit(begun.uncommitted | read)
        self._begun = None
        self._report(ranges, runs)
        self.on_runs(runs)

    def _runs_of(
        self,
        ranges: Mapping[TopicPartition, CopiedRange],
        offsets: Mapping[TopicPartition, list[int]],
    ) -> list[MappedRun]:
        """Return the runs to write, those that continue the last one with its beginning."""
        runs: list[MappedRun] = []
        positions = self._reader.positions
        for source, found in ranges.items():
            target = self.reports[source].target
            copy = positions[source].copy
            added: list[MappedRun] = []
            for batch, base in zip(found.copies, offsets.get(target, ()), strict=True):
                if base < 0:
                    raise UnreachableError(f"The target does not say where it wrote to {target}")
                at = base
                for first, count in batch.pieces:
                    if first != NOT_MAPPED:
                        added.append(MappedRun(source, target.topic, first, at, count, copy))
                    at += count
            added = joined(added)
            last = self._last_runs.get(source)
            if last is not None and added and continues(last, added[0]):
                added[0] = replace(last, count=last.count + added[0].count)
            if added:
                self._last_runs[source] = added[-1]
            runs += added
        return runs

    async def _write_map(self, runs: list[MappedRun]) -> None:
        await self._writer.write({self._map: keyed_batches(map(encode_run, runs), self._now_ms())})

    async def _commit(self, positions: Mapping[TopicPartition, MirrorPosition]) -> None:
        """Commit positions, by partition of the source, and end the transaction."""
        transaction = self._writer.transaction
        by_target = {self.reports[source].target: at for source, at in positions.items()}
        await commit_positions(self._member, transaction, by_target)
        if transaction is not None:
            await transaction.end(commit=True)
            self.counts.committed += 1

    def _report(self, ranges: Mapping[TopicPartition, CopiedRange], runs: list[MappedRun]) -> None:
        size = 0
        for source, found in ranges.items():
            report = self.reports[source]
            report.records += sum(copy.count for copy in found.copies)
            report.bytes += found.size
            raw = sum(copy.is_raw for copy in found.copies)
            report.raw_batches += raw
            report.rebuilt_batches += len(found.copies) - raw
            report.position = found.next_offset
            size += found.size
        if self.maps is not None:
            for run in runs:
                self.maps.setdefault(run.source, OffsetMap()).add(run)
        if self._settings.throttle:
            begin = max(self._not_before_ms, self._monotonic_ms())
            self._not_before_ms = begin + size * 1000 // self._settings.throttle

    async def _pause_for_throttle(self) -> None:
        wait_ms = self._not_before_ms - self._monotonic_ms()
        if wait_ms > 0:
            await sleep(self._target.runtime.scheduler, wait_ms)

    def _note_ends(self) -> None:
        positions, now_ms = self._reader.positions, self._monotonic_ms()
        for source, end in self._reader.ends.items():
            report = self.reports[source]
            report.end = end
            if report.error is not None:
                continue
            report.position = positions[source].offset
            if report.position >= end:
                report.caught_up_ms = now_ms

    # Failing

    async def _on_stopped(self, partition: TopicPartition, error: KctlError | Loss) -> None:
        report = self.reports[partition]
        if isinstance(error, Loss):
            error = await self._rewritten(partition, error) or error
            if error.kind is not LossKind.GONE and self._settings.on_loss is not OnLoss.STOP:
                report.losses.append(error)
                self._say(f"warning: {partition}: {error.text}")
                await self._resume_after(partition, error)
                return
            self._say(f"error: {partition}: {error.text}: it is not copied any further")
        else:
            self._say(f"error: {partition}: {error}: it is not copied any further")
        report.error = error
        if report.position < 0:
            report.position = self._reader.positions[partition].offset

    async def _rewritten(self, partition: TopicPartition, loss: Loss) -> Loss | None:
        """Return a loss if the source, which ends early, has other records than were copied, or if
        nothing was copied: then its beginning is still to be copied."""
        at = self._reader.positions[partition]
        # A record that was changed on the way differs.
        if loss.kind is not LossKind.TRUNCATED or at.changes:
            return None
        maps = await read_map(self._target, self._settings.name, frozenset([partition]))
        copied = maps.get(partition)
        if copied is None or copied.copy != at.copy:
            return None
        if not copied.runs:
            start = (await self._source.starts([partition]))[partition]
            if start.error is not None:
                raise start.error
            return Loss(LossKind.RECREATED, at.offset, at.offset, start.offset)
        return await rewritten_before(self._source, self._target, partition, copied, loss.first)

    async def _resume_after(self, partition: TopicPartition, loss: Loss) -> None:
        """Commit a position at which the source can be read, and begin there."""
        at = self._reader.positions[partition]
        offset, copy = loss.resume, at.copy
        if self._settings.on_loss is OnLoss.RESTART:
            start = (await self._source.starts([partition]))[partition]
            if start.error is not None:
                raise start.error
            offset = start.offset
        is_another = loss.kind in (LossKind.RECREATED, LossKind.REWRITTEN)
        if self._settings.on_loss is OnLoss.RESTART or is_another:
            copy += 1
        resumed = MirrorPosition(
            offset, at.cluster_id, partition, copy=copy,
            topic_id=self.topics.topic_ids.get(partition.topic),
            changes=self._settings.changes or at.changes, server_partition=at.server_partition,
        )  # fmt: skip
        if self._writer.transaction is not None:
            await self._writer.transaction.add_group(self._group)
        await self._commit({partition: resumed})
        self._ends.forget(partition)
        # The others are found again.
        self._begun = None
        self._is_open = False

    async def _on_refused(self, error: WriteFailedError) -> None:
        """Stop a partition whose batch no retry would write, and continue with the others."""
        if error.code in OF_BATCHES and error.partition != self._map:
            topic = self.topics.sources[error.partition.topic]
            source = TopicPartition(topic, error.partition.partition)
            if error.code in TOO_LARGE and source not in self._unjoined:
                # Its batches may be small enough as they are.
                self._unjoined.add(source)
            else:
                self.reports[source].error = error
                self._say(f"error: {source}: {error}: it is not copied any further")
        await self._on_failure(ApiError(error.code, str(error)))

    async def _on_failure(self, error: KctlError) -> None:
        """Prepare to continue from what is committed, or raise an error that will not pass."""
        self._is_open = False
        self._failures += 1
        self.counts.failed += 1
        transaction = self._writer.transaction
        self.counts.aborted += transaction is not None and transaction.is_open
        self._reader.close()
        if isinstance(error, _HOPELESS) or self._failures > FAILURES_IN_A_ROW_MAX:
            raise error
        if isinstance(error, ApiError):
            if error.code in _FORBIDDEN:
                raise error
            if error.code in _FENCED:
                raise ApiError(
                    error.code,
                    f"Another worker {self._settings.worker} of mirror {self._settings.name}"
                    " has taken over",
                )
            if error.code in _REJOIN:
                self._member.rejoin()
        try:
            self._member.check()
        except KctlError:
            # Its heartbeats have ended: the group is joined as another member.
            self._member = self._new_member()
        await sleep(self._target.runtime.scheduler, _BACKOFF_MS if self._failures > 1 else 0)

    def _new_member(self) -> GroupMember:
        return GroupMember(self._target, self._group, sorted(self.topics.targets.values()))

    def _monotonic_ms(self) -> int:
        return self._target.runtime.clock.monotonic_ms()

    def _now_ms(self) -> int:
        return self._target.runtime.clock.wall_ms()
