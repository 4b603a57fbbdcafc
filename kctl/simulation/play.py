"""Plays seeds, in this process or in several.

Other processes import this module to play: they cannot import what `python -m` runs as `__main__`.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import get_context

from kctl.simulation.simulation import Outcome, Simulation


def play(
    seed: int,
    has_transactions: bool | None = None,
    is_pipelined: bool | None = None,
    is_secured: bool | None = None,
) -> Outcome:
    """Play one seed to its end; the seed draws each parameter that is None."""
    return Simulation(
        seed, has_transactions=has_transactions, is_pipelined=is_pipelined, is_secured=is_secured
    ).run()


def play_all(
    seeds: Iterable[int],
    jobs: int,
    has_transactions: bool | None = None,
    is_pipelined: bool | None = None,
    is_secured: bool | None = None,
) -> Iterator[Outcome]:
    """Play every seed in `jobs` processes and yield the outcomes in order of the seeds."""
    play_one = partial(
        play, has_transactions=has_transactions, is_pipelined=is_pipelined, is_secured=is_secured
    )
    if jobs <= 1:
        yield from map(play_one, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(play_one, seeds, chunksize=4)
