"""flush.messages=1, `kctl serve --durable`: responses follow an fsync, which many requests share.

Real replicas and logs on a simulated disk in virtual time: a flush runs on a later turn of the
loop, so a test can check the state before it.
"""

import dataclasses

import pytest

from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.fetcher_manager import FetcherManager
from kctl.broker.replication.partition_writer import ReplicatedPartitionWriter
from kctl.broker.replication.replica_fetcher import FetcherOptions
from kctl.broker.replication.replica_manager import FetchIsolation
from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.runtime.turns import fail_loudly
from kctl.simulation.disk import SimDisk
from kctl.store.embedded import EmbeddedStore
from tests.broker.replication.conftest import ME, ReplicationWorld
from tests.support.group_world import GroupWorld
from tests.support.log_world import LogWorld, batch, values_of
from tests.support.virtual_runtime import SeededEntropy, virtual_runtime

CUTS = 20
TP = TopicPartition("t", 0)


class CountingDisk(SimDisk):
    """Counts fsyncs of files; can fail them, like a failing disk."""

    def __init__(self):
        super().__init__()
        self.sync_count = 0
        self.is_dying = False

    def file_synced(self, inode):
        self.sync_count += 1
        if self.is_dying:
            raise StorageError("Input/output error")
        super().file_synced(inode)


class Root:
    """The methods of a directory that LogWorld uses."""

    def __truediv__(self, name):
        return f"/{name}"


class DurableWorld(ReplicationWorld):
    """A broker that leads t-0 with flush.messages=1."""

    def __init__(self, **settings):
        self.disk = CountingDisk()
        runtime = dataclasses.replace(virtual_runtime(), disk=self.disk)
        super().__init__(runtime, Root(), flush_messages=1, **settings)
        self.scheduler = runtime.scheduler

    def settle(self):
        self.scheduler.settle()

    def values_after_power_cut(self, seed=0):
        """Return the records of t-0 after a power cut now and a restart."""
        disk = self.disk.power_loss(SeededEntropy(seed))
        runtime = dataclasses.replace(virtual_runtime(), disk=disk)
        log = LogWorld(runtime, Root(), self.logs.config).manager.get_log(TP)
        return [] if log is None else [value for _, value in values_of(log)]

    def consume(self, offset, *, max_wait_ms=0):
        """Return the results of a consumer's fetch, in a list that fills when it is complete."""
        params = FetchParams(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation=FetchIsolation.HIGH_WATERMARK,
        )
        request = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
        )
        answered = []
        self.manager.fetch(params, [("t", request)], answered.extend, fail_loudly)
        return answered


@pytest.fixture
def world():
    made = DurableWorld()
    assert made.lead() == 0
    made.settle()
    return made


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledged_record_survives_any_power_cut(world, acks):
    answered = world.produce(batch(b"a"), acks=acks)
    assert answered == []
    world.settle()
    assert [(it.error_code, it.info.first_offset) for it in answered] == [(0, 0)]
    assert {tuple(world.values_after_power_cut(seed)) for seed in range(CUTS)} == {(b"a",)}


def test_acks_0_does_not_wait_but_reaches_the_disk_soon(world):
    (result,) = world.produce(batch(b"a"), acks=0)
    assert result.error_code == 0
    assert world.partition.log.recovery_point == 0
    world.settle()
    assert world.partition.log.recovery_point == 1


def test_without_the_config_no_request_waits(make_world):
    world = make_world()
    world.lead()
    (result,) = world.produce(batch(b"a"), acks=-1)
    assert result.error_code == 0
    assert world.partition.log.recovery_point == 0


def test_all_that_waits_shares_one_fsync(world):
    world.produce(batch(b"first"), acks=1)
    world.settle()
    before = world.disk.sync_count
    answered = [world.produce(batch(b"%d" % number), acks=1) for number in range(50)]
    world.settle()
    assert world.disk.sync_count == before + 1
    assert [results[0].info.first_offset for results in answered] == list(range(1, 51))


def test_an_append_during_a_flush_waits_for_the_next(world):
    world.produce(batch(b"first"), acks=1)
    world.settle()
    before = world.disk.sync_count
    early = world.produce(batch(b"early"), acks=-1)
    world.scheduler.background = hold(world.scheduler)
    world.settle()
    late = [world.produce(batch(b"late"), acks=-1) for _ in range(9)]
    world.settle()
    assert early == []
    world.scheduler.background.release()
    world.settle()
    assert len(early) == 1
    # The others did not reach the disk: their flush is held, too.
    assert late == [[]] * 9
    assert world.values_after_power_cut()[:2] == [b"first", b"early"]
    world.scheduler.background.release()
    world.settle()
    assert all(len(results) == 1 for results in late)
    assert world.disk.sync_count == before + 2


def hold(scheduler):
    """Return a `background` whose jobs wait for `release`."""
    real, held = scheduler.background, []

    def background(job):
        future = scheduler.future()
        held.append((job, future))
        return future

    def release():
        jobs, held[:] = list(held), []
        for job, future in jobs:
            real(job).add_done_callback(
                lambda done, future=future: (
                    future.set_error(done.error()) if done.error() else future.set_result(None)
                )
            )

    background.release = release
    return background


def test_consumers_only_see_durable_records(world):
    world.scheduler.background = hold(world.scheduler)
    waiting = world.consume(0, max_wait_ms=10_000)
    world.produce(batch(b"a"), acks=0)
    world.settle()
    (now,) = world.consume(0)
    assert (now.high_watermark, now.data.records) == (0, None)
    assert waiting == []
    world.scheduler.background.release()
    world.settle()
    assert [it.high_watermark for it in waiting] == [1]
    assert len(waiting[0].data.records) == world.partition.log.size


def test_a_former_leader_fetches_only_when_its_records_are_durable(world):
    """Found by simulation: a fetch reports records to the new leader that the follower then lost
    with its power.

        leads      appends a record          its fsync is under way
        follows    fetches from 1 on?        not yet
                   the fsync is done         now
    """
    fetched = []

    def endpoint_of(leader):
        fetched.append((leader, world.partition.log.recovery_point))
        fetchers.shutdown()

    options = FetcherOptions(ME, 500, 1, 1000, 100, 1000)
    fetchers = FetcherManager(world.runtime, world.manager, options, endpoint_of)
    world.leadership.on_role_change(fetchers.on_role_change)
    world.scheduler.background = hold(world.scheduler)
    world.produce(batch(b"a"), acks=0)
    assert world.lead(leader=2, epoch=1, isr=(2,), replicas=(ME, 2)) == 0
    world.settle()
    assert fetched == []
    world.scheduler.background.release()
    world.settle()
    world.scheduler.background.release()
    world.settle()
    assert fetched == [(2, 1)]


def test_a_retry_of_a_batch_that_is_not_durable_waits_for_it_too(world):
    world.scheduler.background = hold(world.scheduler)
    batches = [batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0) for _ in range(2)]
    answered = [world.produce(records, acks=-1) for records in batches]
    world.settle()
    assert answered == [[], []]
    world.scheduler.background.release()
    world.settle()
    assert [(it.error_code, it.info.first_offset) for (it,) in answered] == [(0, 0), (0, 0)]
    assert world.values_after_power_cut() == [b"a"]


def test_an_answer_that_takes_too_long_is_a_timeout(world):
    world.scheduler.background = hold(world.scheduler)
    answered = world.produce(batch(b"a"), acks=1, timeout_ms=50)
    world.scheduler.advance(50)
    assert [it.error_code for it in answered] == [ErrorCode.REQUEST_TIMED_OUT]


def test_records_in_new_segments_survive_power_cuts():
    world = DurableWorld(segment_bytes=300)
    world.lead()
    for number in range(20):
        answered = world.produce(batch(b"%d" % number * 50), acks=-1)
        world.settle()
        assert len(answered) == 1
        found = {tuple(world.values_after_power_cut(seed)) for seed in range(3)}
        assert found == {tuple(b"%d" % n * 50 for n in range(number + 1))}
    assert len(world.partition.log.segments) > 5


def test_a_failed_fsync_is_final(world):
    """ext4, XFS and Btrfs mark pages clean when it fails: a second fsync would succeed falsely."""
    world.disk.is_dying = True
    answered = [world.produce(batch(b"a"), acks=acks) for acks in (1, -1)]
    waiting = world.consume(0, max_wait_ms=10_000)
    before = world.disk.sync_count
    world.settle()
    assert [it.error_code for (it,) in answered] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert [it.error_code for it in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.logs.manager.offline_log_dirs == world.logs.log_dirs
    # The disk works again, but is not used.
    world.disk.is_dying = False
    (result,) = world.produce(batch(b"b"), acks=1)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.scheduler.advance(600_000)
    assert world.disk.sync_count == before + 1


class WriterOf:
    """The coordinators' access to one partition, whatever its name."""

    def __init__(self, world, topic_partition):
        self._writer = ReplicatedPartitionWriter(world.manager, timeout_ms=5000)
        self._topic_partition = topic_partition

    def __getattr__(self, name):
        method = getattr(self._writer, name)
        return lambda _, *arguments: method(self._topic_partition, *arguments)


def test_committed_offsets_survive_power_cuts(world):
    groups = GroupWorld(log=WriterOf(world, TP)).elect()
    answer = groups.commit({("data", 0): 5})
    assert not answer.is_there
    world.settle()
    groups.scheduler.settle()
    assert answer.response == [0]
    for seed in range(CUTS):
        assert len(world.values_after_power_cut(seed)) == 1


def test_topics_in_the_embedded_store_survive_power_cuts():
    disk = CountingDisk()
    runtime = dataclasses.replace(virtual_runtime(), disk=disk)
    store = EmbeddedStore.open(runtime, "/metadata", fsync=True)
    for path in ("/brokers", "/brokers/topics", "/brokers/topics/t"):
        created = store.create(path, b"{}")
        runtime.scheduler.settle()
        assert created.done
    for seed in range(CUTS):
        after = dataclasses.replace(virtual_runtime(), disk=disk.power_loss(SeededEntropy(seed)))
        found = EmbeddedStore.open(after, "/metadata").children("/brokers/topics")
        after.scheduler.settle()
        assert found.result() == ["t"]
