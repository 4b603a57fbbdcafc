"""What every MetadataStore must do: one suite, run over the embedded store and real ZooKeeper."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest

from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.store.errors import (
    BadArgumentsError,
    BadVersionError,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kctl.store.interface import (
    Check,
    Create,
    Delete,
    EventType,
    MetadataStore,
    SessionState,
    Set,
    WatchedEvent,
)


class StoreWorld(Protocol):
    """One empty tree; `open` begins a session, `expire` makes one expire."""

    runtime: Runtime

    def open(self) -> MetadataStore: ...

    def expire(self, store: MetadataStore) -> None: ...

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None: ...


class Seen:
    """A watch or listener that remembers what it saw and can wait for it."""

    def __init__(self, world: StoreWorld) -> None:
        self.events: list[Any] = []
        self._world = world
        self._waiting: list[tuple[int, Future[None]]] = []

    def __call__(self, event: object) -> None:
        self.events.append(event)
        for count, future in self._waiting:
            if len(self.events) == count:
                future.set_result(None)

    async def wait_for(self, count: int) -> list[Any]:
        if len(self.events) < count:
            future = self._world.runtime.scheduler.future()
            self._waiting.append((count, future))
            await future
        return self.events


class StoreContract:
    """Tests of every store; a subclass defines the fixture `world`."""

    @pytest.fixture
    def store(self, world: StoreWorld) -> MetadataStore:
        return world.open()

    @pytest.fixture
    def other(self, world: StoreWorld) -> MetadataStore:
        return world.open()

    @pytest.fixture
    def seen(self, world: StoreWorld) -> Seen:
        return Seen(world)

    # --- znodes

    def test_created_znode_is_read_back_with_its_stat(self, world, store):
        async def story():
            path, made = await store.create("/a", b"data")
            data, stat = await store.get("/a")
            assert (path, data) == ("/a", b"data")
            assert stat == made
            assert stat.czxid == stat.mzxid == stat.pzxid > 0
            assert stat.ctime_ms == stat.mtime_ms > 1_500_000_000_000
            assert stat[4:10] == (0, 0, 0, 0, 4, 0)

        world.run(story())

    def test_create_without_parent_is_refused(self, world, store):
        async def story():
            with pytest.raises(NoNodeError, match="/a/b"):
                await store.create("/a/b", b"")

        world.run(story())

    def test_create_of_what_is_there_is_refused_and_changes_nothing(self, world, store):
        async def story():
            await store.create("/a", b"first")
            with pytest.raises(NodeExistsError):
                await store.create("/a", b"second")
            assert (await store.get("/a"))[0] == b"first"

        world.run(story())

    def test_missing_znode_cannot_be_read_written_or_deleted(self, world, store):
        async def story():
            assert await store.exists("/a") is None
            for call in (
                store.get("/a"),
                store.children("/a"),
                store.set("/a", b""),
                store.delete("/a"),
            ):
                with pytest.raises(NoNodeError):
                    await call

        world.run(story())

    def test_each_set_raises_the_version_and_mzxid(self, world, store):
        async def story():
            _, made = await store.create("/a", b"")
            first = await store.set("/a", b"one")
            second = await store.set("/a", b"two", version=1)
            assert (first.version, second.version) == (1, 2)
            assert made.mzxid < first.mzxid < second.mzxid
            assert second.czxid == second.pzxid == made.czxid
            assert await store.get("/a") == (b"two", second)

        world.run(story())

    def test_set_at_another_version_is_refused_and_changes_nothing(self, world, store):
        async def story():
            await store.create("/a", b"old")
            with pytest.raises(BadVersionError):
                await store.set("/a", b"new", version=1)
            data, stat = await store.get("/a")
            assert (data, stat.version) == (b"old", 0)

        world.run(story())

    def test_delete_checks_version_and_children(self, world, store):
        async def story():
            await store.create("/a", b"")
            await store.create("/a/b", b"")
            with pytest.raises(NotEmptyError):
                await store.delete("/a")
            with pytest.raises(BadVersionError):
                await store.delete("/a/b", version=1)
            await store.delete("/a/b", version=0)
            await store.delete("/a")
            assert await store.exists("/a") is None

        world.run(story())

    def test_children_are_sorted_names(self, world, store):
        async def story():
            await store.create("/a", b"")
            for name in ("10", "9", "b", "A"):
                await store.create(f"/a/{name}", b"")
            await store.create("/a/b/deep", b"")
            assert await store.children("/a") == ["10", "9", "A", "b"]
            assert await store.children("/a/9") == []

        world.run(story())

    def test_parent_counts_children_that_came_and_went(self, world, store):
        async def story():
            await store.create("/a", b"")
            await store.create("/a/b", b"")
            _, last = await store.create("/a/c", b"")
            stat = await store.exists("/a")
            assert (stat.cversion, stat.child_count, stat.version) == (2, 2, 0)
            assert stat.pzxid == last.czxid
            await store.delete("/a/b")
            stat = await store.exists("/a")
            assert (stat.cversion, stat.child_count) == (3, 1)
            assert stat.pzxid > last.czxid

        world.run(story())

    def test_sequence_counts_all_children_ever_created(self, world, store):
        async def story():
            await store.create("/a", b"")
            first, _ = await store.create("/a/n_", b"x", sequence=True)
            await store.create("/a/plain", b"")
            await store.delete("/a/plain")
            third, _ = await store.create("/a/n_", b"", sequence=True)
            bare, _ = await store.create("/a/", b"", sequence=True)
            assert first == "/a/n_0000000000"
            assert third == "/a/n_0000000002"
            assert bare == "/a/0000000003"
            assert (await store.get(first))[0] == b"x"

        world.run(story())

    def test_data_of_any_bytes_and_names_of_any_letters(self, world, store):
        async def story():
            data = bytes(range(256)) * 100
            await store.create("/ключ %2F<default>", data)
            assert (await store.get("/ключ %2F<default>"))[0] == data
            assert await store.children("/") == ["ключ %2F<default>"]

        world.run(story())

    def test_calls_are_carried_out_in_the_order_made(self, world, store):
        async def story():
            store.create("/a", b"0")
            sets = [store.set("/a", b"%d" % n) for n in range(100)]
            read = store.get("/a")
            assert (await read)[0] == b"99"
            assert [(await future).version for future in sets] == list(range(1, 101))

        world.run(story())

    def test_path_with_dots_is_refused(self, world, store):
        async def story():
            with pytest.raises(BadArgumentsError):
                await store.create("/a/../b", b"")
            with pytest.raises((BadArgumentsError, MultiError)):
                await store.multi([Create("/c", b""), Create("/a/../b", b"")])
            assert await store.children("/") == []

        world.run(story())

    # --- multi

    def test_multi_happens_under_one_zxid(self, world, store):
        async def story():
            await store.create("/a", b"")
            results = await store.multi(
                [Check("/a", 0), Create("/b", b"b"), Set("/a", b"a", 0), Delete("/b", 0)]
            )
            assert results[:2] == [None, "/b"]
            assert results[2].version == 1
            assert results[3] is None
            assert await store.exists("/b") is None
            assert (await store.exists("/")).pzxid == results[2].mzxid

        world.run(story())

    def test_multi_is_all_or_nothing_and_names_the_culprit(self, world, store):
        async def story():
            await store.create("/a", b"old")
            before = await store.get("/a")
            with pytest.raises(MultiError) as caught:
                await store.multi([Set("/a", b"new"), Create("/b", b""), Check("/a", 0)])
            assert caught.value.index == 2
            assert isinstance(caught.value.error, BadVersionError)
            assert await store.get("/a") == before
            assert await store.exists("/b") is None

        world.run(story())

    @pytest.mark.parametrize(
        ("operations", "index", "error"),
        [
            ([Check("/missing", 0)], 0, NoNodeError),
            ([Check("/a", 7)], 0, BadVersionError),
            ([Create("/a", b"")], 0, NodeExistsError),
            ([Create("/a/x", b""), Create("/no/parent", b"")], 1, NoNodeError),
            ([Create("/a/x", b""), Delete("/a")], 1, NotEmptyError),
            ([Delete("/a/full/x"), Delete("/a/full"), Create("/a/full/y", b"")], 2, NoNodeError),
            ([Set("/a", b"1", 0), Set("/a", b"2", 0)], 1, BadVersionError),
            ([Delete("/a/full/x"), Set("/a/full/x", b"")], 1, NoNodeError),
            (
                [Create("/e", b"", ephemeral=True), Create("/e/x", b"")],
                1,
                NoChildrenForEphemeralsError,
            ),
        ],
    )
    def test_multi_sees_what_its_earlier_operations_would_do(
        self, world, store, operations, index, error
    ):
        async def story():
            for path in ("/a", "/a/full", "/a/full/x"):
                await store.create(path, b"")
            with pytest.raises(MultiError) as caught:
                await store.multi(operations)
            assert (caught.value.index, type(caught.value.error)) == (index, error)
            assert await store.children("/") == ["a"]
            assert await store.children("/a/full") == ["x"]

        world.run(story())

    def test_multi_may_delete_a_child_and_then_its_parent(self, world, store):
        async def story():
            await store.create("/a", b"")
            await store.create("/a/b", b"")
            await store.multi([Delete("/a/b"), Delete("/a"), Create("/a", b"again")])
            assert (await store.get("/a"))[0] == b"again"
            assert await store.multi([]) == []

        world.run(story())

    # --- sync, and the session's timeout

    def test_what_others_wrote_before_a_sync_is_read_after_it(self, world, store, other):
        async def story():
            await other.create("/a", b"first")
            synced = store.sync("/a")
            read = store.get("/a")
            assert await synced is None
            assert (await read)[0] == b"first"
            # A path that does not exist is as good as another.
            assert await store.sync("/nowhere") is None

        world.run(story())

    def test_a_session_has_a_timeout_and_a_closed_one_is_not_synced(self, world, store):
        async def story():
            await store.create("/a", b"")
            assert store.session_timeout_ms > 0
            await store.close()
            with pytest.raises(SessionExpiredError):
                await store.sync("/a")

        world.run(story())

    # --- ephemerals and sessions

    def test_ephemeral_goes_with_its_session(self, world, store, other, seen):
        async def story():
            await store.create("/ids", b"")
            _, stat = await store.create("/ids/1", b"", ephemeral=True)
            assert stat.ephemeral_owner == store.session_id != other.session_id
            assert await other.children("/ids", watch=seen) == ["1"]
            await store.close()
            assert await seen.wait_for(1) == [WatchedEvent(EventType.CHILDREN_CHANGED, "/ids")]
            assert await other.children("/ids") == []

        world.run(story())

    def test_ephemeral_has_no_children(self, world, store):
        async def story():
            await store.create("/e", b"", ephemeral=True)
            with pytest.raises(NoChildrenForEphemeralsError):
                await store.create("/e/x", b"")

        world.run(story())

    def test_closed_session_answers_nothing_more(self, world, store):
        async def story():
            await store.close()
            for call in (store.exists("/"), store.create("/a", b""), store.get("/")):
                with pytest.raises(SessionExpiredError):
                    await call

        world.run(story())

    def test_expired_session_loses_its_ephemerals_and_can_be_replaced(
        self, world, store, other, seen
    ):
        async def story():
            store.on_session_state(seen)
            await store.create("/e", b"", ephemeral=True)
            gone = Seen(world)
            await other.exists("/e", watch=gone)
            first_id = store.session_id
            world.expire(store)
            assert await gone.wait_for(1) == [WatchedEvent(EventType.DELETED, "/e")]
            while SessionState.EXPIRED not in seen.events:
                await seen.wait_for(len(seen.events) + 1)
            with pytest.raises(SessionExpiredError):
                await store.exists("/e")
            await store.new_session()
            assert seen.events[-1] is SessionState.CONNECTED
            assert store.session_id not in (0, first_id)
            _, stat = await store.create("/e", b"", ephemeral=True)
            assert stat.ephemeral_owner == store.session_id

        world.run(story())

    def test_watches_of_an_expired_session_never_fire(self, world, store, other, seen):
        async def story():
            states = Seen(world)
            store.on_session_state(states)
            await store.exists("/a", watch=seen)
            world.expire(store)
            while SessionState.EXPIRED not in states.events:
                await states.wait_for(len(states.events) + 1)
            await store.new_session()
            await other.create("/a", b"")
            assert await store.exists("/a") is not None
            assert seen.events == []

        world.run(story())

    # --- watches

    def test_get_watch_sees_the_next_change_and_only_that(self, world, store, other, seen):
        async def story():
            await other.create("/a", b"")
            await store.get("/a", watch=seen)
            await other.set("/a", b"1")
            await other.set("/a", b"2")
            await store.get("/a")
            assert seen.events == [WatchedEvent(EventType.DATA_CHANGED, "/a")]

        world.run(story())

    def test_exists_watch_sees_creation_then_again_deletion(self, world, store, other, seen):
        async def story():
            assert await store.exists("/a", watch=seen) is None
            await other.create("/a", b"")
            assert await store.exists("/a", watch=seen) is not None
            await other.delete("/a")
            assert await store.exists("/a") is None
            assert seen.events == [
                WatchedEvent(EventType.CREATED, "/a"),
                WatchedEvent(EventType.DELETED, "/a"),
            ]

        world.run(story())

    def test_children_watch_sees_children_but_not_data(self, world, store, other, seen):
        async def story():
            await other.create("/a", b"")
            await store.children("/a", watch=seen)
            await other.set("/a", b"data")
            await store.exists("/a")
            assert seen.events == []
            await other.create("/a/b", b"")
            await store.children("/a", watch=seen)
            await other.set("/a/b", b"data")
            await other.delete("/a/b")
            await store.children("/a")
            assert seen.events == [WatchedEvent(EventType.CHILDREN_CHANGED, "/a")] * 2

        world.run(story())

    def test_data_watch_does_not_see_children(self, world, store, other, seen):
        async def story():
            await other.create("/a", b"")
            await store.get("/a", watch=seen)
            await other.create("/a/b", b"")
            await store.get("/a")
            assert seen.events == []

        world.run(story())

    def test_failed_read_sets_no_watch(self, world, store, other, seen):
        async def story():
            for call in (store.get("/a", watch=seen), store.children("/a", watch=seen)):
                with pytest.raises(NoNodeError):
                    await call
            await other.create("/a", b"")
            await other.create("/a/b", b"")
            await store.exists("/a")
            assert seen.events == []

        world.run(story())

    def test_same_callable_set_twice_fires_once(self, world, store, other, seen):
        async def story():
            await other.create("/a", b"")
            await store.get("/a", watch=seen)
            await store.exists("/a", watch=seen)
            await store.children("/a", watch=seen)
            await other.delete("/a")
            await store.exists("/a")
            assert seen.events == [WatchedEvent(EventType.DELETED, "/a")]

        world.run(story())

    def test_deleted_znode_fires_its_own_and_its_parents_watches(self, world, store, other):
        async def story():
            events = []
            await other.create("/a", b"")
            await other.create("/a/b", b"")
            await store.get("/a/b", watch=lambda event: events.append(("data", *event)))
            await store.children("/a/b", watch=lambda event: events.append(("children", *event)))
            await store.children("/a", watch=lambda event: events.append(("parent", *event)))
            await other.delete("/a/b")
            await store.exists("/a")
            assert sorted(events[:2]) == [
                ("children", EventType.DELETED, "/a/b"),
                ("data", EventType.DELETED, "/a/b"),
            ]
            assert events[2:] == [("parent", EventType.CHILDREN_CHANGED, "/a")]

        world.run(story())

    def test_watch_fires_before_its_owner_can_see_the_change(self, world, store, other, seen):
        async def story():
            await other.create("/a", b"0")
            for turn in range(1, 51):
                await store.get("/a", watch=seen)
                other.set("/a", b"%d" % turn)
                while (await store.get("/a"))[0] != b"%d" % turn:
                    pass
                assert len(seen.events) == turn

        world.run(story())

    def test_own_write_is_answered_after_own_watch_fired(self, world, store, seen):
        async def story():
            await store.create("/a", b"")
            await store.get("/a", watch=seen)
            await store.set("/a", b"1")
            assert seen.events == [WatchedEvent(EventType.DATA_CHANGED, "/a")]

        world.run(story())

    def test_events_come_in_the_order_of_the_changes(self, world, store, other):
        async def story():
            paths = [f"/n{n}" for n in range(20)]
            order: list[str] = []
            for path in reversed(paths):
                await store.exists(path, watch=lambda event: order.append(event.path))
            await other.multi([Create(path, b"") for path in paths[:10]])
            for path in paths[10:]:
                await other.create(path, b"")
            await store.exists("/")
            assert order == paths

        world.run(story())

    def test_watch_may_read_and_watch_again(self, world, store, other):
        async def story():
            read: list[bytes] = []
            finished = world.runtime.scheduler.future()

            def watch(_event: WatchedEvent) -> None:
                future = store.get("/a", watch=watch)
                future.add_done_callback(lambda done: note(done.result()[0]))

            def note(data: bytes) -> None:
                read.append(data)
                if data == b"5":
                    finished.set_result(None)

            await store.create("/a", b"0")
            watch(WatchedEvent(EventType.DATA_CHANGED, "/a"))
            for turn in range(1, 6):
                await other.set("/a", b"%d" % turn)
            await finished
            assert read == sorted(read)

        world.run(story())


def run_story(runtime: Any) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine on a real runtime's loop to its end."""

    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        runtime.scheduler.run_until(runtime.scheduler.spawn(coroutine))

    return run
