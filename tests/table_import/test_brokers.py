"""Brokers serve what was imported into their directories: kctl's, and Apache Kafka 2.7.2."""

import json
import time

import pytest

from kctl.cli.app import run as kctl
from kctl.runtime.real.disk import RealDisk
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

COUNT = 2000
TRIES_MAX = 40


def table_of(path, first):
    with path.open("w") as file:
        for number in range(first, first + COUNT):
            headers = [{"name": "n", "value": str(number)}]
            row = {"key": f"k{number % 31}", "value": f"v{number}", "headers": headers}
            file.write(json.dumps(row) + "\n")
    return str(path)


def consumed(capsys, address):
    capsys.readouterr()
    words = ["consume", "orders", "-b", address, "--from-beginning", "--exit", "-o", "ndjson"]
    for _ in range(TRIES_MAX):
        # A broker that has just started may not lead its partitions yet.
        if kctl(words) == 0:
            break
        time.sleep(0.5)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["headers"] == [{"name": "n", "value": row["value"][1:]}] for row in rows)
    return sorted(int(row["value"][1:]) for row in rows)


def import_into(directory, table, *more):
    assert kctl(["import", table, "--into", str(directory), "-t", "orders", "-y", *more]) == 0
    assert kctl(["verify-log", str(directory)]) == 0


def test_kctl_serves_a_new_topic_and_one_that_grew(tmp_path, capsys):
    broker = KctlBroker(tmp_path / "broker")
    import_into(broker.log_dir, table_of(tmp_path / "a.ndjson", 0), "-p", "3")
    broker.start()
    try:
        assert consumed(capsys, broker.address) == list(range(COUNT))
        assert (
            kctl(["produce", "orders", "-b", broker.address, "-H", f"n={COUNT}", f"v{COUNT}"]) == 0
        )
        words = ["import", table_of(tmp_path / "b.ndjson", COUNT + 1), "--into",
                 str(broker.log_dir), "-t", "orders", "-y"]  # fmt: skip
        assert kctl(words) == 1
        assert "stop it" in capsys.readouterr().err
        broker.stop()
        assert kctl(words) == 0
        broker.start()
        assert consumed(capsys, broker.address) == list(range(2 * COUNT + 1))
    finally:
        broker.stop()
    assert kctl(["verify-log", str(broker.log_dir)]) == 0


@pytest.mark.kafka
def test_apache_kafka_serves_a_new_topic_and_one_that_grew(tmp_path, capsys):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    logs = tmp_path / "kafka" / "logs"
    import_into(logs, table_of(tmp_path / "a.ndjson", 0), "-p", "3")
    with running_zookeeper(tmp_path) as zookeeper:
        with apache_kafka.apache_broker(tmp_path / "kafka", zookeeper.address) as address:
            assert kctl(["topic", "create", "orders", "-p", "3", "-b", address]) == 0
            assert consumed(capsys, address) == list(range(COUNT))
        assert RealDisk().exists(str(logs / ".kafka_cleanshutdown"))
        import_into(logs, table_of(tmp_path / "b.ndjson", COUNT), "-z", "zstd")
        with apache_kafka.apache_broker(tmp_path / "kafka", zookeeper.address) as address:
            assert consumed(capsys, address) == list(range(2 * COUNT))
            assert kctl(["produce", "orders", "-b", address, "-H", f"n={2 * COUNT}",
                         f"v{2 * COUNT}"]) == 0  # fmt: skip
            assert consumed(capsys, address) == list(range(2 * COUNT + 1))
    assert kctl(["verify-log", str(logs)]) == 0
