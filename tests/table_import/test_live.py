"""Tables are sent to live brokers through the producer; a failure reports the rows written."""

import json
from pathlib import Path

import pytest

from kctl.cli.app import run as kctl
from kctl.client.partitioner import partition_for_key
from kctl.table_import import import_live


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
    assert json.loads(capsys.readouterr().out) == [{"topic": "orders", "partitions": 3, "rows": 10}]
    assert kctl(words) == 2
    assert "--yes" in capsys.readouterr().err
    assert not kafka_broker.records("orders")


@pytest.mark.kafka_topics("orders:3")
def test_failure_reports_where_to_continue(kafka_broker, table, capsys):
    path = table(30_000)
    words = ["import", path, "-b", kafka_broker.bootstrap_servers, "-t", "orders", "-y"]
    done = import_live._send
    chunks = []

    async def send(producer, *arguments):
        if len(chunks) == 2:
            kafka_broker.inject_disconnect("Produce", times=None)
            producer._timeout_ms = 300
        chunks.append(1)
        await done(producer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_live, "_send", send)
        assert kctl(words) == 3
    message = capsys.readouterr().err
    assert "After 20000 rows" in message
    assert "--skip 20000" in message
    assert "10000 whose outcome is unknown" in message
    assert len(kafka_broker.records("orders")) == 20_000
    kafka_broker.clear_faults()
    assert kctl([*words, "--skip", "20000"]) == 0
    assert len(kafka_broker.records("orders")) == 30_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"value": "bad", "topic": "orders", "partition": 7}',
            "Rows of orders name partition 7, but it has 3",
        ),
        ('{"value": "bad", "topic": "nowhere"}', "No topic nowhere"),
        ('{"value": "bad", "headers": [1]}', "not a header"),
        ('{"value_base64": "?", "topic": "orders"}', "base64"),
        ('{"value": "bad", "timestamp": "noon"}', "t.ndjson: "),
    ],
)
@pytest.mark.parametrize("last", ["--dry-run", "--yes"])
@pytest.mark.kafka_topics("orders:3")
def test_every_row_is_checked_before_the_first_is_written(
    kafka_broker, table, capsys, line, message, last
):
    path = table(20_000, topic="orders")
    with Path(path).open("a") as file:
        file.write(f"{line}\n")
    assert kctl(["import", path, "-b", kafka_broker.bootstrap_servers, last]) in (1, 2)
    assert message in capsys.readouterr().err
    assert not kafka_broker.records("orders")


@pytest.mark.kafka_topics("users")
def test_csv_columns_and_nulls_are_not_guessed(kafka_broker, tmp_path, capsys):
    path = tmp_path / "users.csv"
    path.write_text("key,value,vaule\na,,x\n")
    words = ["import", str(path), "-b", kafka_broker.bootstrap_servers, "-t", "users", "-y"]
    assert kctl(words) == 0
    assert "warning: columns that are not imported: vaule." in capsys.readouterr().err
    assert kctl([*words, "--null", ""]) == 0
    assert [(it.key, it.value) for it in kafka_broker.records("users")] == [
        (b"a", b""), (b"a", None),
    ]  # fmt: skip


def test_options_for_files_are_refused_before_brokers_are_asked(table, capsys):
    for option in (["--jobs", "2"], ["--partitions", "3"], ["--order-by", "timestamp"]):
        words = ["import", table(10), "-b", "127.0.0.1:1", "-t", "orders", "-y", *option]
        assert kctl(words) == 2
        assert "go with --into DIR" in capsys.readouterr().err


@pytest.mark.kafka_topics("orders:3")
def test_rows_that_the_table_does_not_have_cannot_be_skipped(kafka_broker, table, capsys):
    words = ["import", table(10), "-b", kafka_broker.bootstrap_servers, "-t", "orders", "-y"]
    assert kctl([*words, "--skip", "11"]) == 2
    assert "--skip 11: the table has 10 rows" in capsys.readouterr().err
    assert kctl([*words, "--skip", "10"]) == 0
    assert not kafka_broker.records("orders")


def test_topic_must_exist(kafka_broker, table, capsys):
    words = ["import", table(10), "-b", kafka_broker.bootstrap_servers, "-t", "nowhere", "-y"]
    assert kctl(words) == 1
    assert "kctl topic create nowhere" in capsys.readouterr().err
