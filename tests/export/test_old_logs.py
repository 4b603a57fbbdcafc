"""Logs of Kafka 0.7 as tables: every message that a consumer gets, and those behind damage."""

import json
import random  # noqa: TID251 - damage comes from seeds

import pytest

from kctl.arrow_files.log_discovery import find_logs
from kctl.errors import UsageError
from kctl.export.options import TableFormat
from kctl.export.rows import DamagedRange
from kctl.model import Position, PositionKind
from kctl.records import columnar07
from kctl.records.columnar07 import decode_chunks07
from kctl.records.compression import GZIP
from kctl.records.message07 import compressed_set, encode_entry, message_set, messages
from kctl.runtime.real.disk import RealDisk
from kctl.storage.segments07 import segment_name
from tests.export.log_files import batch_of, rows_of, write_segment
from tests.support.golden07 import PAYLOADS07, golden07, golden07_json
from tests.support.old_logs import PARTITIONS, SEEDS, entries_of, mutated

ONE, TWO = encode_entry(b"one" * 10), encode_entry(b"two" * 10)


@pytest.fixture
def log(tmp_path):
    def write(segments, name="orders-0"):
        directory = tmp_path / "logs" / name
        directory.mkdir(parents=True)
        for start, data in segments.items():
            (directory / segment_name(start)).write_bytes(data)
        return directory

    return write


def decoded(data, base_offset=0):
    # As of a mapped file, whose bytes are signed.
    view = memoryview(data).cast("b")
    return [
        (columns.value(i), int(columns.offsets[i]))
        for columns in decode_chunks07(view, 0, len(data), base_offset)
        for i in range(len(columns))
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 200, 1_000_000])
@pytest.mark.parametrize("partition", [*PARTITIONS, "none-0", "large-0", "cut-0", "a-b-7-0"])
def test_the_bulk_decoder_gives_what_the_reader_of_sets_gives(partition, chunk_bytes, monkeypatch):
    monkeypatch.setattr(columnar07, "CHUNK_BYTES", chunk_bytes)
    for path in sorted((golden07() / "logs-clean" / partition).glob("*.kafka")):
        data = path.read_bytes()
        assert decoded(data, 1000) == [
            (bytes(it.message.payload), it.position + it.index_in_set)
            for it in messages(data, 1000)
        ]


def test_offsets_of_a_set_with_more_messages_than_bytes_stay_inside_it():
    data = message_set([b""] * 5000, GZIP) + ONE
    offsets = [offset for _, offset in decoded(data)]
    assert len(offsets) == 5001
    assert offsets == sorted(offsets)
    assert offsets[-1] == len(data) - len(ONE)
    assert offsets[-2] == offsets[-1] - 1


def test_an_empty_message_of_magic_0_at_the_end_is_decoded():
    assert decoded(ONE + encode_entry(b"", magic=0)) == [(b"one" * 10, 0), (b"", len(ONE))]


@pytest.mark.parametrize("table_format", [TableFormat.PARQUET, TableFormat.NDJSON])
def test_a_log_directory_is_exported_message_for_message(export, tmp_path, table_format):
    report = export(golden07() / "logs-clean", table_format=table_format)
    assert report.damages == []
    assert report.partitions == 18
    table = tmp_path / "table"
    if table_format is TableFormat.NDJSON:
        texts = [it.read_text(encoding="utf-8") for it in table.glob("*.ndjson")]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        assert len(lines) == report.rows
        assert {(it["key"], it["timestamp"], it["timestampType"]) for it in lines} == {
            (None, -1, -1)
        }
        return
    rows = rows_of(table)
    for name, payloads in PAYLOADS07.items():
        topic, _, number = name.rpartition("-")
        assert [it[4] for it in rows if it[:2] == (topic, int(number))] == payloads


def test_ranges_of_offsets_are_ranges_of_positions(export, tmp_path):
    end = Position(PositionKind.OFFSET, 216)
    export(
        golden07() / "logs-clean", topics=["rolled"],
        bounds=(Position(PositionKind.OFFSET, 12), end),
    )  # fmt: skip
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(12, 216, 12))


def test_logs_end_where_kafka_said():
    found = {
        str(log.topic_partition): log for log in find_logs([str(golden07() / "logs-clean")], [])
    }
    for name, offsets in golden07_json("offsets-logs-clean.json").items():
        assert (found[name].end_offset, found[name].start_offset) == (offsets[0], offsets[-1])


def test_times_are_refused_as_the_messages_have_none(export):
    with pytest.raises(UsageError, match="no timestamps"):
        export(
            golden07() / "logs-clean", topics=["none"],
            bounds=(Position(PositionKind.TIME, 0), None),
        )  # fmt: skip


def test_the_latest_of_each_key_is_refused_as_there_are_none(export):
    with pytest.raises(UsageError, match="no keys"):
        export(golden07() / "logs-clean", latest_per_key=True)


def test_messages_behind_damage_are_exported(export, log, tmp_path):
    broken = compressed_set(ONE[:-1] + b"x", GZIP)
    directory = log({0: ONE + b"\xff\xff\xff" + TWO + broken + ONE})
    report = export(directory)
    assert [it[4][:3] for it in rows_of(tmp_path / "table")] == [b"one", b"two", b"one"]
    assert [(it.position, it.size) for it in report.damages] == [
        (len(ONE), 3), (2 * len(ONE) + 3, len(broken)),
    ]  # fmt: skip
    assert all(isinstance(it, DamagedRange) for it in report.damages)


def test_a_torn_end_is_exported_once_it_is_whole(export, log, tmp_path):
    directory = log({0: ONE + TWO[:20]})
    assert export(directory).rows == 1
    (directory / segment_name(0)).write_bytes(ONE + TWO)
    assert export(directory).rows == 1
    assert [it[4][:3] for it in rows_of(tmp_path / "table")] == [b"one", b"two"]


def test_only_the_end_of_a_large_segment_is_read_to_find_its_end(log, monkeypatch):
    monkeypatch.setattr("kctl.storage.walk07._END_BYTES", 100)
    directory = log({7: ONE * 50 + TWO[:20]})
    assert find_logs([str(directory)], [])[0].end_offset == 7 + 50 * len(ONE)


def test_partitions_of_both_kinds_and_names_may_be_in_one_directory(export, log, tmp_path):
    directory = log({0: ONE}, "my_topic_0")
    write_segment(RealDisk(), directory.parent / "new-0", 0, [batch_of(0)])
    export(directory.parent)
    assert {row[0] for row in rows_of(tmp_path / "table")} == {"my_topic", "new"}


def test_files_of_both_kinds_in_one_directory_are_refused(export, log):
    directory = log({0: ONE})
    write_segment(RealDisk(), directory, 0, [batch_of(0)])
    with pytest.raises(UsageError, match="in one directory"):
        export(directory)
    assert export(directory / segment_name(0), out="one").rows == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_an_export_loses_no_intact_message(export, seed, tmp_path):
    random_source = random.Random(seed)
    source = golden07() / "logs-clean" / random_source.choice(PARTITIONS)
    directory = tmp_path / "logs" / source.name
    directory.parent.mkdir()
    name, start, end = mutated(source, directory, random_source)
    expected = {
        (
            int(file.removesuffix(".kafka")) + it.position + it.index_in_set,
            bytes(it.message.payload),
        )
        for file, position, data in entries_of(source)
        if data != b"damage" and (file != name or position >= end or position + len(data) <= start)
        for it in messages(data, position)
    }
    report = export(directory)
    rows = rows_of(tmp_path / "table") if report.rows else []
    assert expected <= {(row[2], row[4]) for row in rows}


@pytest.mark.spark
def test_spark_reads_what_the_command_exports(spark, export, tmp_path):
    from kctl.export.spark.runner import spark_runner

    export(golden07() / "logs-clean", topics=["nested", "rolled-mixed"], runner=spark_runner(spark))
    rows = rows_of(tmp_path / "table")
    for topic in ("nested", "rolled-mixed"):
        assert [it[4] for it in rows if it[0] == topic] == PAYLOADS07[f"{topic}-0"]
