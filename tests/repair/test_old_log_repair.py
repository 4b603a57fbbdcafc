"""kctl repair-log on directories of Kafka 0.7: what stays, what is filled, what is cut."""

import random  # noqa: TID251 - damage comes from seeds

import pytest

from kctl.errors import StorageError, UsageError
from kctl.records.compression import GZIP, decompress
from kctl.records.message07 import compressed_set, encode_entry, message_set, messages
from kctl.repair.old_log_plan import FILLER_BYTES_MAX, FILLER_BYTES_MIN, filler07
from kctl.repair.repair import apply_plans
from kctl.repair.repair_plan import RepairRequest, plan_repair
from kctl.runtime.real.disk import RealDisk
from kctl.storage.segments07 import segment_name
from kctl.verify.rules import Severity
from kctl.verify.verification import plan, verify_unit
from tests.support.golden07 import copy07, golden07, golden07_json
from tests.support.old_logs import PARTITIONS, SEEDS, entries_of, mutated, read_as_consumer

RECOVERED = golden07_json("recovery/results.json")["recovered"]
ONE, TWO = encode_entry(b"one" * 10), encode_entry(b"two" * 10)


class LoneDisk(RealDisk):
    """The disk of a machine without other processes, for which a search would take long."""

    def writers(self, directories):
        return ()


def repair(directory, **options):
    planned = plan_repair(RealDisk(), str(directory), RepairRequest(**options))
    backup = directory.parent.parent / f"backup-{directory.name}"
    apply_plans(LoneDisk(), [planned], str(backup))
    return planned


def damage(directory):
    [unit] = plan(RealDisk(), [str(directory)], with_records=True).units
    found = verify_unit(RealDisk(), unit).findings
    return [it for it in found if it.severity is Severity.DAMAGE]


def payloads(directory):
    found, failed_at = read_as_consumer(directory)
    assert failed_at is None
    return [payload for payload, _ in found]


@pytest.fixture
def log(tmp_path):
    def write(segments):
        directory = tmp_path / "logs" / "orders-0"
        directory.mkdir(parents=True)
        for start, data in segments.items():
            (directory / segment_name(start)).write_bytes(data)
        return directory

    return write


@pytest.mark.parametrize("size", [30, 31, 32, 100, FILLER_BYTES_MAX, FILLER_BYTES_MAX + 1, 200_000])
def test_consumers_get_nothing_of_a_filler(size):
    data = filler07(size)
    assert len(data) == size
    assert list(messages(data + ONE, 7)) == list(messages(ONE, 7 + size))


@pytest.mark.parametrize("size", range(9, FILLER_BYTES_MIN))
def test_consumers_see_nuls_where_there_is_no_room_for_a_filler(size):
    [it] = messages(filler07(size))
    assert it.offset == size
    assert not bytes(it.message.payload).strip(b"\0")


@pytest.mark.parametrize("name", [it for it in sorted(RECOVERED) if it.startswith("tail-")])
def test_a_torn_tail_is_cut_as_kafkas_recovery_cuts_it(name, tmp_path):
    directory = copy07(f"recovery/before/{name}", tmp_path / "logs" / name)
    repair(directory)
    after = golden07() / "recovery" / "after" / name
    assert [it.read_bytes() for it in sorted(directory.iterdir())] == [
        it.read_bytes() for it in sorted(after.iterdir())
    ]


@pytest.mark.parametrize("name", [name for name, it in RECOVERED.items() if it["cut"]])
def test_truncating_where_recovery_cuts_leaves_what_kafka_left(name, tmp_path):
    directory = copy07(f"recovery/before/{name}", tmp_path / "logs" / name)
    [end] = RECOVERED[name]["after"].values()
    repair(directory, truncate_to=end)
    [found], [wanted] = directory.iterdir(), (golden07() / "recovery/after" / name).iterdir()
    assert found.read_bytes() == wanted.read_bytes()


def test_messages_behind_damage_stay_where_they_are(tmp_path):
    directory = copy07("recovery/before/gzip-bit-0", tmp_path / "logs" / "gzip-bit-0")
    before = entries_of(directory)
    repair(directory)
    changed = [(a, b) for a, b in zip(before, entries_of(directory), strict=True) if a != b]
    assert [(a[1], len(a[2]), b[1], len(b[2])) for a, b in changed] == [(1918, 350, 1918, 350)]
    assert len(payloads(directory)) == 180


def test_sizes_and_magics_that_the_checksum_proves_are_restored(log):
    carrier = encode_entry(ONE + TWO)
    whole = ONE + carrier + TWO
    wrong = ONE[:4] + b"\x07" + ONE[5:] + carrier[:3] + b"\xff" + carrier[4:] + TWO
    directory = log({0: wrong})
    repair(directory)
    assert (directory / segment_name(0)).read_bytes() == whole


@pytest.mark.parametrize("wrong", [0, 2, 3])
def test_the_codec_that_opens_a_set_is_restored(log, wrong):
    data = bytearray(compressed_set(ONE + TWO, GZIP))
    data[5] = wrong
    directory = log({0: bytes(data)})
    planned = repair(directory)
    if wrong:
        assert payloads(directory) == [b"one" * 10, b"two" * 10]
    else:
        # A note: a producer may have sent a compressed set as a message.
        assert planned.steps() == []
        assert decompress(GZIP, payloads(directory)[0]) == ONE + TWO


def test_a_payload_that_is_not_compressed_loses_its_codec(log):
    directory = log({0: encode_entry(b"plain text", GZIP)})
    repair(directory)
    assert payloads(directory) == [b"plain text"]


@pytest.mark.parametrize("cut", [0, 3, 20])
def test_a_hole_between_segments_is_filled(log, cut):
    end = len(ONE) + len(TWO) + 13
    directory = log({0: ONE + TWO[: len(TWO) - cut], end: TWO})
    assert damage(directory)
    repair(directory)
    assert damage(directory) == []
    found, _ = read_as_consumer(directory)
    seen = [it for it in found if it[0].strip(b"\0")]
    assert seen[0] == (b"one" * 10, len(ONE))
    assert seen[-1] == (b"two" * 10, end + len(TWO))


def test_a_hole_that_is_too_large_is_left_with_a_note(log):
    directory = log({0: ONE, 2**40: TWO})
    planned = repair(directory)
    assert planned.steps() == []
    assert "missing after it" in planned.notes[0]


def test_bytes_that_the_next_segment_repeats_are_cut(log):
    directory = log({0: ONE + TWO, len(ONE): TWO + ONE})
    repair(directory)
    assert damage(directory) == []
    assert payloads(directory) == [b"one" * 10, b"two" * 10, b"one" * 10]


def test_segments_that_overlap_and_differ_are_left_with_a_note(log):
    directory = log({0: ONE + TWO, len(ONE): ONE + TWO})
    planned = repair(directory)
    assert planned.steps() == []
    assert "differ" in planned.notes[0]


def test_a_second_file_of_the_same_start_and_one_without_an_offset_are_moved_aside(log):
    directory = log({0: ONE})
    (directory / "0.kafka").write_bytes(ONE)
    (directory / "abc.kafka").write_bytes(TWO)
    repair(directory)
    assert damage(directory) == []
    assert payloads(directory) == [b"one" * 10]
    kept = directory.parent.parent / "backup-orders-0" / "orders-0"
    assert len(list(kept.iterdir())) == 2


def test_a_few_bytes_between_messages_are_left_with_a_note(log):
    directory = log({0: ONE + b"\xff\xff\xff" + TWO})
    planned = repair(directory)
    assert planned.steps() == []
    assert f"--truncate-to {len(ONE)}" in planned.notes[0]


def test_a_cut_removes_later_segments_and_refuses_the_middle_of_a_message(log):
    directory = log({0: ONE + TWO, len(ONE + TWO): ONE})
    with pytest.raises(UsageError, match="inside a message"):
        plan_repair(RealDisk(), str(directory), RepairRequest(truncate_to=len(ONE) + 1))
    with pytest.raises(UsageError, match="not in the log"):
        plan_repair(RealDisk(), str(directory), RepairRequest(truncate_to=1000))
    repair(directory, truncate_to=len(ONE))
    assert payloads(directory) == [b"one" * 10]
    assert len(list(directory.iterdir())) == 1


def test_what_files_of_07_do_not_have_is_refused(log):
    directory = log({0: ONE})
    with pytest.raises(UsageError, match=r"Kafka 0\.7"):
        plan_repair(RealDisk(), str(directory), RepairRequest(rebuild_indexes=True))


def test_a_directory_in_use_is_not_changed(log, tmp_path):
    directory = log({0: ONE + TWO[:-1]})
    planned = plan_repair(RealDisk(), str(directory), RepairRequest())
    lock = RealDisk().lock(str(tmp_path / "logs" / ".lock"))
    try:
        with pytest.raises(StorageError):
            apply_plans(RealDisk(), [planned], str(tmp_path / "backup"))
    finally:
        lock.release()
    assert damage(directory)
    with pytest.raises(UsageError, match="cannot be in the log directory"):
        apply_plans(RealDisk(), [planned], str(tmp_path / "logs" / "backup"))


def test_the_marker_of_a_clean_stop_goes_with_a_repair(tmp_path):
    directory = copy07("logs-clean/none-1", tmp_path / "logs" / "none-1")
    marker = directory.parent / ".kafka_cleanshutdown"
    marker.touch()
    repair(directory)
    assert marker.exists()
    with (directory / segment_name(0)).open("ab") as file:
        file.write(b"torn")
    repair(directory)
    assert not marker.exists()
    assert len(payloads(directory)) == 40


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repair_keeps_every_intact_message_in_its_place(seed, tmp_path):
    random_source = random.Random(seed)
    source = golden07() / "logs-clean" / random_source.choice(PARTITIONS)
    directory = tmp_path / "logs" / source.name
    directory.parent.mkdir()
    name, start, end = mutated(source, directory, random_source)
    untouched = [
        it
        for it in entries_of(source)
        if it[2] != b"damage" and (it[0] != name or it[1] >= end or it[1] + len(it[2]) <= start)
    ]
    planned = repair(directory)
    for file, position, entry in untouched:
        found = (directory / file).read_bytes()[position : position + len(entry)]
        assert found == entry
    if planned.notes:
        # A message copied to a wrong place, a few bytes behind the right one.
        assert all("too few to be replaced by one" in note for note in planned.notes)
        return
    assert damage(directory) == []
    assert set(untouched) <= set(entries_of(directory))
    assert read_as_consumer(directory)[1] is None


def test_fillers_survive_kctls_reader_of_sets():
    data = message_set([b"a", b"b"], GZIP) + filler07(45) + ONE
    assert [it.index_in_set for it in messages(data)] == [0, 1, 0]
