"""SegmentFiles: the files of one base offset opened read-only together, for dump, verify, export.

Nothing is changed, repaired or created; a missing file reads as empty. The directory may belong to
a running broker: its later appends are not seen.

Kafka 2.7: kafka.tools.DumpLogSegments opens the same files one by one
"""

from kctl.lazy_dataclass import dataclass
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from kctl.storage.offset_index import OffsetIndex
from kctl.storage.time_index import TimeIndex
from kctl.storage.transaction_index import TransactionIndex


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment."""

    base_offset: int
    records: FileRecords
    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int) -> "SegmentFiles":
        """Open the files; StorageError if there is no .log."""

        def path(suffix: str) -> str:
            return f"{directory}/{file_name(base_offset, suffix)}"

        return cls(
            base_offset,
            FileRecords.open(disk, path(LOG_SUFFIX)),
            OffsetIndex(disk, path(INDEX_SUFFIX), base_offset),
            TimeIndex(disk, path(TIME_INDEX_SUFFIX), base_offset),
            TransactionIndex(disk, path(TXN_INDEX_SUFFIX), base_offset),
        )


def segment_base_offsets(disk: Disk, directory: str) -> list[int]:
    """Return the base offsets of the segments in a partition's directory, ascending."""
    names = map(parse_file_name, disk.list(directory))
    return sorted(found[0] for found in names if found and found[1] == LOG_SUFFIX)
