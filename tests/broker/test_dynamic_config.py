"""Configs that change in the store while a broker runs."""

import pytest

from kctl.broker.config import dynamic_configs
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.config.stored_passwords import StoredPasswords
from kctl.configs.broker_config import BrokerConfig
from kctl.runtime.future import sleep
from kctl.runtime.real import make_runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.znodes import TOPIC_CONFIGS

# More than any of the changes below takes.
TURNS = 500


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


class World:
    """A broker's view of the configs, and an administrator who changes them."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.database = ZnodeDatabase.in_memory(runtime)
        self.admin = ClusterStore(EmbeddedStore(runtime, self.database))
        self.run(self.admin.ensure_persistent_paths())
        self.store = EmbeddedStore(runtime, self.database)
        passwords = StoredPasswords(runtime, BrokerConfig({}), 0)
        self.configs = DynamicConfigs(runtime, ClusterStore(self.store), passwords)
        self.changed = []
        self.run(self.configs.start())
        self.configs.on_change(lambda *entity: self.changed.append(entity))

    def run(self, awaitable):
        scheduler = self.runtime.scheduler
        if hasattr(awaitable, "send"):
            awaitable = scheduler.spawn(awaitable)
        return scheduler.run_until(awaitable)

    def alter(self, topic, **values):
        named = {name.replace("_", "."): value for name, value in values.items()}
        self.run(self.admin.change_entity_config(TOPIC_CONFIGS, topic, named))
        self.settle()

    def settle(self):
        """Let the loop do all that is under way: turns count, and time does not."""

        async def turns():
            for _ in range(TURNS):
                await sleep(self.runtime.scheduler, 0)

        self.run(turns())


def test_a_change_is_noticed_and_read(runtime):
    world = World(runtime)
    world.alter("t", retention_ms="5")
    assert world.configs.topic("t") == {"retention.ms": "5"}
    assert world.changed == [(TOPIC_CONFIGS, "t")]


def test_changes_are_noticed_after_the_session_has_ended(runtime):
    """Found by simulation: watches end with their session, and a throttle was never removed.

    session 1   a change                    noticed
    expired     a change                    not noticed
    session 2                               it is read
                a change                    noticed
    """
    world = World(runtime)
    world.alter("t", retention_ms="5")
    world.database.expire_session(world.store.session_id)
    world.alter("t", retention_ms="6")
    assert world.configs.topic("t") == {"retention.ms": "5"}
    world.run(world.store.new_session())
    world.settle()
    assert world.configs.topic("t") == {"retention.ms": "6"}
    world.alter("t", retention_ms="7")
    assert world.configs.topic("t") == {"retention.ms": "7"}
    assert world.changed == [(TOPIC_CONFIGS, "t")] * 3


def test_many_changes_are_applied_over_many_turns(runtime, monkeypatch):
    monkeypatch.setattr(dynamic_configs, "CHANGES_PER_TURN", 5)
    world = World(runtime)
    per_turn = [0]

    def applied(*_):
        per_turn[-1] += 1

    turn = world.store.turn

    def next_turn():
        per_turn.append(0)
        return turn()

    monkeypatch.setattr(world.store, "turn", next_turn)
    world.configs.on_change(applied)

    async def change_all():
        for number in range(40):
            await world.admin.change_entity_config(
                TOPIC_CONFIGS, f"t{number}", {"retention.ms": "5"}
            )

    world.run(change_all())
    world.settle()
    assert sum(per_turn) == 40
    assert max(per_turn) <= 5
