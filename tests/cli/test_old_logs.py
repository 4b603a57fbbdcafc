"""The forensic commands on directories of Kafka 0.7, as their user sees them."""

import pytest

from tests.support.golden07 import copy07, golden07

CLEAN = golden07() / "logs-clean"


@pytest.mark.parametrize(
    "words",
    [
        ("dump-log", "--key", "x"),
        ("dump-log", "--producer-id", "1"),
        ("dump-log", "--tail", "3"),
        ("dump-log", "--offset", "@-1h"),
        ("dump-log", "--hex"),
        ("dump-log", "--follow"),
        ("dump-log", "--format", "kafka"),
        ("repair-log", "--rebuild", "indexes"),
        ("repair-log", "--cut", "0..10"),
    ],
)
def test_options_that_can_match_nothing_are_refused(kctl, words):
    ran = kctl(*words, CLEAN / "none-0")
    assert ran.status == 2
    assert "Kafka 0.7" in ran.err


def test_nothing_is_extracted(kctl, tmp_path):
    ran = kctl("repair-log", "--extract", tmp_path / "out", CLEAN / "none-0")
    assert ran.status == 2
    assert "kctl export" in ran.err


def test_messages_are_selected_by_position_and_number(kctl):
    ran = kctl("dump-log", "-o", "json", "--offset", "100..500", "--limit", "2", CLEAN / "none-0")
    assert [it["offset"] for it in ran.documents if it["type"] == "old_message"] == [166, 298]


def test_a_limit_counts_a_compressed_message_once_with_what_it_contains(kctl):
    ran = kctl("dump-log", "-o", "json", "--limit", "1", CLEAN / "gzip-0")
    depths = [it["depth"] for it in ran.documents if it["type"] == "old_message"]
    assert depths == [0] + [1] * 20


def test_statistics_count_messages_at_every_depth(kctl):
    ran = kctl("dump-log", "--stats", "-o", "json", CLEAN / "nested-0")
    document = ran.documents
    assert (document["batches"], document["records"]) == (9, 21)
    assert {it["codec"]: it["batches"] for it in document["codecs"]} == {
        "none": 5, "gzip": 3, "snappy": 1,
    }  # fmt: skip


def test_statistics_count_damage(kctl):
    ran = kctl("dump-log", "--stats", "-o", "json", golden07() / "recovery" / "before")
    assert ran.status == 1
    assert ran.documents["damaged_places"] == 15


def test_two_copies_are_compared(kctl):
    killed = golden07() / "logs-killed"
    ran = kctl("verify-log", CLEAN / "none-0", "--compare", killed / "none-0")
    assert ran.status == 0
    assert "200 batches agree, up to offset 30688" in ran.err
    assert kctl("verify-log", CLEAN / "none-0", "--compare", CLEAN / "gzip-0").status == 1


def test_a_repair_shows_its_plan_and_keeps_what_it_changes(kctl, tmp_path):
    directory = copy07("recovery/before", tmp_path / "data") / "gzip-bit-0"
    ran = kctl("repair-log", directory)
    assert ran.status == 1
    assert "350 bytes at 1918" in ran.out
    before = next(directory.iterdir()).read_bytes()
    assert kctl("repair-log", "--apply", "--backup", tmp_path / "kept", directory).status == 0
    assert next((tmp_path / "kept").rglob("*.kafka")).read_bytes() == before
    assert kctl("verify-log", directory).status == 0
    documents = kctl("dump-log", "-o", "json", directory).documents
    assert [it["depth"] for it in documents if it["type"] == "old_message"].count(1) == 180
