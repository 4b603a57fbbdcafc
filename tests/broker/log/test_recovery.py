"""The log after a crash: nothing whole is lost, nothing torn is served, corruption is not
removed."""

import shutil
from hashlib import shake_256

import pytest

from kctl.broker.log import log_factory
from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.storage.checkpoint import write_offsets
from kctl.storage.layout import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    file_name,
)
from tests.support.log_world import TP, append, batch, end_transaction, values_of

LOG = file_name(0, ".log")
HEADER = 61
# Of a batch with one record of 100 bytes.
BATCH = 171


@pytest.fixture
def world(make_world):
    return make_world(index_interval_bytes=200, segment_bytes=4000)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "logs/d0/t-0"


def fill(log, count=10, size=100):
    expected = []
    for number in range(count):
        value = bytes([65 + number % 26]) * size
        append(log, value)
        expected.append((number, value))
    return expected


def set_recovery_point(world, offset):
    path = f"{world.log_dirs[0]}/{RECOVERY_POINT_CHECKPOINT}"
    write_offsets(world.runtime.disk, path, {TP: offset})


def test_everything_written_survives_kill_minus_nine(world):
    expected = fill(world.log(), 60)
    log = world.restart()
    assert values_of(log) == expected
    assert len(log.segments) == 3
    append(log, b"next")
    assert log.log_end_offset == 61


def test_a_log_cut_at_any_byte_of_its_last_batch_ends_before_that_batch(world, directory, tmp_path):
    log = world.log()
    expected = fill(log, 5)
    start = log.segments[-1].find(4)[0]
    whole = log.size
    world.crash()
    saved = tmp_path / "saved"
    shutil.copytree(directory, saved)
    for size in range(start, whole):
        shutil.rmtree(directory)
        shutil.copytree(saved, directory)
        with (directory / LOG).open("r+b") as file:
            file.truncate(size)
        world.start()
        log = world.log()
        assert values_of(log) == expected[:4], size
        assert log.size == start
        assert append(log, b"again").first_offset == 4
        world.crash()


def test_nul_tail_is_removed(world, directory):
    expected = fill(world.log())
    with (directory / LOG).open("ab") as file:
        file.write(bytes(5000))
    log = world.restart()
    assert values_of(log) == expected
    assert any("incompletely written" in warning for warning in world.warnings)


def test_last_batch_whose_sectors_never_reached_the_disk_is_removed(world, directory):
    log = world.log()
    expected = fill(log, 3, size=2000 // 3)
    append(log, b"x" * 1000)
    data = bytearray((directory / LOG).read_bytes())
    position = len(data) // 512 * 512 - 512
    data[position : position + 512] = bytes(512)
    (directory / LOG).write_bytes(data)
    log = world.restart()
    assert values_of(log) == expected


@pytest.mark.parametrize("seed", range(5))
def test_garbage_at_the_end_is_removed(world, directory, seed):
    expected = fill(world.log())
    with (directory / LOG).open("ab") as file:
        file.write(shake_256(b"%d" % seed).digest(3000))
    log = world.restart()
    assert values_of(log) == expected


def test_batch_with_wrong_offsets_at_the_end_is_removed(world, directory):
    """It is whole, but its offsets occurred before."""
    expected = fill(world.log())
    with (directory / LOG).open("ab") as file:
        file.write(batch(b"from elsewhere"))
    log = world.restart()
    assert values_of(log) == expected


def test_hole_that_a_crash_left_ends_the_log_though_valid_batches_follow(world, directory):
    """Sectors reach the disk in any order; batches after the hole were never acknowledged as
    durable either."""
    log = world.log()
    fill(log, 20)
    data = bytearray((directory / LOG).read_bytes())
    data[1024:2048] = bytes(1024)
    (directory / LOG).write_bytes(data)
    log = world.restart()
    assert values_of(log) == [(n, bytes([65 + n]) * 100) for n in range(1024 // BATCH)]
    assert not world.manager.damaged


def test_segments_after_a_truncated_one_are_removed(world, directory):
    log = world.log()
    fill(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    path = directory / file_name(bases[1], ".log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)
    log = world.restart()
    assert log.log_end_offset == bases[2] - 1
    assert [segment.base_offset for segment in log.segments] == bases[:2]
    assert not list(directory.glob(f"{bases[2]:020d}.log*"))
    assert append(log, b"x").first_offset == bases[2] - 1


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 12, 16, 17, 21, 27, 35, 43, 57, HEADER, 120])
def test_one_flipped_bit_among_valid_batches_is_corruption_and_nothing_is_removed(
    world, directory, byte
):
    log = world.log()
    fill(log, 20)
    position = log.segments[0].find(7)[0] + byte
    world.crash()
    data = bytearray((directory / LOG).read_bytes())
    data[position] ^= 0x04
    (directory / LOG).write_bytes(data)

    world.start()

    if 12 <= byte < 16:
        # The checksum does not cover the leader epoch, so Kafka cannot detect this either.
        assert values_of(world.log())[7][0] == 7
        return
    assert world.manager.get_log(TP) is None
    with pytest.raises(StorageError, match=r"damaged at position \d+ \(offset 7\)"):
        world.log()
    assert (directory / LOG).read_bytes() == data


def test_damage_below_the_recovery_point_is_corruption_even_at_the_end(world, directory):
    fill(world.log(), 10)
    set_recovery_point(world, 10)
    world.crash()
    with (directory / LOG).open("r+b") as file:
        file.truncate(10 * BATCH - 5)
    world.start()
    assert TP in world.manager.damaged


@pytest.mark.parametrize("byte", [0, 6, 8, 10, 11, 16, 17, 60, BATCH - 1])
def test_a_corrupt_batch_at_the_end_of_a_rolled_segment_keeps_the_later_segments(
    world, directory, byte
):
    """Found by simulation, byte 10: a length that points beyond the end of the file seemed torn."""
    log = world.log()
    fill(log, 60)
    base = log.segments[1].base_offset
    data = bytearray((directory / file_name(base, ".log")).read_bytes())
    data[byte - BATCH] ^= 0x40
    (directory / file_name(base, ".log")).write_bytes(data)
    world.crash()
    world.start()
    assert TP in world.manager.damaged
    assert len(list(directory.glob("*.log"))) == 3


@pytest.mark.parametrize("byte", [8, 10, 11])
def test_last_batch_with_only_a_wrong_length_is_not_removed(world, directory, byte):
    fill(world.log(), 20)
    world.crash()
    data = bytearray((directory / LOG).read_bytes())
    data[byte - BATCH] ^= 0x80
    (directory / LOG).write_bytes(data)
    world.start()
    with pytest.raises(StorageError, match="the batch is complete, but its length is wrong"):
        world.log()


def test_a_batch_whose_length_ended_a_lost_sector_is_torn(world, directory):
    """Found by simulation: the power failed when the sectors after it were already on disk."""
    log = world.log()
    append(log, b"x" * 429)
    assert log.size == 512 - 12
    append(log, b"y" * 100)
    world.crash()
    data = bytearray((directory / LOG).read_bytes())
    data[500:512] = bytes(12)
    (directory / LOG).write_bytes(data)
    world.start()
    assert values_of(world.log()) == [(0, b"x" * 429)]
    assert world.log().size == 500


def test_a_damaged_log_does_not_stop_the_others_and_stays_damaged(world, directory):
    other = world.log(TopicPartition("other", 0))
    append(other, b"fine")
    fill(world.log(), 20)
    data = bytearray((directory / LOG).read_bytes())
    data[500] ^= 1
    (directory / LOG).write_bytes(data)

    world.restart()
    assert values_of(world.log(TopicPartition("other", 0))) == [(0, b"fine")]
    # A clean shutdown must not make the next start trust it.
    world.restart(clean=True)
    assert TP in world.manager.damaged
    # Deleting the topic resolves it.
    world.manager.delete_log(TP)
    assert values_of(world.log()) == []


def gap_after_the_first_segment(world, directory):
    """The first segment ends with a whole batch, but its last ones never reached the disk."""
    log = world.log()
    expected = fill(log, 60)
    world.runtime.scheduler.settle()
    bases = [segment.base_offset for segment in log.segments]
    world.crash()
    with (directory / LOG).open("r+b") as file:
        file.truncate(10 * BATCH)
    set_recovery_point(world, 0)
    return expected, bases


def test_segments_after_lost_records_are_removed(world, directory):
    expected, _ = gap_after_the_first_segment(world, directory)
    world.start()
    assert values_of(world.log()) == expected[:10]
    assert world.log().log_end_offset == 10


def test_missing_records_are_accepted_in_a_directory_without_checkpoints(world, directory):
    """It was copied here; its topics may have been compacted elsewhere."""
    expected, bases = gap_after_the_first_segment(world, directory)
    for path in directory.parent.glob("*-checkpoint"):
        path.unlink()
    world.start()
    assert values_of(world.log()) == expected[:10] + expected[bases[1] :]


def test_missing_records_that_were_durable_are_corruption(world, directory):
    gap_after_the_first_segment(world, directory)
    set_recovery_point(world, 20)
    world.start()
    assert "are missing although they were durable" in world.manager.damaged[TP][1]


def test_indexes_are_rebuilt_as_they_were(world, directory):
    log = world.log()
    fill(log, 60)
    world.close()
    names = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    wanted = {path.name: path.read_bytes() for path in names}
    assert any(wanted.values())
    for path in names:
        path.write_bytes(shake_256(path.name.encode()).digest(96))
    (directory.parent / ".kafka_cleanshutdown").unlink()
    set_recovery_point(world, 0)

    world.start()
    world.close()

    assert {path.name: path.read_bytes() for path in names} == wanted


def test_missing_index_after_a_clean_stop_is_rebuilt(world, directory):
    expected = fill(world.log(), 60)
    world.close()
    wanted = (directory / "00000000000000000000.index").read_bytes()
    (directory / "00000000000000000000.index").unlink()
    world.start()
    assert (directory / "00000000000000000000.index").read_bytes() == wanted
    assert values_of(world.log()) == expected


def test_index_without_a_log_is_removed(world, directory):
    world.log()
    stray = directory / file_name(77, ".index")
    stray.write_bytes(bytes(8))
    log = world.restart()
    assert not stray.exists()
    assert log.log_end_offset == 0


def test_deleted_and_half_cleaned_files_are_removed_and_a_complete_swap_is_used(world, directory):
    log = world.log()
    fill(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    # Compaction kept two batches of the first segment.
    cleaned = f"{world.log_dirs[0]}/{CLEANER_OFFSET_CHECKPOINT}"
    write_offsets(world.runtime.disk, cleaned, {TP: bases[1]})
    survivors = (directory / LOG).read_bytes()[: 2 * BATCH]
    world.crash()
    (directory / f"{LOG}.swap").write_bytes(survivors)
    (directory / f"{file_name(bases[1], '.log')}.cleaned").write_bytes(b"half")
    (directory / f"{file_name(bases[1], '.index')}.deleted").write_bytes(b"gone")

    world.start()

    log = world.log()
    assert not [p for p in directory.iterdir() if p.suffix in (".swap", ".cleaned", ".deleted")]
    assert [segment.base_offset for segment in log.segments] == bases
    assert [offset for offset, _ in values_of(log)] == [0, 1, *range(bases[1], 60)]


def test_swap_of_an_interrupted_split_is_removed(world, directory):
    """KAFKA-6264: a .cleaned of a lower or equal offset shows that the split was not complete."""
    log = world.log()
    expected = fill(log, 60)
    base = log.segments[1].base_offset
    world.crash()
    (directory / f"{file_name(base, '.log')}.swap").write_bytes(b"part of a split")
    (directory / f"{file_name(base, '.log')}.cleaned").write_bytes(b"other part")
    world.start()
    assert values_of(world.log()) == expected


def test_log_that_ends_below_its_start_starts_over_there(world, directory):
    log = world.log()
    fill(log, 20)
    log.maybe_increment_log_start_offset(15)
    world.close()
    with (directory / LOG).open("r+b") as file:
        file.truncate(5 * BATCH)
    (directory.parent / ".kafka_cleanshutdown").unlink()
    set_recovery_point(world, 0)
    world.start()
    log = world.log()
    assert (log.log_start_offset, log.log_end_offset, log.size) == (15, 15, 0)


def test_damaged_epoch_file_is_rebuilt_from_the_batches(world, directory):
    log = world.log()
    append(log, b"a", epoch=1)
    append(log, b"b", epoch=5)
    world.close()
    wanted = (directory / "leader-epoch-checkpoint").read_bytes()
    (directory / "leader-epoch-checkpoint").write_bytes(b"\0\0\0")
    world.start()
    log = world.log()
    assert log.end_offset_for_epoch(1) == (1, 1)
    append(log, b"c", epoch=6)
    assert (directory / "leader-epoch-checkpoint").read_bytes() == wanted.replace(
        b"0\n2\n", b"0\n3\n"
    ) + b"6 2\n"


def test_aborted_transactions_and_epochs_are_rebuilt(world, directory):
    log = world.log()
    append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, commit=False)
    append(log, b"x", epoch=3)
    index = directory / file_name(0, ".txnindex")
    wanted = index.read_bytes()
    index.unlink()
    (directory / "leader-epoch-checkpoint").unlink()
    log = world.restart()
    assert index.read_bytes() == wanted
    assert log.end_offset_for_epoch(2) == (0, 2)


def test_clean_start_writes_nothing(world, directory):
    fill(world.log(), 60)
    world.close()
    before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    world.start()
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_clean_marker_over_a_torn_log_is_not_trusted(world, directory):
    expected = fill(world.log(), 10)
    world.close()
    with (directory / LOG).open("ab") as file:
        file.write(b"half a batch")
    world.start()
    log = world.log()
    assert values_of(log) == expected
    assert log.size == 10 * BATCH


def test_crash_while_loading_is_an_unclean_stop(world, directory, monkeypatch):
    """KAFKA-10471: the marker is removed before the first log is opened."""
    expected = fill(world.log(), 10)
    world.close()
    marker = directory.parent / ".kafka_cleanshutdown"
    assert marker.exists()

    class Crash(Exception):
        pass

    def crash(*_):
        assert not marker.exists()
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(log_factory, "LogLoader", crash)
        with pytest.raises(Crash):
            world.start()
    for held in world.manager._directories.values():
        held.release()
    assert not marker.exists()
    world.start()
    assert values_of(world.log()) == expected
