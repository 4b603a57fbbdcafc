"""Whole clusters from seeds: no seed shows a violation, and a seed is always the same story."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields

import pytest

from kctl.simulation.__main__ import main, report
from kctl.simulation.cluster import FaultCounters
from kctl.simulation.old_controllers import OLD_VERSIONS
from kctl.simulation.plan import Plan
from kctl.simulation.play import play, play_all
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.scheduler import NodeScheduler, SimScheduler
from kctl.simulation.security import SecurityPlan
from kctl.simulation.simulation import Simulation
from kctl.store.embedded import EmbeddedStore

# More of them: KCTL_SIM_SEEDS=5000 pytest -m sim tests/sim
SEED_COUNT = int(os.environ.get("KCTL_SIM_SEEDS", "200"))
JOBS = os.cpu_count() or 1
# So many draw every fault and habit.
ENOUGH_SEEDS = 200
SECURITY_COUNTED = (
    "acl_changes", "allowed_requests", "denied_requests", "rejected_strangers",
    "certificates_reloaded", "tls_handshakes",
)  # fmt: skip
FAULTS_COUNTED = (
    *(field.name for field in fields(FaultCounters)),
    *("links_slowed", "old_requests", "unclean_elections", "topics_deleted", "logs_cut"),
    *SECURITY_COUNTED,
)


def test_a_seed_is_played_to_its_end():
    outcome = play(5)
    assert outcome.violation is None, report(outcome, 60)
    assert outcome.counters["acknowledged"] > 0
    assert outcome.counters["records_read"] > 0
    assert outcome.counters["batches_compared"] > 0


@pytest.mark.sim
def test_transactions_and_groups_take_part_where_they_are_asked_for():
    outcome = play(7, has_transactions=True)
    assert outcome.violation is None, report(outcome, 60)
    for what in ("committed", "aborted", "copied", "read"):
        assert outcome.counters[f"transactions_{what}"] > 0
    assert outcome.counters["generations"] > 0


@pytest.mark.sim
def test_producers_with_several_batches_in_flight_take_part_where_they_are_asked_for():
    alone, together = play(12, is_pipelined=False), play(12, is_pipelined=True)
    assert together.violation is None, report(together, 60)
    assert "pipelined_producers=0" in alone.plan
    assert "pipelined_producers=0" not in together.plan


@pytest.mark.slow
def test_authentication_and_changing_acls_take_part_where_they_are_asked_for(monkeypatch):
    """Without other faults, which may leave no time for them."""
    security = SecurityPlan(session_ms=1_500, reload=250)
    monkeypatch.setattr(Plan, "drawn", classmethod(lambda cls, _: cls()))
    monkeypatch.setattr(Plan, "draw_later_faults", lambda *_: None)
    monkeypatch.setattr(SecurityPlan, "drawn", classmethod(lambda *_: security))
    first, second = (
        play(2, has_transactions=False, is_pipelined=False, is_secured=True) for _ in range(2)
    )
    assert first.violation is None, report(first, 60)
    for what in SECURITY_COUNTED:
        assert first.counters[what] > 0, what
    assert second.digest == first.digest


@pytest.mark.sim
def test_a_seed_is_the_same_story_whatever_ran_before():
    first = play(1)
    play(8)
    assert play(1).digest == first.digest


@pytest.mark.slow
def test_a_seed_is_the_same_story_under_another_hash_seed():
    digests = set()
    for hash_seed in ("1", "4711"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "kctl.simulation",
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


@pytest.mark.sim
def test_the_command_prints_how_to_replay_a_violation(capsys):
    outcome = play(1)
    outcome.violation = "two leaders"
    assert "replay: python -m kctl.simulation --seed 1" in report(outcome, 10)
    assert main(["--seed", "1"]) == 0
    assert "1 seeds, 0 with a violation" in capsys.readouterr().out


@pytest.mark.sim
@pytest.mark.long
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


@pytest.mark.sim
def test_the_command_plays_in_several_processes():
    """Workers could not import what `python -m` had run as `__main__`, and were started forever."""
    ran = subprocess.run(
        [sys.executable, "-m", "kctl.simulation", "--seeds", "0-1", "--jobs", "2"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "2 seeds, 0 with a violation" in ran.stdout


def test_a_stalled_loop_runs_its_background_jobs_and_nothing_else():
    world = SimScheduler()
    node = NodeScheduler(world, "broker", SimEntropy(1, "jobs"))
    seen = []
    node.stall()
    node.call_later(1, seen.append, "timer")
    node.call_soon(seen.append, "callback")
    node.background(lambda: seen.append("job")).add_done_callback(lambda _: seen.append("told"))
    world.run_for(1_000)
    assert seen == ["job"]
    node.resume()
    world.run_for(1)
    assert sorted(seen) == ["callback", "job", "timer", "told"]


def test_an_emptied_store_gets_no_controller_and_no_broker(monkeypatch):
    """Decision 0050; with its data back, the cluster comes to rest."""
    monkeypatch.setattr(Plan, "drawn", classmethod(lambda cls, _: cls()))
    simulation = Simulation(2, has_transactions=False)
    simulation.plan.stall = simulation.plan.store_loss = 0
    simulation._start()
    cluster, store = simulation.cluster, simulation.cluster.store
    store.lose_data()
    # Create the paths that a registration needs.
    operator = EmbeddedStore(store.runtime, store.database)
    for path in ("/brokers", "/brokers/ids", "/brokers/topics"):
        operator.create(path, b"")
    cluster.world.run_for(5_000)
    nodes = store.database.tree.nodes
    assert cluster.store.expired >= len(cluster.brokers)
    assert [
        path for path in nodes if path == "/controller" or path.startswith("/brokers/ids/")
    ] == []
    store.restore_data()
    cluster.world.run_for(5_000)
    assert store.controller_id() in cluster.brokers
    simulation._heal()
    simulation._converge()
    assert cluster.violation is None


@pytest.mark.sim
@pytest.mark.parametrize("versions", OLD_VERSIONS, ids=lambda it: it.protocol)
def test_brokers_obey_controllers_of_older_versions(monkeypatch, versions):
    monkeypatch.setattr(Plan, "drawn", classmethod(lambda cls, _: cls(habits={"delete": 6})))
    monkeypatch.setattr(Plan, "draw_later_faults", lambda plan, _: with_old(plan, versions))
    outcome = Simulation(4, has_transactions=False).run()
    assert outcome.violation is None, report(outcome, 60)
    assert outcome.counters["old_requests"] > 0
    assert outcome.counters["acknowledged"] > 0


def with_old(plan, versions):
    plan.old_controller = versions
    plan.settings["inter.broker.protocol.version"] = versions.protocol
