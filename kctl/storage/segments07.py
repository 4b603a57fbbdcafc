"""Directories and `.kafka` files of Kafka 0.7: their names, the chain they form, and recovery.

    <log dir>/<topic>-<partition>/<start, 20 digits>.kafka
    <log dir>/.kafka_cleanshutdown      there after a clean stop: nothing needs to be recovered

Entries follow one another in a segment; a file's name is the position of its first byte in the
log, so a segment ends where the next one begins. Names are written with 20 digits and read with
any number; releases before 0.7, and its documentation, write `topic_0` and fewer digits.

Recovery reads the newest segment alone and cuts it before the first entry that is not whole or has
a wrong checksum. Compressed messages are not opened, and attributes not read. Kafka 0.7 does not
start if that entry has an unknown magic, or magic 1 and 5 bytes: here both are cut.

Kafka 0.7: kafka.log.Log (`loadSegments`, `nameFromOffset`, `validateSegments`),
kafka.message.FileMessageSet (`recover`, `validateMessage`), kafka.log.LogManager
"""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, Protocol

from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import continue_crc32, crc32
from kctl.records.message07 import CRC, CURRENT_MAGIC, HEADER_BYTES, SIZE
from kctl.runtime.disk import Disk
from kctl.storage import layout

_SEGMENT_NAME = re.compile(r"(\d+)\.kafka", re.ASCII)
_UNDERSCORED = re.compile(r"(.+)_(\d+)", re.ASCII | re.DOTALL)
_OFFSET_MAX = 2**63 - 1
# Bytes read at once; a larger entry is read in several parts.
WINDOW_BYTES = 1024 * 1024
# What identifies a compressed payload.
_PAYLOAD_HEAD_BYTES = 8
HEAD_BYTES = SIZE.size + HEADER_BYTES[1] + _PAYLOAD_HEAD_BYTES


class Segment07(NamedTuple):
    """A `.kafka` file."""

    base_offset: int
    path: str
    size: int

    @property
    def end_offset(self) -> int:
        """Return where the next segment must begin."""
        return self.base_offset + self.size


class Readable(Protocol):
    """The part of DiskFile that a walk needs; `walk07.ViewFile` is another."""

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes: ...


class FaultKind(Enum):
    """Why no entry can be read at a position."""

    # The file ends inside the entry, or its size leads beyond the end.
    CUT = "cut"
    SIZE = "size"
    MAGIC = "magic"
    CHECKSUM = "checksum"


class Fault07(NamedTuple):
    """The place where a walk ended; `size` is the entry's, or None if its size cannot be."""

    position: int
    kind: FaultKind
    reason: str
    size: int | None


class FileEntry07(NamedTuple):
    """The header of a whole entry with a valid checksum."""

    position: int
    size: int
    magic: int
    attributes: int
    crc: int
    # The first bytes of the payload, 8 or more if it has as many; bytes after it may be included.
    payload_head: bytes

    @property
    def end(self) -> int:
        """Return where the next entry begins."""
        return self.position + self.size


def segment_name(base_offset: int) -> str:
    """Return the name of the file that begins at `base_offset`."""
    return layout.file_name(base_offset, layout.OLD_LOG_SUFFIX)


def parse_segment_name(name: str) -> int | None:
    """Return where a segment begins, however many digits say so; None for other names."""
    match = _SEGMENT_NAME.fullmatch(name)
    offset = int(match[1]) if match else -1
    return offset if 0 <= offset <= _OFFSET_MAX else None


def directory_name(topic_partition: TopicPartition) -> str:
    """Return the directory of a partition."""
    return str(topic_partition)


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the partition of `TOPIC-N` or `TOPIC_N`; None for other names.

    `-` is looked for first: a topic may contain both.
    """
    found = layout.parse_directory_name(name)
    if found is not None:
        return None if found.is_delete or found.is_future else found.topic_partition
    match = _UNDERSCORED.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def segments_in(
    disk: Disk, directory: str, unreadable: Callable[[str, StorageError], object] | None = None
) -> list[Segment07]:
    """Return the segments in a partition's directory in the order of their offsets.

    Files of other names are left out (`unreadable_names`). A segment without a size, such as a link
    to nowhere, is passed to `unreadable` with the error, and left out; without it, StorageError.
    """
    found = []
    for name in disk.list(directory):
        base_offset = parse_segment_name(name)
        if base_offset is not None:
            path = f"{directory.rstrip('/')}/{name}"
            try:
                found.append(Segment07(base_offset, path, disk.size(path)))
            except StorageError as error:
                if unreadable is None:
                    raise
                unreadable(path, error)
    return sorted(found)


def is_old_partition(disk: Disk, directory: str) -> bool:
    """Return whether `directory` has the name of a partition and contains `.kafka` files."""
    if parse_directory_name(directory.rstrip("/").rpartition("/")[2]) is None:
        return False
    return has_old_files(disk, directory)


def has_old_files(disk: Disk, directory: str) -> bool:
    """Return whether `directory` contains `.kafka` files, whatever their names are."""
    return any(name.endswith(layout.OLD_LOG_SUFFIX) for name in disk.list(directory))


def unreadable_names(disk: Disk, directory: str) -> list[str]:
    """Return the `.kafka` files in a directory whose names are no offsets: Kafka 0.7 does not start
    with one."""
    return [
        name
        for name in disk.list(directory)
        if name.endswith(layout.OLD_LOG_SUFFIX) and parse_segment_name(name) is None
    ]


def breaks_in_chain(segments: Sequence[Segment07]) -> Iterator[tuple[Segment07, Segment07]]:
    """Yield each pair of neighbours with a hole or an overlap between them."""
    for earlier, later in pairwise(segments):
        if earlier.end_offset != later.base_offset:
            yield earlier, later


def has_clean_shutdown(disk: Disk, log_dir: str) -> bool:
    """Return whether the server that wrote `log_dir` has stopped cleanly."""
    return disk.exists(f"{log_dir.rstrip('/')}/{layout.CLEAN_SHUTDOWN_FILE}")


def walk(file: Readable, position: int = 0) -> Iterator[FileEntry07 | Fault07]:
    """Yield each entry from `position` on, up to the file's end or a Fault07, which comes last."""
    size = file.size()
    window, window_start = b"", position
    while position < size:
        at = position - window_start
        if len(window) - at < HEAD_BYTES:
            window, window_start, at = file.pread(WINDOW_BYTES, position), position, 0
        found = entry_head(window[at : at + HEAD_BYTES], position, size)
        if isinstance(found, Fault07):
            yield found
            return
        if len(window) - at < found.size:
            window, window_start, at = file.pread(WINDOW_BYTES, position), position, 0
        head_bytes = SIZE.size + HEADER_BYTES[found.magic]
        in_window = memoryview(window)[at + head_bytes : at + found.size]
        if _payload_crc(file, in_window, found, head_bytes) != found.crc:
            yield Fault07(position, FaultKind.CHECKSUM, "the checksum is wrong", found.size)
            return
        yield found
        position = found.end


def valid_end(disk: Disk, path: str) -> tuple[int, Fault07 | None]:
    """Return where recovery cuts the segment at `path`, and why; if it is whole its size, None."""
    file = disk.open(path, read_only=True)
    try:
        end = 0
        for found in walk(file):
            if isinstance(found, Fault07):
                return found.position, found
            end = found.end
        return end, None
    finally:
        file.close()


def entry_head(head: bytes, position: int, file_size: int) -> FileEntry07 | Fault07:
    """Return the entry whose first bytes at `position` are `head` (HEAD_BYTES, or what the file
    has left); its checksum is not compared."""
    left = file_size - position
    if len(head) < SIZE.size:
        return Fault07(position, FaultKind.CUT, "the file ends inside a size", None)
    length: int = SIZE.unpack_from(head)[0]
    if length < HEADER_BYTES[0]:
        reason = f"a message of {length} bytes cannot be here"
        return Fault07(position, FaultKind.SIZE, reason, None)
    size = SIZE.size + length
    if size > left:
        reason = f"a message of {length} bytes cannot be here: {left - SIZE.size} bytes follow"
        return Fault07(position, FaultKind.CUT, reason, None)
    magic = head[SIZE.size]
    if magic > CURRENT_MAGIC:
        return Fault07(position, FaultKind.MAGIC, f"magic {magic} is none of Kafka 0.7's", size)
    if length < HEADER_BYTES[magic]:
        reason = f"a message of {length} bytes and magic {magic} cannot be here"
        return Fault07(position, FaultKind.SIZE, reason, size)
    crc = CRC.unpack_from(head, SIZE.size + 1 + magic)[0]
    attributes = head[SIZE.size + 1] if magic else 0
    payload_head = head[SIZE.size + HEADER_BYTES[magic] :]
    return FileEntry07(position, size, magic, attributes, crc, payload_head)


def _payload_crc(file: Readable, in_window: Buffer, entry: FileEntry07, head_bytes: int) -> int:
    crc = crc32(in_window)
    position = entry.position + head_bytes + len(in_window)
    while position < entry.end:
        part = file.pread(min(WINDOW_BYTES, entry.end - position), position)
        if not part:
            break
        crc = continue_crc32(part, crc)
        position += len(part)
    return crc
