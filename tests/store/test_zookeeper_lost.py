"""ZooKeeperStore without its server: what it logs, how the session ends, how it is closed.

Where a test stops the loop, a callback blocks it until an observer sees the session end.
"""

import time

import pytest
from kazoo.client import KazooClient

from kctl.runtime.real import make_runtime
from kctl.store.errors import ConnectionLossError
from kctl.store.interface import SessionState
from kctl.store.zookeeper import ZooKeeperStore
from tests.contracts.store_contract import run_story
from tests.support.real_loop import PATIENCE_MS, RecordingTrace
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSION_MS = 1_500


class World:
    """One store, its loop, and what it heard."""

    def __init__(self, server, session_ms=SESSION_MS):
        self.server = server
        self.trace = RecordingTrace()
        self.runtime = make_runtime(self.trace)
        self.run = run_story(self.runtime)
        self.states = []
        self.store = self.wait_for(
            ZooKeeperStore.open(self.runtime, server.address, session_timeout_ms=session_ms)
        )
        self.store.on_session_state(self.states.append)

    def wait_for(self, coroutine):
        scheduler = self.runtime.scheduler
        return scheduler.run_until(scheduler.spawn(coroutine))

    async def until(self, condition):
        clock, scheduler = self.runtime.clock, self.runtime.scheduler
        deadline_ms = clock.monotonic_ms() + PATIENCE_MS
        while not condition():
            assert clock.monotonic_ms() < deadline_ms, (self.states, self.trace.warnings)
            future = scheduler.future()
            scheduler.call_later(10, future.set_result, None)
            await future

    def warned(self, words):
        return any(words in line and self.server.address in line for line in self.trace.warnings)

    def close(self):
        self.runtime.scheduler.run_until(self.store.close())
        self.runtime.scheduler.close()


@pytest.fixture
def server(tmp_path):
    with running_zookeeper(tmp_path) as server:
        yield server


@pytest.fixture
def world(server):
    world = World(server)
    yield world
    world.close()


def stand_still_until_gone(server, path):
    """Block the calling thread until the znode is gone; return whether it went in time."""
    observer = KazooClient(server.address)
    observer.start()
    try:
        deadline_s = time.monotonic() + PATIENCE_MS / 1000
        while observer.exists(path) is not None:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.05)
        return True
    finally:
        observer.stop()
        observer.close()


def test_a_loop_that_stands_still_loses_its_session(world, server):
    """kazoo's thread keeps running, but what it sends depends on the loop."""

    async def story():
        store = world.store
        await store.create("/ephemeral", b"", ephemeral=True)
        first_session = store.session_id
        gone = []

        def stall():
            gone.append(stand_still_until_gone(server, "/ephemeral"))

        def ask_right_after():
            # Not a moment's belief in the old session.
            gone.append(store.set("/ephemeral", b"").error())

        world.runtime.scheduler.call_soon(stall)
        world.runtime.scheduler.call_soon(ask_right_after)
        await world.until(lambda: SessionState.EXPIRED in world.states)
        assert gone[0] is True
        assert isinstance(gone[1], ConnectionLossError)
        assert world.states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        assert world.warned("has ended")
        await store.new_session()
        assert store.session_id != first_session
        await store.create("/ephemeral", b"", ephemeral=True)

    world.run(story())


def test_a_loop_that_stood_still_for_less_keeps_its_session(world):
    async def story():
        session = world.store.session_id
        world.store._loop_stalled(SESSION_MS * 0.9 / 1000)
        assert world.states == [SessionState.SUSPENDED]
        await world.until(lambda: world.states[-1] is SessionState.CONNECTED)
        assert world.store.session_id == session
        await world.store.create("/still-here", b"", ephemeral=True)

    world.run(story())


def test_an_emptied_server_ends_the_session_and_gives_a_new_one(world, server):
    """The server closes connections of clients that have seen transactions unknown to it."""

    async def story():
        for number in range(20):
            await world.store.create(f"/node{number}", b"")
        server.wipe()
        await world.until(lambda: SessionState.EXPIRED in world.states)
        await world.store.new_session()
        assert await world.store.exists("/node1") is None
        assert world.warned("is unreachable")
        assert world.warned("has ended")

    world.run(story())


def test_a_server_that_dies_is_reported_with_its_address(world, server):
    async def story():
        server.kill()
        await world.until(lambda: world.warned("is unreachable"))
        server.start()
        await world.until(lambda: world.states[-1] is SessionState.CONNECTED)
        assert any("continues" in line for line in world.trace.infos)

    world.run(story())


def test_a_server_that_does_not_answer_is_reported_and_does_not_hold_up_the_end(server):
    # The connection is given up only after two thirds of the timeout.
    world = World(server, session_ms=9_000)

    async def story():
        server.pause()
        await world.until(lambda: world.warned("has not answered"))
        assert world.states == []

    try:
        world.run(story())
        world.close()
    finally:
        server.resume()


def test_a_server_that_stood_still_for_long_is_not_taken_for_an_emptied_one(world, server):
    """Connections succeed but get no response, which is not a refusal."""

    async def story():
        server.pause()
        await world.until(lambda: SessionState.SUSPENDED in world.states)
        clock = world.runtime.clock
        over_ms = clock.monotonic_ms() + 3 * SESSION_MS
        await world.until(lambda: clock.monotonic_ms() > over_ms)
        assert world.states == [SessionState.SUSPENDED]

    try:
        world.run(story())
    finally:
        server.resume()


def test_a_client_thread_that_dies_fails_the_store(world):
    def die(*_):
        raise RuntimeError("no such frame")

    async def story():
        world.store._client._connection._read_socket = die
        await world.until(lambda: world.states[-1:] == [SessionState.FAILED])
        assert "no such frame" in str(world.store.failure)
        assert world.server.address in str(world.store.failure)

    world.run(story())
