"""The values of a dump: one per batch, record, index entry or damaged place.

Dumpers yield these in the order of the file; `documents`, `kafka_format` and `text_format` turn
them into something to print. A DumpedFile opens each file's run of values.

Kafka 2.7: kafka.tools.DumpLogSegments
"""

from enum import Enum
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.records.legacy import LegacyBatch
from kctl.records.memory_records import Batch
from kctl.records.record import Record
from kctl.storage.checkpoint import EpochEntry
from kctl.storage.meta_properties import MetaProperties
from kctl.storage.offset_index import OffsetPosition
from kctl.storage.producer_snapshot import ProducerSnapshotEntry
from kctl.storage.time_index import TimestampOffset
from kctl.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from kctl.dump.decoders import Decoded

__all__ = [
    "CheckpointedOffset",
    "Decoder",
    "DumpDamage",
    "DumpItem",
    "DumpOptions",
    "DumpedBatch",
    "DumpedFile",
    "DumpedOldMessage",
    "DumpedRecord",
    "FileKind",
    "TrailingBytes",
]


class FileKind(Enum):
    """The files of a log directory that can be dumped."""

    LOG = "log"
    OLD_LOG = "old_log"
    # Of KRaft: <end offset>-<epoch>.checkpoint.
    METADATA_SNAPSHOT = "metadata_snapshot"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    OFFSET_CHECKPOINT = "offset_checkpoint"
    EPOCH_CHECKPOINT = "leader_epoch_checkpoint"
    META_PROPERTIES = "meta_properties"


class Decoder(Enum):
    """How keys and values of a .log are decoded."""

    NONE = "none"
    # By the topic in the directory's name.
    AUTO = "auto"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    CLUSTER_METADATA = "cluster metadata"
    SHARE_GROUPS = "share groups"


class BulkStyle(Enum):
    """The output formats that large files are rendered in with vector operations."""

    KAFKA = "kafka"
    KAFKA_WITH_DATA = "kafka with data"
    TEXT = "text"
    TEXT_WITH_DATA = "text with data"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Which parts of a .log are dumped, and how."""

    # Records, not only batches.
    with_records: bool = False
    decoder: Decoder = Decoder.AUTO
    # Render the lines of large files with vector operations; None: yield values only.
    bulk: BulkStyle | None = None


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """The start of a file: the values up to the next DumpedFile are from it."""

    path: str
    kind: FileKind
    # The offset in the file's name; None if its name has none.
    base_offset: int | None
    size: int


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch, or a v0 or v1 message; `batch` is a view over its bytes."""

    position: int
    batch: Batch
    is_valid: bool


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record of the batch before it; `message` is its own view in formats v0 and v1."""

    batch: Batch
    record: Record
    # -1 without an idempotent producer.
    sequence: int
    message: LegacyBatch | None = None
    decoded: "Decoded | None" = None


@dataclass(frozen=True, slots=True)
class DumpedOldMessage:
    """A message of Kafka 0.7; with `depth` 1 or more it is inside the previous message."""

    position: int
    offset: int
    magic: int
    compression_type: int
    crc: int
    is_valid: bool
    payload: bytes
    depth: int


@dataclass(frozen=True, slots=True)
class DumpedText:
    """Rendered lines of batches and records."""

    text: bytes | memoryview


@dataclass(frozen=True, slots=True)
class CheckpointedOffset:
    """A partition's line in a checkpoint of offsets."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class TrailingBytes:
    """Bytes after the last whole batch or entry; with `is_padding` they are preallocated NULs."""

    position: int
    length: int
    is_padding: bool


@dataclass(frozen=True, slots=True)
class DumpDamage:
    """A part of a file that cannot be read; the dump continues after it if possible."""

    path: str
    # In bytes; None if the whole file is damaged.
    position: int | None
    reason: str

    def __str__(self) -> str:
        """Return path, position and reason in one line."""
        place = "" if self.position is None else f": at byte {self.position}"
        return f"{self.path}{place}: {self.reason}"

    @classmethod
    def of(cls, path: str, position: int | None, error: Exception) -> "DumpDamage":
        """Return the damage for `error`, whose message may repeat the path and position."""
        reason = str(error)
        if reason.startswith(path):
            reason = reason[len(path) :].lstrip(": ")
        return cls(path, position, reason.removeprefix(f"at position {position}: "))


DumpItem = (
    DumpedFile
    | DumpedBatch
    | DumpedRecord
    | DumpedOldMessage
    | DumpedText
    | OffsetPosition
    | TimestampOffset
    | AbortedTransaction
    | ProducerSnapshotEntry
    | CheckpointedOffset
    | EpochEntry
    | MetaProperties
    | TrailingBytes
    | DumpDamage
)
