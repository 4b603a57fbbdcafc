"""Records that Kafka 2.7 does not know read as Kafka 4.1's kafka-dump-log prints them."""

import re
import struct

import pytest

from kctl.dump.decoders import decode_group_record, decode_transaction_record
from kctl.dump.documents import document
from kctl.dump.dump import dump, dump_file, find_files
from kctl.dump.kafka_format import Contents, kafka_lines
from kctl.dump.later_records import (
    decode_kraft_control_record,
    decode_metadata_record,
    decode_share_group_record,
)
from kctl.dump.text_format import text_lines
from kctl.dump.values import Decoder, DumpDamage, DumpOptions
from kctl.errors import CorruptDataError
from kctl.protocol.internal.group_records import group_schemas
from kctl.protocol.internal.metadata_records import metadata_schemas
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from tests.support.archives import opened_archive
from tests.support.golden import GOLDEN, golden_files

ARCHIVE = "logs/kraft-4.1.tar.xz"
FILES = sorted(it.removesuffix(".txt") for it in golden_files(ARCHIVE) if it.endswith(".txt"))
# What follows the sizes, which Kafka 4.1 names differently.
CONTENTS = re.compile(r"^\| offset: (\d+) .*? headerKeys: \[\](.*)$", re.MULTILINE)
# A record that Kafka 2.7 knows keeps the text of Kafka 2.7.
KNOWN_TO_2_7 = re.compile(r" key: (offset_commit|group_metadata|transaction_metadata)::")


@pytest.fixture(scope="module")
def kraft_logs(tmp_path_factory):
    root = tmp_path_factory.mktemp("kraft")
    with opened_archive(GOLDEN / ARCHIVE) as tar:
        tar.extractall(root)
    return root


@pytest.mark.parametrize("name", FILES)
def test_records_read_as_kafka_4_1_prints_them(kraft_logs, name):
    options = DumpOptions(with_records=True, decoder=Decoder.AUTO)
    items = list(dump_file(RealDisk(), str(kraft_logs / name), options))
    assert not [item for item in items if isinstance(item, DumpDamage)]
    printed = CONTENTS.findall("".join(kafka_lines(items, Contents.DECODED)))
    expected = CONTENTS.findall((kraft_logs / f"{name}.txt").read_text())
    pairs = zip(printed, expected, strict=True)
    compared = [(ours, theirs) for ours, theirs in pairs if not KNOWN_TO_2_7.match(ours[1])]
    assert compared
    assert [ours for ours, _ in compared] == [theirs for _, theirs in compared]
    # The other formats read them as well.
    assert "".join(text_lines(items, with_data=True))
    assert all(document(item, with_data=True)["type"] for item in items)


def test_a_snapshot_of_the_metadata_says_which(kraft_logs):
    (path,) = kraft_logs.glob("*/*.checkpoint")
    assert str(path) in find_files(RealDisk(), str(kraft_logs))
    lines = list(kafka_lines(dump_file(RealDisk(), str(path), DumpOptions()), Contents.NOTHING))
    expected = path.with_name(f"{path.name}.txt").read_text().splitlines()[1]
    assert lines[1] == f"{expected}\n"


def test_every_type_of_kafka_4_1_has_a_table():
    # Numbers that Kafka 4.1 no longer has.
    assert set(range(29)) - set(metadata_schemas()) == {6, 13, 16}
    assert {it.number for it in group_schemas().values()} >= {*range(9), *range(10, 18)}


def compact(text):
    """Return `text` as a compact string (KIP-482)."""
    return bytes([len(text) + 1]) + text.encode()


def member(classic):
    """Return a consumer group's member, with its metadata if it uses the classic protocol."""
    key = struct.pack(">hh1sh1s", 5, 1, b"g", 1, b"m")
    plain = b"\0\0\0\0" + compact("c") + compact("h") + b"\1\0" + struct.pack(">i", 7) + b"\0"
    tags = b"\1\0" + bytes([len(classic)]) + classic
    return Record(0, 0, key, plain + tags)


def test_a_tagged_struct_that_may_be_null():
    absent = decode_group_record(member(b"\0")).value["data"]
    assert absent["classicMemberMetadata"] is None
    classic = b"\1" + struct.pack(">i", 45000) + b"\2" + compact("range") + b"\3ab\0" + b"\0"
    found = decode_group_record(member(classic)).value["data"]
    assert found["rebalanceTimeoutMs"] == 7
    assert found["classicMemberMetadata"] == {
        "sessionTimeoutMs": 45000,
        "supportedProtocols": [{"name": "range", "metadata": "YWI="}],
    }


def test_a_type_that_kafka_4_1_does_not_know_is_named():
    decoded = decode_group_record(Record(17, 0, b"\0\x63", b""))
    assert decoded.texts() == ("Unknown record type 99 at offset 17, skipping.", None)


def test_a_record_without_a_value_deletes_what_the_key_names():
    key = struct.pack(">hh1s", 3, 1, b"g")
    decoded = decode_group_record(Record(0, 0, key, None))
    assert decoded.texts() == ('{"type":"3","data":{"groupId":"g"}}', "<DELETE>")
    assert decoded.key.group == "g"


def test_share_group_state_is_read():
    key = struct.pack(">hh1s16si", 1, 1, b"g", b"\0" * 16, 4)
    value = struct.pack(">hiiq", 0, 1, 2, 3) + b"\2" + struct.pack(">qqbhB", 5, 9, 2, 1, 0) + b"\0"
    decoded = decode_share_group_record(Record(0, 0, key, value))
    assert decoded.key.fields["data"]["partition"] == 4
    assert decoded.value["data"]["stateBatches"] == [
        {"firstOffset": 5, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}
    ]


@pytest.mark.parametrize(
    ("decode", "record"),
    [
        (decode_metadata_record, Record(0, 0, None, None)),
        (decode_metadata_record, Record(0, 0, None, b"\1")),
        (decode_metadata_record, Record(0, 0, None, b"\2\0\0")),
        (decode_metadata_record, Record(0, 0, None, b"\1\x7f\0")),
        (decode_metadata_record, Record(0, 0, None, b"\1\0\x09")),
        (decode_metadata_record, Record(0, 0, None, b"\1\2\0\x09abc")),
        (decode_share_group_record, Record(0, 0, None, b"")),
        (decode_share_group_record, Record(0, 0, b"\0\1\0\4ab", b"")),
        (decode_transaction_record, Record(0, 0, b"\0\0\0\1a", b"\0\1\0")),
        (decode_kraft_control_record, Record(0, 0, b"\0\0\0\2", b"\0\0\0")),
    ],
)
def test_bytes_that_do_not_fit_are_damage(decode, record):
    with pytest.raises(CorruptDataError):
        decode(record)


def test_an_array_of_more_elements_than_there_are_bytes_is_damage():
    key = struct.pack(">hh1s", 2, 1, b"g")
    value = (
        b"\0\4" + compact("x") + struct.pack(">i", 1) + b"\0\0" + b"\0" * 8 + b"\xff\xff\xff\x7f"
    )
    with pytest.raises(CorruptDataError):
        decode_group_record(Record(0, 0, key, value))


def test_control_types_are_those_of_kafka_2_7_outside_the_metadata(kraft_logs):
    (path,) = kraft_logs.glob("__cluster_metadata-0/*.log")
    options = DumpOptions(with_records=True, decoder=Decoder.NONE)
    lines = kafka_lines(dump_file(RealDisk(), str(path), options), Contents.AS_TEXT)
    assert any(line.endswith(" controlType: QUORUM_REASSIGNMENT(2)\n") for line in lines)


def test_a_partition_whose_only_log_is_missing_is_named(kraft_logs, tmp_path):
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for suffix in (".index", ".timeindex"):
        (directory / f"{0:020}{suffix}").write_bytes(b"")
    damages = [it for it in dump(RealDisk(), [str(tmp_path)], DumpOptions()) if is_damage(it)]
    assert [(it.path, "has indexes, but no .log" in it.reason) for it in damages] == [
        (str(directory), True)
    ]
    (directory / f"{0:020}.log").write_bytes(b"")
    assert not [it for it in dump(RealDisk(), [str(tmp_path)], DumpOptions()) if is_damage(it)]


def is_damage(item):
    return isinstance(item, DumpDamage)
