"""C5: groups on ZooKeeper under simulated faults, and the bugs that the simulation must see.

By hand: `python -m kctl.simulation.zookeeper_groups --seeds 0-9999`, and
`python -m tests.sim.planted_groups`.
"""

import pytest

from kctl.simulation.zookeeper_groups import play
from tests.sim.planted_groups import PLANTED

SEEDS = range(40)
# Seeds to try when the noted one no longer shows the bug because the code has changed.
OTHER_SEEDS = range(30)
# Bugs that take more seeds are looked for by hand.
COMMON = [name for name, bug in PLANTED.items() if bug.seed <= 20]


def test_there_are_enough_planted_bugs_and_each_says_what_it_is():
    assert len(PLANTED) >= 10
    assert all(bug.plant.__doc__ for bug in PLANTED.values())


def test_the_same_seed_gives_the_same_run():
    first, second = play(3), play(3)
    assert first.trace == second.trace
    assert first.counters == second.counters


@pytest.mark.sim
def test_no_seed_shows_two_owners_or_an_orphan():
    outcomes = [play(seed) for seed in SEEDS]
    assert {it.seed: it.violation for it in outcomes if it.violation is not None} == {}
    assert sum(it.counters["delivered"] for it in outcomes) > 20_000


@pytest.mark.sim
@pytest.mark.parametrize("name", COMMON)
def test_a_planted_bug_is_seen(name, monkeypatch):
    bug = PLANTED[name]
    bug.plant(monkeypatch.setattr)
    assert any(play(seed).violation is not None for seed in (bug.seed, *OTHER_SEEDS))
