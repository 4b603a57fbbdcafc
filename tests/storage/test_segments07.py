"""Directories and files of Kafka 0.7: names, the chain of segments, recovery."""

import pytest

from kctl.model import TopicPartition
from kctl.records.message07 import encode_entry
from kctl.runtime.real.disk import RealDisk
from kctl.storage import segments07
from kctl.storage.segments07 import Fault07, FaultKind, breaks_in_chain, segments_in, valid_end
from tests.support.golden07 import golden07, golden07_json

RECOVERED = golden07_json("recovery/results.json")["recovered"]


@pytest.mark.parametrize("name", sorted(RECOVERED))
def test_recovery_cuts_the_newest_segment_where_kafka_does(name):
    disk = RealDisk()
    sizes = {}
    for segment in segments_in(disk, str(golden07() / "recovery" / "before" / name)):
        sizes[segment.path.rpartition("/")[2]] = segment.size
    if sizes:
        sizes[segment.path.rpartition("/")[2]] = valid_end(disk, segment.path)[0]
        assert sizes == RECOVERED[name]["after"]
    else:
        assert name == "no-file-0"


@pytest.mark.parametrize("name", sorted(golden07_json("offsets-logs-clean.json")))
def test_golden_segments_form_a_chain(name):
    segments = segments_in(RealDisk(), str(golden07() / "logs-clean" / name))
    starts = [it.base_offset for it in segments]
    ends = [segments[-1].end_offset] if segments[-1].size else []
    assert ends + starts[::-1] == golden07_json("offsets-logs-clean.json")[name]
    assert not list(breaks_in_chain(segments))


def test_holes_and_overlaps_break_the_chain(tmp_path):
    for start, size in ((0, 10), (10, 5), (20, 5), (24, 0)):
        (tmp_path / segments07.segment_name(start)).write_bytes(bytes(size))
    segments = segments_in(RealDisk(), str(tmp_path))
    breaks = [(a.base_offset, b.base_offset) for a, b in breaks_in_chain(segments)]
    assert breaks == [(10, 20), (20, 24)]


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000108.kafka", 108),
        ("00000000000.kafka", 0),
        ("7.kafka", 7),
        ("abc.kafka", None),
        (".kafka", None),
        ("-5.kafka", None),
        ("٣.kafka", None),
        ("9223372036854775808.kafka", None),
        ("00000000000000000108.log", None),
        ("00000000000000000108.kafka.deleted", None),
    ],
)
def test_names_of_segments_are_read_with_any_number_of_digits(name, offset):
    assert segments07.parse_segment_name(name) == offset


def test_files_whose_names_are_no_offsets_are_listed(tmp_path):
    for name in ("0.kafka", "abc.kafka", "notes.txt"):
        (tmp_path / name).touch()
    assert segments07.unreadable_names(RealDisk(), str(tmp_path)) == ["abc.kafka"]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("my_topic_1", TopicPartition("my_topic", 1)),
        ("a_1-2", TopicPartition("a_1", 2)),
        ("тема-0", TopicPartition("тема", 0)),
        ("orders", None),
        ("_0", None),
    ],
)
def test_directories_are_read_with_dash_or_underscore(name, partition):
    assert segments07.parse_directory_name(name) == partition


def test_an_entry_larger_than_a_window_is_checked_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(segments07, "WINDOW_BYTES", 64)
    path = tmp_path / segments07.segment_name(0)
    data = b"".join(encode_entry(bytes(size)) for size in (0, 50, 63, 64, 1000, 1))
    path.write_bytes(data)
    assert valid_end(RealDisk(), str(path)) == (len(data), None)
    path.write_bytes(data[:-12] + b"x" + data[-11:])
    end, fault = valid_end(RealDisk(), str(path))
    assert (end, fault.kind) == (len(data) - 1010 - 11, FaultKind.CHECKSUM)


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"\0\0", FaultKind.CUT),
        (bytes(100), FaultKind.SIZE),
        (bytes.fromhex("000000050100000000"), FaultKind.SIZE),
        (bytes.fromhex("00000006020000000000"), FaultKind.MAGIC),
    ],
)
def test_what_stops_kafka_07_from_starting_is_cut_too(tmp_path, tail, kind):
    path = tmp_path / segments07.segment_name(0)
    path.write_bytes(encode_entry(b"whole") + tail)
    end, fault = valid_end(RealDisk(), str(path))
    assert end == 15
    assert isinstance(fault, Fault07)
    assert fault.kind is kind
