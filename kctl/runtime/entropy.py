"""Entropy: all randomness of a node, so that one seed determines it."""

from typing import Protocol


class Entropy(Protocol):
    """Seeded in a simulation, the operating system's source otherwise."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes (uuids, cluster ids, nonces)."""
        ...

    def random_below(self, bound: int) -> int:
        """Return a whole number in [0, bound)."""
        ...
