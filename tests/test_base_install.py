"""The base install: what runs without NumPy, pyarrow and the other libraries of the extras."""

import subprocess
import sys
from pathlib import Path

import pytest

from kctl.dump.bulk_stats import add_window_in_bulk
from kctl.dump.file_stats import add_file, add_window_by_record
from kctl.dump.stats import LogStats
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from kctl.storage.file_records import FileRecords
from kctl.verify.segment_walk import Window, walk
from tests.support.golden import golden_files
from tests.support.without_libraries import environment_without

DISK = RealDisk()
T0_MS = 1_600_000_000_000

# Every codec through a broker, and what its commands show of it.
STORY = """
import json, sys
from kctl.cli.app import run
from kctl.testing.kafka_broker import KafkaBroker

with KafkaBroker(topics=["orders:1"]) as broker:
    address = broker.bootstrap_servers
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        assert run(["produce", "orders", f"v{number}", "--compression", codec, "-b", address]) == 0
    assert len(broker.records("orders")) == 5
    assert run(["consume", "orders", "-B", "-e", "-b", address]) == 0
    assert run(["topic", "describe", "orders", "-b", address]) == 0
    assert run(["cluster", "health", "-b", address]) == 0
"""
PLUGIN_TEST = """
import pytest

@pytest.mark.kafka_topics("orders:3")
def test_orders(kafka_broker):
    kafka_broker.produce("orders", "tea", key="alice")
    assert [record.value for record in kafka_broker.records("orders")] == [b"tea"]
    import sys
    assert sys.modules.get("numpy") is None
"""


@pytest.fixture
def base(tmp_path):
    """Run Python in an environment without the libraries of the extras."""
    environment = environment_without(tmp_path / "site")

    def run(*words, cwd=tmp_path):
        return subprocess.run(
            [sys.executable, *map(str, words)],
            env=environment, capture_output=True, text=True, check=False, cwd=cwd,
        )  # fmt: skip

    return run


@pytest.fixture
def large_log(tmp_path):
    """A log file that is read in bulk where that is possible, with a batch that holds no records
    although its checksum is right."""
    path = tmp_path / "large-0" / f"{0:020}.log"
    path.parent.mkdir()
    batches = [
        build_batch(
            [Record(base + n, T0_MS + base, b"key-%d" % (n % 7), b"v" * 3_000) for n in range(50)]
        )
        for base in range(0, 400, 50)
    ]
    path.write_bytes(b"".join([*batches[:5], undecodable(250), *batches[6:]]))
    assert path.stat().st_size > 1_000_000
    return path


def undecodable(base_offset):
    """A batch with a right checksum whose first record has an impossible length."""
    from kctl.records.record_batch import RECORD_BATCH_OVERHEAD, RecordBatch

    batch = bytearray(build_batch([Record(base_offset + n, T0_MS, b"k", b"v") for n in range(50)]))
    batch[RECORD_BATCH_OVERHEAD] = 0xFF
    batch[17:21] = RecordBatch(memoryview(batch)).compute_crc().to_bytes(4, "big")
    return bytes(batch)


def test_the_environment_has_none_of_the_libraries(base):
    for name in ("numpy", "pyarrow", "pyspark"):
        assert base("-c", f"import {name}").returncode == 1


def test_broker_and_admin_commands_run_with_every_codec(base):
    ran = base("-c", STORY)
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if line[:1] == "v"] == [
        f"v{number}" for number in range(5)
    ]


def test_the_pytest_plugin_runs(base, tmp_path):
    test = tmp_path / "test_orders.py"
    test.write_text(PLUGIN_TEST)
    ran = base("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", test)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["dump-log", "--print-data-log"],
        ["dump-log", "--deep-iteration", "--format", "kafka"],
        ["verify-log", "-o", "json"],
        ["dump-log", "--stats", "-o", "json"],
    ],
)
def test_forensics_of_a_large_file_say_the_same(base, large_log, words):
    with_libraries = subprocess.run(
        [sys.executable, "-m", "kctl", *words, large_log],
        capture_output=True, text=True, check=False, cwd=large_log.parents[1],
    )  # fmt: skip
    without = base("-m", "kctl", *words, large_log)
    assert without.returncode == with_libraries.returncode == 1
    assert without.stdout == with_libraries.stdout
    assert without.stderr == with_libraries.stderr


def test_repair_completes(base, large_log):
    directory = large_log.parent
    ran = base("-m", "kctl", "repair-log", directory, "--apply")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert base("-m", "kctl", "verify-log", directory).returncode == 0


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["export", "data", "--out", "table"], "export"),
        (["import", "table.parquet", "--into", "data"], "export"),
        (["dump-log", "x.log", "--value-as", "avro", "--schema", "x.avsc"], "avro"),
        (["dump-log", "x.log", "--value-as", "protobuf", "--schema", "x.proto"], "protobuf"),
        (["verify-log", "--spark", "LOG"], "spark"),
        (["export", "--spark", "data", "--out", "table"], "spark"),
    ],
)
def test_what_needs_an_extra_names_it(base, large_log, words, extra):
    ran = base("-m", "kctl", *(str(large_log) if word == "LOG" else word for word in words))
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.splitlines()[-1] == f"hint: pip install 'kctl-kafka[{extra}]'"
    assert ran.stderr.startswith("error: ")


def figures(path, add_window):
    stats = LogStats()
    records = FileRecords.open(DISK, str(path))
    for item in walk(records, 0):
        if isinstance(item, Window):
            add_window(stats, item)
    records.close()
    return stats


GOLDEN_LOGS = sorted(
    {name.split("/")[1] for name in golden_files("logs/clean.tar.xz") if name.endswith(".log")}
)


@pytest.mark.parametrize("topic", GOLDEN_LOGS)
def test_statistics_by_record_equal_those_in_bulk(topic, tmp_path):
    for name, data in golden_files("logs/clean.tar.xz").items():
        if name.startswith(f"logs-clean/{topic}/") and name.endswith(".log"):
            path = tmp_path / Path(name).name
            path.write_bytes(data)
            assert figures(path, add_window_by_record) == figures(path, add_window_in_bulk)


def test_statistics_of_damage_by_record_equal_those_in_bulk(large_log):
    in_bulk = LogStats()
    add_file(in_bulk, DISK, str(large_log), 0)
    assert in_bulk.damaged_places == 1
    assert figures(large_log, add_window_by_record) == in_bulk.__class__(
        **{**{name: getattr(in_bulk, name) for name in LogStats.__slots__}, "files": 0, "size": 0}
    )
