"""The resurrection list: known bugs, each planted in the real code by replacing one function.

`planted.py` has those of replicated logs, `planted_transactions.py` those of transactions and
groups, `planted_security.py` those of authentication and ACLs. Each has the first seed that saw it
when it was last looked for, SEEDS_MAX if none did; `python -m tests.sim.resurrection [NAME ...]`
does so. A planter takes `patch(owner, name, value)`, which is pytest's `monkeypatch.setattr` or
anything that undoes it afterwards.
"""

import sys
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from kctl.simulation.simulation import Simulation

SEEDS_MAX = 1_000


@dataclass(frozen=True)
class Bug:
    """A bug: where it was, a seed that sees it, what puts it in; its docstring says what it is."""

    bug_id: str
    seed: int
    plant: Any
    # Whether transactional clients take part when it is looked for.
    has_transactions: bool
    # Whether producers with several batches in flight do; None: the seed draws it.
    is_pipelined: bool | None = None
    # Whether clients authenticate and ACLs change; None: the seed draws it.
    is_secured: bool | None = None

    def violation(self, seed):
        """What a seed sees of it once it is planted, or None."""
        simulation = Simulation(
            seed,
            has_transactions=self.has_transactions,
            is_pipelined=self.is_pipelined,
            is_secured=self.is_secured,
        )
        return simulation.run().violation


PLANTED: dict[str, Bug] = {}


def planted(bug_id, seed, *, has_transactions=False, is_pipelined=None, is_secured=None):
    """Enter a planter under its own name."""

    def enter(planter):
        PLANTED[planter.__name__] = Bug(
            bug_id, seed, planter, has_transactions, is_pipelined, is_secured
        )
        return planter

    return enter


def everything():
    """All of them, by name."""
    # They enter themselves.
    import tests.sim.planted
    import tests.sim.planted_security
    import tests.sim.planted_transactions  # noqa: F401

    return PLANTED


def first_seed(name, seeds_max=SEEDS_MAX):
    """(name, seed, violation) of the first seed that sees a planted bug; (name, None, "") if none
    does. The bug stays planted: for a process of its own."""
    bug = everything()[name]
    bug.plant(setattr)
    for seed in range(seeds_max):
        violation = bug.violation(seed)
        if violation is not None:
            return name, seed, violation
    return name, None, ""


def look_for(names, jobs):
    """(name, seed, violation) of each, as they are found; each in a process of its own."""
    with get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(first_seed, names, chunksize=1)


def main(names):
    """Look for these, or for all."""
    for found, seed, violation in look_for(names or list(everything()), jobs=2):
        sys.stdout.write(f"{found:45} seed {seed}: {violation[:120]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # This module by its name, which is not that of the command.
    from tests.sim import resurrection

    resurrection.main(sys.argv[1:])
