"""Runs a mirror: keeps the target's topics in step, copies, and carries groups over.

Exactly once is the default where the target has transactions; its map topic and its topics are
created first. See `worker.py` for the copying itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.topics import BROKER_DEFAULT, NewTopic
from kctl.errors import KctlError, NotFoundError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import check_name, map_topic_of
from kctl.mirror.groups import CarriedOffset, NothingCopied, carry_groups, ends_of_empty
from kctl.mirror.kept_choice import encode_choice
from kctl.mirror.loss import OnLoss
from kctl.mirror.map_topic import read_positions
from kctl.mirror.mirror_plan import Step
from kctl.mirror.mm2_formats import Mm2Settings
from kctl.mirror.mm2_topics import Mm2Topics, OnCheckpoints
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.partition_report import PartitionReport, TurnCounts
from kctl.mirror.record_changes import Change, Loops, Provenance, in_order
from kctl.mirror.settings import MirroredTopics, MirrorSettings
from kctl.mirror.topics import TopicChoice, apply_plan, plan_mirror
from kctl.mirror.worker import MirrorWorker, OnCopied
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.sources import MirrorSource

# How often topics, their settings and partitions are compared, and groups carried over.
REFRESH_INTERVAL_MS = 30_000
GROUPS_INTERVAL_MS = 10_000
_COMPACTED = {"cleanup.policy": "compact"}
_WAY_OUT = " (--exclude-config NAME leaves a setting out)"
_READY_ROUNDS_MAX = 150
_READY_WAIT_MS = 100


@dataclass(slots=True)
class MirrorReport:
    """What a run has done."""

    is_exactly_once: bool = True
    partitions: list[PartitionReport] = field(default_factory=list)
    groups: dict[tuple[str, object], CarriedOffset] = field(default_factory=dict)
    # Why groups of the source could not be read.
    group_errors: list[str] = field(default_factory=list)
    # Topics of the target that could not be created or changed, and those that were refused.
    topic_errors: dict[str, str] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """Return whether anything was not mirrored, or was lost."""
        partitions = any(it.error is not None for it in self.partitions)
        groups = any(it.error is not None for it in self.groups.values())
        return partitions or groups or bool(self.group_errors) or bool(self.topic_errors)


@dataclass(slots=True)
class MirrorRun:
    """A mirror from `source` to `target`; `groups` selects the groups that are carried over."""

    source: "MirrorSource"
    target: "AdminClient"
    choice: TopicChoice
    settings: MirrorSettings
    groups: Callable[[str], bool] | None = None
    say: Callable[[str], object] = lambda _: None
    refresh_interval_ms: int = REFRESH_INTERVAL_MS
    # Keeps MirrorMaker 2's topics too.
    mm2: Mm2Settings | None = None
    # What is done to records, and whether they are marked so that none goes back.
    changes: Sequence[Change] = ()
    loops: Loops = Loops.ALLOWED
    # Is called after each turn of the worker.
    on_turn: Callable[[], object] = lambda: None
    # Are called with what was committed: batches, and MirrorMaker 2's checkpoints.
    on_copied: OnCopied = lambda _ranges, _read_ms: None
    on_checkpoints: OnCheckpoints = lambda _points, _latency_ms: None
    report: MirrorReport = field(default_factory=MirrorReport)
    _worker: MirrorWorker | None = None

    @property
    def counts(self) -> TurnCounts:
        """Return how the worker's turns ended so far."""
        return TurnCounts() if self._worker is None else self._worker.counts

    @property
    def reports(self) -> Mapping[TopicPartition, PartitionReport]:
        """Return what was done so far, by partition of the source."""
        return {} if self._worker is None else self._worker.reports

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Return the partitions of the source that this worker copies now."""
        return frozenset() if self._worker is None else self._worker.held

    async def run(self) -> MirrorReport:
        """Copy until the end with `until_end`, else until cancelled; return the report."""
        check_name(self.settings.name)
        await self._check_transactions()
        await self._restore_numbers()
        topics = await self._keep_in_step()
        if not topics.targets and self.settings.until_end:
            raise NotFoundError(
                "No topic to mirror",
                hint="; ".join(dict.fromkeys(self.report.topic_errors.values())) or None,
            )
        await self._create_compacted(map_topic_of(self.settings.name))
        clock = self.target.router.runtime.clock
        worker = self._worker = MirrorWorker(
            self.source, self.target.router, self.settings, topics, self.say
        )
        worker.change = self._change(topics.source_id)
        worker.choice = encode_choice(self.choice)
        worker.on_copied = self.on_copied
        mm2 = await self._start_mm2(worker)
        if self.groups is not None or mm2 is not None:
            worker.maps = {}
        refresh_ms = clock.monotonic_ms() + self.refresh_interval_ms
        groups_ms = clock.monotonic_ms() + GROUPS_INTERVAL_MS
        try:
            while not await worker.is_done():
                await worker.turn()
                self.on_turn()
                now_ms = clock.monotonic_ms()
                if now_ms >= refresh_ms:
                    refresh_ms = now_ms + self.refresh_interval_ms
                    worker.mirror(await self._keep_in_step())
                if now_ms >= groups_ms:
                    groups_ms = now_ms + GROUPS_INTERVAL_MS
                    await self._carry_groups()
                if mm2 is not None:
                    await mm2.write_due(worker.maps or {}, worker.topics.targets)
            await self._carry_groups()
            if mm2 is not None:
                await mm2.write_all(worker.maps or {}, worker.topics.targets)
        finally:
            held = worker.held
            for key, each in worker.reports.items():
                each.is_held = key in held
            self.report.partitions = [worker.reports[key] for key in sorted(worker.reports)]
            await worker.close()
        return self.report

    async def _check_transactions(self) -> None:
        target = self.target.router
        has_them = await target.max_version(ApiKey.TXN_OFFSET_COMMIT) >= 0
        self.report.is_exactly_once = self.settings.exactly_once
        if self.settings.exactly_once and not has_them:
            raise UsageError(
                "The target has no transactions (Kafka 0.11), which exactly once needs",
                hint="add --at-least-once",
            )

    async def _restore_numbers(self) -> None:
        """Keep the numbers that partitions of a cluster of Kafka 0.7 got in earlier runs."""
        if self.source.numbering is None:
            return
        if self.settings.worker != "1":
            raise UsageError("A cluster of Kafka 0.7 is mirrored by one worker")
        positions = await read_positions(self.target.router, self.settings.name)
        self.source.numbering.restore(positions.values())

    async def _keep_in_step(self) -> MirroredTopics:
        """Create and change the target's topics; return those that can be mirrored."""
        plan = await plan_mirror(self.source, self.target, self.choice)
        usable = [each for each in plan.topics if each.step is not Step.REFUSE]
        await self._warn_of_defaults([it.target for it in usable if it.step is Step.CREATE])
        failed = await apply_plan(self.target, usable, self.choice.replication_factor)
        errors = {each.target: str(each.reason) for each in plan.topics if each.reason}
        errors |= await self._gone({each.target for each in plan.topics}, plan.source_id)
        # Another worker may have created a topic a moment ago.
        errors |= {
            name: f"{error}{_WAY_OUT if _is_code(error, ErrorCode.INVALID_CONFIG) else ''}"
            for name, error in failed.items()
            if not _is_code(error, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        for name, text in errors.items():
            if self.report.topic_errors.get(name) != text:
                self.say(f"error: {name}: {text}")
        self.report.topic_errors = errors
        usable = [each for each in usable if each.target not in errors]
        await self._wait_for_leaders(
            {each.target: each.partitions for each in usable if each.step is not Step.KEEP}
        )
        return MirroredTopics(
            {each.source: each.target for each in usable},
            plan.topic_ids,
            plan.source_id,
            {each.source: each.partitions for each in usable},
        )

    async def _warn_of_defaults(self, created: list[str]) -> None:
        """Name the topics that are created without the settings that they have at the source."""
        admin = self.source.admin
        if created and admin and await admin.router.max_version(ApiKey.DESCRIBE_CONFIGS) < 0:
            self.say(
                "warning: the source does not tell the settings of topics (before Kafka 0.11):"
                f" created with the target's defaults: {', '.join(created)}"
            )

    async def _gone(self, planned: set[str], source_id: str | None) -> dict[str, str]:
        """Return the topics that this mirror has copied, and that the source no longer has."""
        if self.settings.on_loss is not OnLoss.STOP or self.source.admin is None:
            return {}
        gone: dict[str, str] = {}
        for target, position in (
            await read_positions(self.target.router, self.settings.name)
        ).items():
            topic = position.source.topic
            is_same = position.cluster_id == source_id and self.choice.rename(topic) == target.topic
            if target.topic not in planned and is_same and self.choice.selects(topic):
                gone[target.topic] = f"{topic} no longer exists at the source"
        return gone

    def _change(self, source_id: str | None) -> Change | None:
        changes = list(self.changes)
        if self.loops is not Loops.ALLOWED:
            target_id = self.target.router.view.cluster_id
            if source_id is None or target_id is None:
                raise UsageError(f"--{self.loops} needs clusters with ids (Kafka 0.10.1)")
            is_mesh = self.loops is Loops.MESH
            changes.insert(0, Provenance(source_id, target_id, only_from_origin=is_mesh))
        return in_order(changes) if changes else None

    async def _start_mm2(self, worker: MirrorWorker) -> Mm2Topics | None:
        if self.mm2 is None:
            return None
        await self._create_compacted(*self.mm2.topics)
        mm2 = Mm2Topics(self.source, self.target, self.mm2, self.say)
        worker.on_runs = mm2.add
        mm2.on_checkpoints = self.on_checkpoints
        return mm2

    async def _create_compacted(self, *names: str) -> None:
        factor = self.choice.replication_factor
        version = await self.target.router.max_version(ApiKey.CREATE_TOPICS)
        if factor == BROKER_DEFAULT and version < 4:
            factor = min(3, len(self.target.router.view.brokers))
        topics = [NewTopic(name, 1, factor, _COMPACTED) for name in names]
        for result in await self.target.topics.create(topics):
            error = result.error
            if error is not None and not _is_code(error, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise error
        await self._wait_for_leaders(dict.fromkeys(names, 1))

    async def _wait_for_leaders(self, topics: dict[str, int]) -> None:
        """Wait until the target's partitions have leaders."""
        if not topics:
            return
        router = self.target.router
        for _ in range(_READY_ROUNDS_MAX):
            view = await router.refresh(sorted(topics))
            if all(len(view.partitions_of(name)) >= count for name, count in topics.items()):
                return
            await sleep(router.runtime.scheduler, _READY_WAIT_MS)

    async def _carry_groups(self) -> None:
        worker = self._worker
        if self.groups is None or worker is None or worker.maps is None:
            return
        names = worker.topics.targets
        found = await self.source.groups(self.groups, names)
        before, self.report.group_errors = self.report.group_errors, [*map(str, found.errors)]
        for text in self.report.group_errors:
            if text not in before:
                self.say(f"error: groups are not carried over: {text}")
        empty = await self._empty(
            worker, worker.maps, {p for it in found.committed.values() for p in it}
        )
        for each in await carry_groups(found.committed, self.target, worker.maps, names, empty):
            known = self.report.groups.get((each.group, each.target))
            is_known = known is not None and str(known.error) == str(each.error)
            if each.error is not None and not is_known:
                self.say(f"warning: group {each.group}: {each.target}: {each.error}")
            self.report.groups[each.group, each.target] = each

    async def _empty(
        self,
        worker: MirrorWorker,
        maps: Mapping[TopicPartition, OffsetMap],
        partitions: set[TopicPartition],
    ) -> dict[TopicPartition, NothingCopied]:
        """Return those of `partitions` that this worker has, and has copied nothing of, and whose
        partitions in the target have no records of others, either."""
        reports = [worker.reports[it] for it in worker.held & partitions if it in worker.reports]
        wanted = {
            it.target: it
            for it in reports
            if it.position >= 0 and (it.source not in maps or not maps[it.source].runs)
        }
        ends = await ends_of_empty(self.target, wanted)
        return {
            wanted[target].source: NothingCopied(wanted[target].position, end)
            for target, end in ends.items()
        }


def _is_code(error: KctlError, code: ErrorCode) -> bool:
    return isinstance(error, ApiError) and error.code == code
