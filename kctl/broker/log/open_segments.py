"""OpenSegments: how many segment files are open at once, and which one is closed next.

Second chance: a segment used since the last look goes back to the end of the queue. So using one
costs a flag, not a queue operation; only opening costs.
"""

from collections import deque
from typing import Protocol

DEFAULT_OPEN_SEGMENTS_MAX = 1024


class Releasable(Protocol):
    """What holds an open file that it can do without."""

    # Set with every use, cleared here.
    is_recently_used: bool

    def release(self) -> None:
        """Close the file and forget cached contents; the next use opens it again."""
        ...


class OpenSegments:
    """A bound on open files, shared by all logs of a broker."""

    __slots__ = ("_queue", "limit")

    def __init__(self, limit: int = DEFAULT_OPEN_SEGMENTS_MAX) -> None:
        self.limit = limit
        self._queue: deque[Releasable] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def opened(self, segment: Releasable) -> None:
        """`segment` has just opened its file; another one may have to close."""
        queue = self._queue
        while len(queue) >= self.limit:
            oldest = queue.popleft()
            if oldest.is_recently_used:
                oldest.is_recently_used = False
                queue.append(oldest)
            else:
                oldest.release()
        queue.append(segment)

    def closed(self, segment: Releasable) -> None:
        """`segment` closed its file by itself."""
        if segment in self._queue:
            self._queue.remove(segment)
