"""Repair: the plan changes nothing, what changes is kept, a broker's lock is respected."""

import itertools
import os
import shutil
import struct

import pytest

import kctl.repair.batch_table
from kctl.dump.filters import RecordFilter
from kctl.errors import StorageError, UsageError
from kctl.records.builder import RecordBatchBuilder, build_batch
from kctl.records.compression import GZIP, ZSTD
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches
from kctl.records.record_batch import RecordBatch
from kctl.repair.extract import extract
from kctl.repair.rebuild import Wanted, rebuild
from kctl.repair.repair import apply_plans
from kctl.repair.repair_plan import RepairRequest, plan_repair
from kctl.runtime.real.disk import RealDisk
from tests.support.damage import flip, logs
from tests.support.forensics import (
    findings,
    readable_records,
    repair,
)

DISK = RealDisk()


def files(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def damaged(partition):
    directory = partition("v2-none-0")
    flip(-3)(directory)
    return directory


def test_a_plan_changes_nothing(damaged):
    before = files(damaged.parent)
    assert plan_repair(DISK, str(damaged), RepairRequest()).steps()
    assert files(damaged.parent) == before


def test_what_changes_is_in_the_backup_as_it_was(damaged, tmp_path):
    before = files(damaged.parent)
    apply_plans(DISK, [plan_repair(DISK, str(damaged), RepairRequest())], f"{tmp_path}/backup")
    after, kept = files(damaged.parent), files(tmp_path / "backup")
    assert kept
    assert all(before[name] == data for name, data in kept.items())
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed - {".kafka_cleanshutdown"} <= set(kept)


def test_a_broker_that_holds_the_lock_is_left_alone(damaged, tmp_path):
    before = files(damaged.parent)
    wanted = plan_repair(DISK, str(damaged), RepairRequest())
    lock = DISK.lock(f"{damaged.parent}/.lock")
    with pytest.raises(StorageError, match="locked"):
        apply_plans(DISK, [wanted], f"{tmp_path}/backup")
    lock.release()
    assert files(damaged.parent) == before


def test_offsets_of_what_is_cut_out_stay(damaged, tmp_path):
    apply_plans(DISK, [plan_repair(DISK, str(damaged), RepairRequest())], f"{tmp_path}/backup")
    assert findings(damaged.parent) == []
    second = plan_repair(DISK, str(damaged), RepairRequest())
    assert second.steps() == []


def test_truncation_ends_the_log_at_or_before_the_offset(partition, tmp_path):
    directory = partition("v2-none-0")
    request = RepairRequest(truncate_to=100)
    apply_plans(DISK, [plan_repair(DISK, str(directory), request)], f"{tmp_path}/backup")
    assert [path.name for path in logs(directory)] == [f"{base:020d}.log" for base in (0, 40, 80)]
    assert len(list(readable_records(directory).elements())) == 100
    assert findings(directory.parent) == []


def test_truncation_to_nothing_is_refused(partition):
    directory = partition("deleted-records-0")
    with pytest.raises(UsageError, match="nothing would be left"):
        plan_repair(DISK, str(directory), RepairRequest(truncate_to=1))


def compressed_log(tmp_path, magic):
    """Create a partition of three compressed batches with offsets 0 to 9, 10 to 19, 20 to 29."""
    directory = tmp_path / "logs/t-0"
    directory.mkdir(parents=True)
    parts = []
    for base in (0, 10, 20):
        if magic == 2:
            builder = RecordBatchBuilder(base_offset=base, compression_type=GZIP)
        else:
            builder = MessageSetBuilder(magic=magic, base_offset=base, compression_type=GZIP)
        for number in range(base, base + 10):
            builder.append(timestamp=1, key=None, value=b"%d" % number)
        parts.append(bytes(builder.build()))
    (directory / f"{0:020d}.log").write_bytes(b"".join(parts))
    rebuild(DISK, str(directory), Wanted())
    return directory


def offsets(directory):
    return sorted(int(value) for _, _, value in readable_records(directory))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize(
    ("cut", "gone"),
    [
        ((15, 22), (10, 29)),
        ((3, 7), (0, 9)),
        ((5, 12), (0, 19)),
        ((10, 20), (10, 19)),
        ((20, 21), (20, 29)),
    ],
)
def test_a_cut_removes_the_batches_that_it_names(tmp_path, magic, cut, gone):
    directory = compressed_log(tmp_path, magic)
    wanted = plan_repair(DISK, str(directory), RepairRequest(cut=cut))
    first, last = gone
    assert wanted.lost == [gone]
    assert wanted.steps()[0].detail.startswith(f"offsets {first} to {last}: ")
    apply_plans(DISK, [wanted], f"{tmp_path}/backup")
    assert offsets(directory) == [it for it in range(30) if not first <= it <= last]


def test_a_cut_counts_on_the_batches_around_one_that_cannot_be_read(tmp_path):
    directory = compressed_log(tmp_path, 1)
    [path] = logs(directory)
    data = bytearray(path.read_bytes())
    [_, second, third] = batches(bytes(data))
    # The compressed bytes, not the header.
    for position in range(second.position + 40, third.position):
        data[position] ^= 0xFF
    path.write_bytes(data)
    for cut in ((3, 10), (20, 25)):
        wanted = plan_repair(DISK, str(directory), RepairRequest(cut=cut))
        assert wanted.lost == [(0, 9) if cut[0] == 3 else (20, 29)]
    assert plan_repair(DISK, str(directory), RepairRequest(cut=(3, 11))).lost == [(0, 19)]


def test_a_cut_leaves_batches_in_between_that_have_other_offsets(tmp_path):
    directory = compressed_log(tmp_path, 2)
    [path] = logs(directory)
    [first, second, third] = whole_batches(path)
    rewrite(path, [first, second, third, second])
    wanted = plan_repair(DISK, str(directory), RepairRequest(cut=(12, 13)))
    assert wanted.lost == [(10, 19), (10, 19)]
    apply_plans(DISK, [wanted], f"{tmp_path}/backup")
    assert offsets(directory) == [*range(10), *range(20, 30)]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_truncation_inside_a_batch_names_the_whole_batch_as_lost(tmp_path, magic):
    directory = compressed_log(tmp_path, magic)
    checkpoint = directory.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 12\n")
    wanted = plan_repair(DISK, str(directory), RepairRequest(truncate_to=15))
    assert wanted.lost == [(10, None)]
    assert "the log ends at offset 10 or before" in wanted.steps()[0].detail
    apply_plans(DISK, [wanted], f"{tmp_path}/backup")
    assert offsets(directory) == [*range(10)]
    # A high watermark beyond the end would be damage.
    assert findings(directory.parent) == []


@pytest.mark.parametrize("name", ["v2-none-0", "tx-0", "v1-gzip-0", "upgraded-0", "epochs-0"])
def test_files_derived_from_batches_can_be_rebuilt(partition, name):
    directory = partition(name)
    for path in directory.iterdir():
        if path.suffix != ".log":
            path.unlink()
    rebuild(DISK, str(directory), Wanted())
    assert findings(directory.parent) == []


def test_extraction_takes_what_is_readable_and_leaves_the_source_alone(damaged, tmp_path):
    before = files(damaged)
    found = extract(DISK, str(damaged), f"{tmp_path}/out/v2-none-0", RecordFilter(), None)
    assert found.damaged_places == 1
    assert readable_records(tmp_path / "out/v2-none-0") == readable_records(damaged)
    assert files(damaged) == before


def test_extraction_filters_and_recompresses(partition, tmp_path):
    directory = partition("v2-none-0")
    target = tmp_path / "out/v2-none-0"
    wanted = RecordFilter(start_offset=45, end_offset=95, keys=(b"key-00050", b"key-00061"))
    found = extract(DISK, str(directory), str(target), wanted, ZSTD)
    assert (found.records, found.first_offset, found.last_offset) == (2, 50, 61)
    assert {key for _, key, _ in readable_records(target)} == {b"key-00050", b"key-00061"}


def test_extraction_refuses_a_directory_that_holds_something(damaged, tmp_path):
    shutil.copytree(damaged, tmp_path / "out")
    with pytest.raises(UsageError, match="not empty"):
        extract(DISK, str(damaged), f"{tmp_path}/out", RecordFilter(), None)


def segments(directory):
    return {path.name: path.read_bytes() for path in logs(directory)}


def whole_batches(path):
    data = path.read_bytes()
    return [data[it.position : it.position + it.size] for it in batches(data)]


def rewrite(path, parts):
    path.write_bytes(b"".join(parts))


def repair_from_copy(pristine, directory, backup):
    repair(directory, backup)
    after = segments(directory)
    left = [it.rule for it in findings(directory.parent)]
    shutil.rmtree(directory)
    shutil.copytree(pristine, directory)
    shutil.rmtree(backup, ignore_errors=True)
    return after, left


# A few places of each log, and more of them.
PLACES = pytest.mark.parametrize("places_max", [2, pytest.param(8, marks=pytest.mark.slow)])
COMPACTED = ("compacted-0", "compact-delete-0", "txc-0", "compacted-v1-0", "compacted-v0-0")


@PLACES
@pytest.mark.parametrize("name", ["v2-none-0", "v1-gzip-0", *COMPACTED[:3]])
def test_only_the_second_copy_of_a_batch_goes(partition, tmp_path, name, places_max):
    directory = partition(name)
    pristine, expected = shutil.copytree(directory, tmp_path / name), segments(directory)
    for path in logs(directory):
        for i, batch in enumerate(whole_batches(path)[:places_max]):
            parts = whole_batches(path)
            rewrite(path, [*parts[: i + 1], batch, *parts[i + 1 :]])
            found = repair_from_copy(pristine, directory, tmp_path / "backup")
            assert found == (expected, []), (path.name, i)


@PLACES
@pytest.mark.parametrize("name", ["v2-none-0", "tx-0", "v1-none-0", "v1-gzip-0", *COMPACTED])
def test_swapped_batches_go_back_to_their_places(partition, tmp_path, name, places_max):
    directory = partition(name)
    pristine, expected = shutil.copytree(directory, tmp_path / name), segments(directory)
    places = [(path, i) for path in logs(directory) for i in range(len(whole_batches(path)))]
    near = list(itertools.pairwise(places))
    far = list(zip(places, places[len(places) // 2 :], strict=False))
    chosen = [pair for all_ in (near, far) for pair in all_[:: max(1, len(all_) // places_max)]]
    for (path, i), (other, j) in chosen:
        parts = {it: whole_batches(it) for it in (path, other)}
        parts[path][i], parts[other][j] = parts[other][j], parts[path][i]
        for it, swapped in parts.items():
            rewrite(it, swapped)
        found = repair_from_copy(pristine, directory, tmp_path / "backup")
        assert found == (expected, []), (path.name, i, other.name, j)


# The message has offset 39, those inside 0 to 19: bit 5 makes it 7, bit 63 negative.
@pytest.mark.parametrize("bit", [0, 4, 5, 20, 62, 63])
def test_a_compressed_v1_message_with_a_flipped_offset_bit_keeps_its_records(
    partition,
    tmp_path,
    bit,
):
    directory = partition("v1-gzip-0")
    expected = segments(directory)
    path = logs(directory)[0]
    parts = whole_batches(path)
    stored = int.from_bytes(parts[1][:8]) ^ 1 << bit
    rewrite(path, [parts[0], stored.to_bytes(8) + parts[1][8:], *parts[2:]])
    repair(directory, tmp_path / "backup")
    assert segments(directory) == expected
    assert findings(directory.parent) == []


def test_a_moved_batch_wins_over_a_flipped_offset(partition, tmp_path):
    directory = partition("v2-mixed-codecs-0")
    expected = segments(directory)
    path = logs(directory)[0]
    parts = whole_batches(path)
    offset, following = (struct.unpack(">q", it[:8])[0] for it in parts[6:8])
    flipped = struct.pack(">q", offset ^ 2) + parts[6][8:]
    assert offset < offset ^ 2 < following
    rewrite(path, [parts[7], *parts[1:6], flipped, parts[0], *parts[8:]])
    repair(directory, tmp_path / "backup")
    assert segments(directory) == expected


def test_batches_below_every_segment_name_share_one_segment(partition, tmp_path):
    """The first segment, which begins with a message without key and value, has a later name."""
    directory = partition("v0-none-0")
    expected = segments(directory)
    first, second, third = logs(directory)[:3]
    contents = first.read_bytes(), second.read_bytes(), third.read_bytes()
    second.write_bytes(contents[1])
    third.write_bytes(contents[0])
    first.unlink()
    (directory / f"{20:020}.log").write_bytes(contents[2])
    repair(directory, tmp_path / "backup")
    assert b"".join(segments(directory).values()) == b"".join(expected.values())
    assert logs(directory)[0].name == f"{0:020}.log"
    assert len(logs(directory)) <= len(expected) + 1
    assert findings(directory.parent) == []


def test_an_interrupted_repair_is_completed_first(partition, tmp_path, monkeypatch):
    directory = partition("v2-none-0")
    expected = segments(directory)
    first, second = logs(directory)[:2]
    parts = whole_batches(first), whole_batches(second)
    parts[0][0], parts[1][0] = parts[1][0], parts[0][0]
    rewrite(first, parts[0])
    rewrite(second, parts[1])

    class Interrupted(Exception):
        pass

    def rename(self, old, new):
        if new == str(second):
            raise Interrupted
        os.rename(old, new)

    plan = plan_repair(DISK, str(directory), RepairRequest())
    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "rename", rename)
        with pytest.raises(Interrupted):
            apply_plans(DISK, [plan], f"{tmp_path}/interrupted")
    plan = plan_repair(DISK, str(directory), RepairRequest())
    assert [step.action for step in plan.steps()] == ["complete"]
    repair(directory, tmp_path / "backup")
    assert segments(directory) == expected
    assert findings(directory.parent) == []


def test_a_batch_that_fits_nowhere_is_kept_in_a_file_of_its_own(partition, tmp_path):
    directory = partition("v2-none-0")
    expected = segments(directory)
    path = logs(directory)[1]
    parts = whole_batches(path)
    stranger = bytearray(build_batch(list(RecordBatch(parts[0]).records())[1:3]))
    struct.pack_into(">q", stranger, 0, 42)
    rewrite(path, [parts[0], bytes(stranger), *parts[1:]])
    plan = plan_repair(DISK, str(directory), RepairRequest())
    assert "set aside" in [step.action for step in plan.steps()]
    apply_plans(DISK, [plan], f"{tmp_path}/backup")
    assert segments(directory) == expected
    kept = tmp_path / "backup/v2-none-0/set-aside/0/00000000000000000042.log"
    assert kept.read_bytes() == bytes(stranger)


def test_a_log_with_too_many_batches_is_left_as_it_is(partition, monkeypatch):
    directory = partition("v2-none-0")
    flip(-3)(directory)
    monkeypatch.setattr(kctl.repair.batch_table, "BATCHES_MAX", 5)
    plan = plan_repair(DISK, str(directory), RepairRequest())
    assert not plan.segments
    assert "too many" in plan.notes[0]


class FullDisk(RealDisk):
    """Has room for `files` new files."""

    def __init__(self, files):
        self._left = files

    def open(self, path, *, create=False, read_only=False):
        file = super().open(path, create=create, read_only=read_only)
        self._left -= create
        if self._left < 0:
            raise StorageError(f"{path}: no space left on device")
        return file


def test_a_backup_that_does_not_fit_leaves_nothing_behind(damaged, tmp_path):
    before = files(damaged.parent)
    plan = plan_repair(DISK, str(damaged), RepairRequest())
    own = tmp_path / "own"
    own.mkdir()
    (own / "notes").write_text("kept")
    for room in range(3):
        for backup in (tmp_path / "backup", own):
            with pytest.raises(StorageError, match="no space left"):
                apply_plans(FullDisk(room), [plan], str(backup))
    assert files(damaged.parent) == before
    assert files(own) == {"notes": b"kept"}
    assert not (tmp_path / "backup").exists()
