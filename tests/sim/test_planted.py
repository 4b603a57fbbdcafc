"""The simulation sees what it is there to see: known bugs, planted in the real code."""

import pytest

from kctl.testing.simulation import Simulation
from tests.sim.planted import PLANTED, plant

# Bugs that took more seeds are looked for on demand only, by `python -m tests.sim.planted`.
COMMON_SEED_MAX = 25
# Seeds tried when the one noted does not see the bug any more, as the code has moved on.
OTHER_SEEDS = range(60)
COMMON = [name for name, (_, seed, _) in PLANTED.items() if seed <= COMMON_SEED_MAX]


def test_every_planted_bug_says_what_it_is():
    assert len(PLANTED) >= 30
    assert all(planter.__doc__ for _, _, planter in PLANTED.values())


@pytest.mark.sim
@pytest.mark.parametrize("name", COMMON)
def test_a_planted_bug_is_seen(name, monkeypatch):
    plant(name, monkeypatch.setattr)
    seeds = (PLANTED[name][1], *OTHER_SEEDS)
    assert any(
        Simulation(seed, has_transactions=False).run().violation is not None for seed in seeds
    )
