"""A record of an unknown type: Kafka 2.7.2's tool ends there, kctl's names it."""

import pytest

from kctl.cli.app import run
from kctl.records.builder import RecordBatchBuilder
from tests.support.apache_kafka import run_tool

KEYS = [b"\0\x63group", b"\0\2\0\1g"]


@pytest.fixture
def log(tmp_path):
    builder = RecordBatchBuilder()
    for key in KEYS:
        builder.append(timestamp=1_600_000_000_000, key=key, value=None)
    path = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(builder.build())
    return str(path)


def test_an_unknown_type_is_no_damage_and_does_not_end_the_dump(log, capfdbinary):
    assert run(["dump-log", "--offsets-decoder", "--files", log, "--format", "kafka"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert "Unknown record type 99 at offset 0, skipping." in lines[-2]
    assert lines[-1].endswith("key: group_metadata::group=g payload: <DELETE>")


@pytest.mark.kafka
def test_kafka_2_7_2_ends_with_an_exception(log):
    ended = run_tool(
        "kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", log, check=False
    )
    assert ended.returncode == 1
    assert "Unknown message key schema version 99" in ended.stderr
    assert "group_metadata" not in ended.stdout
