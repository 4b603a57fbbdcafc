"""kctl topic purge, on kctl and on Apache Kafka 2.7.2."""

import pytest

from kctl.cli.topic.scope import partitions_named


@pytest.fixture
def filled(on, topic):
    """A topic with two records in partition 0 and three in partition 1."""
    assert on("produce", topic, "a", "b", "-p", 0).status == 0
    assert on("produce", topic, "c", "d", "e", "-p", 1).status == 0
    return topic


def offsets(on, topic):
    [document] = on("topic", "describe", topic, "--offsets", "-o", "json").documents
    return [(it["start_offset"], it["end_offset"]) for it in document["partitions"]]


def test_purge_deletes_all_records_and_reports_each_partition(on, filled):
    ran = on("topic", "purge", filled, "-y", "-o", "json")

    assert ran.status == 0, ran.err
    assert [(it["partition"], it["new_start_offset"], it["status"]) for it in ran.documents] == [
        (0, 2, "deleted"),
        (1, 3, "deleted"),
        (2, 0, "unchanged"),
    ]
    assert offsets(on, filled) == [(2, 2), (3, 3), (0, 0)]
    assert on("consume", filled, "--from-beginning", "--exit").out == ""


def test_purge_needs_a_yes_and_shows_what_it_would_delete(on, filled):
    refused = on("topic", "purge", filled)

    assert refused.status == 2
    assert "Delete up to 5 records of 2 partitions?" in refused.err
    assert filled in refused.err
    assert offsets(on, filled) == [(0, 2), (0, 3), (0, 0)]


def test_a_dry_run_of_purge_deletes_nothing(on, filled):
    ran = on("topic", "purge", filled, "--before", 1, "-n", "-o", "json")

    assert [it["status"] for it in ran.documents] == ["would delete", "would delete", "failed"]
    assert [it["new_start_offset"] for it in ran.documents] == [1, 1, None]
    assert offsets(on, filled) == [(0, 2), (0, 3), (0, 0)]


@pytest.mark.parametrize(
    ("before", "starts"), [("2", [2, 2]), ("-1", [1, 2]), ("@-1h", [0, 0]), ("@2100-01-01", [2, 3])]
)
def test_purge_stops_before_an_offset_a_time_or_the_last_records(on, filled, before, starts):
    ran = on("topic", "purge", f"{filled}:0,1", "--before", before, "-y")

    assert ran.status == 0, ran.err + ran.out
    assert [start for start, _ in offsets(on, filled)] == [*starts, 0]


def test_an_offset_after_the_end_fails_for_its_partition_only(on, filled):
    ran = on("topic", "purge", filled, "--before", 3, "-y", "-o", "json")

    assert ran.status == 1
    assert [it["status"] for it in ran.documents] == ["failed", "deleted", "failed"]
    assert ran.documents[0]["error"] == "offset 3 is after the end offset 2"
    assert offsets(on, filled) == [(0, 2), (3, 3), (0, 0)]


def test_purge_names_the_policy_of_a_compacted_topic(on, name):
    on("topic", "create", name, "-p", 1, "-r", 1, "-c", "cleanup.policy=compact")
    on("produce", name, "a", "-k", "k")

    ran = on("topic", "purge", name, "-y", "-o", "json")

    assert ran.status == 1
    assert "cleanup.policy is compact" in ran.documents[0]["error"]
    assert offsets(on, name) == [(0, 1)]

    on("topic", "alter", name, "-c", "cleanup.policy=compact,delete", "-y")
    assert on("topic", "purge", name, "-y").status == 0
    assert offsets(on, name) == [(1, 1)]


def test_a_glob_purges_the_topics_that_it_matches(on, filled):
    ran = on("topic", "purge", f"{filled[:-1]}?:1", "-y", "-o", "json")

    assert [(it["topic"], it["partition"]) for it in ran.documents] == [(filled, 1)]
    ran = on("topic", "purge", "no-such-*", "-y")
    assert (ran.status, ran.err) == (0, "No topic matches no-such-*\n")


def test_partitions_of_a_topic_that_is_named_twice_are_added_up():
    assert partitions_named(["t:0", "t:2,0", "u:1", "u"]) == {"t": [0, 2], "u": None}
    assert partitions_named(["u", "u:1"]) == {"u": None}
