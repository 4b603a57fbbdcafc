"""What a dump consists of: one small value per batch, record, entry or damaged place.

Dumpers yield these in the order of the file; `documents`, `kafka_format` and `text_format` turn
them into something to print. A DumpedFile opens each file's run of values.

Kafka 2.7: kafka.tools.DumpLogSegments
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

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


class FileKind(Enum):
    """The files of a log directory that can be dumped."""

    LOG = "log"
    OLD_LOG = "old_log"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    OFFSET_CHECKPOINT = "offset_checkpoint"
    EPOCH_CHECKPOINT = "leader_epoch_checkpoint"
    META_PROPERTIES = "meta_properties"


class Decoder(Enum):
    """How keys and values of a .log are understood."""

    NONE = "none"
    # By the topic in the directory's name.
    AUTO = "auto"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


class BulkStyle(Enum):
    """The layouts that there are vectors for."""

    KAFKA = "kafka"
    KAFKA_WITH_DATA = "kafka with data"
    TEXT = "text"
    TEXT_WITH_DATA = "text with data"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """How much of a .log is shown."""

    # Records, not only batches.
    with_records: bool = False
    decoder: Decoder = Decoder.AUTO
    # Lays out the lines of big files in vectors; None: values only.
    bulk: BulkStyle | None = None


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """What follows, up to the next of these, is in this file."""

    path: str
    kind: FileKind
    # What the name says; None for files that are not named for an offset.
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
    """A message of Kafka 0.7; `depth` 0: it stands in the file, else inside the one before."""

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
    """Lines of batches and records that are laid out already."""

    text: bytes | memoryview


@dataclass(frozen=True, slots=True)
class CheckpointedOffset:
    """A line of a checkpoint of partitions."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class TrailingBytes:
    """Bytes behind the last whole batch or entry; NULs are room that was made in advance."""

    position: int
    length: int
    is_padding: bool


@dataclass(frozen=True, slots=True)
class DumpDamage:
    """A place that could not be read; the dump goes on behind it where it can."""

    path: str
    # Bytes; None where the file as a whole is meant.
    position: int | None
    reason: str

    def __str__(self) -> str:
        """File, position and reason in one line."""
        place = "" if self.position is None else f": at byte {self.position}"
        return f"{self.path}{place}: {self.reason}"

    @classmethod
    def of(cls, path: str, position: int | None, error: Exception) -> "DumpDamage":
        """What `error` says, without the place that its own words may begin with."""
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
