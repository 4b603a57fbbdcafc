"""<offset>.snapshot: the log's producer state when it ended at that offset.

    version int16 (1) | crc uint32 | count int32 | entries, each:
    producerId int64 | producerEpoch int16 | lastSequence int32 | lastOffset int64 |
    offsetDelta int32 | timestamp int64 | coordinatorEpoch int32 | currentTxnFirstOffset int64

The CRC-32C covers all bytes after it. Of each producer only the last batch is kept: enough to
continue without gaps, not enough to recognize an older duplicate.

Kafka 2.7: kafka.log.ProducerStateManager (`writeSnapshot`, `readSnapshot`); KIP-98
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import continue_crc32c, crc32c

_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
ENTRY_BYTES = _ENTRY.size
_ENTRIES_START = _HEADER.size + _COUNT.size

NO_OFFSET = -1


class ProducerSnapshotEntry(NamedTuple):
    """One producer; -1 stands for "none" in every field."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return the file's bytes."""
    return b"".join(encode_entries(b"".join([pack_entry(*entry) for entry in entries])))


# Returns the bytes of one entry, from the fields of ProducerSnapshotEntry in their order.
pack_entry = _ENTRY.pack


# Returns an iterator over the fields of each of several packed entries.
unpacked = _ENTRY.iter_unpack


def encode_entries(packed: Buffer) -> list[Buffer]:
    """Return the file's bytes in parts, of entries by `pack_entry` that follow each other.

    The last part is `packed` itself: a copy of a million entries takes longer than all the rest.
    """
    count = _COUNT.pack(len(packed) // ENTRY_BYTES)
    return [_HEADER.pack(_VERSION, continue_crc32c(packed, crc32c(count))) + count, packed]


def decode_snapshot(data: bytes, path: str) -> list[ProducerSnapshotEntry]:
    """Return the entries. Errors as in `checked_entries`."""
    return [ProducerSnapshotEntry._make(entry) for entry in unpacked(checked_entries(data, path))]


def checked_entries(data: bytes, path: str) -> memoryview:
    """Return the packed entries; CorruptDataError naming `path` unless version, CRC and
    count are valid."""
    if len(data) < _ENTRIES_START:
        raise CorruptDataError(f"{path}: snapshot of {len(data)} bytes is truncated")
    version, crc = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptDataError(f"{path}: snapshot contained an unknown file version {version}")
    computed = crc32c(memoryview(data)[_HEADER.size :])
    if crc != computed:
        raise CorruptDataError(
            f"{path}: snapshot is corrupt (CRC is no longer valid): stored crc: {crc}, "
            f"computed crc: {computed}"
        )
    (count,) = _COUNT.unpack_from(data, _HEADER.size)
    if count * _ENTRY.size != len(data) - _ENTRIES_START:
        raise CorruptDataError(f"{path}: snapshot of {len(data)} bytes names {count} producers")
    return memoryview(data)[_ENTRIES_START:]
