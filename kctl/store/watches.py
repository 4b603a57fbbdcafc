"""WatchTable: one-shot watches of changes to znodes. Pure.

Two kinds, as in ZooKeeper: a data watch (set by get and exists) sees its znode created, changed or
deleted; a child watch sees children created and deleted, and its znode deleted. Invariant: a watch
leaves the table as it fires. A callable that watches data and children of one znode is called once
for its deletion. Watches of one event fire in the order they were set.

ZooKeeper: org.apache.zookeeper.server.watch.WatchManager.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kctl.store.znode import EventType, Watch, WatchedEvent

_Waiting = dict[tuple[int, Watch], int]


class Firing(NamedTuple):
    """An event for one watch of one session."""

    session_id: int
    watch: Watch
    event: WatchedEvent


class Armed(NamedTuple):
    """A pending watch; `zxid` is of the last change that its owner knows of."""

    path: str
    is_child_watch: bool
    session_id: int
    watch: Watch
    zxid: int


class WatchTable:
    """Owns the watches that have not fired yet."""

    def __init__(self) -> None:
        self._data: dict[str, _Waiting] = {}
        self._child: dict[str, _Waiting] = {}

    def watch_data(self, path: str, session_id: int, watch: Watch, zxid: int = 0) -> None:
        """Fire `watch` at the next creation, change or deletion of `path`."""
        self._data.setdefault(path, {}).setdefault((session_id, watch), zxid)

    def watch_children(self, path: str, session_id: int, watch: Watch, zxid: int = 0) -> None:
        """Fire `watch` when a child of `path` is created or deleted, or `path` itself
        is deleted."""
        self._child.setdefault(path, {}).setdefault((session_id, watch), zxid)

    def fire(self, event_type: EventType, path: str) -> list[Firing]:
        """Remove and return the watches that this event concerns."""
        if event_type is EventType.CHILDREN_CHANGED:
            waiting = self._child.pop(path, None)
        else:
            waiting = self._data.pop(path, None)
            if event_type is EventType.DELETED and path in self._child:
                waiting = {**(waiting or {}), **self._child.pop(path)}
        if waiting is None:
            return []
        event = WatchedEvent(event_type, path)
        return [Firing(session_id, watch, event) for session_id, watch in waiting]

    def is_watched(self, path: str, session_id: int, *, data: bool, children: bool) -> bool:
        """Return whether a session has a watch of these kinds on `path`."""
        return any(
            waiting_session == session_id
            for table in self._tables(data=data, children=children)
            for waiting_session, _ in table.get(path, ())
        )

    def remove(self, path: str, session_id: int, *, data: bool, children: bool) -> None:
        """Drop a session's watches of these kinds on `path`."""
        for table in self._tables(data=data, children=children):
            waiting = table.pop(path, {})
            kept = {key: zxid for key, zxid in waiting.items() if key[0] != session_id}
            if kept:
                table[path] = kept

    def _tables(self, *, data: bool, children: bool) -> Iterator[dict[str, _Waiting]]:
        if data:
            yield self._data
        if children:
            yield self._child

    def armed(self) -> Iterator[Armed]:
        """Yield all pending watches, in the order set; the table must not change meanwhile."""
        for is_child_watch, table in ((False, self._data), (True, self._child)):
            for path, waiting in table.items():
                for (session_id, watch), zxid in waiting.items():
                    yield Armed(path, is_child_watch, session_id, watch, zxid)

    def forget_session(self, session_id: int) -> None:
        """Drop the watches of a session that ended."""
        for table in (self._data, self._child):
            for path, waiting in list(table.items()):
                kept = {key: zxid for key, zxid in waiting.items() if key[0] != session_id}
                if kept:
                    table[path] = kept
                else:
                    del table[path]

    def clear(self) -> None:
        """Drop all watches."""
        self._data.clear()
        self._child.clear()
