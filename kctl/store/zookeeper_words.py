"""The four-letter-word commands that a ZooKeeper port answers. Pure.

A command instead of a first frame is answered with text, then the connection is closed. `ruok`
reports that the server runs; `srvr`, `stat`, `mntr` and `envi` report its state; `isro` that it is
writable.

ZooKeeper: org.apache.zookeeper.server.command.
"""

from collections.abc import Callable
from dataclasses import field

from kctl import __version__
from kctl.lazy_dataclass import dataclass

WORD_BYTES = 4
# The ZooKeeper version that is emulated: clients and tools read these digits.
ZOOKEEPER_VERSION = f"3.5.9-kctl-{__version__}"


@dataclass(slots=True)
class ServerFacts:
    """The facts that the commands report."""

    zxid: int
    znodes: int
    ephemerals: int
    watches: int
    sessions: int
    data_bytes: int
    received: int
    sent: int
    # (host, port, session id or 0) of each.
    connections: list[tuple[str, int, int]] = field(default_factory=list)


def _srvr(facts: ServerFacts) -> str:
    return (
        f"Zookeeper version: {ZOOKEEPER_VERSION}\n"
        f"Received: {facts.received}\nSent: {facts.sent}\n"
        f"Connections: {len(facts.connections)}\nOutstanding: 0\nZxid: {facts.zxid:#x}\n"
        f"Mode: standalone\nNode count: {facts.znodes}\n"
    )


def _stat(facts: ServerFacts) -> str:
    first, rest = _srvr(facts).split("\n", 1)
    clients = "".join(
        f" /{host}:{port}[{int(session_id != 0)}](sid={session_id:#x})\n"
        for host, port, session_id in facts.connections
    )
    return f"{first}\nClients:\n{clients}\n{rest}"


def _mntr(facts: ServerFacts) -> str:
    lines = {
        "version": ZOOKEEPER_VERSION,
        "packets_received": facts.received,
        "packets_sent": facts.sent,
        "num_alive_connections": len(facts.connections),
        "outstanding_requests": 0,
        "server_state": "standalone",
        "znode_count": facts.znodes,
        "watch_count": facts.watches,
        "ephemerals_count": facts.ephemerals,
        "approximate_data_size": facts.data_bytes,
        "global_sessions": facts.sessions,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in lines.items())


_WORDS: dict[bytes, Callable[[ServerFacts], str]] = {
    b"srvr": _srvr,
    b"stat": _stat,
    b"mntr": _mntr,
}
_CONSTANTS = {
    b"ruok": "imok",
    b"isro": "rw",
    b"envi": f"Environment:\nzookeeper.version={ZOOKEEPER_VERSION}\n",
}
# ZooKeeper's other commands, which it answers only if they are whitelisted.
_OTHERS = (
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"gtmk", b"stmk", b"srst", b"wchc", b"wchp",
    b"wchs", b"hash",
)  # fmt: skip


def is_word(first: bytes) -> bool:
    """Return whether the first four bytes of a connection are a command rather than a frame's
    length."""
    return first in _CONSTANTS or first in _WORDS or first in _OTHERS


def answer(word: bytes, count_facts: Callable[[], ServerFacts]) -> bytes:
    """Return the answer to a command; counting facts goes through all znodes."""
    if word in _CONSTANTS:
        return _CONSTANTS[word].encode()
    speak = _WORDS.get(word)
    if speak is None:
        return f"{word.decode()} is not executed because it is not in the whitelist.\n".encode()
    return speak(count_facts()).encode()
