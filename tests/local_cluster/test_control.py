"""The supervisor's control port: its responses, and that no client can keep its owner out."""

import json
import socket

import pytest

from kctl.errors import KctlError
from kctl.local_cluster.control import (
    SILENT_CONNECTIONS_MAX,
    ControlAddress,
    ControlServer,
    ask,
)
from kctl.runtime.future import sleep
from kctl.runtime.real import make_runtime
from tests.support.controller_cluster import RecordingTrace

TIMEOUT_MS = 10_000


class Supervisor:
    """A control server that answers "yes", and its owner."""

    def __init__(self):
        self.trace = RecordingTrace()
        self.runtime = make_runtime(self.trace)
        self.server = ControlServer(self.runtime, self._handle)
        self.address = ControlAddress(1, self.server.port, self.server.token)

    async def _handle(self, request):
        return {"answer": "yes", "asked": request.get("ask")}

    def run(self, coroutine):
        return self.runtime.scheduler.run_until(self.runtime.scheduler.spawn(coroutine))

    def ask(self, address=None):
        return self.run(ask(self.runtime, address or self.address, {"ask": "a"}, TIMEOUT_MS))

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.server.port), 10)

    def answer_to(self, line):
        """Send `line` on a connection of its own and return the answer."""
        with self.connect() as client:
            client.sendall(line)
            client.settimeout(0)
            received = b""
            for _ in range(500):
                self.run(sleep(self.runtime.scheduler, 10))
                try:
                    data = client.recv(65536)
                except BlockingIOError:
                    continue
                if not data:
                    break
                received += data
        return json.loads(received)

    def close(self):
        self.server.close()
        self.runtime.scheduler.close()


@pytest.fixture
def supervisor():
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


def test_its_owner_is_answered(supervisor):
    assert supervisor.ask() == {"answer": "yes", "asked": "a"}


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"null",
        b'{"token": null}',
        b'{"token": 5}',
        b'{"token": ["a"]}',
        b'{"token": "\\ud800"}',
        b'{"token": "'.ljust(70, b"0") + b'"}',
        b"not json",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"a":' * 10_000,
    ],
)
def test_a_line_without_the_token_is_refused_and_leaves_no_traceback(supervisor, line):
    answer = supervisor.answer_to(line + b"\n")
    assert answer["error"] in ("not the token of this cluster", "not a line of JSON")
    assert supervisor.trace.events == []
    assert supervisor.trace.warnings == []


def test_a_wrong_token_is_refused(supervisor):
    address = ControlAddress(1, supervisor.server.port, "0" * 32)
    with pytest.raises(KctlError, match="not the token"):
        supervisor.ask(address)


def test_idle_connections_do_not_keep_the_owner_out(supervisor):
    idle = [supervisor.connect() for _ in range(SILENT_CONNECTIONS_MAX + 20)]
    try:
        assert supervisor.ask() == {"answer": "yes", "asked": "a"}
    finally:
        for client in idle:
            client.close()
    assert supervisor.ask()["answer"] == "yes"
