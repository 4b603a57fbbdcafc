"""kctl verify-log on directories of Kafka 0.7."""

import random  # noqa: TID251 - damage comes from seeds

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.records.compression import GZIP, SNAPPY
from kctl.records.message07 import compressed_set, encode_entry, message_set, messages
from kctl.runtime.real.disk import RealDisk
from kctl.storage.segments07 import segment_name, segments_in
from kctl.storage.walk07 import DamagedRange, walk_all
from kctl.verify.rules import Rule, Severity
from kctl.verify.verification import plan, verify_unit
from tests.support.golden07 import golden07, golden07_json
from tests.support.old_logs import PARTITIONS, SEEDS, entries_of, mutated, read_as_consumer

ONE, TWO = encode_entry(b"one" * 10), encode_entry(b"two" * 10)


def findings(*paths):
    found = plan(RealDisk(), map(str, paths), with_records=True)
    return found.findings + [it for u in found.units for it in verify_unit(RealDisk(), u).findings]


def rules(*paths):
    return [it.rule for it in findings(*paths)]


@pytest.fixture
def log(tmp_path):
    """Return a function that writes segments, by their start, and returns the directory."""

    def write(segments, name="orders-0"):
        directory = tmp_path / name
        directory.mkdir()
        for start, data in segments.items():
            (directory / segment_name(start)).write_bytes(data)
        return directory

    return write


@pytest.mark.parametrize("name", ["logs-clean", "logs-killed"])
def test_what_kafka_wrote_is_intact(name):
    assert findings(golden07() / name) == []


@pytest.mark.parametrize(
    "name",
    [name for name, it in golden07_json("recovery/results.json")["recovered"].items() if it["cut"]],
)
def test_whatever_recovery_cuts_is_damage_at_that_position(name):
    result = golden07_json("recovery/results.json")["recovered"][name]
    [found] = findings(golden07() / "recovery" / "before" / name)
    assert found.severity is Severity.DAMAGE
    assert [found.position] == list(result["after"].values())


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("old-segment-bad-0", Rule.OLD_CRC),
        ("gzip-inner-bad-crc-0", Rule.OLD_SET),
        ("gzip-not-gzip-0", Rule.OLD_SET),
        ("codec-3-at-3-0", Rule.OLD_SET),
    ],
)
def test_damage_that_recovery_does_not_look_at_is_found(name, rule):
    assert rules(golden07() / "recovery" / "before" / name) == [rule]


@pytest.mark.parametrize("name", ["whole-0", "starts-late-0", "newest-empty-0", "only-empty-0"])
def test_odd_but_intact_logs_have_no_findings(name):
    assert findings(golden07() / "recovery" / "before" / name) == []


@pytest.mark.parametrize(
    ("start", "rule", "length"),
    [(len(ONE) + 5, Rule.OLD_HOLE, 5), (len(ONE) - 5, Rule.OLD_OVERLAP, 5)],
)
def test_holes_and_overlaps_are_found(log, start, rule, length):
    directory = log({0: ONE, start: TWO})
    [found] = findings(directory)
    assert (found.rule, found.length) == (rule, length)


def test_a_file_whose_name_is_no_offset_is_found(log):
    directory = log({0: ONE})
    (directory / "abc.kafka").write_bytes(ONE)
    (directory / "notes.txt").write_bytes(ONE)
    assert rules(directory) == [Rule.OLD_FILE_NAME]


def test_a_torn_end_is_damage_of_its_own_kind_only_in_the_newest_segment(log):
    directory = log({0: ONE + TWO[:-3], len(ONE + TWO) - 3: TWO[:-3]})
    assert rules(directory) == [Rule.OLD_SIZE, Rule.OLD_TORN_TAIL]


def test_a_codec_that_the_attributes_do_not_name_is_a_note(log):
    whole = compressed_set(ONE, GZIP)
    [found] = findings(log({0: encode_entry(whole[10:]) + encode_entry(b"\x1f\x8b no gzip")}))
    assert (found.rule, found.severity) == (Rule.OLD_CODEC, Severity.NOTE)


def test_quick_does_not_look_inside_compressed_messages():
    path = str(golden07() / "recovery" / "before" / "gzip-inner-bad-crc-0")
    [unit] = plan(RealDisk(), [path], with_records=False).units
    assert verify_unit(RealDisk(), unit).findings == []


def test_a_log_directory_may_hold_partitions_of_both_kinds_and_names(log, partition):
    directory = log({0: ONE[:-1]}, "my_topic_0")
    partition("v2-none-0").rename(directory.parent / "v2-none-0")
    found = findings(directory.parent)
    assert [it.rule for it in found] == [Rule.OLD_TORN_TAIL]


def test_one_file_may_be_named(log):
    directory = log({0: ONE + ONE[:-1], 2 * len(ONE) - 1: TWO[:-1]})
    assert rules(directory / segment_name(0)) == [Rule.OLD_SIZE]
    with pytest.raises(UsageError, match="not a file"):
        rules(__file__)


def walked(path, data):
    path.write_bytes(data)
    file = RealDisk().open(str(path), read_only=True)
    try:
        return list(walk_all(file))
    finally:
        file.close()


def test_a_wrong_size_is_proven_by_the_checksum_though_the_payload_contains_entries(tmp_path):
    carrier = encode_entry(b"begin" + ONE + TWO + b"end")
    damaged = b"\x00\x00\x01\x01" + carrier[4:]
    found = walked(tmp_path / "0.kafka", ONE + damaged + TWO)
    assert [(it.position, it.end) for it in found if isinstance(it, DamagedRange)] == [
        (len(ONE), len(ONE) + len(carrier))
    ]
    assert found[1].restored_head == carrier[:5]


def test_a_wrong_size_that_leads_to_a_later_entry_hides_none(tmp_path):
    third = ONE + TWO
    damaged = third[:3] + bytes((len(ONE + TWO + ONE) - 4,)) + third[4:]
    found = walked(tmp_path / "0.kafka", damaged + ONE + TWO)
    assert [it.position for it in found] == [n * len(ONE) for n in range(4)]
    assert found[0].restored_head == ONE[:5]


def test_a_wrong_magic_is_proven_by_the_checksum(tmp_path):
    for magic in (0, 2, 255):
        damaged = ONE[:4] + bytes((magic,)) + ONE[5:]
        found = walked(tmp_path / "0.kafka", ONE + damaged + TWO)
        assert found[1].restored_head == ONE[:5]


@pytest.mark.parametrize("seed", SEEDS)
def test_verify_finds_whatever_changes_what_a_consumer_reads(seed, tmp_path):
    random_source = random.Random(seed)
    source = golden07() / "logs-clean" / random_source.choice(PARTITIONS)
    directory = tmp_path / source.name
    mutated(source, directory, random_source)
    left = entries_of(directory)
    is_cut_between_messages = left == entries_of(source)[: len(left)]
    if read_as_consumer(directory) != read_as_consumer(source) and not is_cut_between_messages:
        assert findings(directory) != []


def test_the_consumer_of_the_property_reads_all_codecs():
    data = message_set([b"a", b"b"], SNAPPY)
    assert [bytes(it.message.payload) for it in messages(data)] == [b"a", b"b"]
    with pytest.raises(CorruptDataError):
        list(messages(data[:-1] + b"x"))
    segments = segments_in(RealDisk(), str(golden07() / "logs-clean" / "rolled-0"))
    assert len(segments) == 3


@pytest.mark.parametrize("suffix", ["kafka", "log"])
def test_a_link_to_nowhere_is_a_finding_and_the_rest_is_verified(tmp_path, suffix):
    links, intact = tmp_path / "orders-0", tmp_path / "orders-1"
    for directory in (links, intact):
        directory.mkdir()
    (links / f"{0:020}.{suffix}").symlink_to("/nowhere")
    (intact / segment_name(0)).write_bytes(ONE + TWO[:-1])
    assert rules(tmp_path) == [Rule.UNREADABLE, Rule.OLD_TORN_TAIL]
