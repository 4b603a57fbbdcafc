"""Records encoded in bulk are byte for byte those encoded one at a time."""

from random import Random  # noqa: TID251 - the seed enters here

import pytest

from kctl.records.builder import RecordBatchBuilder
from kctl.records.plain_records import encode_pairs, encode_values
from kctl.records.record import encode_record
from kctl.records.record_batch import RecordBatch


def one_by_one(pairs, first, timestamp_delta):
    out = bytearray()
    for number, (key, value) in enumerate(pairs, first):
        encode_record(out, number, timestamp_delta, key, value)
    return bytes(out)


# Around the numbers at which an encoded integer grows by a byte, and past those that are kept.
@pytest.mark.parametrize("first", [0, 60, 8_190, 16_380, 1_048_574])
@pytest.mark.parametrize("timestamp_delta", [0, 77, -3])
def test_keys_and_values_of_all_lengths_and_nulls(first, timestamp_delta):
    random = Random(first)
    fields = [
        None,
        b"",
        b"a",
        *(random.randbytes(n) for n in (62, 63, 64, 65, 8_191, 8_192, 20_000)),
    ]
    pairs = [(random.choice(fields), random.choice(fields)) for _ in range(200)]
    values = [value for _, value in pairs]

    assert encode_pairs(pairs, first, timestamp_delta) == one_by_one(pairs, first, timestamp_delta)
    assert encode_values(values, first, timestamp_delta) == one_by_one(
        [(None, value) for value in values], first, timestamp_delta
    )


def test_a_batch_may_mix_records_in_bulk_and_single_ones():
    mixed = RecordBatchBuilder(base_offset=5)
    mixed.append_values(1_000, [b"a", None])
    mixed.append(timestamp=1_002, key=b"k", value=b"b")
    mixed.append_pairs(1_001, [(b"l", b"c"), (None, b"d")])
    mixed.append_values(1_001, [])

    single = RecordBatchBuilder(base_offset=5)
    for timestamp, key, value in (
        (1_000, None, b"a"), (1_000, None, None), (1_002, b"k", b"b"), (1_001, b"l", b"c"),
        (1_001, None, b"d"),
    ):  # fmt: skip
        single.append(timestamp=timestamp, key=key, value=value)

    assert mixed.build() == single.build()
    assert mixed.count == RecordBatch(bytes(mixed.build())).count == 5
    assert mixed.offset_of_max_timestamp == single.offset_of_max_timestamp == 7
