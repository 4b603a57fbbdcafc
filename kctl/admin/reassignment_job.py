"""ReassignmentJob: a reassignment checked, throttled, started, waited for, and cleaned up after.

    job = await ReassignmentJob.prepare(cluster, wanted, rate=50_000_000)
    await job.run(batch=50, on_progress=print)

The throttle goes through these states:

    none -> recorded -> in force -> removed

The record of what it replaces is durable before anything changes. A throttle stays in force for as
long as any replica of the job moves: if the job is interrupted, moves in progress continue under
the limit, and `remove_throttle` (`kctl reassign watch`, `kctl throttle sweep`) restores the
settings once they are complete. A job never lifts the limit of a copy that is still running, or
that may be.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (executeAssignment, verifyAssignment); KIP-455
"""

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.dead_brokers import DeadBrokers
from kctl.admin.log_dir_moves import LogDirMoves, LogDirs
from kctl.admin.reassignment_cluster import ReassignmentCluster
from kctl.admin.reassignment_execution import POLL_MS, MoveStatus, ReassignmentExecution
from kctl.admin.reassignment_plan import ReassignmentPlan, drain, plan_of
from kctl.admin.replication_throttle import Copying, Leftover, Restored, Throttle, ThrottleRecord
from kctl.errors import NotFoundError, UsageError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.reassignment_json import Reassignment


@dataclass(slots=True)
class ReassignmentJob:
    """One plan on one cluster; `execution` and `dirs` hold a result per partition and replica."""

    cluster: ReassignmentCluster
    plan: ReassignmentPlan
    dirs: LogDirMoves
    throttle: Throttle
    # The throttle that this job put in force.
    record: ThrottleRecord | None = None
    # What the removal of the throttle did, setting by setting; None: it was not removed.
    restored: list[Restored] | None = None
    on_throttled: Callable[[ThrottleRecord], object] = field(default=lambda _record: None)
    execution: ReassignmentExecution = field(init=False)

    def __post_init__(self) -> None:
        self.execution = ReassignmentExecution(
            self.cluster.scheduler, self.cluster.reassignments, self.plan.after
        )

    @classmethod
    async def prepare(
        cls,
        cluster: ReassignmentCluster,
        wanted: "Reassignment",
        *,
        rate: int | None = None,
        dir_rate: int | None = None,
        is_additional: bool = False,
        with_sizes: bool = True,
    ) -> "ReassignmentJob":
        """Plan the moves to `wanted` and change nothing.

        `rate` limits copies between brokers, `dir_rate` those between the log directories of a
        broker, in bytes/s per broker. Raise UsageError if a partition, broker or directory does not
        exist, or if partitions move already and the job is not additional to them.
        """
        plan = await checked_plan(
            cluster, wanted, is_additional=is_additional, with_sizes=with_sizes
        )
        dirs = await checked_dir_moves(cluster, wanted.log_dirs)
        return cls(cluster, plan, dirs, throttle_of(plan, dirs, rate, dir_rate))

    @property
    def is_nothing_to_do(self) -> bool:
        """Return whether every replica is already in place."""
        return not self.plan.after and not self.dirs.pending

    @property
    def is_moving(self) -> bool:
        """Return whether any move of this job was in progress when it was last looked at, or may be
        because the answer to its submission was lost."""
        results = self.execution.results.values()
        return self.dirs.is_under_way or any(it.status is MoveStatus.STARTED for it in results)

    async def start(self) -> None:
        """Apply the throttle and submit all moves, without waiting for them."""
        if self.is_nothing_to_do:
            return
        await self._begin_throttle()
        try:
            await self.dirs.start()
            await self.execution.start_all()
        finally:
            await self._end_throttle_if_idle()

    async def run(self, batch: int, on_progress: Callable[[int], object]) -> None:
        """Move `batch` partitions at a time until all are in place.

        `on_progress` is called with the number of completed moves. If this is cancelled, moves in
        progress continue and keep their throttle; `is_moving` says whether there are any.
        """
        if self.is_nothing_to_do:
            return
        await self._begin_throttle()
        try:
            await self.dirs.start()
            await self.execution.run(batch, on_progress)
            await self._wait_for_dirs(on_progress)
        finally:
            await self._end_throttle_if_idle()

    async def replicas_left_on(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions that still have a replica on a broker, in order."""
        layout = await self.cluster.reassignments.layout(with_sizes=False)
        return sorted(tp for tp, replicas in layout.assignment.items() if broker_id in replicas)

    async def _wait_for_dirs(self, on_progress: Callable[[int], object]) -> None:
        total = len(self.dirs.pending)
        while self.dirs.is_under_way:
            await self.dirs.look(is_last=True)
            on_progress(len(self.plan.after) + total - len(self.dirs.pending))
            if self.dirs.is_under_way:
                await sleep(self.cluster.scheduler, POLL_MS)

    async def _begin_throttle(self) -> None:
        if not self.throttle.is_any:
            return
        cluster = self.cluster
        if cluster.records.load(cluster.cluster_id) is not None:
            raise UsageError(
                "kctl has already throttled this cluster",
                hint="kctl throttle set changes its rate; kctl throttle sweep removes it",
            )
        record = await cluster.throttle.prepare(cluster.cluster_id, self.throttle)
        cluster.records.save(record)
        self.record = record
        await cluster.throttle.apply(record)
        self.on_throttled(record)

    async def _end_throttle_if_idle(self) -> None:
        if self.record is not None and not self.is_moving:
            self.restored = await remove_throttle(self.cluster)


async def start_reassignment(
    cluster: ReassignmentCluster,
    wanted: "Reassignment",
    *,
    rate: int | None = None,
    dir_rate: int | None = None,
    is_additional: bool = False,
    on_planned: Callable[[ReassignmentJob], object] = lambda _job: None,
) -> ReassignmentJob:
    """Start all moves to `wanted` without waiting for them; return the job with its results.

    `on_planned` is called with the job before it changes anything. See `ReassignmentJob.prepare`.
    """
    job = await ReassignmentJob.prepare(
        cluster, wanted, rate=rate, dir_rate=dir_rate, is_additional=is_additional,
        with_sizes=False,
    )  # fmt: skip
    on_planned(job)
    await job.start()
    return job


async def run_drain(
    job: ReassignmentJob, broker_id: int, batch: int, on_progress: Callable[[int], object]
) -> list[TopicPartition]:
    """Run the job of `drain_job`; return the partitions that still have a replica on the broker."""
    await job.run(batch, on_progress)
    return await job.replicas_left_on(broker_id)


async def drain_job(
    cluster: ReassignmentCluster,
    broker_id: int,
    rate: int | None = None,
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> ReassignmentJob:
    """Return the job that moves every replica off a broker, at `rate` bytes/s per broker.

    `dead` decides about partitions with a replica on another broker that is not alive.
    """
    plan = drain(await cluster.reassignments.layout(), [broker_id], dead)
    dirs = await checked_dir_moves(cluster, {})
    return ReassignmentJob(cluster, plan, dirs, throttle_of(plan, dirs, rate, None))


async def remove_throttle(
    cluster: ReassignmentCluster, *, forget_absent: bool = False
) -> list[Restored] | None:
    """Restore the settings that kctl's throttle replaced; return a result per setting, or None if
    kctl has not throttled the cluster. The record stays if any setting could not be restored;
    `forget_absent`: not because of brokers that are not alive, whose settings stay then."""
    record = cluster.records.load(cluster.cluster_id)
    if record is None:
        return None
    restored = await cluster.throttle.restore(record)
    if all(it.error is None or (forget_absent and it.is_absent) for it in restored):
        cluster.records.remove(cluster.cluster_id)
    return restored


async def current_throttles(
    cluster: ReassignmentCluster,
) -> tuple[list[Leftover], ThrottleRecord | None]:
    """Return the throttle configs of brokers and topics, and the record of kctl's own throttle."""
    record = cluster.records.load(cluster.cluster_id)
    return await cluster.throttle.leftovers(), record


async def change_rate(cluster: ReassignmentCluster, rate: int, *, dry_run: bool = False) -> int:
    """Change the rate of kctl's throttle to `rate` bytes/s per broker and return the previous one.

    `dry_run` changes nothing. Raise UsageError if kctl has not throttled the cluster.
    """
    record = cluster.records.load(cluster.cluster_id)
    if record is None:
        raise UsageError(
            "No throttle of kctl's is in force",
            hint="kctl reassign execute --throttle RATE sets one",
        )
    if not dry_run:
        changed = await cluster.throttle.change_rate(record, rate)
        cluster.records.save(changed)
        await cluster.throttle.apply(changed)
    return record.rate


async def wait_until_idle(cluster: ReassignmentCluster, on_look: Callable[[int], object]) -> None:
    """Wait until no partition of the cluster moves; `on_look` is called with the number that do."""
    while moving := len(await cluster.reassignments.ongoing()):
        on_look(moving)
        await sleep(cluster.scheduler, POLL_MS)


async def checked_plan(
    cluster: ReassignmentCluster,
    wanted: "Reassignment",
    *,
    is_additional: bool,
    with_sizes: bool = True,
) -> ReassignmentPlan:
    """Return the plan of the moves to `wanted`; raise UsageError for an unknown partition, a target
    that is not alive, or partitions that move already."""
    moving = await cluster.reassignments.ongoing()
    if moving and not is_additional:
        first = next(iter(moving))
        raise UsageError(
            f"partitions are already moving: {len(moving)}, {first} among them",
            hint="kctl reassign watch waits for them; --additional adds to them",
        )
    layout = await cluster.reassignments.layout(with_sizes=with_sizes)
    for tp, replicas in wanted.replicas.items():
        if tp not in layout.assignment:
            raise not_found("partition", tp, hint="kctl topic list shows the topics")
        gone = [b for b in replicas if b not in layout.racks and b not in layout.assignment[tp]]
        if gone:
            raise NotFoundError(
                f"{tp} cannot move to broker {gone[0]}, which is not alive",
                hint=f"live brokers: {', '.join(map(str, sorted(layout.racks)))}",
            )
    return plan_of(layout, wanted.replicas)


async def checked_dir_moves(cluster: ReassignmentCluster, wanted: LogDirs) -> LogDirMoves:
    """Return the moves of replicas to the log directories `wanted`; raise UsageError for a
    directory that its broker does not use."""
    if wanted and cluster.admin is None:
        raise UsageError("Log directories are chosen by brokers, not by ZooKeeper")
    moves = LogDirMoves(cluster.admin.log_dirs if cluster.admin else None, wanted)
    await moves.look()
    for it in moves.moves:
        known = moves.directories.get(it.broker_id, [])
        if it.path not in known:
            raise NotFoundError(
                f"Broker {it.broker_id} has no log directory {it.path} in use",
                hint=f"it has {', '.join(known)}" if known else None,
            )
    return moves


def throttle_of(
    plan: ReassignmentPlan, dirs: LogDirMoves, rate: int | None, dir_rate: int | None
) -> Throttle:
    """Return the throttle of these moves: `rate` between brokers, `dir_rate` inside a broker."""
    copies = {
        tp: Copying(plan.before.get(tp, ()), plan.adding(tp))
        for tp in plan.after
        if plan.adding(tp)
    }
    brokers = dict.fromkeys(it.broker_id for it in dirs.pending)
    return Throttle(copies, rate, tuple(brokers), dir_rate)
