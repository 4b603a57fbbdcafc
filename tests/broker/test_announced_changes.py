"""How a broker follows what others announce in the store."""

import pytest

from kctl.broker.announced_changes import AnnouncedChanges, OverlappingReads
from kctl.runtime.future import sleep
from kctl.runtime.real import make_runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.znodes import CONFIG_CHANGES


class World:
    """A broker that follows config changes, and an administrator who announces them."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.database = ZnodeDatabase.in_memory(runtime)
        self.admin = ClusterStore(EmbeddedStore(runtime, self.database))
        self.run(self.admin.ensure_persistent_paths())
        self.store = EmbeddedStore(runtime, self.database)
        self.cluster_store = ClusterStore(self.store)
        self.happened = []

    def changes(self, *, reloads):
        return AnnouncedChanges(
            self.runtime,
            self.cluster_store,
            "configs",
            [CONFIG_CHANGES],
            self.read,
            self.load if reloads else None,
        )

    async def read(self, _directory, names):
        if names:
            found = await self.cluster_store.get_config_changes(names)
            self.happened.append(sorted(found.values()))

    async def load(self):
        self.happened.append("load")

    def announce(self, topic):
        self.run(self.admin.update_entity_config("topics", topic, dict))
        self.run(sleep(self.runtime.scheduler, 0))

    def run(self, awaitable):
        scheduler = self.runtime.scheduler
        if hasattr(awaitable, "send"):
            awaitable = scheduler.spawn(awaitable)
        return scheduler.run_until(awaitable)


@pytest.fixture
def world():
    runtime = make_runtime()
    yield World(runtime)
    runtime.scheduler.close()


def test_announcements_older_than_the_start_are_not_read(world):
    world.announce("old")
    world.run(world.changes(reloads=True).start(world.load))
    world.announce("new")
    assert world.happened == ["load", ["topics/new"]]


def test_what_is_announced_while_everything_is_loaded_is_read_afterwards(world):
    async def load():
        await world.admin.update_entity_config("topics", "early", dict)
        await sleep(world.runtime.scheduler, 0)
        world.happened.append("load")

    world.run(world.changes(reloads=False).start(load))
    world.run(sleep(world.runtime.scheduler, 0))
    assert world.happened == ["load", ["topics/early"]]


@pytest.mark.parametrize(("reloads", "expected"), [(True, "load"), (False, ["topics/missed"])])
def test_after_a_reconnection_the_owner_reads_everything_or_what_it_missed(
    world, reloads, expected
):
    world.run(world.changes(reloads=reloads).start(world.load))
    world.database.expire_session(world.store.session_id)
    world.announce("missed")
    world.run(world.store.new_session())
    world.run(sleep(world.runtime.scheduler, 0))
    world.announce("later")
    assert world.happened == ["load", expected, ["topics/later"]]


def test_a_read_does_not_replace_the_result_of_a_later_one():
    reads = OverlappingReads()
    with reads.read() as is_latest:
        with reads.read() as is_latest_too:
            assert is_latest_too("a")
        assert not is_latest("a")
        assert is_latest("b")
    with reads.read() as is_latest:
        assert is_latest("a")
