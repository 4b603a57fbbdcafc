"""The connections of one hostile client, and the bytes that it may send in all."""

import contextlib
import random  # noqa: TID251 - only ever seeded
import socket
from collections.abc import Callable
from typing import Any, Self

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.schema import Message
from tests.serve import bad_frames

USER, PASSWORD = "admin", "secret"
# May do nothing.
STRANGER = "stranger"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{USER}",
    "delegation.token.master.key": "master-key",
    "group.min.session.timeout.ms": "100",
    # Files of deleted topics stay: a disk may take minutes for tens of thousands of directories,
    # while the broker is not at rest.
    "log.segment.delete.delay.ms": "3600000",
}
ANSWER_S = 60
WIDE = 5_000
MEMBERS_MAX = 2_000
TOKENS_MAX = 1_000
# A topic of this many partitions is the widest that a controller announces at once.
WIDEST = 20_000


class SpentError(Exception):
    """The client has sent all that it may."""


class Peer:
    """One connection."""

    def __init__(self, crowd: "Crowd", port: int, *, is_stranger: bool = False) -> None:
        self._crowd = crowd
        self._version = 0
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        if crowd.has_password:
            self.socket.sendall(STRANGERS_LOGIN if is_stranger else LOGIN)
            self._frame()
            self._frame()

    def tell(self, message: Message, version: int) -> None:
        """Send a request without waiting for its answer."""
        self._crowd.send(self.socket, bad_frames.asked(message, version))

    def ask(self, message: Message, version: int) -> Any:
        """Return the answer."""
        self.tell(message, version)
        return self.answer(message, version)

    def answer(self, message: Message, version: int) -> Any:
        """Return the next answer, to a `message` that was sent."""
        api = message.api
        assert api is not None
        tags = 1 if version >= api.flexible_from and api is not ApiKey.API_VERSIONS else 0
        return decode(api.response_class, version, self._frame(), 4 + tags)

    def _frame(self) -> bytes:
        size = int.from_bytes(self._bytes(4), "big")
        return self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return bytes(data)


class Crowd:
    """The connections of one client, and the bytes it may still send."""

    def __init__(self, port: int, bytes_max: int, *, has_password: bool = True) -> None:
        self.left = bytes_max
        self.sent = 0
        self.has_password = has_password
        self._port = port
        self._peers: list[Peer] = []

    def peer(self, *, is_stranger: bool = False) -> Peer:
        """Return a new connection."""
        peer = Peer(self, self._port, is_stranger=is_stranger)
        self._peers.append(peer)
        return peer

    def send(self, to: socket.socket, data: bytes) -> None:
        """Send `data`; raise SpentError if it is more than what is left."""
        if len(data) > self.left:
            raise SpentError
        self.left -= len(data)
        self.sent += len(data)
        to.sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers:
            peer.socket.close()


def _login(user: str) -> bytes:
    return bad_frames.asked(SaslHandshakeRequest(mechanism="PLAIN"), 1) + bad_frames.asked(
        SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 1
    )


LOGIN, STRANGERS_LOGIN = _login(USER), _login(STRANGER)
Kind = Callable[[Crowd, random.Random], None]


def run(kind: Kind, crowd: Crowd, draw: random.Random) -> None:
    """Have `kind` do its worst, until it is done or has sent all it may."""
    with crowd, contextlib.suppress(SpentError, OSError):
        kind(crowd, draw)
