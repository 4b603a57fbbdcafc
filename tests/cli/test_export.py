"""kctl export: from log directories, and from brokers."""

import json
import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from kctl.records.builder import build_batch
from kctl.records.record import Record
from tests.export.log_files import batch_of, rows_of


@pytest.fixture
def logs(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(batch_of(0, 30))
    return tmp_path / "logs"


def test_log_directory_becomes_a_table(kctl, logs, tmp_path):
    ran = kctl("export", logs, "--topic", "orders", "--out", tmp_path / "table", "-o", "json")
    assert ran.status == 0
    (report,) = ran.documents
    assert (report["rows"], report["files"], report["damaged_ranges"]) == (30, 1, 0)
    assert len(rows_of(tmp_path / "table")) == 30


@pytest.mark.slow
def test_a_file_that_cannot_grow_is_named_with_a_way_out(kctl, tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(batch_of(0, 3_000))
    words = ["export", tmp_path / "logs", "--out", tmp_path / "table"]
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))"
    run = "from kctl.__main__ import main; main()"
    # Python ignores that a file of bytecode is cut by the limit, and fails on it ever after.
    ran = subprocess.run(
        [sys.executable, "-B", "-c", f"{limit}; {run}", *words, "-j", "1"],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 1
    error, hint = [line for line in ran.stderr.splitlines() if line.startswith(("error", "hint"))]
    assert error.startswith(f"error: {tmp_path}/table/_kctl/tmp/")
    assert hint == "hint: raise the limit of file sizes: ulimit -f"
    assert kctl(*words).status == 0
    assert len(rows_of(tmp_path / "table")) == 3_000


def test_a_table_that_is_named_as_a_file_is_announced_as_a_directory(kctl, logs, tmp_path):
    out = tmp_path / "orders.parquet"

    ran = kctl("export", logs, "--out", out)

    assert ran.status == 0
    assert f"note: {out} becomes a directory, which holds the files of the table" in ran.err
    assert len(rows_of(out)) == 30
    assert "becomes a directory" not in kctl("export", logs, "--out", tmp_path / "table").err


def test_a_table_is_not_written_to_standard_output(kctl, logs, tmp_path, monkeypatch):
    """It was written to a directory called "-"."""
    monkeypatch.chdir(tmp_path)
    ran = kctl("export", logs, "--out", "-", "--format", "ndjson")
    assert ran.status == 2
    assert "a table is a directory, and cannot be written to standard output" in ran.err
    assert not (tmp_path / "-").exists()


def test_a_file_in_the_place_of_the_table_is_refused(kctl, logs, tmp_path):
    out = tmp_path / "orders.parquet"
    out.write_text("")

    ran = kctl("export", logs, "--out", out)

    assert ran.status == 2
    assert str(out) in ran.err


def test_records_of_a_broker_become_a_table(kctl, address, tmp_path):
    topic = f"exported-{tmp_path.name}"
    kctl("topic", "create", topic, "-p", "2", "-b", address)
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"key": f"k{n}", "value": f"v{n}"}) + "\n"
                             for n in range(50)))  # fmt: skip
    assert kctl("produce", topic, "-b", address, "-i", "ndjson", "--file", lines).status == 0
    words = ("export", "-b", address, "-t", topic, "--out", tmp_path / "table", "-o", "json")
    assert kctl(*words, "--offset", "0..10").documents[0]["rows"] <= 20
    assert kctl(*words).status == 0
    assert kctl(*words).documents[0]["rows"] == 0
    rows = rows_of(tmp_path / "table")
    assert sorted(row[4] for row in rows) == sorted(b"v%d" % n for n in range(50))


@pytest.mark.kafka
def test_only_committed_records_of_a_broker_are_exported(kctl, apache_broker, tmp_path):
    topic = f"committed-{tmp_path.name}"
    kctl("topic", "create", topic, "-b", apache_broker)
    producer = Producer({"bootstrap.servers": apache_broker, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"kept" if number % 2 else b"dropped")
        producer.flush()
        if number % 2:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    words = ("export", "-b", apache_broker, "-t", topic, "--isolation", "read_committed")
    ran = kctl(*words, "--out", tmp_path / "table", "-o", "json")
    assert ran.documents[0]["rows"] == 9
    assert [row[4] for row in rows_of(tmp_path / "table")] == [b"kept"] * 9
    assert kctl(*words, "--out", tmp_path / "table", "-o", "json").documents[0]["rows"] == 0


def test_damage_is_reported_and_fails_the_command(kctl, logs, tmp_path):
    path = logs / "orders-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + build_batch([Record(30, 1, b"k", b"v")])[:-3])
    ran = kctl("export", logs, "--out", tmp_path / "table")
    assert ran.status == 1
    assert f"error: {path} at position" in ran.err
    assert len(rows_of(tmp_path / "table")) == 30


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--columns", "key,colour"), "No column colour"),
        (("--partition-by", "week"), "Cannot partition by week"),
        (("--file-size", "big"), "Not a size"),
        (("--schema", "none.json"), "--schema goes with"),
        (("--value", "json", "--schema", "none.json"), "Cannot read none.json"),
        (("--value", "json", "--format", "csv"), "CSV cannot hold nested"),
        (("--offset", "yesterday"), "Not an offset"),
    ],
)
def test_misuse_is_one_line_and_makes_no_table(kctl, logs, tmp_path, words, what):
    ran = kctl("export", logs, "--out", tmp_path / "table", *words)
    assert ran.status == 2
    assert ran.err.startswith(f"error: {what}")
    assert not (tmp_path / "table").exists() or not list((tmp_path / "table").glob("*.*"))


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (("--topic", "payments"), "No topic payments", "found: orders"),
        (("-p", "99"), "No partition 99", "found: 0"),
    ],
)
def test_topics_and_partitions_that_no_source_has_are_named(
    kctl, logs, tmp_path, words, what, hint
):
    ran = kctl("export", logs, "--out", tmp_path / "table", *words)

    assert ran.status == 1
    assert ran.err.startswith(f"error: {what}")
    assert f"hint: {hint}" in ran.err


def test_neither_source_nor_topic_is_misuse(kctl, tmp_path):
    ran = kctl("export", "--out", tmp_path / "table")
    assert (ran.status, ran.err.splitlines()[0]) == (
        2, "error: Nothing to export: neither SOURCE nor --topic",
    )  # fmt: skip


@pytest.mark.slow
def test_command_killed_while_it_works_is_taken_up(logs, tmp_path):
    directory = logs / "orders-0"
    for number in range(1, 200):
        base = 30 * number
        (directory / f"{base:020d}.log").write_bytes(batch_of(base, 30))
    words = [sys.executable, "-m", "kctl", "export", str(logs), "--out", str(tmp_path / "table"),
             "--file-size", "2k", "--jobs", "2"]  # fmt: skip
    for delay in (0.3, 0.45, 0.6):
        try:
            subprocess.run(words, timeout=delay, capture_output=True, check=False)
        except subprocess.TimeoutExpired:  # it has been killed
            continue
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(6000))
