"""kctl log-stats: what logs hold, of directories and of a cluster."""

import pytest

from kctl.records.builder import build_batch
from kctl.records.compression import CompressionType
from kctl.records.record import Record
from tests.cli.top_snapshots import HOSTILE

T0_MS = 1_600_000_000_000


def write(directory, base=0, batches=2, records=3, **options):
    directory.mkdir(parents=True, exist_ok=True)
    data = b"".join(
        bytes(
            build_batch(
                [
                    Record(first + i, T0_MS + first + i, b"key", b"value" * 100)
                    for i in range(records)
                ],
                **options,
            )
        )
        for first in range(base, base + batches * records, records)
    )
    (directory / f"{base:020d}.log").write_bytes(data)
    return len(data)


@pytest.fixture
def logs(tmp_path):
    write(tmp_path / "orders-0", compression_type=CompressionType.GZIP)
    write(tmp_path / "orders-1", batches=1)
    write(tmp_path / "orders-1", base=3, batches=4)
    write(tmp_path / "plain-0")
    return tmp_path


def test_figures_by_topic(kctl, logs):
    ran = kctl("log-stats", logs, "-o", "json")
    orders, plain = ran.documents

    assert ran.status == 0
    assert (orders["topic"], orders["partitions"], orders["segments"]) == ("orders", 2, 3)
    assert (orders["records"], orders["batches"], orders["records_per_batch"]) == (21, 7, 3)
    assert (orders["oldest_ms"], orders["newest_ms"]) == (T0_MS, T0_MS + 14)
    assert orders["codecs"] == ["gzip", "none"]
    assert plain["codecs"] == ["none"]
    assert 0.8 < plain["ratio"] < 1 < orders["ratio"]
    assert plain["size"] == (logs / "plain-0" / f"{0:020d}.log").stat().st_size


def test_figures_by_partition_with_bars(kctl, logs):
    ran = kctl("log-stats", logs, "--by-partition", "-t", "orders", "-o", "json")
    assert [(it["topic"], it["partition"], it["batches"]) for it in ran.documents] == [
        ("orders", 0, 2), ("orders", 1, 5),
    ]  # fmt: skip
    assert ran.documents[0]["ratio"] > 5
    ran = kctl("log-stats", logs, "--by-partition", "--plot")
    for heading in ("size", "age of the first record", "compression"):
        assert heading in ran.lines
    assert sum(it.startswith("orders-1  ") for it in ran.lines) == 3
    assert kctl("log-stats", logs / "plain-0", "-o", "csv").lines[1].startswith("plain,1,1,")


def test_a_topic_without_files_is_reported(kctl, logs):
    ran = kctl("log-stats", logs, "-t", "plain", "-t", "order")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "error: No topic order\nhint: did you mean orders?\n"


def test_damage_is_counted_and_a_hostile_name_is_one_line(kctl, tmp_path):
    bad = tmp_path / "bad-0"
    write(bad)
    path = bad / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5])
    write(tmp_path / f"{HOSTILE}-0")
    ran = kctl("log-stats", tmp_path, "--plot")

    assert ran.status == 1
    assert all(line.isprintable() for line in ran.lines)


def test_a_cluster_reports_sizes_and_ages(on, topic):
    on("produce", topic, "a", "b")
    ran = on("log-stats", "-t", topic, "-o", "json")
    [row] = ran.documents
    assert (row["partitions"], row["records"], row["ratio"]) == (3, 2, None)
    assert row["size"] > 0
    assert row["oldest_ms"] <= row["newest_ms"]
    ran = on("log-stats", "-t", topic, "--by-partition", "--plot")
    assert ran.status == 0, ran.err
    assert "age of the first record" in ran.lines
    ran = on("log-stats", "-t", f"{topic}-no")
    assert (ran.status, ran.err.splitlines()[0]) == (1, f"error: No topic {topic}-no")
