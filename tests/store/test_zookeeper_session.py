"""Conversations without a connection: what comes in, what goes out, bytes without sense."""

import struct
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

import pytest

from kctl.errors import StorageError
from kctl.runtime.future import sleep
from kctl.runtime.real import make_runtime
from kctl.store.database import ZnodeDatabase
from kctl.store.jute import encode_buffer, encode_int
from kctl.store.zookeeper_protocol import OpCode
from kctl.store.zookeeper_session import WAITING_RESPONSES_MAX, Conversation, Passwords
from tests.support.zookeeper_client import create, text, watches_again

SEEDS = range(200)
GREETING = struct.pack(">iqiq", 0, 0, 10_000, 0) + encode_buffer(bytes(16)) + b"\0"


class Heard:
    """A Peer that records its calls."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.complaints: list[str] = []
        self.is_closed = False
        self.times_room = 0

    def send(self, frame: bytes) -> None:
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        self.frames.append(frame[4:])

    def close(self) -> None:
        self.is_closed = True

    def warn(self, message: str) -> None:
        self.complaints.append(message)

    def responses_sent(self) -> None:
        self.times_room += 1


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


def converse(database):
    peer = Heard()
    return Conversation(database, Passwords(b"secret"), peer), peer


def request(xid, opcode, body=b""):
    return struct.pack(">ii", xid, opcode) + body


def multi(*parts):
    body = b"".join(struct.pack(">iBi", opcode, 0, -1) + part for opcode, part in parts)
    return body + struct.pack(">iBi", -1, 1, -1)


REQUESTS = [
    request(1, OpCode.CREATE2, create("/a", b"data", flags=1)),
    request(2, OpCode.CREATE, create("/s-", flags=2)),
    request(3, OpCode.GET_DATA, text("/a") + b"\1"),
    request(4, OpCode.GET_CHILDREN2, text("/") + b"\1"),
    request(5, OpCode.SET_DATA, text("/a") + text("new") + encode_int(0)),
    request(
        6,
        OpCode.MULTI,
        multi((OpCode.CREATE, create("/b")), (OpCode.DELETE, text("/b") + encode_int(-1))),
    ),
    request(7, OpCode.MULTI_READ, multi((OpCode.GET_DATA, text("/a") + b"\0"))),
    request(-8, OpCode.SET_WATCHES, watches_again(0, ["/a"], ["/b"], ["/"])),
    request(
        9,
        OpCode.SET_ACL,
        text("/a")
        + struct.pack(">ii", 1, 31)
        + text("world")
        + text("anyone")
        + encode_int(-1),
    ),
    request(10, OpCode.REMOVE_WATCHES, text("/a") + encode_int(3)),
    request(-4, OpCode.AUTH, encode_int(0) + text("digest") + text("me:me")),
    request(11, OpCode.GET_EPHEMERALS, text("/")),
    request(12, OpCode.GET_ALL_CHILDREN_NUMBER, text("/")),
    request(-2, OpCode.PING),
]  # fmt: skip


def mutated(rng, frame):
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        kind, place = rng.randrange(4), rng.randrange(len(data)) if data else 0
        if kind == 0 and data:
            data[place] = rng.randrange(256)
        elif kind == 1:
            del data[place : place + rng.randrange(1, 9)]
        elif kind == 2:
            data[place:place] = rng.randbytes(rng.randrange(1, 9))
        else:
            data[place : place + 4] = rng.choice([-1, 0, 1 << 30, -(1 << 31)]).to_bytes(
                4, "big", signed=True
            )
    return bytes(data)


@pytest.mark.parametrize("first", SEEDS[::20])
def test_mutated_frames_are_answered_or_end_their_conversation_only(runtime, first):
    database = ZnodeDatabase.in_memory(runtime)
    bystander, witness = converse(database)
    bystander.receive(GREETING)
    for seed in SEEDS[first : first + 20]:
        rng = Random(seed)
        conversation, peer = converse(database)
        conversation.receive(mutated(rng, GREETING) if seed % 5 == 0 else GREETING)
        for frame in REQUESTS:
            was_over, said = conversation.is_over, len(peer.frames)
            conversation.receive(mutated(rng, frame) if rng.random() < 0.5 else frame)
            answered = len(peer.frames) > said
            assert answered or was_over or peer.is_closed
        conversation.connection_lost()
        assert not bystander.is_over
    bystander.receive(request(-2, OpCode.PING))
    assert witness.frames[-1][:4] == struct.pack(">i", -2)
    # What is in the tree can be made durable and read again.
    names = database.tree.children("/")
    assert all(database.tree.get(f"/{name}").stat().version >= 0 for name in names)


def test_every_served_request_is_answered_in_order(runtime):
    conversation, peer = converse(ZnodeDatabase.in_memory(runtime))
    conversation.receive(GREETING)
    for frame in REQUESTS:
        conversation.receive(frame)
    asked = [struct.unpack_from(">i", frame)[0] for frame in REQUESTS]
    answered = [struct.unpack_from(">i", frame)[0] for frame in peer.frames[1:]]
    assert [xid for xid in answered if xid != -1] == asked
    assert peer.complaints == []


def test_watch_fires_before_the_answer_that_could_show_its_change(runtime):
    conversation, peer = converse(ZnodeDatabase.in_memory(runtime))
    conversation.receive(GREETING)
    conversation.receive(request(1, OpCode.EXISTS, text("/a") + b"\1"))
    conversation.receive(request(2, OpCode.CREATE, create("/a")))
    assert [struct.unpack_from(">i", frame)[0] for frame in peer.frames[1:]] == [1, -1, 2]


def test_answers_wait_for_the_sync_that_covers_them_and_a_full_conversation_says_so(
    runtime, tmp_path: Path
):
    database = ZnodeDatabase.open(runtime, str(tmp_path), fsync=True)
    conversation, peer = converse(database)
    conversation.receive(GREETING)
    for number in range(WAITING_RESPONSES_MAX - 1):
        assert not conversation.is_full
        conversation.receive(request(number, OpCode.CREATE, create(f"/{number}")))
    assert conversation.is_full
    assert peer.frames == []
    runtime.scheduler.run_until(database.close())
    runtime.scheduler.run_until(runtime.scheduler.spawn(sleep(runtime.scheduler, 1)))
    assert len(peer.frames) == WAITING_RESPONSES_MAX
    assert peer.times_room == 1


def test_failed_sync_ends_the_conversation_with_one_word_and_no_answer(runtime, tmp_path: Path):
    def fail():
        raise StorageError("disk on fire")

    database = ZnodeDatabase.open(runtime, str(tmp_path), fsync=True)
    database._journal.sync = fail
    conversation, peer = converse(database)
    conversation.receive(GREETING)
    for number in range(10):
        conversation.receive(request(number, OpCode.CREATE, create(f"/{number}")))

    async def until_closed():
        while not peer.is_closed:
            await sleep(runtime.scheduler, 1)

    runtime.scheduler.run_until(runtime.scheduler.spawn(until_closed()))
    assert (peer.frames, len(peer.complaints), peer.is_closed) == ([], 1, True)


def test_password_of_another_session_or_secret_is_wrong():
    passwords = Passwords(b"secret")
    assert passwords.is_right(7, passwords.of(7))
    assert not passwords.is_right(8, passwords.of(7))
    assert not Passwords(b"other").is_right(7, passwords.of(7))
