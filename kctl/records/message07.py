"""Message07: messages and message sets of Kafka 0.7, whose offsets are byte positions.

    entry   = size int32 | message
    magic 0 = 0 int8 | crc uint32 | payload
    magic 1 = 1 int8 | attributes int8 | crc uint32 | payload

These are not the formats v0 and v1 of Kafka 0.8 to 0.10 (`legacy`). The CRC-32 covers the payload
alone. Attributes: bits 0-1 are the codec, 1 gzip, 2 snappy. The payload of a message with a codec
is, compressed, a sequence of entries, which may be compressed in turn: a consumer gets the plain
messages inside, at whatever depth.

The offset that a consumer gets with a message is the one to fetch next:
- of a plain message: the end of its entry;
- of the messages inside a compressed one: the start of the outermost entry, so that a restart
  there repeats the set; but with the last of them, the end of that entry;
- a compressed message with nothing inside is skipped.

A set often ends inside an entry, because a fetch is cut at a number of bytes: iteration ends there.
If not even the first entry is whole, it is larger than the fetch: CutMessageError.

Invariant: at most `bytes_max` bytes are decompressed for one outermost entry, whatever its depth.

Kafka 0.7: kafka.message.Message, kafka.message.ByteBufferMessageSet.internalIterator
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import crc32
from kctl.records.compression import (
    DEFAULT_DECOMPRESSED_BYTES_MAX,
    GZIP,
    NONE,
    SNAPPY,
    compress,
    decompress,
)

__all__ = [
    "CutMessageError",
    "Entry07",
    "Message07",
    "MessageAndOffset07",
    "compressed_set",
    "encode_entry",
    "message_set",
    "messages",
    "shallow_entries",
    "shallow_messages",
    "valid_bytes",
]

SIZE = struct.Struct(">i")
CRC = struct.Struct(">I")
CODEC_MASK = 0x03
CODECS = (NONE, GZIP, SNAPPY)
# The bytes of a message before its payload, by its magic.
HEADER_BYTES = (5, 6)
CURRENT_MAGIC = 1
# Messages within messages within messages.
DEPTH_MAX = 8
_HEADER_V1 = struct.Struct(">iBBI")


class CutMessageError(CorruptDataError):
    """Not even the first message of a set is whole: a fetch of `bytes_needed` bytes gets it."""

    def __init__(self, bytes_needed: int, bytes_there: int) -> None:
        super().__init__(
            f"a message of {bytes_needed} bytes, of which {bytes_there} are there, is larger than "
            "the fetch"
        )
        self.bytes_needed = bytes_needed


class Message07(NamedTuple):
    """A message; its payload is a view over the bytes that it was read from."""

    magic: int
    # 0 with magic 0, which has none.
    attributes: int
    crc: int
    payload: Buffer

    @property
    def codec(self) -> int:
        """Return a CompressionType, or 3, which Kafka 0.7 never defined."""
        return self.attributes & CODEC_MASK

    @property
    def is_valid(self) -> bool:
        """Return whether the payload has the checksum."""
        return crc32(self.payload) == self.crc

    @property
    def entry_bytes(self) -> int:
        """Return the size of the message's entry, its size field included."""
        return SIZE.size + HEADER_BYTES[self.magic] + len(self.payload)

    def check(self) -> None:
        """Raise CorruptDataError if the checksum is wrong or the codec unknown."""
        if not self.is_valid:
            raise CorruptDataError("the checksum is wrong")
        if self.codec not in CODECS:
            raise CorruptDataError(f"codec {self.codec} is none of Kafka 0.7's")


class Entry07(NamedTuple):
    """A message and where its entry begins and ends in the buffer."""

    position: int
    end: int
    message: Message07


class MessageAndOffset07(NamedTuple):
    """A message as a consumer gets it."""

    message: Message07
    # The offset that consumers of Kafka 0.7 get with it: the one to fetch next.
    offset: int
    # The position in the log of the outermost entry: a fetch of the message begins here.
    position: int
    # Among all the messages of that entry.
    index_in_set: int


def parse_message(data: Buffer, start: int, end: int) -> Message07:
    """Return the message in `data[start:end]`; CorruptDataError if it cannot be one.

    The checksum is not compared.
    """
    length = end - start
    if length < HEADER_BYTES[0]:
        raise CorruptDataError(f"a message of {length} bytes cannot be here")
    magic = data[start]
    if magic > CURRENT_MAGIC:
        raise CorruptDataError(f"magic {magic} is none of Kafka 0.7's")
    if length < HEADER_BYTES[magic]:
        raise CorruptDataError(f"a message of {length} bytes cannot be here")
    attributes = data[start + 1] if magic else 0
    crc = CRC.unpack_from(data, start + 1 + magic)[0]
    return Message07(magic, attributes, crc, data[start + HEADER_BYTES[magic] : end])


def entry_at(data: Buffer, position: int) -> Entry07 | None:
    """Return the entry at `position`; None if `data` end inside it.

    Raise CorruptDataError if no entry can begin so.
    """
    left = len(data) - position - SIZE.size
    if left < 0:
        return None
    length: int = SIZE.unpack_from(data, position)[0]
    if length < HEADER_BYTES[0]:
        raise CorruptDataError(f"a message of {length} bytes cannot be here")
    if length > left:
        return None
    start = position + SIZE.size
    return Entry07(position, start + length, parse_message(data, start, start + length))


def shallow_entries(data: Buffer) -> Iterator[Entry07]:
    """Yield the whole entries of a set as they are: nothing is decompressed, no checksum compared.

    Raise CutMessageError if `data` end inside the first, CorruptDataError where no entry can be.
    """
    # Views of mapped files may have signed bytes.
    view = memoryview(data).cast("B")
    position = 0
    while (entry := entry_at(view, position)) is not None:
        yield entry
        position = entry.end
    if not position and len(view) >= SIZE.size:
        raise CutMessageError(SIZE.size + SIZE.unpack_from(view)[0], len(view))


def valid_bytes(data: Buffer) -> int:
    """Return where the last whole entry ends: how far a fetch of `data` advances.

    Raises as `shallow_entries` does.
    """
    end = 0
    for entry in shallow_entries(data):
        end = entry.end
    return end


def shallow_messages(data: Buffer, base_offset: int = 0) -> Iterator[MessageAndOffset07]:
    """Yield the outermost messages of a set that begins at `base_offset`, compressed or not.

    Raise CorruptDataError for a wrong checksum too, and otherwise as `shallow_entries` does.
    """
    for position, end, message in shallow_entries(data):
        message.check()
        yield MessageAndOffset07(message, base_offset + end, base_offset + position, 0)


def messages(
    data: Buffer, base_offset: int = 0, bytes_max: int = DEFAULT_DECOMPRESSED_BYTES_MAX
) -> Iterator[MessageAndOffset07]:
    """Yield the plain messages of a set that begins at `base_offset`, compressed ones opened.

    Raise CorruptDataError at the first wrong checksum at any depth, at data that cannot be
    decompressed or exceed `bytes_max`, and otherwise as `shallow_entries` does.
    """
    for position, end, message in shallow_entries(data):
        message.check()
        start, after = base_offset + position, base_offset + end
        if not message.attributes & CODEC_MASK:
            yield MessageAndOffset07(message, after, start, 0)
            continue
        last: Message07 | None = None
        index = 0
        for inner in inner_messages(message, bytes_max):
            if last is not None:
                yield MessageAndOffset07(last, start, start, index)
                index += 1
            last = inner
        if last is not None:
            yield MessageAndOffset07(last, after, start, index)


def inner_messages(
    message: Message07, bytes_max: int = DEFAULT_DECOMPRESSED_BYTES_MAX
) -> Iterator[Message07]:
    """Yield the plain messages inside a compressed one; CorruptDataError where it is damaged."""
    return _leaves(message, 1, _Allowance(bytes_max))


class _Allowance:
    """How many bytes may still be decompressed for an outermost entry."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def opened(self, message: Message07, depth: int) -> bytes:
        data = open_message(message, depth, self._left)
        self._left -= len(data)
        return data


def open_message(
    message: Message07, depth: int, bytes_max: int = DEFAULT_DECOMPRESSED_BYTES_MAX
) -> bytes:
    """Return the set inside a compressed message, which is then at `depth` (1 or more).

    CorruptDataError if it is too deep, too large, or cannot be decompressed.
    """
    if depth > DEPTH_MAX:
        raise CorruptDataError(f"messages are nested more than {DEPTH_MAX} deep")
    if message.codec not in CODECS:
        raise CorruptDataError(f"codec {message.codec} is none of Kafka 0.7's")
    return decompress(message.codec, message.payload, bytes_max)


def _leaves(message: Message07, depth: int, allowance: _Allowance) -> Iterator[Message07]:
    for entry in shallow_entries(allowance.opened(message, depth)):
        inner = entry.message
        inner.check()
        if inner.attributes & CODEC_MASK:
            yield from _leaves(inner, depth + 1, allowance)
        else:
            yield inner


def encode_entry(payload: Buffer, attributes: int = 0, magic: int = CURRENT_MAGIC) -> bytes:
    """Return the entry of one message; with a codec in `attributes`, `payload` is compressed."""
    if magic:
        head = _HEADER_V1.pack(HEADER_BYTES[1] + len(payload), magic, attributes, crc32(payload))
    else:
        if attributes:
            raise ValueError("a message of magic 0 has no attributes")
        head = SIZE.pack(HEADER_BYTES[0] + len(payload)) + b"\0" + CRC.pack(crc32(payload))
    return head + payload


def message_set(payloads: Iterable[Buffer], codec: int = NONE, magic: int = CURRENT_MAGIC) -> bytes:
    """Return the set of plain messages, wrapped in one compressed message if there is a codec.

    `magic` is that of the plain messages; a compressed one is always of magic 1.
    """
    entries = b"".join(encode_entry(payload, magic=magic) for payload in payloads)
    return compressed_set(entries, codec) if codec else entries


def compressed_set(entries: Buffer, codec: int) -> bytes:
    """Return a set whose one message contains `entries` compressed: snappy in xerial's frame."""
    return encode_entry(compress(codec, entries), codec)
