"""Dumps of damaged segments: what is wrong is named, what is right is shown."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.dump.decoders import decode_group_record, decode_transaction_record
from kctl.dump.documents import document
from kctl.dump.dump import dump, dump_file, find_files
from kctl.dump.kafka_format import Contents, kafka_lines
from kctl.dump.text_format import text_lines
from kctl.dump.values import (
    Decoder,
    DumpDamage,
    DumpedBatch,
    DumpedFile,
    DumpedRecord,
    DumpOptions,
    TrailingBytes,
)
from kctl.errors import CorruptDataError, UsageError
from kctl.records.builder import build_batch
from kctl.records.compression import CompressionType
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from tests.support.golden import golden_segments

DEEP = DumpOptions(with_records=True, decoder=Decoder.NONE)


def batch(offset, codec=0):
    return build_batch(
        [Record(offset + i, 1000 + i, b"k", b"value%d" % (offset + i)) for i in range(3)],
        compression_type=codec,
    )


@pytest.fixture
def segment(tmp_path):
    def write(data, name="00000000000000000000.log"):
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


def dumped(path, options=DEEP):
    return list(dump_file(RealDisk(), path, options))


def offsets(items):
    return [item.record.offset for item in items if isinstance(item, DumpedRecord)]


def damages(items):
    return [item for item in items if isinstance(item, DumpDamage)]


def test_whole_segment_has_no_damage(segment):
    items = dumped(segment(batch(0) + batch(3)))
    assert offsets(items) == [0, 1, 2, 3, 4, 5]
    assert damages(items) == []
    assert [item.position for item in items if isinstance(item, DumpedBatch)] == [0, len(batch(0))]


def test_rotten_byte_is_named_and_its_neighbours_are_shown(segment):
    data = batch(0) + batch(3) + batch(6)
    size = len(batch(0))
    data[size + 70] ^= 1
    items = dumped(segment(data))
    (damage,) = damages(items)
    assert damage.position == size
    assert "stored crc" in damage.reason
    assert {0, 1, 2, 6, 7, 8} <= set(offsets(items))


def test_rotten_length_does_not_hide_what_follows(segment):
    for length in (0, -1, 5, 60, 10_000, 2**31 - 1):
        data = batch(0) + batch(3) + batch(6)
        struct.pack_into(">i", data, len(batch(0)) + 8, length)
        items = dumped(segment(data))
        assert damages(items)[0].position == len(batch(0))
        assert offsets(items)[:3] == [0, 1, 2]
        assert offsets(items)[-3:] == [6, 7, 8]


def test_rotten_magic_does_not_hide_what_follows(segment):
    data = batch(0) + batch(3)
    data[16] = 77
    items = dumped(segment(data))
    (damage,) = damages(items)
    assert (damage.position, damage.reason) == (0, "Invalid magic found in record: 77")
    assert offsets(items) == [3, 4, 5]


def test_lost_sector_is_skipped(segment):
    data = batch(0) + bytes(600) + batch(3)
    items = dumped(segment(data))
    assert [item.position for item in damages(items)] == [len(batch(0))]
    assert offsets(items) == [0, 1, 2, 3, 4, 5]


def test_cut_batch_at_the_end_is_damage_and_counted(segment):
    data = batch(0) + batch(3)[:-5]
    items = dumped(segment(data))
    (damage,) = damages(items)
    assert damage.position == len(batch(0))
    assert TrailingBytes(len(batch(0)), len(batch(3)) - 5, is_padding=False) in items
    text = "".join(kafka_lines(items, Contents.NOTHING))
    trailing = len(batch(3)) - 5
    assert text.endswith(f"Found {trailing} invalid bytes at the end of 00000000000000000000.log\n")


def test_preallocated_tail_is_no_damage(segment):
    items = dumped(segment(batch(0) + bytes(3_000_000)))
    assert damages(items) == []
    assert items[-1] == TrailingBytes(len(batch(0)), 3_000_000, is_padding=True)


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_damage_inside_compressed_records_names_the_batch(segment, codec):
    data = batch(0, codec) + batch(3)
    data[80] ^= 0xFF
    items = dumped(segment(data))
    assert {item.position for item in damages(items)} == {0}
    assert offsets(items)[-3:] == [3, 4, 5]


@given(position=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 10**6))
def test_no_damage_raises_and_every_format_prints_it(tmp_path_factory, position, value, cut):
    data = bytearray(golden_segments("upgraded-0")[0][:3000] + golden_segments("tx-0")[1][:1500])
    data[position % len(data)] = value
    if cut % 3 == 0:
        del data[cut % len(data) :]
    path = tmp_path_factory.getbasetemp() / "00000000000000000000.log"
    path.write_bytes(data)
    for decoder in (Decoder.NONE, Decoder.OFFSETS, Decoder.TRANSACTIONS):
        items = dumped(str(path), DumpOptions(with_records=True, decoder=decoder))
        assert "".join(text_lines(items, with_data=True))
        assert "".join(kafka_lines(items, Contents.DECODED))
        assert [document(item, with_data=True) for item in items]


@given(key=st.none() | st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_decoders_know_only_one_error(key, value):
    for version in (b"", b"\0\0", b"\0\1", b"\0\2", b"\0\3"):
        record = Record(0, 0, None if key is None else version + key, value and version + value)
        for decode in (decode_group_record, decode_transaction_record):
            try:
                decode(record)
            except CorruptDataError:
                continue


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("00000000000000000000.snapshot", b"\0\1\0\0\0\0\0\0\0\1"),
        ("00000000000000000000.snapshot", b""),
        ("00000000000000000000.txnindex", b"\0\0\0"),
        ("00000000000000000000.index", struct.pack(">iiii", 9, 9, 5, 5)),
        ("00000000000000000000.timeindex", struct.pack(">qiqi", 9, 9, 5, 5)),
        ("leader-epoch-checkpoint", b"nonsense"),
        ("recovery-point-offset-checkpoint", b"0\n2\nt 0 1\n"),
        ("meta.properties", b"version=7\n"),
    ],
)
def test_damaged_state_is_named(segment, name, data):
    path = segment(data, name)
    (damage,) = damages(dumped(path))
    assert damage.path == path
    assert str(damage).count(path) == 1


def test_state_files_are_read(segment, golden_logs):
    directory = golden_logs / "logs-clean"
    items = list(dump(RealDisk(), [str(directory)], DumpOptions()))
    kinds = {item.kind.value for item in items if isinstance(item, DumpedFile)}
    assert kinds >= {"offset_checkpoint", "leader_epoch_checkpoint", "meta_properties", "log"}
    documents = [document(item, with_data=False) for item in items]
    assert {entry["type"] for entry in documents} >= {
        "batch",
        "offset_index_entry",
        "time_index_entry",
        "aborted_transaction",
        "producer",
        "leader_epoch",
        "checkpointed_offset",
        "meta_properties",
    }
    assert not damages(items)


def test_files_come_in_the_order_of_their_offsets(golden_logs):
    names = [
        path.rpartition("/")[2]
        for path in find_files(RealDisk(), str(golden_logs / "logs-clean/tx-1"))
    ]
    logs = [name for name in names if name.endswith(".log")]
    assert logs == sorted(logs)
    assert names[0] == "leader-epoch-checkpoint"
    assert names.index("00000000000000000005.index") == names.index(logs[1]) + 1


def test_what_cannot_be_dumped_is_misuse(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path / "missing", tmp_path / "notes.txt", tmp_path):
        with pytest.raises(UsageError):
            find_files(RealDisk(), str(path))


def test_deleted_and_cleaned_files_are_read_as_what_they_were(segment):
    for suffix in (".deleted", ".cleaned", ".swap"):
        items = dumped(segment(batch(0), f"00000000000000000000.log{suffix}"))
        assert offsets(items) == [0, 1, 2]
