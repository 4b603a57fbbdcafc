"""OpenSegments: limits the open segment files and selects the one to close.

Second chance: a segment used since the last check returns to the end of the queue. Using a segment
therefore costs a flag, not a queue operation; only opening and closing cost one.
"""

from collections import OrderedDict
from typing import Protocol

DEFAULT_OPEN_SEGMENTS_MAX = 1024


class Releasable(Protocol):
    """An object with an open file that it can close."""

    # Set on every use, cleared here.
    is_recently_used: bool

    def release(self) -> None:
        """Close the file and drop cached contents; the next use opens it again.

        Raise nothing: the caller uses another log, perhaps in another log directory.
        """
        ...


class OpenSegments:
    """The limit on open files, shared by all logs of a broker."""

    __slots__ = ("_queue", "limit")

    def __init__(self, limit: int = DEFAULT_OPEN_SEGMENTS_MAX) -> None:
        self.limit = limit
        self._queue: OrderedDict[Releasable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def opened(self, segment: Releasable) -> None:
        """Register that `segment` has opened its file; another one may be closed for it."""
        queue = self._queue
        while len(queue) >= self.limit:
            oldest = next(iter(queue))
            if oldest.is_recently_used:
                oldest.is_recently_used = False
                queue.move_to_end(oldest)
            else:
                del queue[oldest]
                oldest.release()
        queue[segment] = None

    def closed(self, segment: Releasable) -> None:
        """Register that `segment` has closed its file."""
        self._queue.pop(segment, None)
