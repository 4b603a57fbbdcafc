"""Converts message sets of Kafka 0.7 into batches for a target, and maps their positions. Pure.

A message without a codec is at the byte position where its entry begins. A consumer of Kafka 0.7
that has read part of a compressed message is at the position where that begins, and reads all of it
again; so its first message stands for that position, and its last one for the position before its
end: the next one is behind it. Those between have no position of their own (NOT_MAPPED).

Messages have no keys and no timestamps in 0.7, and get none. Batches keep the codec.

Invariant: an entry is converted as a whole or not at all.

Kafka 0.7: kafka.message.ByteBufferMessageSet; 0.8: kafka.tools.KafkaMigrationTool
"""

from collections.abc import Iterator

from kctl.errors import CorruptDataError
from kctl.mirror.raw_batches import NOT_MAPPED, BatchCopy, CopiedRange, is_full
from kctl.protocol.primitives import Buffer
from kctl.records.builder import RecordBatchBuilder
from kctl.records.message07 import Entry07, Message07, inner_messages, shallow_entries
from kctl.records.record import Record

_NO_TIMESTAMP = -1


def copy_messages(data: Buffer, position: int, *, joins: bool = True) -> CopiedRange:
    """Return the messages of the whole entries in `data`, which begin at `position` of the log;
    with `joins`, neighbouring entries become one batch.

    A damaged entry ends the range; if it is the first, CorruptDataError. Raise CutMessageError if
    the first one is not whole.
    """
    found = CopiedRange([], position)
    built = _Built()
    entries = shallow_entries(data)
    while True:
        try:
            entry = next(entries, None)
            if entry is None:
                break
            messages = _plain(entry)
        except CorruptDataError:
            if found.next_offset == position:
                raise
            break
        begin, end = position + entry.position, position + entry.end
        found.copies += built.add(messages, entry.message.codec, begin, end)
        if not joins:
            found.copies += built.take()
        found.next_offset = end
    found.copies += built.take()
    return found


def first_record(data: Buffer, position: int) -> tuple[Record | None, int]:
    """Return the first message of the entry at the beginning of `data`, None if that is empty, and
    the position after the entry; errors as in `copy_messages`."""
    entry = next(shallow_entries(data), None)
    if entry is None:
        raise CorruptDataError(f"no message begins at {position}")
    for message in _plain(entry):
        payload = bytes(message.payload)
        return Record(position, _NO_TIMESTAMP, None, payload), position + entry.end
    return None, position + entry.end


def _plain(entry: Entry07) -> list[Message07]:
    entry.message.check()
    return list(inner_messages(entry.message)) if entry.message.codec else [entry.message]


class _Built:
    """The batch under construction."""

    def __init__(self) -> None:
        self._builder: RecordBatchBuilder | None = None
        self._pieces: list[tuple[int, int]] = []

    def add(
        self, messages: list[Message07], codec: int, begin: int, end: int
    ) -> Iterator[BatchCopy]:
        """Add the messages of an entry; yield the batches that are full."""
        for number, message in enumerate(messages):
            builder = self._builder
            if builder is not None and (
                builder.compression_type != codec or is_full(builder, None, message.payload)
            ):
                yield from self.take()
                builder = None
            if builder is None:
                builder = self._builder = RecordBatchBuilder(compression_type=codec)
            builder.append(timestamp=_NO_TIMESTAMP, key=None, value=bytes(message.payload))
            is_last = 0 < number == len(messages) - 1
            self._pieces.append((begin if number == 0 else end - 1 if is_last else NOT_MAPPED, 1))

    def take(self) -> Iterator[BatchCopy]:
        """Yield the batch under construction, if there is one."""
        builder, self._builder = self._builder, None
        pieces, self._pieces = self._pieces, []
        if builder is not None:
            yield BatchCopy(builder.build(), builder.count, pieces, is_raw=False)
