"""A throttle stays while a copy may be running, even if the answer is lost; on the znodes of an
embedded store."""

import pytest

from kctl.admin.configs import ConfigResource, ResourceType
from kctl.admin.log_dir_moves import DirMoveStatus, LogDirMoves
from kctl.admin.reassignment_cluster import ReassignmentCluster
from kctl.admin.reassignment_execution import MoveStatus
from kctl.admin.reassignment_job import ReassignmentJob, remove_throttle, throttle_of
from kctl.admin.reassignment_plan import ClusterLayout, plan_of
from kctl.admin.reassignment_znodes import ZnodeReassignments
from kctl.admin.replication_throttle import FOLLOWER_RATE, ReplicationThrottle
from kctl.admin.throttle_records import ThrottleRecords
from kctl.errors import ImpossibleError, TimedOutError, UnreachableError, UsageError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.future import CancelledError
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LAYOUT = ClusterLayout({1: None, 2: None}, {T0: (1,), T1: (1,)})
BROKER = ConfigResource(ResourceType.BROKER, "2")


class Controller(ZnodeReassignments):
    """Carries out what it is asked for, and then fails if a failure is set."""

    def __init__(self, store):
        super().__init__(store)
        self.failure = None
        self.refusal = None
        self.answer = None

    async def alter(self, targets):
        if self.refusal is not None:
            raise self.refusal
        outcomes = await super().alter(targets)
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            await self.answer
        return outcomes


@pytest.fixture
def controller(loop, run):
    store = ClusterStore(EmbeddedStore(loop.runtime, ZnodeDatabase.in_memory(loop.runtime)))
    run(store.create_topic_assignment("t", {it: ReplicaAssignment((1,)) for it in (0, 1)}))
    return Controller(store)


@pytest.fixture
def cluster(loop, controller, tmp_path):
    records = ThrottleRecords(loop.runtime.disk, str(tmp_path))
    return ReassignmentCluster(
        "c", loop.runtime.scheduler, controller, ReplicationThrottle(controller), records
    )


@pytest.fixture
def throttled(run, controller, cluster):
    """Return whether kctl's record and its throttle are there."""

    def found():
        rates = run(controller.overrides([BROKER], [FOLLOWER_RATE]))[BROKER]
        return cluster.records.load("c") is not None, bool(rates)

    return found


def job_of(cluster, dirs=None):
    plan = plan_of(LAYOUT, {T0: (2,), T1: (2,)})
    dirs = dirs or LogDirMoves(None, {})
    return ReassignmentJob(cluster, plan, dirs, throttle_of(plan, dirs, 1000, 1000))


def statuses(job):
    return [it.status for it in job.execution.results.values()]


@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize(
    "failure", [TimedOutError("no answer"), ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)], ids=str
)
def test_a_throttle_stays_if_the_answer_to_a_reassignment_is_lost(
    run, controller, cluster, throttled, failure, is_waiting
):
    job = job_of(cluster)
    controller.failure = failure
    with pytest.raises(type(failure)):
        run(job.run(1, lambda _: None) if is_waiting else job.start())
    assert run(controller.ongoing())
    assert job.is_moving
    assert throttled() == (True, True)
    submitted = 1 if is_waiting else 2
    assert statuses(job)[:submitted] == [MoveStatus.STARTED] * submitted
    assert statuses(job)[submitted:] == [MoveStatus.WAITING] * (2 - submitted)

    run(remove_throttle(cluster))
    assert throttled() == (False, False)


def test_a_throttle_stays_if_a_job_is_cancelled_before_the_answer(
    loop, controller, cluster, throttled
):
    job = job_of(cluster)
    controller.answer = loop.scheduler.future()
    task = loop.scheduler.spawn(job.start())

    async def accepted():
        while not await controller.ongoing():
            pass
        task.cancel()
        await task

    with pytest.raises(CancelledError):
        loop.run(accepted())
    assert throttled() == (True, True)
    assert statuses(job) == [MoveStatus.STARTED] * 2


@pytest.mark.parametrize(
    "refusal",
    [
        UsageError("no"),
        ImpossibleError("one at a time"),
        ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
    ids=str,
)
def test_a_throttle_goes_if_the_reassignment_is_refused(
    run, controller, cluster, throttled, refusal
):
    job = job_of(cluster)
    controller.refusal = refusal
    with pytest.raises(type(refusal)):
        run(job.start())
    assert statuses(job) == [MoveStatus.WAITING] * 2
    assert throttled() == (False, False)


class LogDirs:
    """The log directories of brokers that answer until one does not."""

    def __init__(self, silent):
        self.silent = silent
        self.moved = []

    async def move(self, paths):
        for tp, broker in sorted(paths, key=lambda it: it[1]):
            self.moved.append((tp, broker))
            if broker == self.silent:
                raise UnreachableError("no answer")
        return dict.fromkeys(paths)


def test_a_throttle_stays_if_the_answer_to_a_move_between_directories_is_lost(
    run, cluster, throttled
):
    wanted = {(T0, broker): "/new" for broker in (1, 2, 3)}
    log_dirs = LogDirs(silent=2)
    dirs = LogDirMoves(log_dirs, wanted)
    job = job_of(cluster, dirs)
    with pytest.raises(UnreachableError):
        run(job.start())
    assert log_dirs.moved == [(T0, 1), (T0, 2)]
    started, waiting = DirMoveStatus.STARTED, DirMoveStatus.WAITING
    assert [it.status for it in dirs.moves] == [started, started, waiting]
    assert throttled() == (True, True)
