"""RealEntropy: the operating system's random source."""

import os


class RealEntropy:
    """Not seeded, not repeatable, good enough for nonces."""

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return os.urandom(count)

    def random_below(self, bound: int) -> int:
        """A whole number in [0, bound), each as likely as the others."""
        if bound <= 0:
            raise ValueError("random_below of nothing")
        bits = bound.bit_length()
        size = (bits + 7) // 8
        while True:
            number = int.from_bytes(os.urandom(size), "big") >> (size * 8 - bits)
            if number < bound:
                return number
