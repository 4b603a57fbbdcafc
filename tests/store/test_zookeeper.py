"""ZooKeeperStore over a real ZooKeeper: the contract, chroots, lost connections."""

from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from kctl.errors import UnreachableError, UsageError
from kctl.model import TopicPartition
from kctl.runtime.real import make_runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import ConnectionLossError
from kctl.store.interface import EventType, SessionState, WatchedEvent
from kctl.store.zookeeper import ZooKeeperStore
from tests.contracts.store_contract import Seen, StoreContract, run_story
from tests.support.zookeeper import ZooKeeperServer, running_zookeeper, zookeeper_server

__all__ = ["zookeeper_server"]

_CHROOTS = count()


class ZooKeeperWorld:
    """Sessions with one server, below one chroot."""

    def __init__(self, runtime: Any, server: ZooKeeperServer) -> None:
        self.runtime = runtime
        self.server = server
        self.run = run_story(runtime)
        self.connect_string = f"{server.address}/test/{next(_CHROOTS)}"
        self._stores: list[ZooKeeperStore] = []

    def open(self) -> ZooKeeperStore:
        scheduler = self.runtime.scheduler
        opening = ZooKeeperStore.open(
            self.runtime, self.connect_string, session_timeout_ms=6000, creates_chroot=True
        )
        store: ZooKeeperStore = scheduler.run_until(scheduler.spawn(opening))
        self._stores.append(store)
        return store

    def expire(self, store: ZooKeeperStore) -> None:
        # Another connection takes the session over and closes it.
        thief = KazooClient(self.server.address, client_id=store._client.client_id)
        thief.start()
        thief.stop()
        thief.close()

    def close(self) -> None:
        for store in self._stores:
            self.runtime.scheduler.run_until(store.close())


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


@pytest.mark.kafka
class TestZooKeeper(StoreContract):
    @pytest.fixture
    def world(self, runtime, zookeeper_server):
        world = ZooKeeperWorld(runtime, zookeeper_server)
        yield world
        world.close()

    def test_chroot_is_made_and_nothing_is_seen_outside_of_it(self, world, store, zookeeper_server):
        async def story():
            path, _ = await store.create("/a", b"")
            assert path == "/a"
            assert await store.children("/") == ["a"]

        world.run(story())
        client = KazooClient(world.connect_string)
        client.start()
        assert client.get_children("/") == ["a"]
        client.stop()
        client.close()

    def test_cluster_store_registers_a_controller(self, world, store):
        async def story():
            cluster = ClusterStore(store)
            await cluster.ensure_persistent_paths()
            epoch = await cluster.register_controller_and_increment_epoch(3, timestamp_ms=17)
            assert epoch == (1, 1)
            assert await cluster.get_controller_id() == 3

        world.run(story())


@pytest.mark.kafka
@pytest.mark.slow
def test_session_and_watches_outlive_a_restart_of_the_server(runtime, tmp_path):
    with running_zookeeper(tmp_path) as server:
        world = ZooKeeperWorld(runtime, server)
        store, other = world.open(), world.open()
        states, changed, unchanged, children = Seen(world), Seen(world), Seen(world), Seen(world)
        cluster, others_states = ClusterStore(store), Seen(world)

        async def before():
            store.on_session_state(states)
            other.on_session_state(others_states)
            for path in ("/changed", "/unchanged", "/parent"):
                await store.create(path, b"old")
            await store.create("/e", b"", ephemeral=True)
            await store.get("/changed", watch=changed)
            await store.get("/unchanged", watch=unchanged)
            await store.children("/parent", watch=children)

        async def while_down():
            await states.wait_for(1)
            with pytest.raises(ConnectionLossError):
                await store.exists("/e")

        async def waits_for_the_server():
            # Made while the server is down; ClusterStore waits and asks again.
            assert await cluster.get_partition_states([TopicPartition("t", 0)]) == {}
            # The watch heard of its change before this answer came.
            assert changed.events == []

        async def after():
            while others_states.events[-1:] != [SessionState.CONNECTED]:
                await others_states.wait_for(len(others_states.events) + 1)
            await other.set("/changed", b"new")
            await other.create("/parent/child", b"")
            assert (await store.get("/changed"))[0] == b"new"
            assert states.events[0] is SessionState.SUSPENDED
            assert SessionState.EXPIRED not in states.events
            assert (await store.exists("/e")).ephemeral_owner == store.session_id
            assert changed.events == [WatchedEvent(EventType.DATA_CHANGED, "/changed")]
            await store.exists("/")
            assert children.events == [WatchedEvent(EventType.CHILDREN_CHANGED, "/parent")]
            assert unchanged.events == []

        world.run(before())
        server.kill()
        world.run(while_down())
        waiting = runtime.scheduler.spawn(waits_for_the_server())
        server.start()
        runtime.scheduler.run_until(waiting)
        world.run(after())
        world.close()


@pytest.mark.kafka
@pytest.mark.slow
def test_watch_hears_of_what_it_missed_while_disconnected(runtime, zookeeper_server):
    world = ZooKeeperWorld(runtime, zookeeper_server)
    store, other = world.open(), world.open()
    states = Seen(world)
    names = ("changed", "gone", "made", "parent", "parent-gone", "same")
    seen = {name: Seen(world) for name in names}

    async def arm():
        store.on_session_state(states)
        for name in names:
            if name != "made":
                await other.create(f"/{name}", b"")
        for name in ("changed", "gone", "made", "same"):
            await store.exists(f"/{name}", watch=seen[name])
        for name in ("parent", "parent-gone"):
            await store.children(f"/{name}", watch=seen[name])

    async def change_and_reconnect():
        # Its connection is cut and it looks for the server in the wrong place; the session lives.
        store._client.set_hosts("127.0.0.1:1" + store._client.chroot)
        store._client._connection._socket.shutdown(2)
        await states.wait_for(1)
        for call in (
            other.set("/changed", b"new"),
            other.delete("/gone"),
            other.create("/made", b""),
            other.create("/parent/child", b""),
            other.delete("/parent-gone"),
        ):
            await call
        assert states.events == [SessionState.SUSPENDED]
        store._client.set_hosts(world.connect_string)
        await states.wait_for(2)
        await store.exists("/same")
        got = {name: [event.type for event in s.events] for name, s in seen.items()}
        assert got == {
            "changed": [EventType.DATA_CHANGED],
            "gone": [EventType.DELETED],
            "made": [EventType.CREATED],
            "parent": [EventType.CHILDREN_CHANGED],
            "parent-gone": [EventType.DELETED],
            "same": [],
        }
        await other.set("/same", b"new")
        await store.exists("/same")
        assert len(seen["same"].events) == 1

    world.run(arm())
    world.run(change_and_reconnect())
    world.close()


@pytest.mark.slow
def test_silent_address_is_unreachable(runtime):
    opening = ZooKeeperStore.open(runtime, "127.0.0.1:1", connection_timeout_ms=300)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        runtime.scheduler.run_until(runtime.scheduler.spawn(opening))


def test_nonsense_is_no_connect_string(runtime):
    with pytest.raises(UsageError):
        ZooKeeperStore(runtime, "host:port:more")
