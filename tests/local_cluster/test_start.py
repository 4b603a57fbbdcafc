"""A local cluster is ready when all its processes are, those that die meanwhile included."""

from types import SimpleNamespace

import pytest

from kctl.errors import KctlError
from kctl.local_cluster.plan import ClusterPlan, plan_brokers
from kctl.local_cluster.processes import READY, SEEDED
from kctl.local_cluster.supervisor import Supervisor
from tests.support.virtual_runtime import virtual_runtime

SEED_MS = 1_000


class World:
    """Processes that become ready, make topics when asked, and end by a signal."""

    def __init__(self, tmp_path, *, store=False, slow=()):
        self.runtime = virtual_runtime()
        self.slow, self.exits = slow, {}
        plan = ClusterPlan(
            plan_brokers(2, str(tmp_path), 0, []), str(tmp_path) if store else None,
            seed_topics=(("t", 1),),
        )  # fmt: skip
        self.supervisor = Supervisor(self.runtime, self, plan, lambda *_: lambda _line: 0)
        self.start = self.runtime.scheduler.spawn(self.supervisor.start())

    def fork(self, name, _body, on_message, on_exit):
        scheduler = self.runtime.scheduler
        self.exits[name] = on_exit
        if name not in self.slow:
            scheduler.call_soon(on_message, f"{READY} 127.0.0.1:1")
        line = SimpleNamespace(
            say=lambda _: scheduler.call_later(SEED_MS, on_message, SEEDED), close=lambda: None
        )
        return SimpleNamespace(pid=1, line=line, signal=lambda _: scheduler.call_soon(on_exit, 0))


def test_a_cluster_is_ready_when_its_topics_are(tmp_path):
    world = World(tmp_path)
    world.runtime.scheduler.advance(2 * SEED_MS)
    assert world.start.done
    assert [it["state"] for it in world.supervisor.rows()] == ["running", "running"]


def test_a_broker_that_dies_while_topics_are_made_ends_the_start(tmp_path):
    world = World(tmp_path)
    world.runtime.scheduler.advance(SEED_MS // 2)
    world.exits["broker 2"](-9)
    world.runtime.scheduler.advance(10 * SEED_MS)
    with pytest.raises(KctlError, match="broker 2"):
        world.start.result()


def test_a_store_that_dies_while_brokers_start_ends_the_start(tmp_path):
    world = World(tmp_path, store=True, slow=("broker 2",))
    world.runtime.scheduler.advance(SEED_MS)
    world.exits["store"](-9)
    world.runtime.scheduler.advance(10 * SEED_MS)
    with pytest.raises(KctlError, match="store"):
        world.start.result()
