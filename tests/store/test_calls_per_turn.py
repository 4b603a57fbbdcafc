"""Many calls to the embedded store, which carries each out at once, leave turns for others."""

import pytest

from kctl.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.runtime.real import make_runtime
from kctl.store import znode_client, znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.interface import ANY_VERSION, Create
from kctl.store.znodes import LeaderIsrAndControllerEpoch


class OneByOneStore:
    """Makes the calls of a store one by one, as a ZooKeeper has to."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        if name in ("write_each", "get_each"):
            raise AttributeError(name)
        return getattr(self._store, name)


class CountingStore(EmbeddedStore):
    """Counts the calls of each turn."""

    calls, calls_max, turns = 0, 0, 0

    def create(self, *args, **kwargs):
        self.calls += 1
        self.calls_max = max(self.calls_max, self.calls)
        return super().create(*args, **kwargs)

    def write_each(self, operations, fence=None):
        operations = list(operations)
        self.calls += len(operations)
        self.calls_max = max(self.calls_max, self.calls)
        return super().write_each(operations, fence)

    def turn(self):
        self.calls = 0
        self.turns += 1
        return super().turn()


@pytest.mark.parametrize(
    ("wrap", "calls_per_turn"),
    [(OneByOneStore, znode_client.CALLS_PER_TURN), (lambda it: it, znode_client.WRITES_PER_TURN)],
)
def test_the_states_of_a_wide_topic_are_created_over_many_turns(wrap, calls_per_turn):
    runtime = make_runtime()
    store = CountingStore(runtime, ZnodeDatabase.in_memory(runtime))
    cluster = ClusterStore(wrap(store))
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1,), 0), 1)
    states = {TopicPartition("t", number): state for number in range(10 * calls_per_turn)}

    async def story():
        await cluster.create_topic_assignment("t", {0: ReplicaAssignment((1,))})
        return await cluster.create_partition_states(states, ANY_VERSION)

    outcomes = runtime.scheduler.run_until(runtime.scheduler.spawn(story()))
    assert set(outcomes.values()) == {None}
    assert calls_per_turn <= store.calls_max <= 3 * calls_per_turn
    runtime.scheduler.close()


def test_the_outcomes_of_many_calls_are_examined_over_many_turns(monkeypatch):
    monkeypatch.setattr(znode_client, "OUTCOMES_PER_TURN", 10)
    runtime = make_runtime()
    store = CountingStore(runtime, ZnodeDatabase.in_memory(runtime))
    cluster = ClusterStore(OneByOneStore(store))
    examined = {}
    unfenced = znode_client._unfenced

    def examine(outcome):
        examined[store.turns] = examined.get(store.turns, 0) + 1
        return unfenced(outcome)

    monkeypatch.setattr(znode_client, "_unfenced", examine)

    async def story():
        await cluster.create_recursive("/controller_epoch", b"1")
        await cluster.create_recursive("/parent")
        paths = [Create(f"/parent/{number}", b"") for number in range(100)]
        return await cluster.write_all(paths, 0)

    outcomes = runtime.scheduler.run_until(runtime.scheduler.spawn(story()))
    assert outcomes == [f"/parent/{number}" for number in range(100)]
    assert max(examined.values()) == 10
    runtime.scheduler.close()


def test_the_configs_of_many_entities_are_decoded_over_many_turns(monkeypatch):
    monkeypatch.setattr(znode_client, "OUTCOMES_PER_TURN", 10)
    runtime = make_runtime()
    store = CountingStore(runtime, ZnodeDatabase.in_memory(runtime))
    cluster = ClusterStore(store)
    users = [f"user-{number}" for number in range(100)]
    decoded = {}
    decode = znodes.decode_config

    def count(*arguments):
        decoded[store.turns] = decoded.get(store.turns, 0) + 1
        return decode(*arguments)

    monkeypatch.setattr(znodes, "decode_config", count)

    async def story():
        for user in users:
            await cluster.set_entity_config(znodes.USER_CONFIGS, user, {"name": user})
        return await cluster.get_entity_configs(znodes.USER_CONFIGS, users)

    configs = runtime.scheduler.run_until(runtime.scheduler.spawn(story()))
    assert configs == {user: {"name": user} for user in users}
    assert max(decoded.values()) == 10
    runtime.scheduler.close()
