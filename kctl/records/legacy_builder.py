"""MessageSetBuilder: records in, a v0 or v1 message set out, wrapped if it is compressed.

For fetchers older than 0.11 and for tests; nothing new is stored in these formats unless a topic's
message.format.version asks for it. Headers have no place here and are dropped.

Kafka 2.7: org.apache.kafka.common.record.MemoryRecordsBuilder, LegacyRecord; KIP-31, KIP-32
"""

import struct
from collections.abc import Iterable

from kctl.records.checksum import crc32
from kctl.records.compression import NONE, compress
from kctl.records.record import Header, Record
from kctl.records.record_batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, PREFIX

_NULL_LENGTH = struct.pack(">i", -1)


class MessageSetBuilder:
    """A message set in the making: the same use as RecordBatchBuilder's."""

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

    @property
    def next_offset(self) -> int:
        """The offset of the next record, if it is not told another."""
        return self._next_offset

    @property
    def last_offset(self) -> int:
        return self._next_offset - 1

    @property
    def size(self) -> int:
        """Bytes of the set if it were not compressed."""
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
        """Add one record without its headers; returns its offset."""
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

    def build(self) -> bytearray:
        """The set, in a buffer of its own that may be patched."""
        if not self.count or not self.compression_type:
            return self._body
        is_append_time = self.timestamp_type == LOG_APPEND_TIME
        return encode_message(
            self.magic,
            self.last_offset,
            self.append_timestamp if is_append_time else self.max_timestamp,
            None,
            compress(self.compression_type, self._body, self.magic),
            compression_type=self.compression_type,
            timestamp_type=self.timestamp_type,
        )


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
    """One message with its offset and size before it."""
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
