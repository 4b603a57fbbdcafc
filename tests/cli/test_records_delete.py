"""kctl records delete, on kctl and on Apache Kafka 2.7.2."""

import json

import pytest


@pytest.fixture
def filled(on, topic):
    """A topic with two records in partition 0 and three in partition 1."""
    assert on("produce", topic, "a", "b", "-p", 0).status == 0
    assert on("produce", topic, "c", "d", "e", "-p", 1).status == 0
    return topic


@pytest.fixture
def offsets_file(tmp_path):
    """Write a file of kafka-delete-records: `offsets_file(("t", 0, 5), ...)` returns its path."""

    def write(*offsets):
        items = [dict(zip(("topic", "partition", "offset"), it, strict=True)) for it in offsets]
        path = tmp_path / "offsets.json"
        path.write_text(json.dumps({"partitions": items, "version": 1}))
        return path

    return write


def starts(on, topic):
    [document] = on("topic", "describe", topic, "--offsets", "-o", "json").documents
    return [it["start_offset"] for it in document["partitions"]]


@pytest.mark.parametrize(
    ("before", "expected"),
    [("1", [1, 1]), ("-1", [1, 2]), ("@-1h", [0, 0]), ("@2100-01-01", [2, 3]), ("latest", [2, 3])],
)
def test_records_before_an_offset_a_time_or_an_age_are_deleted(on, filled, before, expected):
    ran = on("records", "delete", f"{filled}:0,1", "--before", before, "-y", "-o", "json")

    assert ran.status == 0, ran.err
    assert [it["new_start_offset"] for it in ran.documents] == expected
    assert starts(on, filled) == [*expected, 0]


def test_the_file_of_kafka_delete_records_is_accepted(on, filled, offsets_file):
    path = offsets_file((filled, 1, -1), (filled, 0, 1))

    ran = on("records", "delete", "--offset-json-file", path, "-y", "-o", "json")

    assert ran.status == 0, ran.err
    assert [(it["partition"], it["new_start_offset"], it["status"]) for it in ran.documents] == [
        (0, 1, "deleted"),
        (1, 3, "deleted"),
    ]
    assert starts(on, filled) == [1, 3, 0]


def test_nothing_is_deleted_without_a_yes_or_in_a_dry_run(on, filled, offsets_file):
    path = offsets_file((filled, 0, 2))

    refused = on("records", "delete", "--offset-json-file", path)
    dry = on("records", "delete", "--offset-json-file", path, "-n", "-o", "json")

    assert refused.status == 2
    assert "Delete up to 2 records of 1 partition?" in refused.err
    assert [it["status"] for it in dry.documents] == ["would delete"]
    assert starts(on, filled) == [0, 0, 0]


def test_one_partition_fails_and_the_others_are_done(on, filled, offsets_file):
    path = offsets_file((filled, 0, 9), (filled, 1, 2))

    ran = on("records", "delete", "--offset-json-file", path, "-y", "-o", "json")

    assert ran.status == 1
    assert [(it["status"], it["error"]) for it in ran.documents] == [
        ("failed", "offset 9 is after the end offset 2"),
        ("deleted", None),
    ]
    assert starts(on, filled) == [0, 2, 0]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([("t", 0, 1), ("t", 0, 2)], "partitions[1]: t-0 appears twice"),
        ([("t", 0, -2)], "partitions[0]: offset -2 is not valid"),
        ([("t", 0, "5")], "partitions[0]: offset is missing or of the wrong type"),
        ([], "names no partition"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_sent(kctl, offsets_file, offsets, message):
    ran = kctl("records", "delete", "--offset-json-file", offsets_file(*offsets), "-y")

    assert ran.status == 2
    assert message in ran.err


def test_an_unknown_partition_of_a_file_deletes_nothing(on, filled, offsets_file):
    path = offsets_file((filled, 0, 1), (filled, 99, 1))

    ran = on("records", "delete", "--offset-json-file", path, "-y")

    assert ran.status == 1
    assert "no partition 99" in ran.err
    assert starts(on, filled) == [0, 0, 0]
