"""Neighbouring small batches become one; all others, and what cannot be decoded, stay."""

import pytest

from kctl.mirror.joined_batches import JOINED_BYTES_MAX, SMALL_RECORDS_MAX, join_small
from kctl.mirror.raw_batches import NOT_MAPPED, BatchCopy, copy_batches, stamp
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import LZ4, NONE
from kctl.records.memory_records import records
from kctl.records.record_batch import RecordBatch


def batch(*offsets, compression=NONE, size=20):
    builder = RecordBatchBuilder(base_offset=offsets[0], compression_type=compression)
    for offset in offsets:
        builder.append(
            timestamp=1000 + offset, key=b"k%d" % offset, value=b"v" * size if offset % 5 else None,
            headers=(("h", b"1"), ("n", None)), offset=offset,
        )  # fmt: skip
    return builder.build()


def copies(*parts):
    return copy_batches(b"".join(parts), 0, lambda _batch: False).copies


def fields(found):
    return [
        (it.timestamp, it.key, it.value, it.headers)
        for copy in found
        for it in records(bytes(copy.data))
    ]


@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_single_records_become_one_batch_with_their_source_offsets(codec):
    # An aborted transaction was at 3.
    single = copies(*(batch(offset, compression=codec) for offset in (0, 1, 2, 4, 5)))

    [joined] = join_small(single)

    assert (joined.count, joined.pieces, joined.is_raw) == (5, [(0, 3), (4, 2)], False)
    assert fields([joined]) == fields(single)
    stamp(joined.data, 9, 0, 0, transactional=True)
    RecordBatch(joined.data).ensure_valid()
    assert RecordBatch(joined.data).compression_type == codec


def test_full_batches_other_codecs_and_lone_ones_pass_through():
    full = batch(*range(3, 3 + SMALL_RECORDS_MAX + 1))
    end = 4 + SMALL_RECORDS_MAX
    parts = copies(
        batch(0), batch(1), batch(2, compression=LZ4), full, batch(end), batch(end + 1, size=5000)
    )

    first, *others = join_small(parts)

    assert first.pieces == [(0, 2)]
    assert others == parts[2:]


def test_a_joined_batch_is_bounded():
    single = copies(*(batch(offset, size=2000) for offset in range(100)))

    joined = join_small(single)

    assert 1 < len(joined) < 10
    assert all(it.size <= JOINED_BYTES_MAX for it in joined)
    assert fields(joined) == fields(single)


def test_records_without_source_offsets_stay_without():
    single = [BatchCopy(it.data, 1, [(NOT_MAPPED, 1)]) for it in copies(batch(0), batch(1))]
    [joined] = join_small([*single, *copies(batch(0))])
    assert joined.pieces == [(NOT_MAPPED, 1), (NOT_MAPPED, 1), (0, 1)]


def test_what_cannot_be_decoded_is_left_to_the_target():
    broken = copies(batch(0), batch(1))
    # The length of the record.
    broken[1].data[61] = 0x7F
    assert join_small(broken) == broken
