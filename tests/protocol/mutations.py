"""Breaks bytes in the ways that find bugs: flips, absurd numbers, cuts and insertions."""

import random  # noqa: TID251 - only ever seeded

ABSURD = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x0f\xff\xff\xff")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """`data` with one to five things wrong; never empty."""
    mutated = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(mutated))
        kind = rng.randrange(4)
        if kind == 0:
            mutated[place] = rng.randrange(256)
        elif kind == 1:
            mutated[place : place + 4] = rng.choice(ABSURD)
        elif kind == 2:
            del mutated[place : place + rng.randrange(1, 9)]
        else:
            mutated[place:place] = rng.randbytes(rng.randrange(1, 9))
        mutated = mutated or bytearray(1)
    return bytes(mutated)
