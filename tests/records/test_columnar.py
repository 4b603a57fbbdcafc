"""The bulk decoder gives the records that the record-at-a-time reader gives."""

import random  # noqa: TID251 - seeded

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.records.builder import RecordBatchBuilder, build_batch
from kctl.records.columnar import (
    CHUNK_BYTES,
    concatenated,
    decode_chunks,
    decode_columns,
    everything,
)
from kctl.records.columnar_batches import DamageRule
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.record import Record
from kctl.records.record_batch import LOG_APPEND_TIME
from tests.records.columns_support import as_records, random_log, read_one_by_one
from tests.support.golden import golden_files

GOLDEN_LOGS = sorted(
    (kind, name)
    for kind in ("clean", "unclean")
    for name, data in golden_files(f"logs/{kind}.tar.xz").items()
    if name.endswith(".log") and data
)


@pytest.mark.parametrize(("kind", "name"), GOLDEN_LOGS)
def test_segments_of_apache_kafka_read_as_one_by_one(kind, name):
    segment = golden_files(f"logs/{kind}.tar.xz")[name]
    columns = decode_columns(segment)
    records, failures = read_one_by_one(segment)
    assert as_records(columns) == records
    assert failures == [] == columns.damages
    assert columns.end == len(segment)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_batches_read_as_one_by_one(seed):
    buffer = random_log(seed)
    columns = decode_columns(buffer)
    assert as_records(columns) == read_one_by_one(buffer)[0]
    assert columns.damages == []
    assert columns.end == len(buffer)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((1, 1000, 50_000)))
def test_chunks_joined_are_the_whole(seed, chunk_bytes):
    buffer = random_log(seed)
    chunks = list(decode_chunks(buffer, chunk_bytes=chunk_bytes))
    assert as_records(concatenated(chunks)) == as_records(decode_columns(buffer))
    assert sum(len(chunk.batches) for chunk in chunks) == len(concatenated(chunks).batches)
    assert [chunk.end for chunk in chunks] == sorted(chunk.end for chunk in chunks)


def long_batch(value_of, *, count=3000, codec=0, gap=1, time_step=1):
    builder = RecordBatchBuilder(base_offset=1000, compression_type=codec)
    for number in range(count):
        builder.append(
            timestamp=10**12 + number * time_step, key=b"k%d" % (number % 100),
            value=value_of(number), offset=1000 + number * gap,
        )  # fmt: skip
    return bytes(builder.build())


LURE = build_batch([Record(number, 5, b"k", b"v" * 90) for number in range(40)])[61:]


@pytest.mark.parametrize(
    "value_of",
    [
        lambda number: b"v%d" % number,
        lambda number: bytes(300),
        lambda number: b"\x02\x00" * 60,
        lambda number: random.Random(number).randbytes(number % 500),
        # What looks like records, so that places are guessed where none begins.
        lambda number: bytes(LURE),
        lambda number: b"x" * (9000 if number % 3 else 3),
        lambda number: None,
    ],
)
@pytest.mark.parametrize("codec", [0, 3])
def test_long_batches_are_read_right_whatever_their_values_look_like(value_of, codec):
    buffer = long_batch(value_of, count=1500, codec=codec)
    columns = decode_columns(buffer)
    records, _ = read_one_by_one(buffer)
    assert as_records(columns) == records


@pytest.mark.parametrize("time_step", [0, 1, 10_000, 10_000_000, -(10**9)])
@pytest.mark.parametrize("gap", [1, 3, 5000])
def test_wide_deltas_are_read_right(time_step, gap):
    buffer = long_batch(lambda number: b"v", gap=gap, time_step=time_step)
    columns = decode_columns(buffer)
    assert columns.offsets.tolist() == [1000 + gap * number for number in range(3000)]
    assert columns.timestamps.tolist() == [10**12 + time_step * number for number in range(3000)]


def test_log_append_time_is_every_records_time():
    buffer = build_batch(
        [Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")],
        timestamp_type=LOG_APPEND_TIME,
        append_timestamp=99,
    )
    columns = decode_columns(buffer)
    assert columns.timestamps.tolist() == [99, 99]
    assert columns.batches.timestamp_types.tolist() == [LOG_APPEND_TIME]


def test_markers_are_records_only_for_who_wants_them():
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
    buffer = build_batch([Record(0, 5, b"k", b"v")]) + marker_batch(
        marker, producer_id=9, producer_epoch=0, timestamp=6, base_offset=1
    )
    assert decode_columns(buffer).offsets.tolist() == [0]
    columns = decode_columns(buffer, keep=everything)
    assert columns.offsets.tolist() == [0, 1]
    assert columns.batches.is_control.tolist() == [False, True]


def test_take_keeps_headers_with_their_records():
    records = [Record(n, n, b"", b"", (("h", b"%d" % n),) * (n % 3)) for n in range(9)]
    columns = decode_columns(build_batch(records))
    chosen = columns.take(columns.offsets % 2 == 1)
    assert as_records(chosen) == records[1::2]


def test_arrow_columns_hold_the_records():
    records = [
        Record(n, 100 + n, None if n % 3 == 0 else b"k%d" % n, b"" if n % 4 == 0 else b"v",
               (("h", None), ("", b"x")) if n % 5 == 0 else ())
        for n in range(20)
    ]  # fmt: skip
    columns = decode_columns(build_batch(records))
    table = columns.to_arrow(("offset", "key", "value", "timestamp", "headers", "timestampType"))
    table.validate(full=True)
    assert table["offset"].to_pylist() == [record.offset for record in records]
    assert table["key"].to_pylist() == [record.key for record in records]
    assert table["value"].to_pylist() == [record.value for record in records]
    assert [at.timestamp() * 1000 for at in table["timestamp"].to_pylist()] == [
        pytest.approx(record.timestamp) for record in records
    ]
    assert table["headers"].to_pylist() == [
        [{"key": key, "value": value} for key, value in record.headers] or None
        for record in records
    ]
    assert table["timestampType"].to_pylist() == [0] * 20


def test_header_names_that_are_no_text_are_replaced():
    batch = bytearray(build_batch([Record(0, 0, None, None, (("ab", b"v"),))]))
    at = batch.index(b"ab")
    batch[at] = 0xFF
    columns = decode_columns(batch, check_crc=False)
    assert columns.to_arrow(["headers"])["headers"].to_pylist() == [
        [{"key": "\ufffdb", "value": b"v"}]
    ]


def test_nothing_is_decoded_of_batches_that_are_not_wanted():
    good = build_batch([Record(0, 0, b"k", b"v")])
    bomb = build_batch([Record(1, 0, b"k", bytes(10_000))], compression_type=4)
    columns = decode_columns(
        good + bomb, keep=lambda batches, _: batches.base_offsets < 1, batch_bytes_max=100
    )
    assert columns.offsets.tolist() == [0]
    assert columns.damages == []


def test_batch_that_grows_too_large_is_damage():
    bomb = build_batch([Record(1, 0, b"k", bytes(10_000))], compression_type=4)
    columns = decode_columns(bomb, batch_bytes_max=100)
    assert len(columns) == 0
    assert [damage.rule for damage in columns.damages] == [DamageRule.COMPRESSION]


def test_nothing_reads_as_nothing():
    columns = decode_columns(b"")
    assert (len(columns), columns.damages, columns.end) == (0, [], 0)
    assert columns.to_arrow().num_rows == 0


def test_uncompressed_payload_is_a_view_of_the_buffer():
    buffer = np.frombuffer(build_batch([Record(0, 0, b"k", b"v")] * 1) + bytes(64), np.uint8)
    chunk = next(decode_chunks(buffer.data))
    assert np.shares_memory(np.frombuffer(chunk.payload, np.uint8), buffer)
    assert len(buffer) < CHUNK_BYTES
