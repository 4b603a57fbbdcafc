"""The sockets of kazoo's thread: wake-ups that share a byte, and answers that share a read."""

import socket
import threading

import pytest

pytest.importorskip("kazoo")

from kctl.store.zookeeper_sockets import READ_BYTES, BufferedConnection, Wakeups
from kctl.store.zookeeper_thread import InlineHandler
from tests.support.virtual_runtime import virtual_runtime

# More than a socket pair has room for, each in a byte of its own.
MANY = 100_000


@pytest.fixture
def handler():
    return InlineHandler(virtual_runtime(), 6000, lambda _error: None)


@pytest.fixture
def wakeups(handler):
    reader, writer = handler.create_socket_pair()
    yield reader
    reader.close()
    writer.close()


@pytest.fixture
def connection():
    near, far = socket.socketpair()
    near.settimeout(0)
    with near, far:
        yield BufferedConnection(near), far


def ready(handler, *sockets):
    return handler.select(list(sockets), [], [], 0)[0]


def test_wakeups_never_fill_the_socket_and_are_taken_one_by_one(handler, wakeups):
    for _ in range(MANY):
        assert wakeups.send(b"\0") == 1
    for _ in range(MANY):
        assert ready(handler, wakeups) == [wakeups]
        assert wakeups.recv(1) == b"\0"
    assert ready(handler, wakeups) == []
    wakeups.send(b"\0")
    assert ready(handler, wakeups) == [wakeups]


def test_no_wakeup_is_lost_between_two_threads(handler, wakeups):
    def send():
        for _ in range(MANY):
            wakeups.send(b"\0")

    thread = threading.Thread(target=send)
    thread.start()
    for _ in range(MANY):
        assert handler.select([wakeups], [], [], 60)[0] == [wakeups]
        wakeups.recv(1)
    thread.join()
    assert ready(handler, wakeups) == []


def test_a_wakeup_after_the_pair_is_closed_is_an_error():
    wakeups = Wakeups(*socket.socketpair(), threading.Lock())
    wakeups.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        wakeups.send(b"\0")


def test_answers_that_arrived_together_are_taken_in_any_parts(handler, connection):
    near, far = connection
    answers = bytes(range(256)) * 8
    far.sendall(answers)
    parts = []
    for size in (4, 100, 4, 1, len(answers)):
        assert ready(handler, near) == [near]
        parts.append(near.recv(size))
    assert b"".join(parts) == answers
    assert ready(handler, near) == []
    assert near.pending() == 0


def test_an_answer_larger_than_the_buffer_comes_whole(handler, connection):
    near, far = connection
    answer = b"abc" * READ_BYTES
    sender = threading.Thread(target=far.sendall, args=(answer,))
    sender.start()
    taken = b""
    while len(taken) < len(answer):
        assert handler.select([near], [], [], 60)[0] == [near]
        taken += near.recv(len(answer) - len(taken))
    sender.join()
    assert taken == answer


def test_the_end_of_the_connection_comes_after_what_was_read(handler, connection):
    near, far = connection
    far.sendall(b"last")
    assert near.recv(1) == b"l"
    far.close()
    assert near.recv(9) == b"ast"
    assert ready(handler, near) == [near]
    assert near.recv(9) == b""


def test_the_server_is_heard_while_requests_keep_coming(handler, connection, wakeups):
    near, far = connection
    wakeups.send(b"\0")
    far.sendall(b"answer")
    assert any(near in ready(handler, near, wakeups) for _ in range(20))


def test_requests_are_sent_while_read_answers_wait(handler, connection, wakeups):
    near, far = connection
    far.sendall(b"answers")
    near.recv(1)
    wakeups.send(b"\0")
    assert ready(handler, near, wakeups) == [near, wakeups]
