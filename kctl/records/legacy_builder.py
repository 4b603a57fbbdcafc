"""MessageSetBuilder: builds a v0 or v1 message set from records, wrapped if it is compressed.

For fetchers older than 0.11 and for tests; new data is stored in these formats only if a topic's
message.format.version requires it. They have no headers, so headers are dropped.

Kafka 2.7: org.apache.kafka.common.record.MemoryRecordsBuilder, LegacyRecord; KIP-31, KIP-32
"""

import struct
from collections.abc import Iterable

from kctl.records.checksum import crc32
from kctl.records.compression import NONE
from kctl.records.compression_stream import StreamCompressor
from kctl.records.record import Header, Record
from kctl.records.record_batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, PREFIX
from kctl.work import Work, at_once

_NULL_LENGTH = struct.pack(">i", -1)


class MessageSetBuilder:
    """A message set under construction; used like RecordBatchBuilder."""

    def __init__(
        self,
        *,
        magic: int,
        base_offset: int = 0,
        compression_type: int = NONE,
        timestamp_type: int = CREATE_TIME,
        append_timestamp: int = NO_TIMESTAMP,
    ) -> None:
        if magic not in (0, 1):
            raise ValueError(f"magic {magic} has no message sets")
        self.magic = magic
        self.base_offset = base_offset
        self.compression_type = compression_type
        self.timestamp_type = timestamp_type
        self.append_timestamp = append_timestamp
        self.count = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self._next_offset = base_offset
        self._body = bytearray()
        self._packer: StreamCompressor | None = None

    @property
    def next_offset(self) -> int:
        """Return the offset of the next record, unless `append` is given another."""
        return self._next_offset

    @property
    def last_offset(self) -> int:
        """Return the offset of the last appended message."""
        return self._next_offset - 1

    @property
    def size(self) -> int:
        """Return the size of the set without compression, in bytes."""
        return len(self._body)

    def append(
        self,
        *,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] = (),  # noqa: ARG002 - these formats have none
        offset: int | None = None,
    ) -> int:
        """Add one record without its headers and return its offset."""
        if offset is None:
            offset = self._next_offset
        elif offset < self._next_offset:
            raise ValueError(f"offset {offset} is below the next one, {self._next_offset}")
        if self.timestamp_type == LOG_APPEND_TIME and not self.compression_type:
            timestamp = self.append_timestamp
        if self.magic and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = offset
        is_relative = self.magic == 1 and self.compression_type
        self._body += encode_message(
            self.magic,
            offset - self.base_offset if is_relative else offset,
            timestamp,
            key,
            value,
            timestamp_type=self.timestamp_type,
        )
        self.count += 1
        self._next_offset = offset + 1
        return offset

    def append_record(self, record: Record) -> int:
        """Add a record at its own offset."""
        return self.append(
            timestamp=record.timestamp, key=record.key, value=record.value, offset=record.offset
        )

    def take(self) -> bytes:
        """Return the messages added since the last call; only for a set that is not compressed."""
        taken = bytes(self._body)
        self._body.clear()
        return taken

    def compress_more(self) -> None:
        """Compress the records added since the last call, to free their uncompressed bytes."""
        at_once(self.compressing())

    def compressing(self) -> Work[None]:
        """Do the same in steps of bounded work, with a `yield` between them."""
        if self._packer is None:
            self._packer = StreamCompressor(self.compression_type, self.magic)
        yield from self._packer.writing(self._body)

    @property
    def built_size(self) -> int:
        """Return the size built so far in bytes: of a wrapper, what is compressed already."""
        if self._packer is None:
            return len(self._body)
        return encoded_size(self.magic, None, self._packer.size)

    def forget(self) -> None:
        """Drop what has been built, which is too large; `built_size` continues to count."""
        if self._packer is not None:
            self._packer.forget()

    def build(self) -> bytearray:
        """Return the set in a new buffer that may be patched."""
        if not self.count or not self.compression_type:
            return self._body
        self.compress_more()
        assert self._packer is not None
        is_append_time = self.timestamp_type == LOG_APPEND_TIME
        return encode_message(
            self.magic,
            self.last_offset,
            self.append_timestamp if is_append_time else self.max_timestamp,
            None,
            self._packer.finish(),
            compression_type=self.compression_type,
            timestamp_type=self.timestamp_type,
        )


def encoded_size(magic: int, key: bytes | None, value_bytes: int) -> int:
    """Return the bytes of a message of format `magic`, with its offset and size."""
    return (34 if magic else 26) + len(key or b"") + value_bytes


def encode_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    *,
    compression_type: int = NONE,
    timestamp_type: int = CREATE_TIME,
) -> bytearray:
    """Return one message, including its offset and size."""
    attributes = compression_type
    if magic and timestamp_type == LOG_APPEND_TIME:
        attributes |= 0x08
    body = bytearray((magic, attributes))
    if magic:
        body += timestamp.to_bytes(8, "big", signed=True)
    for field in (key, value):
        if field is None:
            body += _NULL_LENGTH
        else:
            body += len(field).to_bytes(4, "big")
            body += field
    message = bytearray(PREFIX.pack(offset, len(body) + 4))
    message += crc32(body).to_bytes(4, "big")
    message += body
    return message
