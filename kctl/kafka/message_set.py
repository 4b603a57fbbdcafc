"""What a simple consumer gets: MessageSet, the answer to one fetch, and its MessageAndOffset.

A set has the bytes of its answer and decodes them when it is iterated. The error of a fetch is
raised by the iteration, not before: the other sets of a multifetch can be read.

Kafka: kafka.message.{MessageAndOffset, ByteBufferMessageSet}, kafka.javaapi.FetchResponse
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kctl.errors import CorruptDataError, KctlError
from kctl.records.memory_records import batches, first_batch_size
from kctl.records.message07 import CutMessageError, messages, valid_bytes
from kctl.records.record import Header
from kctl.records.record_batch import RecordBatch


class FetchRequest(NamedTuple):
    """Which messages to fetch: those of a partition from `offset` on, at most `fetch_size` bytes.

    On 0.7's wire an offset is a byte position in the log.
    """

    topic: str
    partition: int
    offset: int
    # None: the consumer's buffer_size.
    fetch_size: int | None = None


class MessageAndOffset(NamedTuple):
    """A message and its place."""

    # On 0.7's wire: where the message, or the compressed set that contains it, begins.
    offset: int
    # Where to go on after this message. Inside a compressed set of 0.7 it is the set's own offset:
    # a consumer that starts there gets the set again.
    next_offset: int
    message: bytes | None
    # None on 0.7's wire, which has no keys, timestamps (-1) and headers.
    key: bytes | None = None
    timestamp_ms: int = -1
    headers: tuple[Header, ...] = ()


class _Format(Protocol):
    def messages(self, data: bytes, start: int) -> Iterator[MessageAndOffset]: ...

    def end(self, data: bytes, start: int) -> int: ...

    def cut_bytes(self, data: bytes) -> int | None: ...


class MessageSet:
    """The messages of one fetch; iterate it, as often as needed."""

    def __init__(
        self,
        request: FetchRequest,
        data: bytes,
        message_format: _Format,
        *,
        error: KctlError | None = None,
        high_watermark: int = -1,
    ) -> None:
        self.request = request
        # Why the fetch failed, which iteration raises; None if it did not.
        self.error = error
        # The end of what consumers may read; -1 on 0.7's wire.
        self.high_watermark = high_watermark
        self._data = data
        self._format = message_format

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the broker sent."""
        return len(self._data)

    @property
    def next_offset(self) -> int:
        """Return the offset to fetch next, if all messages are consumed; raise as iteration."""
        if self.error is not None:
            raise self.error
        return self._format.end(self._data, self.request.offset)

    @property
    def cut_message_bytes(self) -> int | None:
        """Return how large a fetch must be if this one was too small for its first message (0: the
        size is not known); None if it was not."""
        size = self.request.fetch_size
        if self.error is not None or not self._data or size is None or len(self._data) < size:
            return None
        return self._format.cut_bytes(self._data)

    def failed(self, error: KctlError) -> "MessageSet":
        """Return this set with an error that iteration raises."""
        return MessageSet(
            self.request, self._data, self._format,
            error=error, high_watermark=self.high_watermark,
        )  # fmt: skip

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Yield the messages; raise ApiError for the fetch's error, CorruptDataError for damage."""
        if self.error is not None:
            raise self.error
        return self._format.messages(self._data, self.request.offset)


class Format07:
    """Message sets of Kafka 0.7."""

    @staticmethod
    def messages(data: bytes, start: int) -> Iterator[MessageAndOffset]:
        """Yield the messages of a set that begins at byte position `start`."""
        for found in messages(data, start):
            yield MessageAndOffset(found.position, found.offset, bytes(found.message.payload))

    @staticmethod
    def end(data: bytes, start: int) -> int:
        """Return the position after the last whole entry."""
        return start + valid_bytes(data)

    @staticmethod
    def cut_bytes(data: bytes) -> int | None:
        """Return the bytes of the first entry if it is not whole, 0 if that is not known."""
        try:
            return None if valid_bytes(data) else 0
        except CutMessageError as error:
            return error.bytes_needed
        except CorruptDataError:
            # Iteration reports it.
            return None


class FormatToday:
    """Record batches of Kafka 0.8 and later, of any format."""

    @staticmethod
    def messages(data: bytes, start: int) -> Iterator[MessageAndOffset]:
        """Yield the records from offset `start` on, without control records."""
        for batch in batches(data):
            batch.ensure_valid()
            if isinstance(batch, RecordBatch) and batch.is_control:
                continue
            for offset, timestamp_ms, key, value, headers in batch.records():
                if offset >= start:
                    yield MessageAndOffset(offset, offset + 1, value, key, timestamp_ms, headers)

    @staticmethod
    def end(data: bytes, start: int) -> int:
        """Return the offset after the last whole batch."""
        end = start
        for batch in batches(data):
            end = max(end, batch.next_offset)
        return end

    @staticmethod
    def cut_bytes(data: bytes) -> int | None:
        """Return the bytes of the first batch if it is not whole, 0 if that is not known."""
        try:
            size = first_batch_size(data)
        except CorruptDataError:
            # Iteration reports it.
            return None
        return None if size is not None and size <= len(data) else size or 0
