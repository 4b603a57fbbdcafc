"""Walks a `.kafka` segment of Kafka 0.7 beyond damage, and says what a damaged range has been.

An entry carries nothing that says where it lies, and its size is not covered by its checksum. So
after a fault at a position, these are tried in order; the first that applies decides:

1. The checksum proves a size: the payload up to a place where an entry may begin, or up to the
   file's end, has it. Then only the size was wrong. A size that leads to an intact entry is an
   upper bound: a wrong one may lead to the start of a later entry.
2. The size is believed if it leads to an intact entry or to the file's end. Then one entry is
   damaged. If its checksum fits with the other magic, only the magic was wrong.
3. The next intact entry, wherever it begins, ends the damage. Without one the damage is the tail.

The third comes last because a payload may itself contain entries.

Invariant: the entries and ranges of a walk follow one another without a gap up to the file's end.

Kafka 0.7: kafka.message.FileMessageSet.recover stops at the first fault
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from kctl.records.checksum import continue_crc32, crc32
from kctl.records.message07 import CRC, HEADER_BYTES, SIZE
from kctl.storage.segments07 import (
    HEAD_BYTES,
    Fault07,
    FaultKind,
    FileEntry07,
    Readable,
    entry_head,
    walk,
)

__all__ = ["DamagedRange", "ViewFile", "end_of_intact", "next_entry", "walk_all"]

# An entry whose size or magic is wrong is recognized up to this size; Kafka 0.7's default limit of
# a message is a quarter of it.
PROOF_BYTES_MAX = 4 * 1024 * 1024
_WINDOW_BYTES = 1024 * 1024
_END_BYTES = 4 * 1024 * 1024
# A larger entry found in a search must be followed by something like an entry, too: comparing the
# checksum of everything that could be a size would take hours.
_CHEAP_BYTES = 1024 * 1024
# A size below 256 MiB that is not 0, and a magic.
_CANDIDATE = re.compile(rb"(?=[\x00-\x0f](?!\0{3}[\x00-\x04]).{3}[\x00\x01])", re.DOTALL)


class ViewFile:
    """Bytes in memory that are read as a file."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def size(self) -> int:
        """Return the number of bytes."""
        return len(self._view)

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes from `position`."""
        return bytes(self._view[position : position + length])


class DamagedRange(NamedTuple):
    """Bytes of a segment that are no intact entry; `end` is exclusive."""

    position: int
    end: int
    kind: FaultKind
    reason: str
    # Nothing follows in the file.
    is_tail: bool
    # The size and magic that make it an intact entry, for its first 5 bytes; None if nothing does.
    restored_head: bytes | None = None


def walk_all(file: Readable, position: int = 0) -> Iterator[FileEntry07 | DamagedRange]:
    """Yield the intact entries of a segment from `position` on, and the damaged ranges between
    them, in order."""
    size = file.size()
    while position < size:
        for found in walk(file, position):
            if isinstance(found, Fault07):
                damaged = _judged(file, found, size)
                yield damaged
                position = damaged.end
                break
            yield found
            position = found.end


def end_of_intact(file: Readable) -> int:
    """Return where the segment ends for readers who continue after damage: before a torn end.

    Only the end of a large segment is read, from an intact entry on.
    """
    size = file.size()
    end = max(0, size - _END_BYTES)
    if end:
        end = next_entry(file, end, size) or 0
    for it in walk_all(file, end):
        if isinstance(it, DamagedRange) and it.is_tail and it.restored_head is None:
            break
        end = it.end
    return end


def next_entry(file: Readable, position: int, size: int) -> int | None:
    """Return where the first intact entry at or after `position` begins, at any byte."""
    while position < size:
        window = file.pread(min(_WINDOW_BYTES, size - position), position)
        for match in _CANDIDATE.finditer(window):
            if _is_intact(file, position + match.start(), size):
                return position + match.start()
        if position + len(window) >= size or len(window) <= SIZE.size:
            return None
        position += len(window) - SIZE.size
    return None


def _judged(file: Readable, fault: Fault07, size: int) -> DamagedRange:
    position, kind, reason, length = fault
    is_believed = length is not None and _may_end(file, position + length, size)
    believed = position + length if length is not None and is_believed else size
    proven = _proven(file, position, believed, size)
    if proven is not None:
        end, head = proven
        why = f"the checksum proves a message of {end - position - SIZE.size} bytes"
        return DamagedRange(position, end, kind, f"{reason}; {why}", end == size, head)
    if is_believed:
        restored = _head_with_right_magic(file, position, believed)
        return DamagedRange(position, believed, kind, reason, believed == size, restored)
    following = next_entry(file, position + 1, size)
    end = size if following is None else following
    return DamagedRange(position, end, kind, reason, following is None)


def _may_end(file: Readable, end: int, size: int) -> bool:
    return end == size or _is_intact(file, end, size)


def _is_intact(file: Readable, position: int, size: int) -> bool:
    entry = entry_head(file.pread(HEAD_BYTES, position), position, size)
    if isinstance(entry, Fault07):
        return False
    if entry.size > _CHEAP_BYTES and not _begins_entry(file, entry.end, size):
        return False
    return isinstance(next(walk(file, position)), FileEntry07)


def _begins_entry(file: Readable, position: int, size: int) -> bool:
    """Return whether the file ends at `position`, or something like an entry begins there."""
    if position == size:
        return True
    found = entry_head(file.pread(HEAD_BYTES, position), position, size)
    return isinstance(found, FileEntry07) or found.kind is FaultKind.CUT


def _head_with_right_magic(file: Readable, position: int, end: int) -> bytes | None:
    if end - position > PROOF_BYTES_MAX:
        return None
    data = file.pread(end - position, position)
    for magic, header_bytes in enumerate(HEADER_BYTES):
        start = SIZE.size + header_bytes
        if magic == data[SIZE.size] or len(data) <= start:
            continue
        if crc32(data[start:]) == CRC.unpack_from(data, start - CRC.size)[0]:
            return data[: SIZE.size] + bytes((magic,))
    return None


def _proven(file: Readable, position: int, limit: int, size: int) -> tuple[int, bytes] | None:
    """Return the end, at most `limit`, of the entry at `position` that its checksum proves, and
    its right head.

    An empty payload proves nothing: its checksum is 0.
    """
    data = memoryview(file.pread(min(PROOF_BYTES_MAX, limit - position), position))
    is_whole = position + len(data) == limit
    for magic, header_bytes in enumerate(HEADER_BYTES):
        at = start = SIZE.size + header_bytes
        if len(data) <= start or data[SIZE.size] not in (magic, *range(2, 256)):
            continue
        wanted, crc = CRC.unpack_from(data, start - CRC.size)[0], 0
        ends = [match.start() for match in _CANDIDATE.finditer(data, start + 1)]
        for end in ends + [len(data)] * is_whole:
            crc = continue_crc32(data[at:end], crc)
            at = end
            if crc == wanted and _begins_entry(file, position + end, size):
                return position + end, SIZE.pack(end - SIZE.size) + bytes((magic,))
    return None
