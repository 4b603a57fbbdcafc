"""kctl dump-log as its user sees it."""

import json

import pytest

from kctl.cli.app import run
from kctl.records.builder import build_batch
from kctl.records.record import Record


@pytest.fixture
def partition(tmp_path):
    directory = tmp_path / "orders-0"
    directory.mkdir()
    data = build_batch([Record(0, 1_600_000_000_000, b"key", b"value")])
    (directory / "00000000000000000000.log").write_bytes(data)
    return directory


def test_text_shows_batches_and_on_demand_records(partition, capfdbinary):
    assert run(["dump-log", str(partition)]) == 0
    shallow = capfdbinary.readouterr().out.decode()
    assert "1 record" in shallow
    assert "key" not in shallow
    assert run(["dump-log", "--print-data-log", str(partition)]) == 0
    assert "key               value\n" in capfdbinary.readouterr().out.decode()


def test_json_is_one_list_and_ndjson_a_line_each(partition, capfdbinary):
    assert run(["dump-log", "--format", "json", "--print-data-log", str(partition)]) == 0
    documents = json.loads(capfdbinary.readouterr().out)
    assert [document["type"] for document in documents] == ["file", "batch", "record"]
    assert run(["dump-log", "--format", "ndjson", "--print-data-log", str(partition)]) == 0
    lines = capfdbinary.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == documents


def test_kafka_format_has_kafkas_words(partition, capfdbinary):
    path = partition / "00000000000000000000.log"
    assert run(["dump-log", "--format", "kafka", "--deep-iteration", str(path)]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0] == f"Dumping {path}"
    assert lines[1] == "Starting offset: 0"
    assert lines[3] == (
        "| offset: 0 CreateTime: 1600000000000 keysize: 3 valuesize: 5 sequence: -1 headerKeys: []"
    )


def test_damage_is_reported_and_fails(partition, capfdbinary):
    path = partition / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[65] ^= 1
    path.write_bytes(data)
    assert run(["dump-log", str(partition)]) == 1
    printed = capfdbinary.readouterr()
    assert b"CRC IS WRONG" in printed.out
    assert printed.err.decode().startswith(f"error: {path}: at byte 0: Record is corrupt")


@pytest.mark.parametrize(
    "words",
    [["missing"], [], ["--offsets-decoder", "--raw", "."], ["--format", "xml", "."]],
)
def test_misuse_is_reported_and_prints_nothing(words, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    assert run(["dump-log", *words]) == 2
    assert capfdbinary.readouterr().out == b""


def test_undecodable_record_is_damage(partition, capfdbinary):
    # A committed offset whose key ends after the version.
    data = build_batch([Record(0, 1_600_000_000_000, b"\0\1", b"value")])
    (partition / "00000000000000000000.log").write_bytes(data)
    assert run(["dump-log", "--offsets-decoder", str(partition)]) == 1
    assert "record at offset 0" in capfdbinary.readouterr().err.decode()


def test_record_of_an_unknown_type_is_printed_as_by_kafka_4_1(partition, capfdbinary):
    assert run(["dump-log", "--offsets-decoder", str(partition)]) == 0
    # The key's first two bytes are the type.
    number = int.from_bytes(b"ke")
    assert f"Unknown record type {number} at offset 0" in capfdbinary.readouterr().out.decode()
