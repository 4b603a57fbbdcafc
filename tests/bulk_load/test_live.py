"""Tables go to live brokers through the producer; where it fails, it says how far it came."""

import json
from pathlib import Path

import pytest

from kctl.admin.partitioner import partition_for_key
from kctl.cli.app import run as kctl


@pytest.fixture
def table(tmp_path):
    def make(count, **more):
        path = tmp_path / "t.ndjson"
        rows = [{"key": f"k{n % 9}", "value": f"v{n}", "timestamp": 1000 + n} | more
                for n in range(count)]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return make


@pytest.mark.kafka_topics("orders:3")
def test_rows_are_in_the_topic(kafka_broker, table):
    words = ["import", table(25_000), "-b", kafka_broker.bootstrap_servers, "-t", "orders", "-y"]
    assert kctl(words) == 0
    found = kafka_broker.records("orders")
    assert sorted(int(it.value[1:]) for it in found) == list(range(25_000))
    for it in found:
        assert it.partition == partition_for_key(it.key, 3)
        assert it.timestamp == 1000 + int(it.value[1:])


@pytest.mark.kafka_topics("orders:3")
def test_plan_is_shown_and_nothing_is_written(kafka_broker, table, capsys):
    words = ["import", table(10), "-b", kafka_broker.bootstrap_servers, "-t", "orders"]
    assert kctl([*words, "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"topic": "orders", "rows": 10}]
    assert kctl(words) == 2
    assert "--yes" in capsys.readouterr().err
    assert not kafka_broker.records("orders")


@pytest.mark.kafka_topics("orders:3")
def test_failure_says_where_to_go_on(kafka_broker, table, tmp_path, capsys):
    path = table(20_000)
    with Path(path).open("a") as file:
        file.write('{"value": "bad", "partition": 7}\n')
    words = ["import", path, "-b", kafka_broker.bootstrap_servers, "-t", "orders", "-y"]
    assert kctl(words) == 1
    told = capsys.readouterr().err
    assert "After 20000 rows" in told
    assert "--skip 20000" in told
    assert len(kafka_broker.records("orders")) == 20_000
    assert kctl([*words, "--skip", "20000", "--repartition"]) == 0
    assert [it.value for it in kafka_broker.records("orders") if it.value == b"bad"] == [b"bad"]


def test_topic_must_be_there(kafka_broker, table, capsys):
    words = ["import", table(10), "-b", kafka_broker.bootstrap_servers, "-t", "nowhere", "-y"]
    assert kctl(words) == 1
    assert "kctl topic create nowhere" in capsys.readouterr().err
