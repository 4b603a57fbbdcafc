"""Down-conversion against Apache Kafka's own, batch by batch."""

from hashlib import shake_128

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError
from kctl.records import down_convert
from kctl.records.builder import RecordBatchBuilder, build_batch
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.down_convert import CHUNK_BYTES, DownConversion, converted_batch
from kctl.records.memory_records import batches, records
from kctl.records.record import Record
from kctl.records.record_stream import RECORDS_PER_STEP
from kctl.work import EXCLUSIVE, HELD_BYTES_MAX
from tests.support.append_cases import cases, comparable

NOISE = shake_128().digest(1_500_000)


def converted(data, magic, first_offset):
    """Return all batches of `data` after conversion, without a limit on their size."""
    pieces = (converted_batch(batch, magic, first_offset) for batch in batches(data))
    return b"".join(piece for of_batch in pieces for piece in of_batch)


def answer_of(data, magic, first_offset):
    """Return the response to a fetch, and its parts."""

    def read(length, position):
        return bytes(data[position : position + length])

    conversion = DownConversion(read, len(data), magic, first_offset)
    for _ in conversion.prepare():
        pass
    pieces = []
    while sum(map(len, pieces)) < len(conversion):
        pieces.append(conversion.step())
    return b"".join(pieces), pieces


@pytest.mark.parametrize("case", cases("convert"), ids=lambda case: case.name)
def test_converts_as_apache_kafka_does(case):
    magic, first_offset = (int(fact) for fact in case.facts)
    if not case.is_ok:
        with pytest.raises(ApiError) as raised:
            converted(case.data, magic, first_offset)
        assert raised.value.code.name == case.answer[1]
        return
    assert comparable(converted(case.data, magic, first_offset)) == comparable(case.stored)


def test_records_keep_all_but_their_headers():
    original = [Record(5 + i, 100 + i, b"k", None if i else b"v", (("h", b"x"),)) for i in range(3)]
    answer, _ = answer_of(build_batch(original), 1, 0)
    assert list(records(answer)) == [record._replace(headers=()) for record in original]


def test_a_fetch_gets_what_comes_before_zstd():
    first, second = (Record(n, 100, b"k", b"v", ()) for n in range(2))
    data = build_batch([first]) + build_batch([second], compression_type=ZSTD)
    answer, _ = answer_of(data, 1, 0)
    assert list(records(answer)) == [first]
    with pytest.raises(ApiError):
        answer_of(build_batch([second], compression_type=ZSTD), 1, 1)


def empty_records(count, base_offset=0):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(timestamp=100, key=None, value=None)
    return builder.build()


@pytest.mark.parametrize("first_count", [10, 2_000])
def test_an_answer_is_as_large_as_what_is_stored_or_as_the_first_batch(first_count):
    """Empty records grow from 7 bytes to 34."""
    data = empty_records(first_count) + b"".join(
        empty_records(3_000, first_count + 3_000 * number) for number in range(20)
    )
    answer, pieces = answer_of(data, 1, 0)
    assert len(answer) == max(len(data), 34 * first_count)
    found = list(records(answer))
    assert [record.offset for record in found] == list(range(len(answer) // 34))
    # Work between two turns of the loop.
    assert max(map(len, pieces)) <= 34 * RECORDS_PER_STEP


def test_a_large_first_batch_is_sent_without_being_held(monkeypatch):
    monkeypatch.setattr(down_convert, "KEPT_BYTES_MAX", 10_000)
    data = empty_records(5_000)
    answer, pieces = answer_of(data, 1, 0)
    assert answer == converted(data, 1, 0)
    assert len(pieces) >= 5


def test_an_answer_that_shrinks_is_filled_up_with_a_batch_that_clients_ignore():
    first = build_batch([Record(0, 100, None, b"v")])
    marker = marker_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 0),
        producer_id=1,
        producer_epoch=0,
        timestamp=100,
    )
    answer, _ = answer_of(first + marker * 10, 1, 0)
    assert len(answer) == len(first) + 10 * len(marker)
    assert list(records(answer)) == [Record(0, 100, None, b"v")]
    overflow = answer[len(converted(first, 1, 0)) :]
    assert overflow[:8] == b"\xff" * 8
    assert int.from_bytes(overflow[8:12], "big") == len(overflow) + 1
    # Kafka's own answer to markers alone.
    assert answer_of(marker * 3, 1, 0)[0] == b"\xff" * 8 + (61).to_bytes(4, "big")
    assert answer_of(b"", 1, 0)[0] == b""


def test_damage_after_the_first_batch_is_for_the_next_fetch():
    first, second = empty_records(10), empty_records(10, 10)
    second[61] = 1
    answer, _ = answer_of(first + second, 1, 0)
    assert len(answer) == 340
    answer, _ = answer_of(empty_records(1) + second * 3, 1, 0)
    assert len(list(records(answer))) == 1
    with pytest.raises(CorruptDataError):
        answer_of(second, 1, 0)


def test_a_long_batch_is_read_while_it_is_converted():
    originals = [Record(n, 100, b"k", NOISE[1_000 * n : 1_000 * (n + 1)], ()) for n in range(1_500)]
    for codec in (NONE, GZIP, SNAPPY, LZ4):
        data = build_batch(originals, compression_type=codec)
        assert len(data) > 4 * CHUNK_BYTES
        lengths = []

        def read(length, position, data=data, lengths=lengths):
            lengths.append(length)
            return bytes(data[position : position + length])

        conversion = DownConversion(read, len(data), 1, 0)
        for _ in conversion.prepare():
            pass
        parts = [conversion.step() for _ in range(1_000)]
        assert list(records(b"".join(parts)[: len(conversion)])) == originals
        assert max(lengths) <= CHUNK_BYTES


def test_an_answer_ends_before_a_batch_that_would_hold_much():
    small = Record(0, 100, b"k", b"v", ())
    large = Record(1, 100, b"k", bytes(HELD_BYTES_MAX), ())
    after = build_batch([large], compression_type=GZIP)
    answer, _ = answer_of(build_batch([small], compression_type=GZIP) + after, 1, 0)
    assert list(records(answer)) == [small]
    answer, _ = answer_of(after, 1, 1)
    assert list(records(answer)) == [large]


def test_a_first_batch_that_holds_much_claims_that():
    data = build_batch([Record(0, 100, b"k", bytes(HELD_BYTES_MAX), ())], compression_type=GZIP)
    conversion = DownConversion(lambda length, at: bytes(data[at : at + length]), len(data), 1, 0)
    assert list(conversion.prepare()).count(EXCLUSIVE) == 1
