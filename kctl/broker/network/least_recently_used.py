"""LeastRecentlyUsed: finds the connection whose last request is the longest ago.

A search through all connections keeps the FOUND_MAX oldest; until these are used up, or have become
active again, no other search is needed. A connection that is not among them was active later than
each of them at the time of the search, so the first that has been inactive since is the oldest.
"""

import heapq
from collections.abc import Callable, Iterable
from operator import attrgetter

from kctl.broker.network.server_connection import ServerConnection

FOUND_MAX = 256

_last_active_ms = attrgetter("last_active_ms")


class LeastRecentlyUsed:
    """The connections that were the oldest at the last search."""

    def __init__(self) -> None:
        # (last active in ms, connection), the oldest last.
        self._found: list[tuple[int, ServerConnection]] = []

    def take(
        self,
        connections: Callable[[], Iterable[ServerConnection]],
        is_open: Callable[[ServerConnection], bool],
    ) -> ServerConnection | None:
        """Return the least recently used of `connections()`, which `is_open`, and do not return it
        again; None if there is none."""
        while True:
            if not self._found:
                oldest = heapq.nsmallest(FOUND_MAX, connections(), key=_last_active_ms)
                self._found = [(it.last_active_ms, it) for it in reversed(oldest)]
            if not self._found:
                return None
            last_active_ms, connection = self._found.pop()
            if connection.last_active_ms == last_active_ms and is_open(connection):
                return connection
