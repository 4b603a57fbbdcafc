"""Handshakes: the TLS handshakes under way in one process, and their bound.

When HANDSHAKES_MAX are under way, a new one ends the oldest of those that wait for their peer: a
peer that never answers must not keep others out.
"""

from typing import Protocol

# Each costs about 20 kB.
HANDSHAKES_MAX = 2_048
# What one read of a socket may return; shared by all connections.
SCRATCH_BYTES = 256 * 1024


class Handshake(Protocol):
    """A connection whose handshake is under way."""

    @property
    def is_waiting_for_peer(self) -> bool:
        """Return whether the next move is the peer's."""
        ...

    def give_up(self, reason: str) -> None:
        """End the connection."""
        ...


class Handshakes:
    """The handshakes that have begun and not ended, oldest first."""

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._under_way: dict[Handshake, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, handshake: Handshake) -> None:
        """Add a handshake; at the bound, another one ends."""
        if len(self._under_way) >= HANDSHAKES_MAX:
            waiting = (it for it in self._under_way if it.is_waiting_for_peer)
            oldest = next(waiting, handshake)
            if oldest is not handshake:
                del self._under_way[oldest]
            oldest.give_up(f"{HANDSHAKES_MAX} other handshakes are under way")
        self._under_way[handshake] = None

    def end(self, handshake: Handshake) -> None:
        """Remove a handshake that ended, however it did."""
        self._under_way.pop(handshake, None)
