"""Dumps .kafka files: the logs of Kafka 0.7, whose offsets are byte positions.

A message's offset is the file's plus its position; messages inside a compressed one have the
offset of the outermost (`kctl.records.message07` has the formats).

Kafka 0.7: kafka.tools.DumpLogSegments
"""

from collections.abc import Iterator

from kctl.dump.values import DumpDamage, DumpedOldMessage, DumpItem, TrailingBytes
from kctl.errors import CorruptDataError
from kctl.records.message07 import (
    HEADER_BYTES,
    SIZE,
    Message07,
    open_message,
    parse_message,
    shallow_entries,
)
from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.walk07 import next_entry

_MESSAGE_BYTES_MAX = 256 * 1024 * 1024


def dump_old_log(disk: Disk, path: str, base_offset: int) -> Iterator[DumpItem]:
    """Yield every message in order, nested ones after the message that contains them.

    After damage the dump continues at the next message with a valid checksum.
    """
    file = disk.open(path, read_only=True)
    try:
        yield from _messages(file, path, base_offset)
    finally:
        file.close()


def _messages(file: DiskFile, path: str, base_offset: int) -> Iterator[DumpItem]:
    size = file.size()
    position = 0
    while position < size:
        try:
            message = _message_at(file, position, size)
        except CorruptDataError as error:
            following = next_entry(file, position + 1, size)
            if following is None:
                yield TrailingBytes(position, size - position, is_padding=False)
            yield DumpDamage(path, position, str(error))
            if following is None:
                return
            position = following
            continue
        offset = base_offset + position
        yield _dumped(message, position, offset, 0)
        if not message.is_valid:
            yield DumpDamage(path, position, "the checksum is wrong")
        elif message.codec:
            yield from _inner(path, message, position, offset, 1)
        position += message.entry_bytes


def _dumped(message: Message07, position: int, offset: int, depth: int) -> DumpedOldMessage:
    return DumpedOldMessage(
        position, offset, message.magic, message.codec, message.crc, message.is_valid,
        bytes(message.payload), depth,
    )  # fmt: skip


def _inner(
    path: str, message: Message07, position: int, offset: int, depth: int
) -> Iterator[DumpItem]:
    try:
        data = open_message(message, depth)
        end = 0
        for entry in shallow_entries(data):
            inner, end = entry.message, entry.end
            yield _dumped(inner, position, offset, depth)
            inner.check()
            if inner.codec:
                yield from _inner(path, inner, position, offset, depth + 1)
        if end < len(data):
            raise CorruptDataError("the last message is truncated")
    except CorruptDataError as error:
        yield DumpDamage(path, position, f"inside a compressed message: {error}")


def _message_at(file: DiskFile, position: int, size: int) -> Message07:
    head = file.pread(SIZE.size, position)
    if len(head) < SIZE.size:
        raise CorruptDataError("the file ends inside a size")
    length: int = SIZE.unpack(head)[0]
    if not HEADER_BYTES[0] <= length <= min(_MESSAGE_BYTES_MAX, size - position - SIZE.size):
        raise CorruptDataError(f"a message of {length} bytes cannot be here")
    return parse_message(file.pread(length, position + SIZE.size), 0, length)
