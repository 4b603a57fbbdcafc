"""Lines laid out in vectors are, byte for byte, those laid out one at a time."""

from functools import cache

import pytest

from kctl.dump.dump import dump_file
from kctl.dump.kafka_format import Contents, kafka_lines
from kctl.dump.text_format import text_lines
from kctl.dump.values import BulkStyle, Decoder, DumpDamage, DumpedText, DumpOptions
from kctl.records.builder import RecordBatchBuilder, build_batch, empty_batch
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from kctl.runtime.real.disk import RealDisk

KEYS = (None, b"", b"key", "ключ".encode(), b"\xff\xfe", b"a\x1bb", b"\xed\xa0\x80")
VALUES = (b"v" * 300, None, b"", "значение".encode() * 9, bytes(range(256)), b"tab\there")


def odd_records(first, count):
    """Records with all that a line may show."""
    for offset in range(first, first + count):
        headers = ()
        if offset % 50 == 0:
            headers = (("h", b"1"), ("", None), ("имя", b"\xff"))
        timestamp = -1 if offset % 997 == 0 else 1_600_000_000_000 + offset * 377
        yield Record(
            offset, timestamp, KEYS[offset % len(KEYS)], VALUES[offset % len(VALUES)], headers
        )


def plain_records(first, count):
    for offset in range(first, first + count):
        yield Record(offset, 1_600_000_000_000 + offset, b"k%d" % offset, b"value " * 30)


def segment(records):
    """Batches of every kind, more bytes than are worth a vector."""
    data = bytearray()
    offset = 0
    for number in range(80):
        options = {
            "compression_type": number % 5 if number < 10 else 0,
            "partition_leader_epoch": number // 10,
        }
        if number % 3 == 0:
            options |= {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 50}
        if number % 4 == 1:
            options |= {"timestamp_type": 1, "append_timestamp": 1_700_000_000_123}
        data += build_batch(records(offset, 100 + number), **options)
        offset += 100 + number
        if number == 20:
            marker = EndTransactionMarker(ControlRecordType.ABORT, 3)
            batch = marker_batch(marker, producer_id=7, producer_epoch=1, timestamp=1)
            builder = RecordBatchBuilder(base_offset=offset + 1)
            builder.append(timestamp=5, key=b"lone", value=b"one")
            moved = RecordBatch(bytearray(batch))
            moved.set_base_offset(offset)
            data += moved.to_bytes() + builder.build()
            offset += 2
        if number == 30:
            legacy = MessageSetBuilder(magic=1, base_offset=offset)
            legacy.append(timestamp=9, key=b"old", value=b"message")
            data += legacy.build()
            offset += 1
    return bytes(data)


def small_batches():
    """Of a record each, some transactional with their markers, some emptied by compaction."""
    data = bytearray()
    for number, record in enumerate(odd_records(0, 4000)):
        options = {"partition_leader_epoch": number % 3 - 1, "compression_type": number % 2}
        if number % 5 == 0:
            options |= {"producer_id": 9, "producer_epoch": 0, "base_sequence": number}
            options |= {"is_transactional": True}
        if number % 5 == 1:
            marker = EndTransactionMarker(ControlRecordType.COMMIT, number)
            batch = RecordBatch(marker_batch(marker, producer_id=9, producer_epoch=0, timestamp=1))
            batch.set_base_offset(number)
        else:
            batch = RecordBatch(build_batch([record], **options))
        data += empty_batch(batch) if number % 7 == 3 else batch.to_bytes()
    return bytes(data)


def old_messages(magic, codec):
    """Messages and wrappers of v0 or v1; plain and in wrappers."""
    data = bytearray()
    offset = 0
    for number in range(150):
        count = 1 + number % 30
        options = {"compression_type": codec if number % 3 else 0}
        if magic == 1 and number % 4 == 0:
            options |= {"timestamp_type": 1, "append_timestamp": 1_700_000_000_123}
        builder = MessageSetBuilder(magic=magic, base_offset=offset, **options)
        for record in odd_records(offset, count):
            builder.append(timestamp=record.timestamp, key=record.key, value=record.value)
        data += builder.build()
        offset += count
    return bytes(data)


SEGMENTS = {
    "odd": lambda: segment(odd_records),
    "plain": lambda: segment(plain_records),
    "small": small_batches,
    "v1": lambda: old_messages(1, 0) * 2,
    "v1 gzip": lambda: old_messages(1, 1) * 3,
    "v0": lambda: old_messages(0, 0) * 2,
    "v0 snappy": lambda: old_messages(0, 2) * 3,
    "one batch wider than a window": lambda: bytes(build_batch(plain_records(0, 30_000))),
}


@cache
def bytes_of(kind):
    return SEGMENTS[kind]()


def lines(path, style, bulk, with_records=True):
    options = DumpOptions(with_records=with_records, decoder=Decoder.NONE, bulk=bulk)
    items = list(dump_file(RealDisk(), str(path), options))
    found = list(style(items))
    assert any(isinstance(item, DumpedText) for item in items) == (bulk is not None)
    damages = [str(item) for item in items if isinstance(item, DumpDamage)]
    joined = b"".join(it.encode() if isinstance(it, str) else bytes(it) for it in found)
    return joined.splitlines(), damages


STYLES = {
    BulkStyle.KAFKA: lambda items: kafka_lines(items, Contents.NOTHING),
    BulkStyle.KAFKA_WITH_DATA: lambda items: kafka_lines(items, Contents.AS_TEXT),
    BulkStyle.TEXT: lambda items: text_lines(items, with_data=False),
    BulkStyle.TEXT_WITH_DATA: lambda items: text_lines(items, with_data=True),
}


@pytest.mark.parametrize("bulk", BulkStyle, ids=lambda style: style.value)
@pytest.mark.parametrize("kind", SEGMENTS)
def test_lines_in_vectors_are_those_one_at_a_time(tmp_path, bulk, kind):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes_of(kind))
    assert lines(path, STYLES[bulk], bulk) == lines(path, STYLES[bulk], None)


@pytest.mark.parametrize("bulk", [BulkStyle.KAFKA, BulkStyle.TEXT], ids=lambda style: style.value)
@pytest.mark.parametrize("kind", SEGMENTS)
def test_lines_of_batches_in_vectors_are_those_one_at_a_time(tmp_path, bulk, kind):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes_of(kind))
    one_at_a_time = lines(path, STYLES[bulk], None, with_records=False)
    assert lines(path, STYLES[bulk], bulk, with_records=False) == one_at_a_time


def test_lines_continue_past_damage_and_in_vectors_after_it(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(bytes_of("plain") * 3)
    data[len(data) // 3 + 5000] ^= 1
    path.write_bytes(data)
    style = STYLES[BulkStyle.KAFKA]
    in_bulk, damages = lines(path, style, BulkStyle.KAFKA)
    one_at_a_time, expected = lines(path, style, None)
    assert damages == expected != []
    assert in_bulk == one_at_a_time
    options = DumpOptions(with_records=True, decoder=Decoder.NONE, bulk=BulkStyle.KAFKA)
    kinds = [type(item) for item in dump_file(RealDisk(), str(path), options)]
    assert kinds.count(DumpDamage) == 1
    assert DumpedText in kinds[kinds.index(DumpDamage) :]
