"""Checkpoints, meta.properties and snapshots that are damaged say where and how."""

import pytest

from kctl.errors import CorruptDataError
from kctl.model import TopicPartition
from kctl.storage import layout
from kctl.storage.checkpoint import decode_epochs, decode_offsets, encode_offsets
from kctl.storage.meta_properties import MetaProperties, decode_meta_properties
from kctl.storage.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "the file is empty"),
        (b"1\n0\n", "x:1: unrecognized version"),
        (b"0\n", "x:2: malformed"),
        (b"0\nmany\n", "x:2: malformed"),
        (b"0\n2\nt 0 1\n", "expected 2 entries in the checkpoint file, but found 1"),
        (b"0\n1\nt 0 1\nu 0 1\n", "expected 1 entries in the checkpoint file, but found 2"),
        (b"0\n1\nt 0\n", "x:3: malformed"),
        (b"0\n1\nt zero 1\n", "x:3: malformed"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"\0\0\0\0", "unrecognized version"),
    ],
)
def test_damaged_offset_checkpoint_names_file_and_line(text, complaint):
    with pytest.raises(CorruptDataError, match=complaint):
        decode_offsets(text, "x")


def test_offset_checkpoint_reads_back():
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 0): 2**40}
    assert decode_offsets(encode_offsets(offsets), "x") == offsets


def test_damaged_epoch_checkpoint_names_the_line():
    with pytest.raises(CorruptDataError, match="x:4: malformed"):
        decode_epochs(b"0\n2\n0 0\n1\n", "x")


@pytest.mark.parametrize(
    "text",
    [b"", b"broker.id=1\n", b"version=1\nnode.id=3\n", b"version=0\nbroker.id=x\n", b"version=0"],
)
def test_meta_properties_of_another_kind_are_refused(text):
    with pytest.raises(CorruptDataError, match=r"meta\.properties"):
        decode_meta_properties(text, "meta.properties")


def test_meta_properties_without_a_cluster_id_are_from_old_brokers():
    assert decode_meta_properties(b"version = 0\nbroker.id = 7\n", "m") == MetaProperties(7, None)


def test_every_byte_of_a_snapshot_is_guarded():
    entry = ProducerSnapshotEntry(5, 1, 7, 99, 3, 1600000000000, 2, -1)
    data = encode_snapshot([entry])
    assert decode_snapshot(data, "s") == [entry]
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        with pytest.raises(CorruptDataError, match=r"^s: "):
            decode_snapshot(bytes(broken), "s")
        with pytest.raises(CorruptDataError, match=r"^s: "):
            decode_snapshot(data[:position], "s")


def test_directory_names_of_partitions_coming_and_going():
    tp = TopicPartition("a-b.c", 12)
    assert layout.parse_directory_name("a-b.c-12") == (tp, False, False)
    gone = layout.delete_directory_name(tp, "0" * 32)
    assert gone == "a-b.c-12." + "0" * 32 + "-delete"
    assert layout.parse_directory_name(gone) == (tp, True, False)
    coming = layout.future_directory_name(tp, "f" * 32)
    assert layout.parse_directory_name(coming) == (tp, False, True)
    for name in ("lost+found", "t-", "-1", "t", ".lock"):
        assert layout.parse_directory_name(name) is None
    longest = layout.delete_directory_name(TopicPartition("t" * 249, 99999), "0" * 32)
    assert len(longest) == 255


def test_file_names_carry_twenty_digits():
    assert layout.file_name(77, ".log") == "00000000000000000077.log"
    assert layout.parse_file_name("00000000000000000077.log.swap") == (77, ".log.swap")
    for name in ("77.log", "0000000000000000007x.log", "leader-epoch-checkpoint"):
        assert layout.parse_file_name(name) is None
