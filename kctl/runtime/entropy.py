"""Entropy: all randomness of a node, so that one seed decides it."""

from typing import Protocol


class Entropy(Protocol):
    """Seeded in a simulation, the operating system's source otherwise."""

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes (uuids, cluster ids, nonces)."""
        ...

    def random_below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        ...
