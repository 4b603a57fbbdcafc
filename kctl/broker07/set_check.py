"""Checks of produced message sets, at any depth, in steps and with bounded memory.

A broker of Kafka 0.7 opens every compressed message that it is sent, refuses the set if anything
inside is damaged, and stores it as it came. A few bytes may decompress to gigabytes, so a
compressed message is read as a stream: of its contents no more than a chunk is held, and of a
compressed message inside it that message. All that one outermost message decompresses to, at
whatever depth, counts towards DECOMPRESSED_BYTES_MAX; DEPTH_MAX bounds the depth.

A set may end inside an entry, at any depth: what is whole counts. If nothing is whole it is
refused, but fewer bytes than a size are no entry at all.

Kafka 0.7: kafka.message.ByteBufferMessageSet.{verifyMessageSize, internalIterator},
kafka.log.Log.append
"""

from collections.abc import Iterator
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import continue_crc32, crc32
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX
from kctl.records.compression_stream import decompressed_chunks
from kctl.records.message07 import (
    CODEC_MASK,
    CODECS,
    CRC,
    CURRENT_MAGIC,
    DEPTH_MAX,
    HEADER_BYTES,
    SIZE,
    Message07,
    shallow_entries,
)
from kctl.work import EXCLUSIVE, HELD_BYTES_MAX, ClaimingWork

DECOMPRESSED_BYTES_MAX = DEFAULT_DECOMPRESSED_BYTES_MAX
# Entries and bytes that are checked in one step: two milliseconds.
ENTRIES_PER_STEP = 500
BYTES_PER_STEP = 512 * 1024
# What an entry costs beside its bytes, as bytes; and the stream of a compressed one, some 50 us.
_ENTRY_COST = BYTES_PER_STEP // ENTRIES_PER_STEP
_STREAM_COST = 32 * _ENTRY_COST
# What a chunk costs beside its bytes: a stream may have millions of empty ones.
_CHUNK_COST = 2 * _ENTRY_COST


class CheckedSet(NamedTuple):
    """What of a set is stored."""

    # The whole entries.
    length: int
    # Plain messages, at any depth.
    messages: int
    # The size of the first payload above the limit, for which nothing is stored; 0 without one.
    too_large: int


def checking(message_set: Buffer, payload_bytes_max: int) -> ClaimingWork[CheckedSet]:
    """Return what to store of `message_set`; CorruptDataError if it must be refused."""
    messages = end = 0
    is_damaged = has_compressed = False
    steps = _Steps()
    # Nothing is kept of the entries: a set may have millions.
    for entry in shallow_entries(message_set):
        end, message = entry.end, entry.message
        size = len(message.payload)
        if size > payload_bytes_max:
            return CheckedSet(0, 0, size)
        is_valid = yield from _has_its_checksum(message)
        is_damaged = is_damaged or not is_valid or message.codec not in CODECS
        if message.codec:
            has_compressed = True
        else:
            messages += 1
        if steps.spend(_ENTRY_COST + size):
            yield None
    if is_damaged:
        raise CorruptDataError("a checksum is wrong, or a codec is none of Kafka 0.7's")
    if has_compressed:
        messages += yield from _all_inside(message_set, steps)
    return CheckedSet(end, messages, 0)


def _has_its_checksum(message: Message07) -> ClaimingWork[bool]:
    """Return whether the payload has the message's checksum; a large one is read in steps."""
    payload = memoryview(message.payload)
    if len(payload) <= BYTES_PER_STEP:
        return message.is_valid
    crc = 0
    for start in range(0, len(payload), BYTES_PER_STEP):
        crc = continue_crc32(payload[start : start + BYTES_PER_STEP], crc)
        yield None
    return crc == message.crc


def _all_inside(message_set: Buffer, steps: "_Steps") -> ClaimingWork[int]:
    """Check what is in the compressed messages of a set; return the number of plain messages."""
    messages = 0
    for entry in shallow_entries(message_set):
        if entry.message.codec:
            budget = _Budget(DECOMPRESSED_BYTES_MAX, steps)
            messages += yield from _inside(entry.message, 1, budget)
        if steps.spend(_ENTRY_COST):
            yield None
    return messages


class _Steps:
    """The cost of the current step of a set's check."""

    def __init__(self) -> None:
        self._cost = 0

    def spend(self, cost: int) -> bool:
        """Count work; return whether it is time for others."""
        self._cost += cost
        if self._cost <= BYTES_PER_STEP:
            return False
        self._cost = 0
        return True


class _Budget:
    """What an outermost message may still decompress to."""

    def __init__(self, bytes_max: int, steps: _Steps) -> None:
        self._left = bytes_max
        self.spend = steps.spend

    def is_step_over(self, count: int) -> bool:
        """Count a chunk of `count` bytes; return whether it is time for others. CorruptDataError
        beyond the limit."""
        self._left -= count
        if self._left < 0:
            raise CorruptDataError(
                f"a message decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes"
            )
        return self.spend(count + _CHUNK_COST)


def _inside(message: Message07, depth: int, budget: _Budget) -> ClaimingWork[int]:
    """Check what is in a compressed message; return the number of plain messages."""
    if depth > DEPTH_MAX:
        raise CorruptDataError(f"messages are nested more than {DEPTH_MAX} deep")
    if budget.spend(_STREAM_COST):
        yield None
    stream = _Stream(decompressed_chunks(message.codec, message.payload))
    messages = entries = 0
    while True:
        entry = yield from stream.next_entry(budget)
        if entry is None:
            break
        entries += 1
        if entry.codec:
            messages += yield from _inside(entry, depth + 1, budget)
        else:
            messages += 1
        if budget.spend(_ENTRY_COST):
            yield None
    if not entries and stream.rest_bytes >= SIZE.size:
        raise CorruptDataError("a compressed message contains no whole message")
    return messages


class _Stream:
    """Takes entries off a stream of chunks. A plain payload is not kept: only its checksum is."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._data = memoryview(b"")
        # Bytes after the last whole entry, at the end of the stream.
        self.rest_bytes = 0

    def next_entry(self, budget: _Budget) -> ClaimingWork[Message07 | None]:
        """Return the next entry, with its payload if that is compressed, or None at the end."""
        head = yield from self._take(SIZE.size, budget)
        self.rest_bytes = len(head)
        if len(head) < SIZE.size:
            return None
        (length,) = SIZE.unpack_from(head)
        if length < HEADER_BYTES[0]:
            raise CorruptDataError(f"a message of {length} bytes cannot be here")
        # The header, and of magic 0 a byte of the payload.
        head = yield from self._take(min(length, HEADER_BYTES[1]), budget)
        magic = head[0] if head else 0
        header_bytes = HEADER_BYTES[min(magic, CURRENT_MAGIC)]
        attributes = head[1] if magic and len(head) > 1 else 0
        first = head[header_bytes:]
        is_kept = bool(attributes & CODEC_MASK)
        found = yield from self._payload(first, length - len(head), budget, is_kept=is_kept)
        if found is None:
            return None
        crc, payload = found
        if magic > CURRENT_MAGIC or length < header_bytes:
            raise CorruptDataError(f"a message of {length} bytes and magic {magic} cannot be here")
        message = Message07(magic, attributes, CRC.unpack_from(head, header_bytes - 4)[0], payload)
        if message.crc != crc or message.codec not in CODECS:
            raise CorruptDataError("a message in a compressed one is damaged")
        return message

    def _payload(
        self, first: bytes, left: int, budget: _Budget, *, is_kept: bool
    ) -> ClaimingWork[tuple[int, Buffer] | None]:
        """Return checksum and, if it is kept, the payload that begins with `first`; None if the
        stream ends inside it."""
        crc = crc32(first)
        # It grows in place: to join pieces of 60 MB takes 40 ms.
        kept = bytearray(first if is_kept else b"")
        if is_kept and left > HELD_BYTES_MAX:
            yield EXCLUSIVE
        while left:
            piece = yield from self._some(left, budget)
            if not piece:
                return None
            crc = continue_crc32(piece, crc)
            left -= len(piece)
            if is_kept:
                kept += piece
        return crc, kept

    def _take(self, count: int, budget: _Budget) -> ClaimingWork[bytes]:
        """Return the next `count` bytes, fewer at the end of the stream."""
        taken = bytes((yield from self._some(count, budget)))
        while taken and len(taken) < count:
            more = yield from self._some(count - len(taken), budget)
            if not more:
                break
            taken += more
        return taken

    def _some(self, count_max: int, budget: _Budget) -> ClaimingWork[memoryview]:
        """Return the next bytes, none at the end of the stream."""
        while not self._data:
            chunk = next(self._chunks, None)
            if chunk is None:
                return self._data
            if chunk is EXCLUSIVE:
                yield EXCLUSIVE
            self._data = memoryview(chunk)
            if budget.is_step_over(len(chunk)):
                yield None
        some, self._data = self._data[:count_max], self._data[count_max:]
        return some
