"""kctl export --follow as a process: it ends cleanly on SIGTERM, and continues after kill -9.

`KCTL_FOLLOW_KILLS=50 KCTL_TEST_SEED=7` for more kills.
"""

import os
import random  # noqa: TID251 - the seed enters here
import signal
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

import pytest

from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import batch_of, rows_of

KILLS = int(os.environ.get("KCTL_FOLLOW_KILLS", "5"))
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


def test_sigterm_ends_a_run_with_status_0_and_its_report(tmp_path):
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

    assert process.returncode == 0, err
    assert '"rows": 10' in out
    assert "committed 10 records" in err
    assert len(rows_of(table)) == 10


@pytest.mark.slow
def test_a_table_has_each_record_once_after_kills_at_random_moments(tmp_path):
    chosen = random.Random(SEED)
    table, letters = tmp_path / "table", tmp_path / "letters"

    def value_of(partition, offset):
        # Every third value of one partition is not UTF-8.
        is_bad = partition == 2 and offset % 3 == 0
        return (b"\xff%d-%d" if is_bad else b"%d-%d") % (partition, offset)

    with KafkaBroker(topics=["orders:3"]) as broker:
        is_over = threading.Event()
        counts = [0, 0, 0]

        def write():
            while not is_over.is_set():
                for partition in range(3):
                    for _ in range(5):
                        value = value_of(partition, counts[partition])
                        broker.produce("orders", value, partition=partition)
                        counts[partition] += 1
                is_over.wait(0.02)

        writer = threading.Thread(target=write)
        writer.start()
        words = ("-b", broker.bootstrap_servers, "-t", "orders", "--out", table)
        words += ("--compact-to", "20KiB", "--value", "string", "--dead-letters", letters)
        try:
            for _ in range(KILLS):
                before = count(table)
                process = started(*words)
                # It has written something, and is killed at any moment after that.
                eventually(lambda before=before: count(table) > before)
                time.sleep(chosen.random() * 0.5)
                assert process.poll() is None, process.communicate()
                process.kill()
                process.communicate()
        finally:
            is_over.set()
            writer.join()
        process = started(*words)
        try:
            eventually(
                lambda: (
                    row_count(table) + row_count(letters) >= sum(counts)
                    or process.poll() is not None
                )
            )
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    values = [
        ("orders", partition, offset, value_of(partition, offset))
        for partition in range(3)
        for offset in range(counts[partition])
    ]
    columns = ("topic", "partition", "offset", "value")
    assert rows_of(letters, columns) == [row for row in values if row[3][0] == 255]
    rows = [(*row[:3], row[3].encode()) for row in rows_of(table, columns)]
    assert rows == [row for row in values if row[3][0] != 255]
    lines = [path.read_text() for path in table.glob("_kctl/manifest/*.jsonl")]
    assert any('{"replaced"' in line for line in lines)


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

    assert process.returncode == 0, err
