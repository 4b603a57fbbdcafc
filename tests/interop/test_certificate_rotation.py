"""T18: the broker's stores are replaced under a stream of connections: none fails, open sessions
continue, and stores that cannot be used change nothing.

KCTL_ROTATIONS=100 rotates more often.
"""

import os
import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from kctl.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.apache_kafka import free_port
from tests.support.certificates import TestCertificates
from tests.support.kctl_process import ConfiguredKctlBroker
from tests.support.raw_requests import RequestWriter

pytest.importorskip("cryptography")

ROTATIONS = int(os.environ.get("KCTL_ROTATIONS", "5"))
TIMEOUT_S = 30
THREADS = 3


class TwoListeners:
    """A broker whose listeners ONE and TWO have stores of their own."""

    def __init__(self, directory):
        self.certificates = TestCertificates(directory)
        self.files = {name: self.issued(name) for name in ("one", "two")}
        self.ports = {name: free_port() for name in self.files}
        listeners = [f"{name.upper()}://127.0.0.1:{port}" for name, port in self.ports.items()]
        settings = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "ONE:SSL,TWO:SSL",
            "inter.broker.listener.name": "ONE",
            **{
                f"listener.name.one.{key}": value
                for key, value in self.certificates.client_settings().items()
            },
        }
        for name, path in self.files.items():
            settings[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
            settings[f"listener.name.{name}.ssl.keystore.location"] = path
        self.broker = ConfiguredKctlBroker(directory, settings)
        self.context = ssl.create_default_context(cafile=self.certificates.ca_file)

    def issued(self, name):
        return self.certificates.issue(name, "localhost", "127.0.0.1")

    def connect(self, name):
        raw = socket.create_connection(("127.0.0.1", self.ports[name]), TIMEOUT_S)
        return self.context.wrap_socket(raw, server_hostname="localhost")

    def served(self, name):
        """The certificate that a new connection gets."""
        with self.connect(name) as sock:
            return sock.getpeercert(binary_form=True)

    def reload(self):
        """Send SIGHUP, and wait until the log says what became of both listeners' stores."""
        before = self.broker.errors.count("key and trust stores of listener")
        self.broker.process.send_signal(signal.SIGHUP)
        until(lambda: self.broker.errors.count("key and trust stores of listener") == before + 2)


def until(condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def secured(tmp_path):
    secured = TwoListeners(tmp_path)
    with secured.broker:
        yield secured


class Connections:
    """Threads that connect again and again."""

    def __init__(self, secured):
        self.count, self.errors = 0, []
        self._secured, self._stopping = secured, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(THREADS)]

    def _run(self):
        while not self._stopping.is_set():
            try:
                self._secured.served("one")
                self.count += 1
            except OSError as error:
                self.errors.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def test_no_connection_fails_while_certificates_are_replaced(secured):
    with secured.connect("one") as old, Connections(secured) as connections:
        for _ in range(ROTATIONS):
            before, count = secured.served("one"), connections.count
            secured.issued("one")
            secured.reload()
            assert secured.served("one") != before
            until(lambda count=count: connections.count > count + THREADS)
        # The session of before still is one.
        old.sendall(RequestWriter().frame(ApiVersionsRequest(), 0))
        assert len(old.recv(4)) == 4
    assert connections.errors == []


def spoiled(secured, kind):
    """Change the store of listener ONE so that it cannot be used."""
    path = Path(secured.files["one"])
    text = path.read_text()
    key, certificate = text[: text.index("-----BEGIN CERT")], text[text.index("-----BEGIN CERT") :]
    other = Path(secured.issued("other")).read_text()
    if kind == "missing":
        path.unlink()
        return
    path.write_text({
        "no store": "not a store",
        "empty": "",
        "no key": certificate,
        "no certificate": key,
        "the key of another": other[: other.index("-----BEGIN CERT")] + certificate,
        "truncated": text[: len(key) // 2],
    }[kind])  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    ["missing", "no store", "empty", "no key", "no certificate", "the key of another", "truncated"],
)
def test_unusable_stores_change_nothing_but_other_listeners_have_their_new_ones(secured, kind):
    before = {name: secured.served(name) for name in secured.files}
    spoiled(secured, kind)
    secured.issued("two")
    secured.reload()
    assert secured.served("one") == before["one"]
    assert secured.served("two") != before["two"]
    assert "stores of listener ONE are not reloaded" in secured.broker.errors
    assert "stores of listener TWO are not reloaded" not in secured.broker.errors
