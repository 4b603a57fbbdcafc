"""kctl export --explain shows what the next run reads, and changes nothing."""

import json

import pytest

pytest.importorskip("pyarrow")

from kctl.cli.app import run as kctl
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment


@pytest.fixture
def logs(tmp_path):
    """orders-0: 300 records in three segments; orders-1: 10 records."""
    for base in (0, 100, 200):
        batches = [batch_of(base + 10 * number) for number in range(10)]
        write_segment(RealDisk(), tmp_path / "logs" / "orders-0", base, batches)
    write_segment(RealDisk(), tmp_path / "logs" / "orders-1", 0, [batch_of(0)])
    return tmp_path / "logs"


@pytest.fixture
def explained(logs, tmp_path, capfd):
    """The rows by partition, and what is said."""

    def run(*words, status=0):
        command = ["export", "--explain", logs, *words, "--out", tmp_path / "table", "-o", "json"]
        capfd.readouterr()
        assert kctl(list(map(str, command))) == status
        shown = capfd.readouterr()
        rows = json.loads(shown.out) if status == 0 else []
        return {row["partition"]: row for row in rows}, shown.err

    return run


def test_a_first_run_reads_everything_and_explaining_it_writes_nothing(explained, tmp_path):
    found, said = explained()
    first = found["orders-0"]
    assert (first["to_read"], first["exported"], first["segments"]) == (300, 0, 3)
    assert first["bytes"] == first["all_bytes"] > 0
    assert found["orders-1"]["to_read"] == 10
    assert "would read 310 offsets" in said
    assert "of 2 partitions in 2 tasks" in said
    assert "would write parquet to" in said
    assert not (tmp_path / "table").exists()


def test_what_bounds_leave_out_is_not_read(explained):
    found, _said = explained("--offset", "150..170", "-p", "0")
    row = found["orders-0"]
    assert (row["to_read"], row["segments"], row["all_segments"]) == (20, 1, 3)
    assert 0 < row["bytes"] < row["all_bytes"] / 3


def test_what_the_table_has_is_not_read(explained, logs, tmp_path):
    out = ["--out", str(tmp_path / "table")]
    assert kctl(["export", str(logs), "-p", "0", "--offset", "0..250", *out, "-j", "1"]) == 0
    before = sorted(map(str, tmp_path.rglob("*")))
    found, said = explained()
    row = found["orders-0"]
    assert (row["exported"], row["to_read"], row["segments"]) == (250, 50, 1)
    assert "would read 60 offsets" in said
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_tasks_and_where_they_run(explained):
    found, said = explained("--file-size", "1500", "-j", "3")
    assert sum(row["tasks"] for row in found.values()) > 3
    assert "in up to 3 processes" in said
    pytest.importorskip("pyspark")
    _found, said = explained("--spark", "--master", "spark://head:7077")
    assert "on Spark (spark://head:7077)" in said


def test_a_table_that_other_options_made_is_refused_as_by_the_export(explained, logs, tmp_path):
    out = ["--out", str(tmp_path / "table")]
    assert kctl(["export", str(logs), "--format", "csv", "--value", "string", "--key", "string",
                 *out, "-j", "1"]) == 0  # fmt: skip
    _found, said = explained(status=2)
    assert "was exported with a different" in said
    _found, said = explained("--follow", status=2)
    assert "--explain shows a single run" in said


def test_the_table_on_a_terminal(logs, tmp_path, capfd):
    words = ["export", "--explain", logs, "--offset", "150..170", "--out", tmp_path / "table"]
    assert kctl(list(map(str, words))) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == [
        "PARTITION", "OFFSETS", "EXPORTED", "TO-READ", "SEGMENTS", "BYTES", "TASKS"
    ]  # fmt: skip
    assert lines[1].split()[:6] == ["orders-0", "0..300", "0", "20", "1", "of"]


def test_of_brokers(tmp_path, capfd):
    producers = pytest.importorskip("confluent_kafka")
    from kctl.testing.kafka_broker import KafkaBroker

    with KafkaBroker(topics=["orders:2"]) as broker:
        producer = producers.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(40):
            producer.produce("orders", b"%d" % number, partition=number % 2)
        producer.flush()
        words = ["export", "-b", broker.bootstrap_servers, "-t", "orders", "--offset", "5..",
                 "--out", str(tmp_path / "table")]  # fmt: skip
        capfd.readouterr()
        assert kctl([*words, "--explain", "-o", "json"]) == 0
        rows = json.loads(capfd.readouterr().out)
        assert [(it["partition"], it["to_read"], it["tasks"]) for it in rows] == [
            ("orders-0", 15, 1), ("orders-1", 15, 1),
        ]  # fmt: skip
        assert not (tmp_path / "table").exists()
        assert kctl(words) == 0
        capfd.readouterr()
        assert kctl([*words, "--explain", "-o", "json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [(it["exported"], it["to_read"], it["tasks"]) for it in rows] == [(15, 0, 0)] * 2
