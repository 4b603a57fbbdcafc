"""The embedded store: the contract, and its own: durability, order under fsync, restarts."""

from typing import Any

import pytest

from kctl.errors import StorageError
from kctl.runtime.real import make_runtime
from kctl.runtime.turns import next_turn
from kctl.store import database as database_module
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import (
    BadArgumentsError,
    BadVersionError,
    MultiError,
    NoNodeError,
    NotWrittenError,
    SessionExpiredError,
)
from kctl.store.interface import Check, Create, Delete, EventType, Set, Stat, WatchedEvent
from tests.contracts.store_contract import StoreContract, run_story


class EmbeddedWorld:
    """Sessions that share one database."""

    def __init__(self, runtime: Any, database: ZnodeDatabase) -> None:
        self.runtime = runtime
        self.database = database
        self.run = run_story(runtime)

    def open(self) -> EmbeddedStore:
        return EmbeddedStore(self.runtime, self.database)

    def expire(self, store: EmbeddedStore) -> None:
        self.database.expire_session(store.session_id)


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


class TestInMemory(StoreContract):
    @pytest.fixture
    def world(self, runtime):
        return EmbeddedWorld(runtime, ZnodeDatabase.in_memory(runtime))


@pytest.mark.parametrize("fsync", [False, True], ids=["written", "fsynced"])
class TestDurable(StoreContract):
    @pytest.fixture
    def world(self, runtime, tmp_path, fsync):
        world = EmbeddedWorld(runtime, ZnodeDatabase.open(runtime, str(tmp_path), fsync=fsync))
        yield world
        runtime.scheduler.run_until(world.database.close())


def test_answers_are_ready_at_once(runtime):
    store = EmbeddedStore.in_memory(runtime)
    assert store.create("/a", b"").done
    assert store.multi([Set("/a", b"1")]).result()[0].version == 1


def test_restart_finds_persistent_znodes_and_no_ephemerals(runtime, tmp_path):
    store = EmbeddedStore.open(runtime, str(tmp_path))
    store.create("/a", b"1")
    store.create("/a/e", b"", ephemeral=True)
    before = store.set("/a", b"2").result()
    # As after kill -9: nothing is closed but the lock.
    store.database._journal._lock.release()

    again = EmbeddedStore.open(runtime, str(tmp_path))
    data, stat = again.get("/a").result()
    assert (data, stat.version, stat.mzxid) == (b"2", 1, before.mzxid)
    assert again.children("/a").result() == []
    assert again.session_id != store.session_id
    assert again.create("/b", b"").result()[1].czxid > before.mzxid
    runtime.scheduler.run_until(again.close())


def test_second_process_cannot_take_the_directory(runtime, tmp_path):
    store = EmbeddedStore.open(runtime, str(tmp_path))
    with pytest.raises(StorageError):
        EmbeddedStore.open(runtime, str(tmp_path))
    runtime.scheduler.run_until(store.close())
    runtime.scheduler.run_until(EmbeddedStore.open(runtime, str(tmp_path)).close())


def test_session_with_a_timeout_outlives_a_restart_and_expires_when_not_heard_of(runtime, tmp_path):
    class Owner:
        expired = False

        def watch_fired(self, firing):
            raise AssertionError

        def session_expired(self):
            self.expired = True

    database = ZnodeDatabase.open(runtime, str(tmp_path))
    session_id = database.open_session(Owner(), timeout_ms=60)
    database.commit(session_id, Create("/e", b"", ephemeral=True))
    runtime.scheduler.run_until(database.close())

    database = ZnodeDatabase.open(runtime, str(tmp_path))
    watcher = EmbeddedStore(runtime, database)
    gone = runtime.scheduler.future()
    assert watcher.exists("/e", watch=gone.set_result).result() is not None
    assert database.touch(session_id)
    event = runtime.scheduler.run_until(gone)
    assert event == WatchedEvent(EventType.DELETED, "/e")
    assert not database.touch(session_id)
    runtime.scheduler.run_until(database.close())


def test_with_fsync_no_session_sees_changes_that_are_not_durable(runtime, tmp_path):
    store = EmbeddedStore.open(runtime, str(tmp_path), fsync=True)
    events: list[object] = []
    write = store.create("/a", b"")
    read = store.exists("/a", watch=events.append)
    change = store.set("/a", b"1")
    assert not any(future.done for future in (write, read, change))
    assert not events
    runtime.scheduler.run_until(change)
    assert write.done
    assert read.result().version == 0
    assert len(events) == 1
    runtime.scheduler.run_until(store.close())


def test_failed_sync_fails_everything_from_then_on(runtime, tmp_path):
    class Failing:
        def __init__(self, journal):
            self._journal = journal

        def sync(self):
            raise StorageError("disk on fire")

        def __getattr__(self, name):
            return getattr(self._journal, name)

    store = EmbeddedStore.open(runtime, str(tmp_path), fsync=True)
    runtime.scheduler.run_until(store.exists("/"))
    store.database._journal = Failing(store.database._journal)
    write = store.create("/a", b"")
    with pytest.raises(NotWrittenError, match="on fire"):
        runtime.scheduler.run_until(write)
    for call in (store.exists("/a"), store.create("/b", b"")):
        with pytest.raises(NotWrittenError, match="on fire"):
            runtime.scheduler.run_until(call)
    with pytest.raises(StorageError, match="on fire"):
        runtime.scheduler.run_until(store.close())


def test_write_that_the_disk_refuses_changes_nothing(runtime, tmp_path):
    store = EmbeddedStore.open(runtime, str(tmp_path))
    store.create("/a", b"old")
    journal = store.database._journal

    class Full:
        def append(self, parts):
            raise StorageError("no space left")

    file, journal._file = journal._file, Full()
    with pytest.raises(NotWrittenError, match="no space"):
        store.set("/a", b"new").result()
    journal._file = file
    assert store.get("/a").result()[0] == b"old"
    assert store.set("/a", b"new").result().version == 1
    runtime.scheduler.run_until(store.close())


def test_closed_database_rejects_writes(runtime, tmp_path):
    database = ZnodeDatabase.open(runtime, str(tmp_path))
    store = EmbeddedStore(runtime, database)
    runtime.scheduler.run_until(database.close())
    with pytest.raises(SessionExpiredError):
        store.create("/a", b"").result()


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\0b", "/\x7f", "/\ud800"]
)
def test_bad_path_is_refused(runtime, path):
    with pytest.raises(BadArgumentsError):
        EmbeddedStore.in_memory(runtime).create(path, b"").result()


@pytest.mark.parametrize("path", ["/...", "/.a", "/a.", "/a/..b", "/a b", "/ü/<default>"])
def test_odd_path_is_taken(runtime, path):
    store = EmbeddedStore.in_memory(runtime)
    parent = path.rpartition("/")[0]
    if parent:
        store.create(parent, b"")
    assert store.create(path, b"").result()[0] == path


def test_too_much_data_and_deleting_the_root_are_refused(runtime):
    store = EmbeddedStore.in_memory(runtime)
    with pytest.raises(BadArgumentsError):
        store.create("/a", bytes(5 << 20)).result()
    with pytest.raises(BadArgumentsError):
        store.delete("/").result()


def test_many_sessions_expire_over_many_turns(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(database_module, "SESSIONS_PER_TURN", 3)
    database = ZnodeDatabase.open(runtime, str(tmp_path))
    expired, turn = [], [0]

    class Owner:
        def session_expired(self):
            expired.append(turn[0])

    for _ in range(10):
        database.open_session(Owner(), timeout_ms=1)

    expire = database._expire

    def counted():
        turn[0] += 1
        expire()
        if len(expired) == 10:
            ended.set_result(None)

    ended = runtime.scheduler.future()
    # The timer that is set already calls the database's own: the first part is number 0.
    monkeypatch.setattr(database, "_expire", counted)
    runtime.scheduler.run_until(ended)
    assert max(expired.count(number) for number in expired) <= 3
    runtime.scheduler.run_until(database.close())


@pytest.fixture
def durable_at(runtime, tmp_path):
    """Return a function that opens the store in the test's directory."""
    return lambda: EmbeddedStore.open(runtime, str(tmp_path))


def closed(runtime, store):
    runtime.scheduler.run_until(store.close())


def test_many_writes_at_once_are_transactions_of_their_own(runtime, durable_at):
    store = durable_at()
    store.create("/fence", b"")
    first_zxid = store.database.tree.last_zxid + 1
    outcomes = store.write_each(
        [
            Create("/a", b"1"),
            Create("/a/child", b""),
            Create("/missing/child", b""),
            Set("/a", b"2", 0),
            Set("/a", b"3", 0),
            Delete("/a/child"),
            Delete("/a", 1),
        ],
        Check("/fence", 0),
    ).result()
    assert [type(it) for it in outcomes] == [
        str, str, NoNodeError, Stat, BadVersionError, type(None), type(None),
    ]  # fmt: skip
    assert store.database.tree.last_zxid == first_zxid + 4
    assert outcomes[3].mzxid == first_zxid + 2
    store.write_each([Create("/b", b"4"), Create("/b", b"5")])
    closed(runtime, store)
    again = durable_at()
    assert again.get_each(["/a", "/b", "/fence"]).result()[0] is None
    assert again.get("/b").result()[0] == b"4"
    closed(runtime, again)


def test_many_writes_behind_a_fence_of_another_version_change_nothing(runtime, durable_at):
    store = durable_at()
    store.create("/fence", b"")
    error = store.write_each([Create("/a", b"")], Check("/fence", 7)).error()
    assert isinstance(error, MultiError)
    assert error.index == 0
    assert store.get_each(["/a"]).result() == [None]
    closed(runtime, store)


def test_many_writes_that_the_disk_refuses_change_nothing(runtime, durable_at, monkeypatch):
    store = durable_at()
    store.create("/a", b"")
    zxid = store.database.tree.last_zxid

    def refuse(_):
        raise StorageError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(store.database._journal, "append", refuse)
        failed = store.write_each([Create("/b", b""), Create("/c", b"")])
        assert isinstance(failed.error(), NotWrittenError)
    assert (store.database.tree.last_zxid, store.get_each(["/b", "/c"]).result()) == (
        zxid,
        [None, None],
    )
    assert store.write_each([Create("/b", b"")]).result() == ["/b"]
    closed(runtime, store)


def test_watches_of_many_reads_and_writes_fire_before_the_change_is_seen(runtime):
    store = EmbeddedStore.in_memory(runtime)
    store.create("/a", b"")
    seen = []
    store.get_each(["/a", "/b"], lambda event: seen.append((event.type.name, event.path)))
    written = store.write_each([Set("/a", b"1"), Create("/b", b"")])
    written.add_done_callback(lambda _: seen.append("written"))
    runtime.scheduler.run_until(written)
    runtime.scheduler.run_until(next_turn(runtime.scheduler))
    assert seen == [("DATA_CHANGED", "/a"), "written"]
