"""Columns become the batches that the builder makes of the same records."""

import random  # noqa: TID251 - seeded

import pyarrow as pa
import pytest

from kctl.records.builder import build_batch
from kctl.records.columnar import decode_columns
from kctl.records.columnar_encoder import SCHEMA, encode_batches
from kctl.records.compression import CompressionType
from kctl.records.record import Record
from tests.records.columns_support import as_records

BASE = 1_600_000_000_000
KEYS = [None, b"", b"k", b"key-12", bytes(63), bytes(64), bytes(9000)]
HEADERS = [(), (("h", b"v"),), (("a", None), ("a", b"")), (("x" * 70, bytes(200)),)]


def records_of(count, seed, base_offset=0):
    draw = random.Random(seed)
    return [
        Record(
            base_offset + number,
            draw.choice([BASE, -1, 0, BASE + draw.randrange(-(2**40), 2**40)]),
            draw.choice(KEYS), draw.choice(KEYS), draw.choice(HEADERS),
        )
        for number in range(count)
    ]  # fmt: skip


def rows_of(records):
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": it.key, "value": it.value, "timestamp": it.timestamp,
                "headers": [{"key": k, "value": v} for k, v in it.headers] or None,
            }
            for it in records
        ],
        SCHEMA,
    )  # fmt: skip


@pytest.mark.parametrize("codec", [*CompressionType])
@pytest.mark.parametrize("count", [1, 2, 300])
def test_batch_is_the_builders(count, codec):
    records = records_of(count, seed=count, base_offset=77)
    (found,) = encode_batches(
        rows_of(records), 77, compression_type=codec, leader_epoch=5, batch_bytes=10**8
    )
    expected = build_batch(records, compression_type=codec, partition_leader_epoch=5)
    assert found.data == expected
    assert found.max_timestamp == max(it.timestamp for it in records)


@pytest.mark.parametrize("batch_bytes", [1, 1000, 20_000])
def test_batches_follow_each_other(batch_bytes):
    records = records_of(500, seed=3)
    found = list(encode_batches(rows_of(records), 0, batch_bytes=batch_bytes))
    assert len(found) > 20
    columns = decode_columns(b"".join(it.data for it in found))
    assert as_records(columns) == records
    assert not columns.damages


def test_slice_of_a_table_is_encoded_as_itself():
    records = records_of(100, seed=4)
    sliced = rows_of(records).slice(40, 20)
    found = b"".join(it.data for it in encode_batches(sliced, 40))
    assert as_records(decode_columns(found)) == records[40:60]
