"""Walks the records of one batch in steps, each a bounded piece of work.

The records of a batch may be a thousand times its size, and a million in number. A walk over them
is therefore an iterator of steps: each decompresses at most one chunk and decodes at most
RECORDS_PER_STEP records (or the timestamps of TIMESTAMPS_PER_STEP), so that a caller can let other
work run between two steps. A step may be empty.

Memory: one chunk, the state of its codec, and the incomplete record, of at most `record_bytes_max`
bytes. `timestamp_steps` skips keys and values and holds no record at all. Where codec or record
hold more than `kctl.work.HELD_BYTES_MAX`, an EXCLUSIVE step comes first.

Invariant: the records of all steps are those of `batch.records()`, and so are the errors, except
that a batch may decompress to any size.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch.compressedIterator,
AbstractLegacyRecordBatch.DeepRecordsIterator
"""

from collections.abc import Generator, Iterator
from typing import TypeVar, cast

from kctl.errors import CorruptDataError
from kctl.records.compression import Sliceable
from kctl.records.compression_stream import CHUNK_BYTES, decompressed_chunks
from kctl.records.legacy import RECORD_OVERHEAD_V0, LegacyBatch
from kctl.records.memory_records import Batch
from kctl.records.record import Record, decode_record
from kctl.records.record_batch import LOG_APPEND_TIME, LOG_OVERHEAD, PREFIX, RecordBatch
from kctl.records.varint import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    read_varint,
    read_varlong,
)
from kctl.work import EXCLUSIVE, HELD_BYTES_MAX, Claim


class DamagedCompressionError(CorruptDataError):
    """The batch cannot be decompressed; other errors are those of its records."""


T = TypeVar("T")
Steps = Iterator[list[T] | Claim]

# Records decoded in one step: checked and encoded again, they take about two milliseconds.
RECORDS_PER_STEP = 250
# Records of which only the timestamps are read in one step.
TIMESTAMPS_PER_STEP = 1_000
# A record of so many bytes may be read from any batch; a larger one only from a batch that is at
# most RECORD_RATIO_MAX times smaller.
RECORD_BYTES_MAX = 8 * 1024 * 1024
RECORD_RATIO_MAX = 4
# Bytes of a v2 record that hold its size, timestamp and offset.
_HEAD_BYTES = 2 * MAX_VARINT_BYTES + 1 + MAX_VARLONG_BYTES


def record_bytes_max(batch: Batch) -> int:
    """Return the largest size of a record of `batch` that must be held in memory."""
    return max(RECORD_BYTES_MAX, RECORD_RATIO_MAX * batch.size)


def record_steps(batch: Batch) -> Steps[Record]:
    """Yield the records of `batch`, with their offsets and timestamps, step by step.

    Raises CorruptDataError at the first record that is damaged, or larger than `record_bytes_max`.
    """
    if isinstance(batch, RecordBatch):
        append_timestamp = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
        return v2_record_steps(batch, batch.base_offset, append_timestamp)
    return _legacy_record_steps(batch)


def v2_record_steps(
    batch: RecordBatch,
    base_offset: int,
    append_timestamp: int | None = None,
    bytes_max: int | None = None,
) -> Steps[Record]:
    """Yield the records of a v2 batch, numbered from `base_offset`.

    Errors as in `record_steps`, and DamagedCompressionError if it decompresses to more than
    `bytes_max`.
    """
    count = _count(batch)
    base_timestamp = batch.base_timestamp
    pieces = _Pieces(_chunks(batch, bytes_max), record_bytes_max(batch))
    number = 0
    while number < count:
        step: list[Record] = []
        room = min(count - number, RECORDS_PER_STEP)
        data, position, end = pieces.data, pieces.position, 0
        while len(step) < room and (end := _record_end(data, position)) <= len(data):
            try:
                record, position = decode_record(data, position, base_offset, base_timestamp)
            except IndexError:
                raise _premature_end(number + len(step), count) from None
            if append_timestamp is not None:
                record = record._replace(timestamp=append_timestamp)
            step.append(record)
        number += len(step)
        pieces.position = position
        yield step
        if len(step) < room and not pieces.fill(end - position):
            raise _premature_end(number, count)
        if pieces.claims():
            yield EXCLUSIVE
    while pieces.is_at_end():
        if not pieces.fill():
            return
        yield EXCLUSIVE if pieces.claims() else []
    raise CorruptDataError(f"bytes are left in the batch after its {count} records")


def timestamp_steps(batch: Batch) -> Steps[tuple[int, int]]:
    """Yield (offset, timestamp) of each record of `batch`, step by step; CorruptDataError where a
    record is damaged. Keys and values are not decoded."""
    if not isinstance(batch, RecordBatch):
        for messages in legacy_message_steps(batch):
            if isinstance(messages, Claim):
                yield messages
            else:
                yield [(message.offset, message.timestamp) for message in messages]
        return
    is_append_time = batch.timestamp_type == LOG_APPEND_TIME
    count = _count(batch)
    pieces = _Pieces(_chunks(batch))
    number = 0
    while number < count:
        step: list[tuple[int, int]] = []
        room = min(count - number, TIMESTAMPS_PER_STEP)
        data, position = pieces.data, pieces.position
        whole = len(data) if pieces.is_over else len(data) - _HEAD_BYTES
        while len(step) < room and position < whole:
            try:
                position, offset, timestamp = _head(data, position)
            except IndexError:
                raise _premature_end(number + len(step), count) from None
            step.append((batch.base_offset + offset, batch.base_timestamp + timestamp))
        if is_append_time:
            step = [(offset, batch.max_timestamp) for offset, _ in step]
        number += len(step)
        pieces.position = position
        yield step
        if len(step) < room and not pieces.fill() and pieces.is_at_end():
            raise _premature_end(number, count)
        if pieces.claims():
            yield EXCLUSIVE


def _head(data: bytes, position: int) -> tuple[int, int, int]:
    """Return where the record at `position` ends, its offset delta and its timestamp delta."""
    size, position = read_varint(data, position)
    if size < 0:
        raise CorruptDataError(f"Record at byte {position} has length {size}")
    end = position + size
    timestamp, position = read_varlong(data, position + 1)
    offset, position = read_varint(data, position)
    return end, offset, timestamp


def _legacy_record_steps(batch: LegacyBatch) -> Steps[Record]:
    for messages in legacy_message_steps(batch):
        if isinstance(messages, Claim):
            yield messages
            continue
        yield [
            Record(message.offset, message.timestamp, *message.key_and_value())
            for message in messages
        ]


def legacy_message_steps(batch: LegacyBatch, bytes_max: int | None = None) -> Steps[LegacyBatch]:
    """Yield the messages of `batch`, step by step; itself if it is not a wrapper.

    Offsets, timestamps and errors as in `LegacyBatch.messages`, and DamagedCompressionError if it
    decompresses to more than `bytes_max`.
    """
    if not batch.compression_type:
        yield [batch]
        return
    batch.ensure_wrapper()
    base = 0
    if batch.magic == 1:
        base = batch.base_of_inner((yield from _last_inner_offset(batch, bytes_max)))
    pieces = _Pieces(_chunks(batch, bytes_max), record_bytes_max(batch))
    count = 0
    is_over = False
    while not is_over:
        step: list[LegacyBatch] = []
        data, position = pieces.data, pieces.position
        wanted = LOG_OVERHEAD + RECORD_OVERHEAD_V0
        while len(step) < RECORDS_PER_STEP and len(data) - position >= wanted:
            message = batch.inner_message(data, position, base)
            if position + message.size > len(data):
                wanted = message.size
                break
            step.append(message)
            position += message.size
        pieces.position = position
        count += len(step)
        yield step
        # A truncated last message is ignored.
        is_over = len(step) < RECORDS_PER_STEP and not pieces.fill(wanted)
        if pieces.claims():
            yield EXCLUSIVE
    if not count:
        batch.base_of_inner(None)


def _last_inner_offset(
    batch: LegacyBatch, bytes_max: int | None
) -> Generator[list[LegacyBatch] | Claim, None, int | None]:
    """Return the offset of the last whole message, after empty steps; None if there is none."""
    pieces = _Pieces(_chunks(batch, bytes_max))
    # Of the last whole message, and of the one after it.
    last: int | None = None
    pending: int | None = None
    is_over = False
    while not is_over:
        data, position = pieces.data, pieces.position
        count = 0
        while len(data) - position >= LOG_OVERHEAD and count < RECORDS_PER_STEP:
            last = last if pending is None else pending
            pending, size = PREFIX.unpack_from(data, position)
            position += LOG_OVERHEAD + max(size, 0)
            count += 1
        pieces.position = position
        yield EXCLUSIVE if pieces.claims() else []
        is_over = count < RECORDS_PER_STEP and not pieces.fill()
    return pending if pending is not None and pieces.position <= len(pieces.data) else last


class _Pieces:
    """Decompressed bytes that arrive in chunks, and the reader's position.

    The position may be beyond the bytes, while the reader skips.
    """

    def __init__(self, chunks: Iterator[bytes], size_max: int = CHUNK_BYTES) -> None:
        self.data = b""
        self.position = 0
        # No chunk follows.
        self.is_over = False
        self._chunks = chunks
        self._size_max = size_max
        # Chunks of an element that is still incomplete. If it is large, they are put together as
        # they come: to join 48 MiB takes 20 ms.
        self._parts: list[bytes] = []
        self._held: bytearray | None = None
        self._size = 0
        # A large element is about to be held; it has been claimed.
        self._is_large = False
        self._has_claimed = False

    def claims(self) -> bool:
        """Return True once when a large element is about to be held."""
        is_new = self._is_large and not self._has_claimed
        self._has_claimed |= is_new
        return is_new

    def is_at_end(self) -> bool:
        """Return whether all bytes so far have been read."""
        return self.position >= len(self.data)

    def fill(self, wanted: int = 1) -> bool:
        """Add one more chunk, and drop what has been read; return False if there is no chunk.

        `data` changes as soon as there are `wanted` bytes; raises CorruptDataError if that is too
        much.
        """
        if wanted > max(self._size_max, CHUNK_BYTES):
            raise CorruptDataError(f"A record of {wanted} bytes is too large to be read")
        chunk = next(self._chunks, None)
        if chunk is None:
            self.is_over = True
            return False
        self._is_large |= chunk is EXCLUSIVE or wanted > HELD_BYTES_MAX
        if self.position > len(self.data):
            skipped = min(self.position - len(self.data), len(chunk))
            chunk = chunk[skipped:]
            self.position -= skipped
        is_long = wanted > HELD_BYTES_MAX
        if is_long and self._held is None:
            self._held = bytearray(self.data[self.position :])
            for part in self._parts:
                self._held += part
            self._parts.clear()
        if self._held is None:
            self._parts.append(chunk)
        else:
            self._held += chunk
        self._size += len(chunk)
        if len(self.data) - self.position + self._size >= wanted:
            self._join()
        return True

    def _join(self) -> None:
        """Make all that is there the data."""
        unread = self.position
        self.position = max(unread - len(self.data), 0)
        if self._held is None:
            self.data = b"".join((self.data[unread:], *self._parts))
            self._parts.clear()
        else:
            # Not copied: keys and values are then bytearrays, which encoders take as well.
            self.data, self._held = cast("bytes", self._held), None
        self._size = 0


def _chunks(batch: Batch, bytes_max: int | None = None) -> Iterator[bytes]:
    """Yield the decompressed bytes of `batch`; DamagedCompressionError if they exceed
    `bytes_max`."""
    if isinstance(batch, RecordBatch):
        body: Sliceable = batch.sliceable_body()
    else:
        body = batch.key_and_value()[1] or b""
    size = 0
    try:
        for chunk in decompressed_chunks(batch.compression_type, body, batch.magic):
            size += len(chunk)
            if bytes_max is not None and size > bytes_max:
                raise DamagedCompressionError(f"data decompress to more than {bytes_max} bytes")
            yield chunk
    except CorruptDataError as error:
        raise DamagedCompressionError(str(error)) from None


def _count(batch: RecordBatch) -> int:
    if batch.count < 0:
        raise CorruptDataError(f"Found invalid record count {batch.count} in magic v2 batch")
    return batch.count


def _record_end(data: bytes, position: int) -> int:
    """Return where the record at `position` ends; beyond the end of `data` if its length is
    incomplete."""
    try:
        size, body = read_varint(data, position)
    except IndexError:
        return len(data) + 1
    # The decoder reports a negative size.
    return body + max(size, 0)


def _premature_end(number: int, count: int) -> CorruptDataError:
    return CorruptDataError(f"Record {number} of {count} ends after its batch")
