"""Whole clusters from seeds: no seed shows a violation, and a seed is always the same story."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields

import pytest

from kctl.testing.sim_cluster import FaultCounters
from kctl.testing.simulate import main, play, play_all, report

# More of them: KCTL_SIM_SEEDS=5000 pytest -m sim tests/sim
SEED_COUNT = int(os.environ.get("KCTL_SIM_SEEDS", "200"))
JOBS = os.cpu_count() or 1
# So many draw every fault and habit.
ENOUGH_SEEDS = 200
FAULTS_COUNTED = (
    *(field.name for field in fields(FaultCounters)),
    *("links_slowed", "unclean_elections", "topics_deleted", "logs_cut"),
)


def test_a_seed_is_played_to_its_end():
    outcome = play(5)
    assert outcome.violation is None, report(outcome, 60)
    assert outcome.counters["acknowledged"] > 0
    assert outcome.counters["records_read"] > 0
    assert outcome.counters["batches_compared"] > 0


def test_transactions_and_groups_take_part_where_they_are_asked_for():
    outcome = play(7, has_transactions=True)
    assert outcome.violation is None, report(outcome, 60)
    for what in ("committed", "aborted", "copied", "read"):
        assert outcome.counters[f"transactions_{what}"] > 0
    assert outcome.counters["generations"] > 0


def test_a_seed_is_the_same_story_whatever_ran_before():
    first = play(7)
    play(8)
    assert play(7).digest == first.digest


def test_a_seed_is_the_same_story_under_another_hash_seed():
    digests = set()
    for hash_seed in ("1", "4711"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "kctl.testing.simulate",
                "--seeds",
                "3-4",
                "--digest",
                "--transactions",
            ],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        digests.add(tuple(line for line in done.stdout.splitlines() if line.startswith("seed ")))
    assert len(digests) == 1
    assert len(digests.pop()) == 2


def test_the_command_tells_how_to_replay_what_it_found(capsys):
    outcome = play(1)
    outcome.violation = "two leaders"
    assert "replay: python -m kctl.testing.simulate --seed 1" in report(outcome, 10)
    assert main(["--seed", "1"]) == 0
    assert "1 seeds, 0 with a violation" in capsys.readouterr().out


@pytest.mark.sim
def test_no_seed_shows_a_violation_and_every_fault_happens():
    failed = []
    totals = Counter()
    for outcome in play_all(range(SEED_COUNT), JOBS):
        totals.update(outcome.counters)
        if outcome.violation is not None:
            failed.append(report(outcome, 60))
    assert not failed, "\n\n".join(failed)
    if SEED_COUNT >= ENOUGH_SEEDS:
        deeds = [name for name in totals if name.startswith("operator_")]
        assert [name for name in (*FAULTS_COUNTED, *deeds) if not totals[name]] == []
