"""Looks at the files of a stopped broker's partition: do batches, indexes and names agree?

It reads the bytes itself: of kctl it uses nothing.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INDEX = struct.Struct(">ii")
_TIME_INDEX = struct.Struct(">qi")
LOG_OVERHEAD = 12


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of version 2 and where it is."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


def batches_of(log_file: Path):
    """Every batch; AssertionError if one is damaged, or something follows the last."""
    data = log_file.read_bytes()
    found, position = [], 0
    while position < len(data):
        fields = _HEADER.unpack_from(data, position)
        base_offset, length, epoch, magic, crc, _, last_delta, _, max_timestamp, *_ = fields
        end = position + LOG_OVERHEAD + length
        where = f"{log_file} at byte {position}"
        assert magic == 2, where
        assert end <= len(data), where
        assert crc32c.crc32c(data[position + 21 : end]) == crc, where
        found.append(
            Batch(
                position,
                end - position,
                base_offset,
                base_offset + last_delta,
                max_timestamp,
                epoch,
            )
        )
        position = end
    return found


def check_partition(directory: Path) -> int:
    """Assert that a partition's files agree, in themselves and with each other; the log's end."""
    next_offset = -1
    segments = sorted(directory.glob("*.log"))
    assert segments, directory
    for segment in segments:
        base_offset = int(segment.stem)
        assert base_offset >= next_offset, segment
        batches = batches_of(segment)
        _check_offsets(segment, batches, base_offset)
        _check_offset_index(segment.with_suffix(".index"), batches, base_offset)
        _check_time_index(segment.with_suffix(".timeindex"), batches, base_offset)
        next_offset = batches[-1].last_offset + 1 if batches else base_offset
    _check_epochs(directory / "leader-epoch-checkpoint", segments)
    return next_offset


def _check_offsets(segment, batches, base_offset):
    next_offset = base_offset
    for batch in batches:
        assert batch.base_offset >= next_offset, (segment, batch)
        assert batch.last_offset >= batch.base_offset, (segment, batch)
        next_offset = batch.last_offset + 1


def _entries(path, layout):
    """The entries of an index up to the zeros that it is padded with while it is written to."""
    data = path.read_bytes()
    assert len(data) % layout.size == 0, path
    entries = list(layout.iter_unpack(data))
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return entries


def _check_offset_index(path, batches, base_offset):
    if not path.exists():
        return
    starts = {batch.position for batch in batches}
    ends = {batch.last_offset: batch for batch in batches}
    last = (-1, -1)
    for relative, position in _entries(path, _INDEX):
        assert relative > last[0], path
        assert position > last[1], path
        # An entry names the last offset of an append and where that append begins.
        assert position in starts, (path, relative, position)
        assert base_offset + relative in ends, (path, relative, position)
        assert ends[base_offset + relative].position >= position, (path, relative, position)
        last = relative, position


def _check_time_index(path, batches, base_offset):
    if not path.exists():
        return
    last = (-(2**63), -1)
    for timestamp, relative in _entries(path, _TIME_INDEX):
        assert timestamp > last[0], path
        assert relative >= last[1], path
        # No record up to this offset is younger.
        below = [b.max_timestamp for b in batches if b.last_offset <= base_offset + relative]
        assert all(it <= timestamp for it in below), (path, timestamp, relative)
        assert timestamp in {b.max_timestamp for b in batches}, (path, timestamp, relative)
        last = timestamp, relative


def _check_epochs(path, segments):
    if not path.exists():
        return
    version, count, *lines = path.read_text().splitlines()
    entries = [tuple(map(int, line.split())) for line in lines]
    assert version == "0", path
    assert int(count) == len(entries), path
    assert entries == sorted(set(entries)), path
    firsts = {}
    for segment in segments:
        for batch in batches_of(segment):
            firsts.setdefault(batch.leader_epoch, batch.base_offset)
    known = dict(entries)
    for epoch, offset in firsts.items():
        assert epoch in known, (path, epoch)
        # Retention may have moved the first entry up, never beyond the first record there is.
        assert known[epoch] <= offset, (path, epoch)
