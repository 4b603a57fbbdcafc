"""Dumps .kafka files: the logs of Kafka 0.7, whose offsets are byte positions.

    size int32 | magic int8 (0) | crc uint32 | payload
    size int32 | magic int8 (1) | attributes int8 | crc uint32 | payload

CRC-32 of the payload alone. Attributes: bits 0-1 codec, 1 gzip, 2 snappy; the payload of a message
with a codec is, compressed, again a sequence of such messages, which may have codecs themselves. A
message's offset is the file's plus its position; those inside another have the offset of that.

Kafka 0.7: kafka.message.Message, kafka.message.ByteBufferMessageSet, kafka.log.Log
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kctl.dump.values import DumpDamage, DumpedOldMessage, DumpItem, TrailingBytes
from kctl.errors import CorruptDataError
from kctl.records.checksum import crc32
from kctl.records.compression import decompress
from kctl.runtime.disk import Disk, DiskFile

_SIZE = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CODEC_MASK = 0x03
# magic and crc; a v1 message has its attributes between.
_HEAD_BYTES = (5, 6)
_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
# Messages within messages within messages.
_DEPTH_MAX = 8
_WINDOW_BYTES = 1024 * 1024
_CANDIDATE = re.compile(rb"(?=[\x00-\x0f].{3}[\x00\x01])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _OldMessage:
    magic: int
    codec: int
    crc: int
    payload: bytes

    @property
    def is_valid(self) -> bool:
        return crc32(self.payload) == self.crc


def dump_old_log(disk: Disk, path: str, base_offset: int) -> Iterator[DumpItem]:
    """Yield every message in order, nested ones after the message that contains them.

    After damage the dump continues at the next message with a valid checksum.
    """
    file = disk.open(path, read_only=True)
    size = file.size()
    position = 0
    while position < size:
        try:
            message = _message_at(file, position, size)
        except CorruptDataError as error:
            following = _next_valid(file, position + 1, size)
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
        position += _SIZE.size + _HEAD_BYTES[message.magic] + len(message.payload)
    file.close()


def _dumped(message: _OldMessage, position: int, offset: int, depth: int) -> DumpedOldMessage:
    return DumpedOldMessage(
        position, offset, message.magic, message.codec, message.crc, message.is_valid,
        message.payload, depth,
    )  # fmt: skip


def _inner(
    path: str, message: _OldMessage, position: int, offset: int, depth: int
) -> Iterator[DumpItem]:
    try:
        if depth > _DEPTH_MAX:
            raise CorruptDataError(f"messages are nested more than {_DEPTH_MAX} deep")
        data = decompress(message.codec, message.payload)
        at = 0
        while at < len(data):
            inner = _parse(data, at)
            yield _dumped(inner, position, offset, depth)
            if inner.codec:
                yield from _inner(path, inner, position, offset, depth + 1)
            at += _SIZE.size + _HEAD_BYTES[inner.magic] + len(inner.payload)
    except CorruptDataError as error:
        yield DumpDamage(path, position, f"inside a compressed message: {error}")


def _message_at(file: DiskFile, position: int, size: int) -> _OldMessage:
    head = file.pread(_SIZE.size, position)
    if len(head) < _SIZE.size:
        raise CorruptDataError("the file ends inside a size")
    length: int = _SIZE.unpack(head)[0]
    if not _HEAD_BYTES[0] <= length <= min(_MESSAGE_BYTES_MAX, size - position - _SIZE.size):
        raise CorruptDataError(f"a message of {length} bytes cannot be here")
    return _parse(head + file.pread(length, position + _SIZE.size), 0)


def _parse(data: bytes, at: int) -> _OldMessage:
    if len(data) - at < _SIZE.size + _HEAD_BYTES[0]:
        raise CorruptDataError("the last message is truncated")
    length = _SIZE.unpack_from(data, at)[0]
    start = at + _SIZE.size
    end = start + length
    magic = data[start]
    if magic > 1:
        raise CorruptDataError(f"magic {magic} is none of Kafka 0.7's")
    if length < _HEAD_BYTES[magic] or end > len(data):
        raise CorruptDataError(f"a message of {length} bytes cannot be here")
    codec = data[start + 1] & _CODEC_MASK if magic else 0
    crc = _CRC.unpack_from(data, start + 1 + magic)[0]
    return _OldMessage(magic, codec, crc, data[start + _HEAD_BYTES[magic] : end])


def _next_valid(file: DiskFile, position: int, size: int) -> int | None:
    while position < size:
        window = file.pread(min(_WINDOW_BYTES, size - position), position)
        for match in _CANDIDATE.finditer(window):
            try:
                if _message_at(file, position + match.start(), size).is_valid:
                    return position + match.start()
            except CorruptDataError:
                continue
        if position + len(window) >= size or len(window) <= _SIZE.size:
            return None
        position += len(window) - _SIZE.size
    return None
