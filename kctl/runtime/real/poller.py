"""Poller: which descriptors are ready; epoll on Linux, the best selector elsewhere."""

import select
from typing import Final, Protocol

READABLE: Final = 1  # EPOLLIN
WRITABLE: Final = 4  # EPOLLOUT
FAILED: Final = 8  # EPOLLERR, reported whether asked for or not
HUNG_UP: Final = 16  # EPOLLHUP, the same


class Poller(Protocol):
    """The five calls of `select.epoll` that the loop uses. Level-triggered."""

    def register(self, fd: int, eventmask: int, /) -> None: ...

    def modify(self, fd: int, eventmask: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None: ...

    def poll(self, timeout: float | None, maxevents: int, /) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


class SelectorPoller:
    """The same calls over `selectors` (kqueue on macOS), which has no empty mask."""

    def __init__(self) -> None:
        import selectors

        self._selector = selectors.DefaultSelector()
        self._masks: dict[int, int] = {}

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch `fd`."""
        self._masks[fd] = 0
        self.modify(fd, eventmask)

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Change the events that `fd` is watched for."""
        old, self._masks[fd] = self._masks[fd], eventmask
        # selectors has READ 1 and WRITE 2.
        wanted = (eventmask & READABLE) | (2 if eventmask & WRITABLE else 0)
        if old and wanted:
            self._selector.modify(fd, wanted)
        elif wanted:
            self._selector.register(fd, wanted)
        elif old:
            self._selector.unregister(fd)

    def unregister(self, fd: int, /) -> None:
        """Stop watching `fd`."""
        if self._masks.pop(fd, 0):
            self._selector.unregister(fd)

    def poll(self, timeout: float | None, maxevents: int, /) -> list[tuple[int, int]]:
        """Return ready descriptors and their events."""
        ready = self._selector.select(timeout)[:maxevents]
        return [(key.fd, (mask & 1) | (WRITABLE if mask & 2 else 0)) for key, mask in ready]

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()


def make_poller() -> Poller:
    """Return the fastest poller of this machine."""
    if hasattr(select, "epoll"):
        return select.epoll()
    return SelectorPoller()
