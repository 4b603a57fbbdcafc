"""MetadataStore: ZooKeeper's semantics as an interface, embedded or over a real ZooKeeper.

Every call returns a Future; calls of one store are carried out in the order made, and a watch
fires before any later read of the same store can see the change (ZooKeeper's ordering). Watches
are one-shot; the same callable set twice on one znode fires once. Errors are those of
`kctl.store.errors`, through the Future.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from kctl.runtime.future import Future
from kctl.store.znode import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EventType,
    Operation,
    Set,
    Stat,
    Watch,
    WatchedEvent,
)

__all__ = [
    "ANY_VERSION",
    "Check",
    "Create",
    "Delete",
    "EventType",
    "MetadataStore",
    "Operation",
    "SessionState",
    "Set",
    "Stat",
    "Watch",
    "WatchedEvent",
]


class SessionState(Enum):
    """What became of the session with the store."""

    CONNECTED = "connected"
    # Temporarily out of touch; the session may still be alive.
    SUSPENDED = "suspended"
    # Ephemerals and watches are gone; `new_session` has to be asked for.
    EXPIRED = "expired"


class MetadataStore(Protocol):
    """A tree of znodes and a session with it."""

    @property
    def session_id(self) -> int:
        """The current session's id (`ephemeralOwner` of what we create)."""
        ...

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> Future[tuple[str, Stat]]:
        """Create `path` (with `sequence`: path plus a ten-digit counter); the path made and
        its Stat. NodeExistsError, NoNodeError (no parent), NoChildrenForEphemeralsError."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> Future[tuple[bytes, Stat]]:
        """Data and Stat; NoNodeError. A watch is set only when the node is there."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """Stat, or None; the watch is set either way."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Future[list[str]]:
        """Names of the children, sorted; NoNodeError."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Future[Stat]:
        """Replace the data; NoNodeError, BadVersionError."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> Future[None]:
        """Delete; NoNodeError, BadVersionError, NotEmptyError."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Future[list[Stat | str | None]]:
        """All or nothing. On failure the Future ends with MultiError, which tells the index
        of the operation that failed and its error."""
        ...

    def on_session_state(self, listener: Callable[[SessionState], object]) -> None:
        """Call `listener` on the loop whenever the session's state changes."""
        ...

    def new_session(self) -> Future[None]:
        """After EXPIRED: start over with a new session."""
        ...

    def close(self) -> Future[None]:
        """End the session (its ephemerals go) and let go of everything."""
        ...
