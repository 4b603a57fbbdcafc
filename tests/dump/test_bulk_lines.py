"""Lines laid out in vectors are, byte for byte, those laid out one at a time."""

import pytest

from kctl.dump.dump import dump_file
from kctl.dump.kafka_format import Contents, kafka_lines
from kctl.dump.text_format import text_lines
from kctl.dump.values import BulkStyle, Decoder, DumpDamage, DumpedText, DumpOptions
from kctl.records.builder import RecordBatchBuilder, build_batch
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.record import Record
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
            from kctl.records.record_batch import RecordBatch

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


def lines(path, style, bulk):
    options = DumpOptions(with_records=True, decoder=Decoder.NONE, bulk=bulk)
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
@pytest.mark.parametrize("records", [odd_records, plain_records])
def test_lines_in_vectors_are_those_one_at_a_time(tmp_path, bulk, records):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment(records))
    assert lines(path, STYLES[bulk], bulk) == lines(path, STYLES[bulk], None)


def test_behind_damage_lines_go_on_one_at_a_time(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(segment(plain_records))
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    style = STYLES[BulkStyle.KAFKA]
    in_bulk, damages = lines(path, style, BulkStyle.KAFKA)
    one_at_a_time, expected = lines(path, style, None)
    assert damages == expected != []
    assert in_bulk == one_at_a_time
