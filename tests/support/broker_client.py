"""A blocking client over a plain socket that sends any request in any version, and Twins: the same
requests to kctl and to Apache Kafka 2.7.2, whose responses must agree in every field."""

import contextlib
import socket

from kctl.broker.log.unknown_producers import RESENDS_AWAITED
from kctl.protocol.connection import ClientConnection
from kctl.protocol.schema import Struct

TIMEOUT_S = 120
DIFFERENCES_SHOWN = 25
TEXT_SHOWN = 300


class BrokerClient:
    """One connection; what a closed connection leaves is ConnectionError."""

    def __init__(self, address: str, client_id: str = "test") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._connection = ClientConnection(client_id)

    def send(self, message, version=None, *, is_answered=True):
        """Send without waiting."""
        version = message.api.max_version if version is None else version
        _, parts = self._connection.send_request(message, version, is_answered=is_answered)
        self._socket.sendall(b"".join(bytes(part) for part in parts))

    def receive(self):
        """The next answer."""
        while (event := self._connection.next_event()) is None:
            buffer = self._connection.get_buffer()
            count = self._socket.recv_into(buffer)
            if not count:
                raise ConnectionError("closed by the broker")
            self._connection.buffer_updated(count)
        return event.body

    def ask(self, message, version=None):
        """The answer to `message`."""
        self.send(message, version)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "BrokerClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def plain(value):
    """A message as dicts and lists, to be compared and to be read when they differ."""
    if isinstance(value, Struct):
        fields = {field.name: plain(getattr(value, field.name)) for field in type(value).fields}
        if value.unknown_tagged_fields:
            fields["unknown_tagged_fields"] = value.unknown_tagged_fields
        return fields
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def differences(ours, theirs, path=""):
    """Where two plain values differ, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for key in {**ours, **theirs}
            for line in differences(ours.get(key, ...), theirs.get(key, ...), f"{path}.{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{path}[{n}]")]
    return [] if ours == theirs else [f"  {path or 'all'}: {short(ours)} != {short(theirs)}"]


def short(value):
    """The value, or its size and first part."""
    text = repr(value)
    if len(text) <= TEXT_SHOWN:
        return text
    size = f"{len(value)} of " if isinstance(value, list | bytes) else ""
    return f"{size}{text[:TEXT_SHOWN]}..."


def assert_same(ours, theirs, what=""):
    """AssertionError with the places where they differ."""
    found = differences(ours, theirs)
    if found:
        lines = "\n".join(found[:DIFFERENCES_SHOWN])
        raise AssertionError(f"kctl != Apache Kafka, {len(found)} differences: {what}\n{lines}")


class Twins:
    """Two brokers asked the same."""

    def __init__(self, kctl: str, apache: str) -> None:
        self.addresses = (kctl, apache)
        # Whether an answer, in plain form, is one after which the same is asked again, twice.
        self.asks_again = None
        self.clients = [BrokerClient(address) for address in self.addresses]

    def both(self, message, version=None):
        """Both answers in plain form, kctl's first; None where the connection was
        closed or no answer came."""
        answers = []
        for number, address in enumerate(self.addresses):
            try:
                answer = plain(self.clients[number].ask(message, version))
                for _ in range(RESENDS_AWAITED if self.asks_again else 0):
                    if self.asks_again(answer):
                        answer = plain(self.clients[number].ask(message, version))
                answers.append(answer)
            except OSError:
                answers.append(None)
                self.clients[number].close()
                self.clients[number] = BrokerClient(address)
        return answers

    def ask(self, message, version=None, *, but=None, but_both=None):
        """The answer on which both agree, in plain form; `but` changes what may differ in one,
        `but_both` in the two of them."""
        ours, theirs = self.both(message, version)
        if but is not None:
            ours, theirs = but(ours), but(theirs)
        if but_both is not None:
            ours, theirs = but_both(ours, theirs)
        assert_same(ours, theirs, f"{short(message)} v{version}")
        return ours

    def close(self) -> None:
        for client in self.clients:
            with contextlib.suppress(OSError):
                client.close()
