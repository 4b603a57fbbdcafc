"""Converts stored batches into the older formats of old fetchers: v2 to v1 to v0.

The rules are Kafka's:
- A batch already in the requested format or an older one passes through unchanged.
- Control batches mean nothing to old consumers and are left out, and so are headers.
- zstd has no meaning before v2: such a batch ends the conversion, with an error if nothing comes
  before it.
- A batch keeps its codec; offsets and timestamps stay, so v1 wrappers get relative offsets.
- Records below the requested offset are left out of uncompressed batches: there every record
  becomes a message of its own, and a fetch must not return earlier ones. A wrapper may hold earlier
  messages, which clients skip.

The converted records may be many times as large as the stored ones, and converting takes a thousand
times as long as sending. So a response has the size of the stored records, or of the first
converted batch if that is larger, and is converted piece by piece while it is sent: the first
batch, and then as many batches as CHUNK_BYTES hold at a time. If the result is smaller than the
size, the rest is filled with the beginning of a batch that is longer than the rest, which clients
ignore; if it is larger, the last batch is truncated.

Memory: a response in flight holds at most KEPT_BYTES_MAX, a chunk, the state of a codec and one
record. Long batches are read while they are converted. A batch that would hold more ends the
response before it, unless it is the first: that one is converted in `prepare`, which yields
EXCLUSIVE for it.

Invariant: the pieces of a DownConversion have exactly its length in total. Each takes bounded work:
one step of `record_stream`.

Kafka 2.7: org.apache.kafka.common.record.RecordsUtil.downConvert, LazyDownConversionRecords,
LazyDownConversionRecordsSend; KIP-98, KIP-110, KIP-283
"""

from collections.abc import Callable, Iterator

from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.compression import ZSTD, Sliceable
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import CURRENT_MAGIC, Batch, batch_at, batches, locate
from kctl.records.record_batch import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    PREFIX,
    RECORD_BATCH_OVERHEAD,
    RecordBatch,
)
from kctl.records.record_stream import record_steps
from kctl.work import EXCLUSIVE, Claim

# Stored bytes converted at a time, at least one batch: as in Kafka, so that a response ends with
# the same batch.
CHUNK_BYTES = 128 * 1024
# Converted bytes of the first batch that are kept until they are sent. A larger batch is converted
# twice: to learn its size, and to send it.
KEPT_BYTES_MAX = 1024 * 1024
# The least filler of a response: offset and length.
_OVERFLOW_BYTES_MIN = 12

Read = Callable[[int, int], bytes]


class DownConversion:
    """The conversion of stored batches for an old client; see the module. A `StreamedPart`."""

    def __init__(self, read: Read, length: int, to_magic: int, first_offset: int) -> None:
        """Convert `length` bytes of batches to format `to_magic` (0 or 1), for a fetch from
        `first_offset`.

        `read(length, position)` returns stored bytes, from position 0 on.
        """
        self._read = read
        self._stored_bytes = length
        self._to_magic = to_magic
        self._first_offset = first_offset
        # The first batch with a result: where it begins and ends, and its pieces, if they are kept.
        self._first = (0, 0)
        self._kept: list[bytes] | None = []
        self._pieces: Iterator[bytes] | None = None
        self._size = 0

    def __len__(self) -> int:
        """Return the bytes of the response; known once `prepare` is done."""
        return self._size

    def prepare(self) -> Iterator[Claim | None]:
        """Convert the first batch, in steps, to learn the size of the response.

        ApiError (UNSUPPORTED_COMPRESSION_TYPE) for zstd; CorruptDataError for damaged batches.
        """
        position = 0
        while (batch := self._batch_at(position)) is not None:
            end = position + batch.size
            size = 0
            self._kept = []
            for piece in converted_batch(batch, self._to_magic, self._first_offset):
                if isinstance(piece, Claim):
                    yield piece
                    continue
                size += len(piece)
                if self._kept is not None and piece:
                    self._kept.append(piece)
                if size > KEPT_BYTES_MAX:
                    self._kept = None
                yield None
            if size:
                self._first = position, end
                self._size = max(self._stored_bytes, size)
                break
            position = end
            yield None
        else:
            self._size = _OVERFLOW_BYTES_MIN if position else 0

    def step(self) -> bytes:
        """Do one step of the conversion and return the next bytes of the response, perhaps none."""
        if self._pieces is None:
            self._pieces = self._all_pieces()
        return next(self._pieces, b"")

    def _all_pieces(self) -> Iterator[bytes]:
        left = self._size
        for piece in self._converted_pieces():
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return
        while left:
            part = _overflow(left)
            yield part
            left -= len(part)

    def _converted_pieces(self) -> Iterator[bytes]:
        start, end = self._first
        if not end:
            return
        kept, self._kept = self._kept, None
        if kept is not None:
            yield from kept
        elif (first := self._batch_at(start)) is not None:
            yield from converted_batch(first, self._to_magic, self._first_offset)
        try:
            while chunk := self._chunk_at(end):
                for batch in chunk:
                    _check_codec(batch)
                for batch in chunk:
                    for piece in converted_batch(batch, self._to_magic, self._first_offset):
                        if piece is EXCLUSIVE:
                            # Left to the next fetch, which converts it before it responds.
                            return
                        yield piece
                    end += batch.size
        except (ApiError, CorruptDataError):
            # The size has been announced already. The client gets the error when it fetches from
            # there.
            return

    def _batch_at(self, position: int) -> Batch | None:
        """Return the batch at `position`; None if there is no whole one."""
        rest = self._stored_bytes - position
        head = self._read(min(rest, RECORD_BATCH_OVERHEAD), position) if rest > 0 else b""
        found = locate(head)
        if found is None or found.size > rest:
            return None
        if found.magic == CURRENT_MAGIC and found.size > CHUNK_BYTES:
            return _LongBatch(head, self._read, position)
        return batch_at(self._read(found.size, position), 0, found.magic)

    def _chunk_at(self, position: int) -> list[Batch]:
        """Return the batches from `position` on that are converted together."""
        rest = self._stored_bytes - position
        chunk = list(batches(self._read(min(rest, CHUNK_BYTES), position))) if rest > 0 else []
        if chunk:
            return chunk
        first = self._batch_at(position)
        return [] if first is None else [first]


class _StoredBody:
    """Bytes of a stored batch, read slice by slice."""

    def __init__(self, read: Read, start: int, length: int) -> None:
        self._read = read
        self._start = start
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop, _ = part.indices(self._length)
        return self._read(stop - start, self._start + start) if stop > start else b""


class _LongBatch(RecordBatch):
    """A stored v2 batch of which only the header is in memory."""

    __slots__ = ("_at", "_read")

    def __init__(self, head: bytes, read: Read, at: int) -> None:
        super().__init__(head)
        self._read = read
        self._at = at

    def sliceable_body(self) -> Sliceable:
        """Return the records, read slice by slice."""
        start = self._at + RECORD_BATCH_OVERHEAD
        return _StoredBody(self._read, start, self.size - RECORD_BATCH_OVERHEAD)


def converted_batch(batch: Batch, to_magic: int, first_offset: int) -> Iterator[bytes]:
    """Yield the conversion of one batch, piece by piece; pieces may be empty.

    Yields EXCLUSIVE before it holds much memory. ApiError (UNSUPPORTED_COMPRESSION_TYPE) for zstd;
    CorruptDataError for a damaged batch.
    """
    if to_magic < CURRENT_MAGIC:
        if batch.is_control:
            return
        _check_codec(batch)
    if batch.magic <= to_magic:
        yield batch.to_bytes()
        return
    yield from _rebuilt(batch, to_magic, first_offset)


def _rebuilt(batch: Batch, to_magic: int, first_offset: int) -> Iterator[bytes]:
    """Yield the records of `batch` in format `to_magic`, as `converted_batch` does."""
    is_wrapped = batch.compression_type != 0
    builder: MessageSetBuilder | None = None
    for step in record_steps(batch):
        if isinstance(step, Claim):
            # A record without compression is no larger than its stored batch.
            yield step if is_wrapped else b""
            continue
        kept = step if is_wrapped else [it for it in step if it.offset >= first_offset]
        if kept and builder is None:
            builder = _builder(batch, to_magic, kept[0].offset)
        for record in kept:
            assert builder is not None
            builder.append_record(record)
        if builder is None:
            yield b""
        elif is_wrapped:
            for _ in builder.compressing():
                yield b""
            yield b""
        else:
            yield builder.take()
    if builder is not None and is_wrapped:
        yield bytes(builder.build())


def _check_codec(batch: Batch) -> None:
    if batch.compression_type == ZSTD and not batch.is_control:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "Down-conversion of zstandard-compressed batches is not supported",
        )


def _builder(batch: Batch, to_magic: int, base_offset: int) -> MessageSetBuilder:
    timestamp_type = batch.timestamp_type
    return MessageSetBuilder(
        magic=to_magic,
        base_offset=base_offset,
        compression_type=batch.compression_type,
        timestamp_type=timestamp_type,
        append_timestamp=(
            batch.max_timestamp if timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
        ),
    )


def _overflow(left: int) -> bytes:
    """Return the beginning of a batch that is longer than the `left` bytes of the answer."""
    head = PREFIX.pack(-1, max(left + 1, RECORD_BATCH_OVERHEAD))
    return (head + bytes(max(0, min(left + 1, CHUNK_BYTES) - len(head))))[:left]
