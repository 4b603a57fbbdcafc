"""MetadataStore: ZooKeeper's semantics as an interface, embedded or over a real ZooKeeper.

Every call returns a Future. Calls of one store are carried out in the order made, and a watch fires
before any later read of the same store can see the change (ZooKeeper's ordering). Watches are
one-shot; the same callable set twice on one znode fires once. A Future fails with an error of
`kctl.store.errors`.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from kctl.errors import KctlError
from kctl.runtime.future import Future
from kctl.store.errors import StoreError
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
    "WritesEach",
]


class SessionState(Enum):
    """The state of the session with the store."""

    CONNECTED = "connected"
    # Temporarily disconnected; the session may still be alive.
    SUSPENDED = "suspended"
    # Ephemerals and watches are gone; call `new_session` for another session.
    EXPIRED = "expired"
    # The store's client itself has ended: no session will follow. See `failure`.
    FAILED = "failed"


class MetadataStore(Protocol):
    """A tree of znodes and a session with it."""

    @property
    def session_id(self) -> int:
        """Return the current session's id (`ephemeralOwner` of the znodes it creates)."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """Return how long the server waits for a sign of life before it ends the session, as it
        granted it."""
        ...

    @property
    def failure(self) -> KctlError | None:
        """Return why the store can never be used again; None while it can."""
        ...

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> Future[tuple[str, Stat]]:
        """Create `path` (with `sequence`: path plus a ten-digit counter); return the path and its
        Stat.

        Raises NodeExistsError, NoNodeError (no parent), NoChildrenForEphemeralsError.
        """
        ...

    def get(self, path: str, watch: Watch | None = None) -> Future[tuple[bytes, Stat]]:
        """Return data and Stat; raise NoNodeError. A watch is set only if the znode exists."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """Return Stat, or None; the watch is set either way."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Future[list[str]]:
        """Return names of the children, sorted; raise NoNodeError."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Future[Stat]:
        """Replace the data; raise NoNodeError, BadVersionError."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> Future[None]:
        """Delete a znode; raise NoNodeError, BadVersionError, NotEmptyError."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Future[list[Stat | str | None]]:
        """Apply all operations or none.

        On failure the Future ends with MultiError, which has the index of the failed operation and
        its error.
        """
        ...

    def sync(self, path: str) -> Future[None]:
        """Make later reads see what was written, by any session, before this call.

        A server of an ensemble may lag behind the others; `path` may be any znode, or none.
        """
        ...

    def turn(self) -> Future[None]:
        """Return a future that is done in the loop's next turn; for callers that make
        many calls."""
        ...

    def on_session_state(self, listener: Callable[[SessionState], object]) -> None:
        """Call `listener` on the loop whenever the session's state changes."""
        ...

    def new_session(self) -> Future[None]:
        """Start a new session after EXPIRED."""
        ...

    def close(self) -> Future[None]:
        """End the session, which deletes its ephemerals, and release all resources."""
        ...


@runtime_checkable
class WritesEach(Protocol):
    """A MetadataStore that makes many independent calls at once, for less than they cost one by
    one: the embedded one."""

    def get_each(
        self, paths: Iterable[str], watch: Watch | None = None
    ) -> Future[list[tuple[bytes, Stat] | None]]:
        """Return what `get` returns for each path, None for a znode that does not exist."""
        ...

    def write_each(
        self, operations: Iterable[Operation], fence: Check | None = None
    ) -> Future[list[Stat | str | StoreError | None]]:
        """Apply operations one by one; return for each its Stat or path, or its error.

        With `fence` each succeeds only if that znode has that version, which none of them changes;
        otherwise the Future ends with MultiError 0, and nothing is changed.
        """
        ...
