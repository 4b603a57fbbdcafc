"""A member of a group on ZooKeeper whose partitions another consumer keeps, and one that stops all
its streams at once: the real membership on the real store, in virtual time."""

import pytest

from kctl.errors import KctlError
from kctl.kafka.claims import Claims
from kctl.kafka.errors import RebalanceFailedError
from kctl.kafka.group_membership import GroupMembership, GroupSettings, ZooKeeperOffsets
from kctl.kafka.rebalance import RebalanceState, Tries
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import ConsumedPartition, consumer_ids_path, owner_path
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.znode_client import ZnodeClient
from tests.support.virtual_runtime import virtual_runtime

GROUP = "g"
BACKOFF_MS = 1_000
PARTITIONS = b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
T0, T1 = (ConsumedPartition("t", number) for number in range(2))


class Streams:
    """What a connector does with its partitions: it keeps a record of each call."""

    def __init__(self):
        self.claims = Claims()
        self.errors = []
        self.stopped = []
        self.membership = None

    def start(self, threads, offsets):
        for it, thread in threads.items():
            self.claims.open(it, thread, self.membership.lease, offsets.get(it))

    def stop(self, partitions):
        self.stopped += partitions
        return self.claims.close(partitions)

    def committed(self, offsets):
        self.claims.committed(offsets)

    def failed(self, error):
        self.errors.append(error)

    @property
    def read(self):
        return sorted(it.partition for it in self.claims)


class World:
    """A group that reads topic t, of two partitions."""

    def __init__(self):
        self.runtime = virtual_runtime()
        self.database = ZnodeDatabase.in_memory(self.runtime)
        self.client = ZnodeClient(self.session())
        self.create("/brokers/topics/t", PARTITIONS)

    def session(self):
        return EmbeddedStore(self.runtime, self.database)

    def run(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine)
        self.runtime.scheduler.settle()
        return task.result()

    def create(self, path, data):
        async def create():
            await self.client.make_path(path.rpartition("/")[0])
            await self.client.store.create(path, data)

        self.run(create())

    def touch_topic(self):
        """Write the topic's znode as it is: its watches fire."""

        async def touch():
            await self.client.store.set("/brokers/topics/t", PARTITIONS)

        self.run(touch())

    def member(self, name, *, offsets=ZooKeeperOffsets, **settings):
        store = self.session()
        registry = ConsumerRegistry(store)
        streams = Streams()
        streams.membership = GroupMembership(
            self.runtime,
            registry,
            GroupSettings(GROUP, "h", name, rebalance_backoff_ms=BACKOFF_MS, **settings),
            {"t": 1},
            streams,
            offsets(registry, GROUP),
        )
        streams.membership.start()
        return streams

    def advance(self, delay_ms):
        self.runtime.scheduler.advance(delay_ms)

    def members(self):
        return self.run(self.client.children(consumer_ids_path(GROUP)))


def test_after_so_many_tries_a_member_leaves_raises_and_comes_back():
    world = World()
    # The claim of a consumer that is no longer registered.
    world.create(owner_path(GROUP, *T1), b"dead-0")
    member = world.member("a", rebalance_retries=3)
    world.advance(3 * BACKOFF_MS - 1)
    assert (member.errors, member.read) == ([], [T0])
    world.advance(BACKOFF_MS)
    [error] = member.errors
    assert isinstance(error, RebalanceFailedError)
    assert "still owns t-1" in str(error)
    assert (member.read, world.members()) == ([], [])
    # It comes back by itself, and owns all once the other consumer has let go.
    world.advance(2 * BACKOFF_MS)
    assert member.read == [T0]
    world.run(world.client.delete_if_exists(owner_path(GROUP, *T1)))
    world.advance(BACKOFF_MS)
    assert (member.read, len(member.errors)) == ([T0, T1], 1)


def test_without_a_number_of_tries_a_member_waits_for_as_long_as_it_takes():
    world = World()
    world.create(owner_path(GROUP, *T1), b"dead-0")
    member = world.member("a")
    world.advance(100 * BACKOFF_MS)
    assert (member.errors, member.read) == ([], [T0])
    assert member.membership.rebalance.state is RebalanceState.WAITING


@pytest.mark.parametrize("stops_all", [False, True])
def test_a_new_assignment_stops_all_of_a_member_if_the_setting_says(stops_all):
    world = World()
    first = world.member("a", stops_all=stops_all)
    world.advance(BACKOFF_MS)
    assert (first.read, first.stopped) == ([T0, T1], [])
    second = world.member("b", stops_all=stops_all)
    world.advance(BACKOFF_MS)
    assert (first.read, second.read) == ([T0], [T1])
    assert sorted(first.stopped) == ([T0, T1] if stops_all else [T1])
    # Further rounds find the same assignment, and stop nothing.
    rounds = first.membership.rounds
    world.touch_topic()
    world.advance(BACKOFF_MS)
    assert first.membership.rounds > rounds
    assert sorted(first.stopped) == ([T0, T1] if stops_all else [T1])


class FailingOffsets(ZooKeeperOffsets):
    """Brokers that do not take offsets."""

    async def commit(self, consumer_id, offsets):
        raise KctlError("no coordinator")


def test_a_member_whose_last_commit_fails_leaves_all_the_same():
    world = World()
    member = world.member("a", offsets=FailingOffsets)
    world.advance(BACKOFF_MS)
    for claim in member.claims:
        claim.position = 5
    world.run(member.membership.close())
    assert member.membership.rebalance.state is RebalanceState.ABSENT
    assert (member.read, world.members()) == ([], [])
    assert "Offsets are not committed: no coordinator" in world.runtime.trace.warnings
    # Its partitions are free at once.
    other = world.member("b")
    world.advance(1)
    assert other.read == [T0, T1]


def test_errors_of_rounds_are_raised_at_once_or_counted():
    error = KctlError("no broker")
    at_once, counted = Tries(None, BACKOFF_MS), Tries(3, BACKOFF_MS)
    assert at_once.failed(error) is error
    assert [counted.failed(error) for _ in range(2)] == [None, None]
    assert "3 tries to rebalance have failed, at last: no broker" in str(counted.failed(error))
    # Counted from the start again.
    assert counted.failed(error) is None
    counted.succeeded()
    assert [counted.failed(error) for _ in range(2)] == [None, None]
