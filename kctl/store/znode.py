"""The vocabulary of a tree of znodes: Stat, events, watches, the operations of a multi.

ZooKeeper: org.apache.zookeeper.data.Stat, WatchedEvent, Op.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from kctl.lazy_dataclass import dataclass

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
    """The kind of change that a watch saw."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchedEvent(NamedTuple):
    """One firing of one watch."""

    type: EventType
    path: str


Watch = Callable[[WatchedEvent], object]


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; with `sequence` its path gets a number that no sibling ever had."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequence: bool = False


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
