"""kctl broker demote, on three brokers of kctl's and on three of Apache Kafka 2.7.2."""

import pytest

from tests.cli import test_reassign
from tests.cli.test_reassign import described, replicas, until

# The clusters and helpers of test_reassign.py, as fixtures of this module.
kctl_cluster = test_reassign.kctl_cluster
apache_cluster = test_reassign.apache_cluster
address = test_reassign.address
state = test_reassign.state
make_topic = test_reassign.make_topic


@pytest.fixture
def undo_file(tmp_path):
    return tmp_path / "undo.json"


def leaders(on, topic):
    return [it["leader"] for it in described(on, topic)]


def test_other_brokers_lead_and_the_file_undoes_it(on, make_topic, undo_file):
    topic = make_topic((1, 2), (2, 1), (2, 3), (1, 3), records=1)

    dry = on("broker", "demote", 1, "-n", "-o", "json", "--undo-file", undo_file)
    assert replicas(on, topic)[0] == (1, 2)
    assert not undo_file.exists()
    ran = on("broker", "demote", 1, "-y", "-o", "json", "--undo-file", undo_file)

    assert ran.status == 0, ran.err + ran.out
    expected = [(0, [2, 1]), (3, [3, 1])]
    for it, status in ((dry, "would demote"), (ran, "demoted")):
        rows = [row for row in it.documents if row["topic"] == topic]
        assert [(row["partition"], row["after"]) for row in rows] == expected
        assert {row["status"] for row in rows} == {status}
    assert replicas(on, topic) == [(2, 1), (2, 1), (2, 3), (3, 1)]
    until(lambda: leaders(on, topic) == [2, 2, 2, 3], "elected")

    assert on("reassign", "execute", undo_file, "--wait", "-y").status == 0
    assert on("elect", "preferred", f"{topic}:0,3").status == 0
    assert replicas(on, topic) == [(1, 2), (2, 1), (2, 3), (1, 3)]
    until(lambda: leaders(on, topic) == [1, 2, 2, 1], "elected again")


def test_a_second_run_has_nothing_to_do_and_overwrites_no_file(on, make_topic, undo_file):
    make_topic((1, 2), records=1)
    assert on("broker", "demote", 1, "-y", "--undo-file", undo_file).status == 0
    before = undo_file.read_text()

    refused = on("broker", "demote", 1, "-y", "--undo-file", undo_file)
    again = on("broker", "demote", 1, "--undo-file", undo_file.with_name("other.json"))

    assert refused.status == 2
    assert "exists already" in refused.err
    assert undo_file.read_text() == before
    assert (again.status, again.out) == (0, "")
    assert "Nothing to do" in again.err
    assert not undo_file.with_name("other.json").exists()


def test_a_partition_without_another_replica_keeps_its_leader_and_is_named(
    on, make_topic, undo_file
):
    topic = make_topic((3,), (3,), records=1)

    ran = on("broker", "demote", 3, "-y", "--undo-file", undo_file)

    assert ran.status == 0, ran.err
    assert "without another replica" in ran.err
    assert replicas(on, topic) == [(3,), (3,)]


def test_without_a_yes_nothing_changes(on, make_topic, undo_file):
    topic = make_topic((2, 1), records=1)

    ran = on("broker", "demote", 2, "--undo-file", undo_file)

    assert ran.status == 2
    assert "to demote 1 broker?" in ran.err
    assert not undo_file.exists()
    assert replicas(on, topic) == [(2, 1)]
