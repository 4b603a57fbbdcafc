"""The embedded store over ZooKeeper's client protocol: the contract, sessions, refusals, limits."""

import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.entropy import RealEntropy
from kctl.runtime.real.loop_thread import LoopThread
from kctl.runtime.trace import NullTrace
from kctl.store import zookeeper_server, zookeeper_session
from kctl.store.database import ZnodeDatabase
from kctl.store.interface import SessionState
from kctl.store.jute import FALSE, TRUE, encode_int
from kctl.store.zookeeper import ZooKeeperStore
from kctl.store.zookeeper_protocol import ErrorNumber, OpCode
from kctl.store.zookeeper_server import FRAME_BYTES_MAX, ZooKeeperServer, session_passwords
from tests.contracts.store_contract import StoreContract, run_story
from tests.support.real_loop import RealLoop
from tests.support.real_loop import connect as open_socket
from tests.support.zookeeper_client import RawClient, create, text, watches_again

EVENT = -1


class Served:
    """A database on a port; `restart` is a kill and a new start."""

    def __init__(self, runtime: Any, directory: Path, *, fsync: bool = False) -> None:
        self.runtime = runtime
        self.directory = str(directory)
        self.fsync = fsync
        self.port = 0
        self.start()

    def start(self) -> None:
        self.database = ZnodeDatabase.open(self.runtime, self.directory, fsync=self.fsync)
        passwords = session_passwords(self.runtime.disk, self.runtime.entropy, self.directory)
        self.server = ZooKeeperServer(self.runtime, self.database, passwords)
        self.port = self.server.start("127.0.0.1", self.port)

    async def restart(self) -> None:
        """As after kill -9: nothing is closed but the lock."""
        self.server.close()
        await self.server.until_empty()
        self.database._is_closed = True
        self.database._expiry_timer.cancel()
        self.database._journal._lock.release()
        self.start()

    async def close(self) -> None:
        self.server.close()
        await self.server.until_empty()
        await self.database.close()


class OverThePort:
    """The contract's world: kazoo sessions with kctl's ZooKeeper port, served by another loop."""

    def __init__(self, runtime: Any, directory: Path, *, fsync: bool) -> None:
        self.runtime = runtime
        self.run = run_story(runtime)
        self.loop = LoopThread("store", NullTrace())
        self.served = self.call(partial(Served, self.loop.runtime, directory, fsync=fsync))
        self.connect_string = f"127.0.0.1:{self.served.port}/test"
        self._stores: list[ZooKeeperStore] = []

    def call(self, function: Any, *arguments: Any) -> Any:
        return self.loop.call(function, *arguments, timeout_s=120)

    def open(self) -> ZooKeeperStore:
        scheduler = self.runtime.scheduler
        opening = ZooKeeperStore.open(
            self.runtime, self.connect_string, session_timeout_ms=6000, creates_chroot=True
        )
        store: ZooKeeperStore = scheduler.run_until(scheduler.spawn(opening))
        self._stores.append(store)
        return store

    def expire(self, store: ZooKeeperStore) -> None:
        self.call(self.served.database.expire_session, store.session_id)

    def close(self) -> None:
        for store in self._stores:
            self.runtime.scheduler.run_until(store.close())
        self.call(self.served.close)
        self.loop.close(20)


@pytest.mark.parametrize("fsync", [False, True], ids=["written", "fsynced"])
class TestOverThePort(StoreContract):
    @pytest.fixture
    def world(self, tmp_path, fsync):
        runtime = make_runtime()
        world = OverThePort(runtime, tmp_path, fsync=fsync)
        yield world
        world.close()
        runtime.scheduler.close()

    def test_sessions_watches_and_ephemerals_outlive_a_kill_of_the_server(self, world, store):
        states: list[SessionState] = []
        again = world.runtime.scheduler.future()
        fired = world.runtime.scheduler.future()

        def on_state(state):
            states.append(state)
            if state is SessionState.CONNECTED and not again.done:
                again.set_result(None)

        async def before():
            await store.create("/mine", b"", ephemeral=True)
            await store.create("/watched", b"old")
            await store.get("/watched", watch=fired.set_result)
            store.on_session_state(on_state)

        async def after():
            await again
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
            stat = await store.exists("/mine")
            assert stat.ephemeral_owner == store.session_id
            assert not fired.done
            await store.set("/watched", b"new")
            assert fired.done

        world.run(before())
        session_id = store.session_id
        world.call(world.served.restart)
        world.run(after())
        assert store.session_id == session_id


@pytest.fixture
def loop():
    loop = RealLoop()
    yield loop
    loop.close()


@pytest.fixture
def served(loop, tmp_path):
    served = Served(loop.runtime, tmp_path)
    yield served
    served.server.close()
    loop.until(lambda: not served.server.connection_count)


@pytest.fixture
def connect(loop, served):
    def connect(*arguments, **options):
        client = RawClient(loop, served.port)
        client.granted_ms = client.connect(*arguments, **options)
        return client

    return connect


def event_of(client):
    """(type, path) of the next frame, an event."""
    xid, _, _, body = client.reply()
    assert xid == EVENT
    kind, _, length = struct.unpack_from(">iii", body)
    return kind, body[12 : 12 + length].decode()


# --- sessions


def test_session_continues_over_a_new_connection_with_its_password_only(loop, connect):
    client = connect()
    assert client.ask(OpCode.CREATE, create("/e", flags=1))[0] == 0
    thief = connect((client.session_id, bytes(16)))
    assert (thief.granted_ms, thief.session_id) == (0, 0)
    assert thief.is_closed()
    again = connect(client.session)
    assert (again.session, again.granted_ms) == (client.session, 10_000)
    # The old connection is closed, the ephemeral is there.
    assert client.is_closed()
    assert again.ask(OpCode.EXISTS, text("/e") + b"\0")[0] == 0


def test_closed_session_takes_its_ephemerals_and_cannot_be_resumed(connect):
    client, other = connect(), connect()
    client.ask(OpCode.CREATE, create("/e", flags=1))
    other.ask(OpCode.EXISTS, text("/e") + b"\1")
    assert client.ask(OpCode.CLOSE_SESSION) == (0, b"")
    assert client.is_closed()
    assert event_of(other) == (2, "/e")
    assert connect(client.session).granted_ms == 0


def test_silent_session_expires_and_its_client_learns_it(loop, served, connect):
    client, other = connect(timeout_ms=1), connect()
    assert client.granted_ms == 1_000
    client.ask(OpCode.CREATE, create("/e", flags=1))
    other.ask(OpCode.EXISTS, text("/e") + b"\1")
    assert event_of(other) == (2, "/e")
    assert client.is_closed()


def test_short_session_does_not_wait_for_a_long_one_before_it(served, connect):
    long, short = connect(timeout_ms=60_000), connect(timeout_ms=1_000)
    long.ask(OpCode.CREATE, create("/a"))
    assert short.is_closed()
    assert long.ask(OpCode.PING, xid=-2) == (0, b"")


def test_client_that_has_seen_more_than_the_store_has_is_sent_away(loop, served, connect):
    with pytest.raises(AssertionError, match="closed after 0 bytes"):
        connect(last_zxid=1_000)
    assert "it has seen zxid 0x3e8" in loop.trace.warnings[-1]


def test_watches_set_again_tell_at_once_what_was_missed(loop, served, connect):
    client, other = connect(), connect()
    for path in ("/changed", "/gone", "/same", "/parent", "/quiet"):
        other.ask(OpCode.CREATE, create(path))
    seen = served.database.tree.last_zxid
    client.peer.socket.close()
    other.ask(OpCode.SET_DATA, text("/changed") + text("x") + encode_int(-1))
    other.ask(OpCode.DELETE, text("/gone") + encode_int(-1))
    other.ask(OpCode.CREATE, create("/came"))
    other.ask(OpCode.CREATE, create("/parent/child"))
    again = connect(client.session)
    again.say(
        OpCode.SET_WATCHES,
        watches_again(
            seen, ["/changed", "/gone", "/same"], ["/came", "/not-yet"], ["/parent", "/quiet"]
        ),
        xid=-8,
    )
    events = [event_of(again) for _ in range(4)]
    assert events == [(3, "/changed"), (2, "/gone"), (1, "/came"), (4, "/parent")]
    assert again.reply()[0] == -8
    # What was not missed waits on.
    other.ask(OpCode.CREATE, create("/not-yet"))
    other.ask(OpCode.CREATE, create("/quiet/child"))
    other.ask(OpCode.DELETE, text("/same") + encode_int(-1))
    assert [event_of(again) for _ in range(3)] == [(1, "/not-yet"), (4, "/quiet"), (2, "/same")]


# --- requests


def multi(*parts):
    body = b"".join(encode_int(opcode) + FALSE + encode_int(-1) + part for opcode, part in parts)
    return body + encode_int(-1) + TRUE + encode_int(-1)


def test_no_data_is_null_as_kafka_wrote_it(connect):
    client = connect()
    client.ask(OpCode.CREATE, create("/nothing", b""))
    client.ask(OpCode.CREATE, create("/something", b"x"))
    assert client.ask(OpCode.GET_DATA, text("/nothing") + b"\0")[1][:4] == encode_int(-1)
    assert client.ask(OpCode.GET_DATA, text("/something") + b"\0")[1][:5] == text("x")


def test_failed_multi_returns_the_result_of_each_part_as_zookeeper_does(connect):
    client = connect()
    error, body = client.ask(
        OpCode.MULTI,
        multi(
            (OpCode.CREATE, create("/a")),
            (OpCode.CHECK, text("/none") + encode_int(0)),
            (OpCode.CREATE, create("/b")),
        ),
    )
    assert error == 0
    errors = [struct.unpack_from(">iBii", body, 13 * index) for index in range(3)]
    assert errors == [(-1, 0, 0, 0), (-1, 0, -101, -101), (-1, 0, -2, -2)]
    assert body[39:] == struct.pack(">iBi", -1, 1, -1)
    assert client.ask(OpCode.EXISTS, text("/a") + b"\0")[0] == ErrorNumber.NO_NODE


def test_sequential_znodes_of_one_multi_are_numbered_one_after_the_other(connect):
    client = connect()
    parts = [(OpCode.CREATE, create("/s-", flags=2))] * 2
    _, body = client.ask(OpCode.MULTI, multi(*parts))
    assert [body[13:26], body[39:52]] == [b"/s-0000000000", b"/s-0000000001"]


def test_reads_of_a_multi_succeed_and_fail_one_by_one(connect):
    client = connect()
    client.ask(OpCode.CREATE, create("/a", b"data"))
    parts = [(OpCode.GET_DATA, text(path) + b"\0") for path in ("/a", "/none")]
    error, body = client.ask(OpCode.MULTI_READ, multi(*parts))
    assert (error, body[9:17]) == (0, text("data"))
    assert struct.unpack_from(">iBii", body, 9 + 8 + 68) == (-1, 0, -101, -101)


OWNERS = struct.pack(">ii", 1, 31) + text("digest") + text("me:x")
READ_ONLY = struct.pack(">ii", 1, 1) + text("world") + text("anyone")
REFUSED = {
    "protecting ACL": (OpCode.CREATE, create("/a", acl=OWNERS), ErrorNumber.INVALID_ACL),
    "read-only ACL": (
        OpCode.SET_ACL, text("/") + READ_ONLY + encode_int(-1), ErrorNumber.INVALID_ACL
    ),
    "container": (OpCode.CREATE, create("/a", flags=4), ErrorNumber.UNIMPLEMENTED),
    "reconfiguration": (16, b"", ErrorNumber.UNIMPLEMENTED),
    "persistent watch": (106, text("/") + encode_int(0), ErrorNumber.UNIMPLEMENTED),
    "no path": (OpCode.CREATE, create("a"), ErrorNumber.BAD_ARGUMENTS),
    "no such watch": (OpCode.REMOVE_WATCHES, text("/") + encode_int(3), ErrorNumber.NO_WATCHER),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_served_is_refused_and_the_session_continues(served, connect, case):
    opcode, body, number = REFUSED[case]
    client = connect()
    assert client.ask(opcode, body) == (number, b"")
    assert client.ask(OpCode.PING, xid=-2) == (0, b"")
    assert list(served.database.tree.nodes) == ["/"]


def test_digest_is_taken_and_other_credentials_end_the_connection(connect):
    client = connect()
    assert (
        client.ask(OpCode.AUTH, encode_int(0) + text("digest") + text("me:secret"), xid=-4)[0] == 0
    )
    assert client.ask(OpCode.GET_ACL, text("/"))[1].startswith(struct.pack(">ii", 1, 31))
    error, _ = client.ask(OpCode.AUTH, encode_int(0) + text("x509") + text(""), xid=-4)
    assert error == ErrorNumber.AUTH_FAILED
    assert client.is_closed()


def test_removed_watch_does_not_fire(connect):
    client = connect()
    client.ask(OpCode.EXISTS, text("/a") + b"\1")
    assert client.ask(OpCode.CHECK_WATCHES, text("/a") + encode_int(2))[0] == 0
    assert client.ask(OpCode.REMOVE_WATCHES, text("/a") + encode_int(2))[0] == 0
    # An event would come before the answer.
    assert client.ask(OpCode.CREATE, create("/a"))[0] == 0


# --- bytes and limits


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", FRAME_BYTES_MAX + 1), b"\0\0\0\4\0\0\0\1"],
    ids=["another protocol", "larger than jute.maxbuffer", "a connect request cut short"],
)
def test_garbage_ends_its_connection_and_no_other(loop, served, connect, garbage):
    client, stranger = connect(), RawClient(loop, served.port)
    stranger.peer.send(garbage)
    assert stranger.is_closed()
    assert len(loop.trace.warnings) == 1
    assert client.ask(OpCode.PING, xid=-2) == (0, b"")


def test_refusals_in_a_row_are_one_line_of_the_log(loop, connect):
    client = connect()
    for _ in range(20):
        assert client.ask(16)[0] == ErrorNumber.UNIMPLEMENTED
    assert len(loop.trace.warnings) < 20


def test_request_cut_short_ends_the_connection_and_the_session_lives(served, connect):
    client = connect()
    client.say(OpCode.GET_DATA, encode_int(1000) + b"/")
    assert client.is_closed()
    assert connect(client.session).granted_ms == 10_000


def test_four_letter_words_are_answered_with_text(loop, served, connect):
    client = connect()
    client.ask(OpCode.CREATE, create("/e", flags=1))

    def said(word):
        peer = open_socket(loop, served.port)
        peer.send(word[:1])
        loop.turns()
        peer.send(word[1:])
        loop.until(peer.pull)
        return peer.received.decode()

    assert said(b"ruok") == "imok"
    assert said(b"isro") == "rw"
    assert "Mode: standalone\nNode count: 2\n" in said(b"srvr")
    assert f"(sid={client.session_id:#x})" in said(b"stat")
    assert "zk_ephemerals_count\t1\n" in said(b"mntr")
    assert said(b"envi").startswith("Environment:\nzookeeper.version=3.5.9-kctl")
    assert "not in the whitelist" in said(b"dump")


def test_client_that_reads_nothing_is_not_read_from_until_it_does(loop, served, connect):
    client = connect()
    client.ask(OpCode.CREATE, create("/big", bytes(1 << 20)))
    requests = 64
    for _ in range(requests):
        client.say(OpCode.GET_DATA, text("/big") + b"\0")
    loop.turns(50)
    (connection,) = served.server._connections
    assert connection.transport.unsent_bytes() < 8 << 20
    for _ in range(requests):
        assert client.answer()[0] == 0


def test_connections_beyond_the_limit_wait_until_one_is_free(loop, served, monkeypatch):
    monkeypatch.setattr(zookeeper_server, "CONNECTIONS_MAX", 2)
    first, second, third = (RawClient(loop, served.port) for _ in range(3))
    assert first.connect()
    assert second.connect()
    loop.turns()
    assert served.server.connection_count == 2
    assert first.ask(OpCode.CLOSE_SESSION)[0] == 0
    assert third.connect()


def test_who_asks_for_no_session_is_sent_away(loop, served, monkeypatch):
    monkeypatch.setattr(zookeeper_server, "GREETING_MS", 50)
    silent, client = RawClient(loop, served.port), RawClient(loop, served.port)
    assert client.connect()
    assert silent.is_closed()
    assert client.ask(OpCode.PING, xid=-2) == (0, b"")


def test_sessions_beyond_the_limit_are_refused(loop, served, connect, monkeypatch):
    monkeypatch.setattr(zookeeper_session, "SESSIONS_MAX", 1)
    client = connect()
    with pytest.raises(AssertionError, match="closed after 0 bytes"):
        connect()
    assert "no more than 1 sessions" in loop.trace.warnings[-1]
    # A client with a known session reconnects.
    assert connect(client.session).granted_ms == 10_000


def test_client_that_does_not_take_its_answers_is_cut_off(loop, served, connect, monkeypatch):
    monkeypatch.setattr(zookeeper_server, "UNSENT_BYTES_MAX", 2 << 20)
    client, other = connect(), connect()
    client.ask(OpCode.CREATE, create("/big", bytes(4 << 20)))
    client.say(OpCode.GET_DATA, text("/big") + b"\0")
    loop.until(lambda: served.server.connection_count == 1)
    assert "it does not read" in loop.trace.warnings[-1]
    assert other.ask(OpCode.PING, xid=-2) == (0, b"")


def test_only_the_owner_can_read_the_secret_of_sessions(tmp_path):
    """A reader of the secret can take over any session."""
    path = tmp_path / "session-secret"
    disk, entropy = RealDisk(), RealEntropy()
    first = session_passwords(disk, entropy, str(tmp_path))
    assert path.stat().st_mode & 0o777 == 0o600
    # As earlier versions left it.
    path.chmod(0o644)
    again = session_passwords(disk, entropy, str(tmp_path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert again.of(5) == first.of(5)
