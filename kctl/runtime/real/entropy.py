"""RealEntropy: the operating system's random source."""

import os


class RealEntropy:
    """Not seeded and not repeatable; suitable for nonces."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return os.urandom(count)

    def random_below(self, bound: int) -> int:
        """Return a whole number in [0, bound), uniformly distributed."""
        if bound <= 0:
            raise ValueError("random_below needs a positive bound")
        bits = bound.bit_length()
        size = (bits + 7) // 8
        while True:
            number = int.from_bytes(os.urandom(size), "big") >> (size * 8 - bits)
            if number < bound:
                return number
