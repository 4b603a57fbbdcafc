"""The records of a batch in steps: the same records, in steps of bounded work."""

import lz4.frame
import pytest

from kctl.errors import CorruptDataError
from kctl.records import record_stream
from kctl.records.builder import RecordBatchBuilder, build_batch
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from kctl.records.compression_stream import (
    CHUNK_BYTES,
    StreamCompressor,
    decompress_prefix,
    decompressed_chunks,
)
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batch_at
from kctl.records.record import Record
from kctl.records.record_batch import LOG_APPEND_TIME, RECORD_BATCH_OVERHEAD
from kctl.records.record_stream import (
    RECORDS_PER_STEP,
    TIMESTAMPS_PER_STEP,
    record_steps,
    timestamp_steps,
)
from kctl.records.zstd_stream import library
from kctl.work import EXCLUSIVE, HELD_BYTES_MAX

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
# Empty, small and large records: several steps, and records that span chunks.
VALUES = [b""] * 2_500 + [b"v" * 300_000, b"x"] + [bytes(range(256)) * 40] * 30


def v2(codec, **options):
    builder = RecordBatchBuilder(base_offset=7, compression_type=codec, **options)
    for number, value in enumerate(VALUES):
        builder.append(timestamp=1_000 + number % 3, key=b"k", value=value, headers=[("h", b"1")])
    return batch_at(builder.build())


def wrapper(magic, codec):
    builder = MessageSetBuilder(magic=magic, base_offset=7, compression_type=codec)
    for number, value in enumerate(VALUES):
        builder.append(timestamp=1_000 + number % 3, key=b"k", value=value)
    return batch_at(bytes(builder.build()))


def batches():
    yield from (v2(codec) for codec in CODECS)
    yield v2(LZ4, timestamp_type=LOG_APPEND_TIME, append_timestamp=5)
    yield from (wrapper(magic, codec) for magic in (0, 1) for codec in (GZIP, SNAPPY, LZ4))


@pytest.mark.parametrize(
    "batch", list(batches()), ids=lambda it: f"v{it.magic}-{it.compression_type}"
)
def test_steps_hold_what_the_batch_holds(batch):
    steps = list(record_steps(batch))
    expected = list(batch.records())
    assert [record for step in steps for record in step] == expected
    assert max(map(len, steps)) <= RECORDS_PER_STEP
    times = list(timestamp_steps(batch))
    assert [pair for step in times for pair in step] == [record[:2] for record in expected]
    assert max(map(len, times)) <= TIMESTAMPS_PER_STEP


@pytest.mark.parametrize("codec", CODECS)
def test_chunks_are_bounded_and_complete(codec):
    data = bytes(range(256)) * 4_000 + bytes(3_000_000)
    chunks = list(decompressed_chunks(codec, compress(codec, data)))
    assert b"".join(chunks) == data
    assert max(map(len, chunks)) <= CHUNK_BYTES
    if codec:
        packer = StreamCompressor(codec)
        for start in range(0, len(data), 50_000):
            packer.write(data[start : start + 50_000])
        packed = packer.finish()
        assert packer.size == len(packed)
        assert b"".join(decompressed_chunks(codec, packed)) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_data_that_end_early_are_reported(codec):
    packed = compress(codec, bytes(range(256)) * 4_000)
    with pytest.raises(CorruptDataError):
        list(decompressed_chunks(codec, packed[: len(packed) // 2]))


@pytest.mark.parametrize("walk", [record_steps, timestamp_steps])
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_with_fewer_records_than_it_says_is_damaged(walk, codec):
    batch = v2(codec)
    batch.header = batch.header._replace(record_count=len(VALUES) + 1)
    with pytest.raises(CorruptDataError):
        list(walk(batch))


def test_bytes_after_the_last_record_are_damage():
    batch = v2(NONE)
    batch.header = batch.header._replace(record_count=len(VALUES) - 1)
    with pytest.raises(CorruptDataError):
        list(record_steps(batch))


def test_a_record_that_is_too_large_to_hold_is_refused_and_can_be_skipped(monkeypatch):
    monkeypatch.setattr(record_stream, "RECORD_BYTES_MAX", 200_000)
    batch = v2(ZSTD)
    with pytest.raises(CorruptDataError, match="too large"):
        list(record_steps(batch))
    assert sum(map(len, timestamp_steps(batch))) == len(VALUES)


@pytest.mark.parametrize(
    ("codec", "empty"),
    [
        (GZIP, compress(GZIP, b"")),
        (SNAPPY, b"\0\0\0\1\0"),
    ],
)
def test_a_prefix_of_very_many_empty_pieces_is_short(codec, empty):
    """A megabyte of empty gzip members took ten seconds, as each copied all that followed."""
    packed = (
        compress(codec, b"") + empty * 200_000 + compress(codec, b"end")[16 * (codec == SNAPPY) :]
    )
    plain, is_whole = decompress_prefix(codec, packed, 1_000)
    assert (plain, is_whole) == (b"", False)


def test_zstd_frames_are_counted_before_they_are_decompressed():
    with pytest.raises(CorruptDataError, match="more than 1000 frames"):
        decompress_prefix(ZSTD, compress(ZSTD, b"") * 1_001, 1)


def claims(steps):
    """Return the numbers of the steps that claim memory, and of the steps that hold records."""
    numbered = list(enumerate(steps))
    return [n for n, step in numbered if step is EXCLUSIVE], [n for n, step in numbered if step]


def zstd_of(window_log, data):
    parameter = library().CompressionParameter
    options = {parameter.window_log: window_log, parameter.content_size_flag: 0}
    packer = library().ZstdCompressor(options=options)
    return packer.compress(data) + packer.flush()


def lz4_of(block_size, data):
    packer = lz4.frame.LZ4FrameCompressor(block_size=block_size)
    return packer.begin() + packer.compress(data) + packer.flush()


LARGE_CODECS = {
    "zstd window of 16 MiB": (ZSTD, lambda data: zstd_of(24, data)),
    "second zstd frame": (ZSTD, lambda data: zstd_of(17, data[:9]) + zstd_of(22, data[9:])),
    "lz4 block of 4 MiB": (LZ4, lambda data: lz4_of(lz4.frame.BLOCKSIZE_MAX4MB, data)),
}
SMALL_CODECS = {
    "zstd window of 2 MiB": (ZSTD, lambda data: zstd_of(21, data)),
    "lz4 block of 1 MiB": (LZ4, lambda data: lz4_of(lz4.frame.BLOCKSIZE_MAX1MB, data)),
}


def repacked(codec, pack):
    plain = build_batch([Record(n, 1_000, b"k", b"v", ()) for n in range(50)])
    batch = bytearray(plain[:RECORD_BATCH_OVERHEAD] + pack(plain[RECORD_BATCH_OVERHEAD:]))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= codec
    return batch_at(bytes(batch))


@pytest.mark.parametrize("name", LARGE_CODECS)
@pytest.mark.parametrize("walk", [record_steps, timestamp_steps])
def test_a_codec_that_holds_much_claims_that_once_and_first(walk, name):
    claimed, held = claims(walk(repacked(*LARGE_CODECS[name])))
    assert len(claimed) == 1
    assert claimed[0] < held[0]


@pytest.mark.parametrize("name", SMALL_CODECS)
@pytest.mark.parametrize("walk", [record_steps, timestamp_steps])
def test_a_codec_that_holds_little_claims_nothing(walk, name):
    claimed, held = claims(walk(repacked(*SMALL_CODECS[name])))
    assert not claimed
    assert held


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_large_record_is_claimed_by_those_who_hold_it(magic):
    value = bytes(HELD_BYTES_MAX)
    builder = (
        RecordBatchBuilder(base_offset=0, compression_type=GZIP)
        if magic == 2
        else MessageSetBuilder(magic=magic, base_offset=0, compression_type=GZIP)
    )
    for number in range(3):
        builder.append(timestamp=number, key=b"k", value=value)
    batch = batch_at(bytes(builder.build()))
    claimed, held = claims(record_steps(batch))
    assert len(claimed) == 1
    assert claimed[0] < held[0]
    if magic == 2:
        assert not claims(timestamp_steps(batch))[0]
    assert len(list(batch.records())) == 3


def test_a_claim_is_made_for_a_window_that_no_record_needs():
    batch = repacked(*LARGE_CODECS["zstd window of 16 MiB"])
    batch.header = batch.header._replace(record_count=0)
    steps = record_steps(batch)
    assert EXCLUSIVE in (next(steps), next(steps))


def test_a_zstd_window_beyond_the_default_of_the_format_is_refused():
    with pytest.raises(CorruptDataError):
        list(record_steps(repacked(ZSTD, lambda data: zstd_of(28, data))))
