"""LegacyBatch: messages of formats v0 and v1, single or a compressed set inside a wrapper.

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 |
    (v1: timestamp int64) | keyLength int32 | key | valueLength int32 | value

Attributes: bits 0-2 codec, bit 3 (v1) LogAppendTime. A message with a codec is a wrapper: its
value is, compressed, a sequence of plain messages; the wrapper has the offset of the last.

- v0: inner offsets are absolute.
- v1: inner offsets count from 0; the last one has the wrapper's offset. A wrapper with offset 0
  comes from producers that did not follow the rule; its inner offsets are taken as they are.
- v1 under LogAppendTime: the wrapper's timestamp is that of every message inside.
- A wrapper within a wrapper is rejected, as in Kafka.

Kafka 2.7: org.apache.kafka.common.record.AbstractLegacyRecordBatch, LegacyRecord; KIP-31, KIP-32
"""

import struct
from collections.abc import Iterator

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import crc32
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX, ZSTD, decompress
from kctl.records.record import Record
from kctl.records.record_batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    INT32,
    INT64,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    PREFIX,
    TIMESTAMP_TYPE_MASK,
    UINT32,
)

__all__ = ["LegacyBatch"]


# crc, magic, attributes and two lengths; v1 also has a timestamp.
RECORD_OVERHEAD_V0 = 14
RECORD_OVERHEAD_V1 = 22
_HEADER_V0 = struct.Struct(">qiIbb")
_HEADER_V1 = struct.Struct(">qiIbbq")
_CRC_OFFSET = 12
_MAGIC_OFFSET = 16
_ATTRIBUTES_OFFSET = 17
_TIMESTAMP_OFFSET = 18


class LegacyBatch:
    """A v0 or v1 message in place, which is also the batch of the messages it may wrap.

    `offset` and `timestamp` of a message inside a wrapper are its real ones, not those stored.
    """

    __slots__ = (
        "attributes", "buffer", "crc", "magic", "offset", "position", "size", "timestamp",
        "timestamp_type",
    )  # fmt: skip

    offset: int
    crc: int
    magic: int
    attributes: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.timestamp: int = NO_TIMESTAMP
        try:
            self.offset, size, self.crc, self.magic, self.attributes = _HEADER_V0.unpack_from(
                buffer, position
            )
            if self.magic == 1:
                self.timestamp = INT64.unpack_from(buffer, position + _TIMESTAMP_OFFSET)[0]
        except struct.error:
            raise CorruptDataError(
                f"Message at byte {position} has no room for its header"
            ) from None
        self.size: int = LOG_OVERHEAD + size
        if self.magic == 0:
            self.timestamp_type = NO_TIMESTAMP_TYPE
        else:
            is_append_time = self.attributes & TIMESTAMP_TYPE_MASK
            self.timestamp_type = LOG_APPEND_TIME if is_append_time else CREATE_TIME

    # Fields of v2 batches that these formats lack.
    partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    base_sequence = NO_SEQUENCE
    last_sequence = NO_SEQUENCE
    is_transactional = False
    is_control = False
    has_producer_id = False

    @property
    def compression_type(self) -> int:
        """Return a CompressionType; other values were never defined."""
        return self.attributes & COMPRESSION_MASK

    @property
    def last_offset(self) -> int:
        """Return the offset of the message, or of the last one in a wrapper."""
        return self.offset

    @property
    def next_offset(self) -> int:
        """Return the offset after the last message."""
        return self.offset + 1

    @property
    def base_offset(self) -> int:
        """Return the first message's offset; a wrapper must be decompressed for it."""
        if not self.compression_type:
            return self.offset
        return next(self.messages()).offset

    @property
    def max_timestamp(self) -> int:
        """Return the timestamp; a wrapper has the largest timestamp of its messages."""
        return self.timestamp

    @property
    def count(self) -> int | None:
        """Return 1, or None for a wrapper, which does not store its count."""
        return None if self.compression_type else 1

    @property
    def overhead(self) -> int:
        """Return the bytes of a message with neither key nor value, without offset and size."""
        return RECORD_OVERHEAD_V0 if self.magic == 0 else RECORD_OVERHEAD_V1

    def to_bytes(self) -> bytes:
        """Return a copy of the whole message as it is stored."""
        return bytes(memoryview(self.buffer)[self.position : self.position + self.size])

    def compute_crc(self) -> int:
        """Return the CRC-32 of the current bytes."""
        view = memoryview(self.buffer)
        return crc32(view[self.position + _MAGIC_OFFSET : self.position + self.size])

    def is_crc_valid(self) -> bool:
        """Return whether the message is whole and its checksum matches."""
        return (
            self.size >= LOG_OVERHEAD + RECORD_OVERHEAD_V0
            and len(self.buffer) - self.position >= self.size
            and self.compute_crc() == self.crc
        )

    def ensure_valid(self) -> None:
        """Raise CorruptDataError, with Kafka's message, unless the message is whole and its CRC
        matches."""
        if self.size - LOG_OVERHEAD < RECORD_OVERHEAD_V0:
            raise CorruptDataError(
                f"Record is corrupt (crc could not be retrieved as the record is too small, "
                f"size = {self.size - LOG_OVERHEAD})"
            )
        if not self.is_crc_valid():
            raise CorruptDataError(
                f"Record is corrupt (stored crc = {self.crc}, computed crc = {self.compute_crc()})"
            )

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """Return the stored key and value; a wrapper's value is its compressed content."""
        end = self.position + self.size
        if end > len(self.buffer):
            raise CorruptDataError(f"Message at byte {self.position} ends after its buffer")
        start = self.position + _TIMESTAMP_OFFSET + (8 if self.magic else 0)
        key, start = self._field(start, end)
        value, start = self._field(start, end)
        if start != end:
            raise CorruptDataError(f"a message has {end - start} bytes after its value")
        return key, value

    def _field(self, start: int, end: int) -> tuple[bytes | None, int]:
        if start + 4 > end:
            raise CorruptDataError("a message ends inside a length")
        length = INT32.unpack_from(self.buffer, start)[0]
        start += 4
        if length < 0:
            return None, start
        if start + length > end:
            raise CorruptDataError(f"a message has a field of {length} bytes: too long for it")
        return bytes(self.buffer[start : start + length]), start + length

    def set_last_offset(self, offset: int) -> None:
        """Set the offset; the CRC does not cover it."""
        INT64.pack_into(self._writable(), self.position, offset)
        self.offset = offset

    def set_max_timestamp(self, timestamp_type: int, timestamp: int) -> None:
        """Set timestamp type and timestamp of the outer message, and its CRC; only for v1."""
        if timestamp_type == self.timestamp_type and timestamp == self.timestamp:
            return
        if self.magic == 0:
            raise TypeError("v0 messages have no timestamp")
        buffer = self._writable()
        self.attributes &= ~TIMESTAMP_TYPE_MASK
        if timestamp_type == LOG_APPEND_TIME:
            self.attributes |= TIMESTAMP_TYPE_MASK
        buffer[self.position + _ATTRIBUTES_OFFSET] = self.attributes
        INT64.pack_into(buffer, self.position + _TIMESTAMP_OFFSET, timestamp)
        self.timestamp_type, self.timestamp = timestamp_type, timestamp
        self.crc = self.compute_crc()
        UINT32.pack_into(buffer, self.position + _CRC_OFFSET, self.crc)

    def _writable(self) -> bytearray | memoryview:
        if isinstance(self.buffer, bytes):
            raise TypeError("this message is in a read-only buffer")
        return self.buffer

    def messages(self, limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX) -> Iterator["LegacyBatch"]:
        """Yield its messages with real offsets and timestamps; itself if it is not a wrapper.

        CorruptDataError if the wrapper cannot be decompressed; inner checksums are not checked.
        """
        if not self.compression_type:
            yield self
            return
        self.ensure_wrapper()
        yield from self.inner_messages(self.decompress(limit))

    def decompress(self, limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX) -> bytes:
        """Return a wrapper's value decompressed; CorruptDataError if that fails."""
        _, value = self.key_and_value()
        return decompress(self.compression_type, value or b"", limit, self.magic)

    def ensure_wrapper(self) -> None:
        """Raise CorruptDataError if this cannot be a wrapper, whatever its value holds."""
        if self.compression_type == ZSTD:
            raise CorruptDataError(
                f"Invalid wrapper compressionType found in legacy deep record iterator {self.magic}"
            )
        if self.key_and_value()[1] is None:
            raise CorruptDataError(
                f"Found invalid compressed record set with null value (magic = {self.magic})"
            )

    def inner_messages(self, plain: bytes) -> Iterator["LegacyBatch"]:
        """Yield the messages in a wrapper's decompressed value; a truncated last one is ignored."""
        last = _last_inner_offset(plain)
        base = self.base_of_inner(last) if self.magic == 1 else 0
        position = 0
        while len(plain) - position >= LOG_OVERHEAD + RECORD_OVERHEAD_V0:
            message = self.inner_message(plain, position, base)
            if position + message.size > len(plain):
                return
            yield message
            position += message.size

    def inner_message(self, plain: bytes, position: int, base: int) -> "LegacyBatch":
        """Return the message at `position` of a wrapper's value, whose offset is relative to
        `base`.

        It may be truncated. CorruptDataError if this wrapper cannot hold such a message.
        """
        message = LegacyBatch(plain, position)
        if message.size < LOG_OVERHEAD + RECORD_OVERHEAD_V0:
            raise CorruptDataError(
                f"Inner message at byte {position} has size {message.size}: too small"
            )
        if position + message.size <= len(plain):
            if message.magic != self.magic:
                raise CorruptDataError(
                    f"Compressed message magic {message.magic} does not match wrapper magic "
                    f"{self.magic}"
                )
            if message.compression_type:
                raise CorruptDataError("Inner messages must not be compressed")
        message.offset += base
        if self.timestamp_type == LOG_APPEND_TIME:
            message.timestamp = self.timestamp
            message.timestamp_type = LOG_APPEND_TIME
        return message

    def base_of_inner(self, last: int | None) -> int:
        """Return the offset that a v1 wrapper's inner offsets are relative to, if its last message
        has offset `last`; CorruptDataError if that is invalid, or there are no messages (None)."""
        if last is None:
            raise CorruptDataError("Found invalid compressed record set with no inner records")
        if self.offset == 0:
            return 0
        if self.offset < last:
            raise CorruptDataError(
                f"Found invalid wrapper offset in compressed v1 message set, wrapper offset "
                f"'{self.offset}' is less than the last inner message offset '{last}' and it "
                f"is not zero"
            )
        return self.offset - last

    def records(self, limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Yield the messages as records; raise CorruptDataError at the first damaged one."""
        for message in self.messages(limit):
            key, value = message.key_and_value()
            yield Record(message.offset, message.timestamp, key, value)


def _last_inner_offset(data: bytes) -> int:
    """Return the offset of the last whole message; later code reports invalid sizes."""
    position = 0
    last: int | None = None
    while len(data) - position >= LOG_OVERHEAD:
        offset, size = PREFIX.unpack_from(data, position)
        position += LOG_OVERHEAD + max(size, 0)
        if position <= len(data):
            last = offset
    if last is None:
        raise CorruptDataError("Found invalid compressed record set with no inner records")
    return last
