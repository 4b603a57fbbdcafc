"""Dumps .index, .timeindex and .txnindex: their entries in the order of the file.

Kafka 2.7: kafka.tools.DumpLogSegments.dumpIndex, dumpTimeIndex, dumpTxnIndex
"""

from collections.abc import Iterator

from kctl.dump.values import DumpItem, TrailingBytes
from kctl.runtime.disk import Disk
from kctl.storage.offset_index import OffsetIndex
from kctl.storage.time_index import TimeIndex
from kctl.storage.transaction_index import TransactionIndex


def dump_offset_index(disk: Disk, path: str, base_offset: int) -> Iterator[DumpItem]:
    """Yield the entries; CorruptDataError if they are invalid."""
    yield from _dump(OffsetIndex(disk, path, base_offset), disk.size(path))


def dump_time_index(disk: Disk, path: str, base_offset: int) -> Iterator[DumpItem]:
    """Yield the entries; CorruptDataError if they are invalid."""
    yield from _dump(TimeIndex(disk, path, base_offset), disk.size(path))


def dump_transaction_index(disk: Disk, path: str, base_offset: int) -> Iterator[DumpItem]:
    """Yield the aborted transactions; CorruptDataError if they are invalid."""
    yield from TransactionIndex(disk, path, base_offset).entries()


def _dump(index: OffsetIndex | TimeIndex, file_size: int) -> Iterator[DumpItem]:
    yield from index.entries()
    used = len(index.raw())
    if file_size > used:
        length = file_size - used
        yield TrailingBytes(used, length, is_padding=length >= index.entry_size)
