"""kctl export --follow as a process: it ends cleanly on SIGTERM, and continues after kill -9.

`KCTL_FOLLOW_KILLS=50 KCTL_TEST_SEED=7` for more kills.
"""

import json
import os
import random  # noqa: TID251 - the seed enters here
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from urllib.request import urlopen

import pyarrow
import pyarrow.parquet
import pytest

from kctl.export.options import TableFormat
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import batch_of, rows_of
from tests.export.test_lake import read

KILLS = int(os.environ.get("KCTL_FOLLOW_KILLS", "5"))
LAKE_KILLS = int(os.environ.get("KCTL_FOLLOW_KILLS", "3"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
TIMEOUT_S = 60


def started(*words):
    command = [sys.executable, "-m", "kctl", "export", "--follow", "--every", "200ms", *words]
    return subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def eventually(condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def count(table):
    """The number of commits, merges included."""
    return len(list(table.glob("_kctl/manifest/*.jsonl")))


def row_count(table):
    try:
        return len(rows_of(table))
    except OSError:
        # A file was merged meanwhile.
        return 0


def test_sigterm_ends_a_run_with_its_status_and_its_report(tmp_path):
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(batch_of(0))
    table = tmp_path / "table"
    process = started(tmp_path / "logs", "--out", table, "-o", "json")
    try:
        eventually(lambda: count(table) == 1 or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()

    assert process.returncode == 143, err
    assert '"rows": 10' in out
    assert "committed 10 records" in err
    assert len(rows_of(table)) == 10


def test_ctrl_c_has_the_same_status_before_anything_has_begun(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        table = tmp_path / "table"
        process = started("-b", address, "--expect-cluster", "x", "-t", "orders", "--out", table)
        try:
            silent.settimeout(TIMEOUT_S)
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()

    assert (process.returncode, out, err) == (130, "", "")


def value_of(partition, offset):
    """Every third value of one partition is not UTF-8."""
    is_bad = partition == 2 and offset % 3 == 0
    return (b"\xff%d-%d" if is_bad else b"%d-%d") % (partition, offset)


@contextmanager
def written_topic():
    """A broker whose topic orders grows until the block ends; yields its address, and the numbers
    of records in its partitions."""
    counts = [0, 0, 0]
    is_over = threading.Event()
    with KafkaBroker(topics=["orders:3"]) as broker:

        def write():
            while not is_over.is_set():
                for partition in range(3):
                    for _ in range(5):
                        value = value_of(partition, counts[partition])
                        key = b"k%d" % (counts[partition] % 11)
                        broker.produce("orders", value, key=key, partition=partition)
                        counts[partition] += 1
                is_over.wait(0.02)

        writer = threading.Thread(target=write)
        writer.start()

        def end():
            is_over.set()
            writer.join()
            return counts

        try:
            yield broker, end
        finally:
            end()


def kill_repeatedly(words, table, kills):
    """Start the command again and again, and kill it at any moment: of its start, or after it has
    committed something."""
    chosen = random.Random(SEED)
    for number in range(kills):
        before = count(table)
        process = started(*words)
        if number % 3 != 2:
            eventually(lambda before=before: count(table) > before)
        time.sleep(chosen.random() * (0.5 if number % 3 != 2 else 1.5))
        assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()


def follow_until(words, condition):
    """Run the command until `condition` holds, and end it as a terminal does."""
    process = started(*words)
    try:
        eventually(lambda: condition() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 130, err


@pytest.mark.slow
def test_a_table_has_each_record_once_after_kills_at_random_moments(tmp_path):
    table, letters = tmp_path / "table", tmp_path / "letters"
    with written_topic() as (broker, end):
        words = ("-b", broker.bootstrap_servers, "-t", "orders", "--out", table)
        words += ("--compact-to", "20KiB", "--value", "string", "--dead-letters", letters)
        kill_repeatedly(words, table, KILLS)
        counts = end()
        follow_until(words, lambda: row_count(table) + row_count(letters) >= sum(counts))
        logged = records_of(broker)
    columns = ("topic", "partition", "offset", "value")
    assert rows_of(letters, columns) == [row for row in logged if row[3][0] == 255]
    rows = [(*row[:3], row[3].encode()) for row in rows_of(table, columns)]
    assert rows == [row for row in logged if row[3][0] != 255]
    lines = [path.read_text() for path in table.glob("_kctl/manifest/*.jsonl")]
    assert any('{"replaced"' in line for line in lines)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table_format", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_a_lake_has_each_record_once_after_kills_at_random_moments(tmp_path, table_format):
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    table = tmp_path / "table"
    with written_topic() as (broker, end):
        words = ("-b", broker.bootstrap_servers, "-t", "orders", "-f", table_format.value)
        words += ("--out", table)
        kill_repeatedly(words, table, LAKE_KILLS)
        counts = end()
        follow_until(words, lambda: files_row_count(table) >= sum(counts))
        logged = records_of(broker)
    found = read(table, table_format).select(["topic", "partition", "offset", "value"])
    rows = sorted(tuple(row.values()) for row in found.to_pylist())
    assert rows == logged


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table_format", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_a_lake_has_the_last_record_of_each_key_after_kills_at_random_moments(
    tmp_path, table_format
):
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    table = tmp_path / "table"
    with written_topic() as (broker, end):
        words = ("-b", broker.bootstrap_servers, "-t", "orders", "-f", table_format.value)
        words += ("--out", table, "--latest-per-key")
        kill_repeatedly(words, table, LAKE_KILLS)
        counts = list(end())
        follow_until(words, lambda: merged_ends(table) == counts)
        last = {(it.partition, it.key): it for it in broker.records("orders")}
    found = read(table, table_format).select(["partition", "key", "offset", "value"])
    rows = sorted(tuple(row.values()) for row in found.to_pylist())
    assert rows == sorted((*key, it.offset, it.value) for key, it in last.items())


def merged_ends(table):
    """The ends of the three partitions whose changes are merged and removed."""
    if list(table.glob("_kctl/changes/*")):
        return None
    ends = [0, 0, 0]
    for path in table.glob("_kctl/manifest/*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            ends[row["partition"]] = max(ends[row["partition"]], row["end_offset"])
    return ends


def records_of(broker):
    """What the log holds, as rows."""
    found = broker.records("orders")
    return sorted(("orders", it.partition, it.offset, it.value) for it in found)


def files_row_count(table):
    """The rows in the files of a table, committed by its own log or not yet."""
    try:
        return sum(
            pyarrow.parquet.ParquetFile(path).metadata.num_rows for path in table.glob("*.parquet")
        )
    except (OSError, pyarrow.ArrowInvalid):
        # A file that is being moved.
        return 0


def test_metrics_are_served_until_the_run_ends(tmp_path):
    pytest.importorskip("h11")
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(batch_of(0))
    table = tmp_path / "table"
    process = started(tmp_path / "logs", "--out", table, "--metrics-port", "0")
    try:
        line = process.stderr.readline()
        assert line.startswith("metrics on http://127.0.0.1:"), line
        url = line.split()[-1]

        def rows():
            with urlopen(url, timeout=TIMEOUT_S) as response:
                return 'kctl_follow_rows_total{topic="orders"} 10' in response.read().decode()

        eventually(rows)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()

    assert process.returncode == 143, err
