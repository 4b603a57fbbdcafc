"""The machine that plays the fault matrix: what it can play, what it says, and that it can see."""

from types import SimpleNamespace

import pytest

from kctl.simulation.queue_checker import Anomaly, Kind
from tests.torture.__main__ import main
from tests.torture.cells import Cell, Row, different_replicas
from tests.torture.faults import FAULTS, flip
from tests.torture.systems import PARTITIONS, SYSTEMS

BATCH = b"a batch that all have"


def test_a_cell_is_played_or_says_why_not(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for system in SYSTEMS:
        for number, fault in FAULTS.items():
            name = f"{system} {number} {fault.name}"
            assert sum(line in (name, *_refused(line, name)) for line in lines) == 1, name
    assert "not possible: K1 F8 pause_followers: a lone broker has no followers" in lines


def _refused(line, name):
    return [line] if line.startswith(f"not possible: {name}: ") else []


def test_two_faults_that_take_copies_away_do_not_meet():
    assert "more than three can bear" in Cell("K3", ("F12", "F10"), "C", 1).why_not()


def test_a_row_counts_what_went_wrong_and_fails():
    row = Row(Cell("K3", ("F4", "F9"), "CD", 7), acknowledged=100, transactions=3)
    assert row.is_good
    row.anomalies = [Anomaly(Kind.LOST_WRITE, "x"), Anomaly(Kind.LOST_WRITE, "y"), "it ended"]
    assert str(row).startswith(
        "FAIL K3 F4 pause_leader_beyond_session+F9 kill_store CD seed 7: 100 acknowledged, "
        "3 transactions, 2 lost, 0 duplicated, 0 reordered, 0 aborted reads, 1 other"
    )


@pytest.fixture
def system(tmp_path):
    """Three stopped brokers whose replicas are the same."""
    for broker in ("1", "2", "3"):
        for number in range(PARTITIONS):
            directory = tmp_path / broker / f"t-{number}"
            directory.mkdir(parents=True)
            (directory / f"{0:020}.log").write_bytes(BATCH)
    machines = {it: SimpleNamespace(log_dirs=[tmp_path / str(it)]) for it in (1, 2, 3)}
    return SimpleNamespace(topics=["t"], machines=machines)


def test_replicas_that_are_the_same_are_no_news(system):
    assert list(different_replicas(system)) == []


def test_a_flipped_bit_in_one_replica_is_seen(system, tmp_path):
    flip(tmp_path / "2" / "t-1" / f"{0:020}.log", 5, 3)
    words = list(different_replicas(system))
    assert words
    assert all("t-1" in it and "differ" in it for it in words)


def test_a_replica_that_is_gone_is_seen(system, tmp_path):
    (tmp_path / "3" / "t-0").rename(tmp_path / "3" / "t-0-delete")
    assert list(different_replicas(system)) == ["t-0 is there 2 times"]
