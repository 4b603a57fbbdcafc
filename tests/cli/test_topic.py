"""kctl topic."""

import pytest


def test_created_topics_are_listed(on, name):
    ran = on("topic", "create", f"{name}-a", f"{name}-b", "-p", 2, "-r", 1, "-o", "json")

    assert ran.status == 0
    assert [(it["topic"], it["status"]) for it in ran.documents] == [
        (f"{name}-a", "created"),
        (f"{name}-b", "created"),
    ]
    assert on("topic", "list", f"{name}-*", "-o", "name").lines == [f"{name}-a", f"{name}-b"]


def test_a_topic_that_exists_fails_but_the_others_are_created(on, topic, name):
    ran = on("topic", "create", topic, f"{name}-new", "-p", 1, "-r", 1, "-o", "json")

    assert ran.status == 1
    assert [it["status"] for it in ran.documents] == ["failed", "created"]
    assert "exists" in ran.documents[0]["error"]


def test_if_not_exists_ignores_a_topic_that_exists(on, topic):
    ran = on("topic", "create", topic, "--if-not-exists", "-p", 1, "-r", 1, "-o", "json")

    assert ran.status == 0
    assert ran.documents[0]["status"] == "exists"


def test_a_dry_run_of_create_creates_nothing(on, name):
    ran = on("topic", "create", name, "-p", 3, "-r", 1, "-n", "-o", "json")

    assert ran.status == 0
    assert ran.documents[0]["status"] == "would create"
    assert on("topic", "list", name, "-o", "json").documents == []


def test_a_mistyped_setting_gets_a_suggestion(on, name):
    ran = on("topic", "create", name, "-p", 1, "-r", 1, "-c", "retention.mss=1", "-o", "json")

    assert ran.status == 1
    assert "did you mean retention.ms?" in ran.documents[0]["error"]


def test_too_many_replicas_are_rejected(on, name):
    ran = on("topic", "create", name, "-p", 1, "-r", 5)

    assert ran.status == 1
    assert "replica" in ran.out.lower()


def test_replicas_can_be_assigned_explicitly(on, name):
    broker = on("cluster", "describe", "-o", "json").documents["brokers"][0]["broker"]

    ran = on("topic", "create", name, "--replica-assignment", f"{broker},{broker}")

    assert ran.status == 0, ran.out
    [topic] = on("topic", "describe", name, "-o", "json").documents
    assert [it["replicas"] for it in topic["partitions"]] == [[broker], [broker]]


def test_describe_shows_leaders_settings_and_offsets(on, topic):
    on("topic", "alter", topic, "-c", "max.message.bytes=2000000")
    on("produce", topic, "x", "y", "-p", 1)

    ran = on("topic", "describe", topic, "--offsets", "-o", "json")

    [document] = ran.documents
    assert document["partition_count"] == 3
    assert document["replication_factor"] == 1
    assert document["configs"] == {"max.message.bytes": "2000000"}
    assert [it["end_offset"] for it in document["partitions"]] == [0, 2, 0]
    assert all(it["leader"] == it["replicas"][0] for it in document["partitions"])


def test_describe_prints_a_table_per_topic(on, topic):
    ran = on("topic", "describe", topic)

    assert ran.lines[0] == f"{topic}: 3 partitions, replication factor 1"
    assert ran.lines[1].split() == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"]
    assert len(ran.lines) == 5


def test_describing_an_unknown_topic_suggests_a_known_one(on, topic):
    ran = on("topic", "describe", topic[:-1] + "x")

    assert ran.status == 1
    assert ran.err.startswith(f"error: No topic {topic[:-1]}x\n")
    assert f"hint: did you mean {topic}?" in ran.err


def test_a_glob_without_matches_is_reported(on, name):
    for argv in (("describe",), ("delete", "--yes")):
        ran = on("topic", *argv, f"{name}*")

        assert (ran.status, ran.err) == (0, f"No topic matches {name}*\n")


def test_healthy_partitions_are_not_under_replicated(on, topic):
    ran = on("topic", "describe", topic, "--under-replicated", "--unavailable", "-o", "json")

    assert ran.status == 0
    assert ran.documents == []


def test_partitions_can_be_added_but_not_removed(on, topic):
    assert on("topic", "alter", topic, "-p", 5).status == 0
    [document] = on("topic", "describe", topic, "-o", "json").documents
    assert document["partition_count"] == 5

    ran = on("topic", "alter", topic, "-p", 2)
    assert ran.status == 1
    assert "5" in ran.out


def test_a_dry_run_of_alter_changes_nothing(on, topic):
    ran = on("topic", "alter", topic, "-p", 9, "-c", "retention.ms=5", "-n", "-o", "json")

    assert ran.status == 0, ran.err
    assert {it["status"] for it in ran.documents} == {"would alter"}
    [document] = on("topic", "describe", topic, "-o", "json").documents
    assert document["partition_count"] == 3
    assert document["configs"] == {}


def test_shortening_retention_needs_a_yes(on, topic):
    refused = on("topic", "alter", topic, "-c", "retention.ms=1000")
    assert refused.status == 2
    assert "retention.ms" in refused.err
    assert "--yes" in refused.err

    assert on("topic", "alter", topic, "-c", "retention.ms=1000", "-y").status == 0
    # Longer again: nothing can be lost.
    assert on("topic", "alter", topic, "-c", "retention.ms=2000").status == 0


def test_deleting_needs_a_yes(on, topic):
    refused = on("topic", "delete", topic)

    assert refused.status == 2
    assert topic in refused.err
    assert on("topic", "list", topic, "-o", "name").lines == [topic]


def test_a_dry_run_of_delete_deletes_nothing(on, topic):
    ran = on("topic", "delete", topic, "-n", "-o", "json")

    assert [(it["topic"], it["status"]) for it in ran.documents] == [(topic, "would delete")]
    assert on("topic", "list", topic, "-o", "name").lines == [topic]


def test_topics_are_deleted_by_pattern(on, name):
    on("topic", "create", f"{name}-1", f"{name}-2", "-p", 1, "-r", 1)

    ran = on("topic", "delete", f"{name}-*", "-y", "-o", "name")

    assert ran.status == 0
    assert ran.lines == [f"{name}-1", f"{name}-2"]
    assert on("topic", "list", f"{name}*", "-o", "name").lines == []


def test_deleting_an_unknown_topic_fails_without_if_exists(on, name):
    assert on("topic", "delete", name, "-y").status == 1
    assert on("topic", "delete", name, "-y", "--if-exists").status == 0


@pytest.mark.parametrize("argv", [("-p", "0"), ("-r", "-1")])
def test_numbers_below_one_are_invalid_usage(on, name, argv):
    ran = on("topic", "create", name, *argv)

    assert ran.status == 2
    assert "at least 1" in ran.err


def test_an_invalid_name_is_reported(on):
    ran = on("topic", "create", "no/slashes", "-p", 1, "-r", 1, "-o", "json")

    assert ran.status == 1
    assert ran.documents[0]["status"] == "failed"


def test_sizes_of_topics_are_listed_the_largest_first(on, name):
    on("topic", "create", f"{name}-small", f"{name}-large", "-p", 2, "-r", 1)
    on("produce", f"{name}-large", "x" * 2000)
    on("produce", f"{name}-small", "y")

    ran = on("topic", "list", f"{name}-*", "--size", "-o", "json")

    assert [it["name"] for it in ran.documents] == [f"{name}-large", f"{name}-small"]
    assert ran.documents[0]["size_bytes"] > 2000
    table = on("topic", "list", f"{name}-*", "--size")
    assert table.lines[0].split() == ["NAME", "PARTITIONS", "REPLICATION-FACTOR", "SIZE"]
    assert table.lines[1].endswith(" KiB")


def test_the_sizes_of_partitions_are_drawn(on, topic):
    on("produce", topic, "-p", 1, "x" * 1000)
    ran = on("topic", "describe", topic, "--plot")
    bars = ran.lines[-3:]

    assert [it.split()[:2] for it in bars] == [[topic, str(number)] for number in range(3)]
    assert "█" in bars[1]
    assert "█" not in bars[0]
    document = on("topic", "describe", topic, "--plot", "-o", "json").documents[0]
    assert document["partitions"][1]["size_bytes"] > 1000
