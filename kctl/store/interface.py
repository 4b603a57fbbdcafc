"""MetadataStore: ZooKeeper's semantics as an interface, embedded or over a real ZooKeeper.

Every call returns a Future; calls of one store are carried out in the order made, and a watch
fires before any later read of the same store can see the change (ZooKeeper's ordering). Watches
are one-shot. Errors are those of `kctl.store.errors`, through the Future.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from kctl.runtime.future import Future

ANY_VERSION = -1


class Stat(NamedTuple):
    """ZooKeeper's Stat of a znode."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    # Session id of the owner, 0 for a persistent znode.
    ephemeral_owner: int
    data_length: int
    child_count: int
    pzxid: int


class EventType(Enum):
    """What a watch saw."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchedEvent(NamedTuple):
    """One firing of one watch."""

    type: EventType
    path: str


class SessionState(Enum):
    """What became of the session with the store."""

    CONNECTED = "connected"
    # Temporarily out of touch; the session may still be alive.
    SUSPENDED = "suspended"
    # Ephemerals and watches are gone; `new_session` has to be asked for.
    EXPIRED = "expired"


Watch = Callable[[WatchedEvent], object]


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode (in `multi`)."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Set a znode's data if its version is the expected one (in `multi`)."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode if its version is the expected one (in `multi`)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Only check a znode's version (in `multi`)."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


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
