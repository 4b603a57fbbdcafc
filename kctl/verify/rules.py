"""The rules of `kctl verify-log` in one table: what is checked, its severity, its consequences.

A Rule names a kind of violation. Its facts describe what a broker of Kafka 2.7 does with it, and
what `kctl repair-log` does. A note is not damage but a normal trace of a broker, such as an index
padded by `kill -9` or a file that awaits deletion.

Kafka 2.7: kafka.log.LogSegment.recover, kafka.log.Log.loadSegments, kafka.log.LogManager
"""

from enum import StrEnum

from kctl.lazy_dataclass import dataclass

__all__ = ["Finding", "Rule", "Severity"]


class Severity(StrEnum):
    """Whether a finding is damage."""

    DAMAGE = "damage"
    NOTE = "note"


class Rule(StrEnum):
    """A kind of violation; the value is its stable name in output."""

    BATCH_CRC = "batch-crc"
    BATCH_SIZE = "batch-size"
    BATCH_MAGIC = "batch-magic"
    BATCH_OFFSET = "batch-offset"
    BATCH_EPOCH = "batch-epoch"
    RECORDS = "records"
    DUPLICATE_OFFSETS = "duplicate-offsets"
    OFFSET_ORDER = "offset-order"
    OFFSET_RANGE = "offset-range"
    MISSING_OFFSETS = "missing-offsets"
    NONSENSE = "nonsense"
    ZERO_BLOCK = "zero-block"
    ZERO_TAIL = "zero-tail"
    PREALLOCATED = "preallocated"
    TORN_TAIL = "torn-tail"
    SEGMENT_NAME = "segment-name"
    SEGMENT_OVERLAP = "segment-overlap"
    MISSING_SEGMENT = "missing-segment"
    INDEX_MISSING = "index-missing"
    INDEX_SIZE = "index-size"
    INDEX_ORDER = "index-order"
    INDEX_ENTRY = "index-entry"
    INDEX_PADDED = "index-padded"
    INDEX_SHORT = "index-short"
    TIME_INDEX_MISSING = "timeindex-missing"
    TIME_INDEX_SIZE = "timeindex-size"
    TIME_INDEX_ORDER = "timeindex-order"
    TIME_INDEX_ENTRY = "timeindex-entry"
    TIME_INDEX_PADDED = "timeindex-padded"
    TIME_INDEX_SHORT = "timeindex-short"
    TIME_INDEX_OPEN = "timeindex-open"
    TXN_INDEX_SIZE = "txnindex-size"
    TXN_INDEX_ENTRY = "txnindex-entry"
    TXN_INDEX_SHORT = "txnindex-short"
    SNAPSHOT_CORRUPT = "snapshot-corrupt"
    SNAPSHOT_STATE = "snapshot-state"
    SNAPSHOT_BOUNDS = "snapshot-bounds"
    EPOCH_CHECKPOINT_CORRUPT = "epoch-checkpoint-corrupt"
    EPOCH_CHECKPOINT_ORDER = "epoch-checkpoint-order"
    EPOCH_CHECKPOINT_BOUNDS = "epoch-checkpoint-bounds"
    EPOCH_CHECKPOINT_SHORT = "epoch-checkpoint-short"
    EPOCH_CHECKPOINT_LATE = "epoch-checkpoint-late"
    CHECKPOINT_CORRUPT = "checkpoint-corrupt"
    RECOVERY_POINT_BOUNDS = "recovery-point-bounds"
    HIGH_WATERMARK_BOUNDS = "high-watermark-bounds"
    LOG_START_BOUNDS = "log-start-bounds"
    CLEANER_OFFSET_BOUNDS = "cleaner-offset-bounds"
    META_PROPERTIES = "meta-properties"
    ORPHAN_FILE = "orphan-file"
    LEFTOVER_FILE = "leftover-file"
    UNREADABLE = "unreadable"
    DIVERGENT = "divergent"
    OLD_CRC = "kafka07-crc"
    OLD_SIZE = "kafka07-size"
    OLD_MAGIC = "kafka07-magic"
    OLD_SET = "kafka07-set"
    OLD_CODEC = "kafka07-codec"
    OLD_TORN_TAIL = "kafka07-torn-tail"
    OLD_HOLE = "kafka07-hole"
    OLD_OVERLAP = "kafka07-overlap"
    OLD_FILE_NAME = "kafka07-file-name"


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """The consequences of a violation."""

    broker: str
    repair: str
    severity: Severity = Severity.DAMAGE


_TRUNCATES = (
    "serves it until a client detects it; after an unclean stop truncates the log here and deletes "
    "every later segment (kctl: only if nothing valid follows, else the partition goes offline)"
)
_REMOVES = "removes the range and keeps its offsets"
_REBUILT_IF_UNCLEAN = (
    "uses it as it is: reads may start at the wrong place or find nothing; only an unclean stop "
    "makes it rebuild the index"
)
_REBUILD_INDEXES = "rebuilds the segment's indexes"
_SNAPSHOTS = "rebuilds producer snapshots from the batches"
_EPOCHS = "rebuilds the checkpoint from the batches"
_STOPS_07 = (
    "Kafka 0.7 serves it, and consumers stop there; if this is the newest segment, an unclean stop "
    "makes it cut the log here (kctl: the same)"
)
_FILLS_07 = (
    "writes the size or magic that the checksum proves; otherwise puts a compressed message with "
    "nothing inside in its place, which consumers skip, so that no other message moves"
)
_REFUSES_07 = "Kafka 0.7 does not start, and exits with status 0"
_CHECKPOINT = "drops the partition's line; the broker then derives it from the log"

FACTS: dict[Rule, RuleFacts] = {
    Rule.BATCH_CRC: RuleFacts(_TRUNCATES, _REMOVES),
    Rule.BATCH_SIZE: RuleFacts(_TRUNCATES, _REMOVES),
    Rule.BATCH_MAGIC: RuleFacts(_TRUNCATES, _REMOVES),
    Rule.BATCH_OFFSET: RuleFacts(
        "serves the records under wrong offsets; readers skip or repeat some",
        "writes the offset that its position proves, or moves the batch to where its own belongs",
    ),
    Rule.BATCH_EPOCH: RuleFacts(
        "a follower that requests the end of the epoch gets a wrong offset",
        "writes the epoch of its neighbours",
    ),
    Rule.RECORDS: RuleFacts(
        "serves the batch; consumers fail on it, the log cleaner skips the partition from then on",
        _REMOVES,
    ),
    Rule.DUPLICATE_OFFSETS: RuleFacts(
        "serves what its index leads to; after an unclean stop an index cannot be built",
        "removes the second copy; another batch with these offsets is moved or set aside",
    ),
    Rule.OFFSET_ORDER: RuleFacts(
        "serves what its index leads to; after an unclean stop an index cannot be built",
        "moves the batch to where its offsets belong",
    ),
    Rule.OFFSET_RANGE: RuleFacts(
        "after an unclean stop truncates the log here; an index cannot hold the offset", _REMOVES
    ),
    Rule.MISSING_OFFSETS: RuleFacts("readers skip them", "nothing: they are missing"),
    Rule.NONSENSE: RuleFacts(_TRUNCATES, _REMOVES),
    Rule.ZERO_BLOCK: RuleFacts(_TRUNCATES, _REMOVES),
    Rule.ZERO_TAIL: RuleFacts("after an unclean stop truncates it", "truncates it"),
    Rule.PREALLOCATED: RuleFacts(
        "room for later records; truncated at the next start or roll", "truncates it", Severity.NOTE
    ),
    Rule.TORN_TAIL: RuleFacts("after an unclean stop truncates it", "truncates it"),
    Rule.SEGMENT_NAME: RuleFacts(
        "looks for its records elsewhere; reads of them fail",
        "names the segment after its first batch",
    ),
    Rule.SEGMENT_OVERLAP: RuleFacts(
        "serves the later segment's records from its base offset on",
        "removes second copies, and puts each batch into the segment that its offset belongs to",
    ),
    Rule.MISSING_SEGMENT: RuleFacts("readers skip the gap", "nothing: it is missing"),
    Rule.INDEX_MISSING: RuleFacts("rebuilds it at startup", _REBUILD_INDEXES),
    Rule.INDEX_SIZE: RuleFacts("ignores the odd bytes, or fails its check", _REBUILD_INDEXES),
    Rule.INDEX_ORDER: RuleFacts(_REBUILT_IF_UNCLEAN, _REBUILD_INDEXES),
    Rule.INDEX_ENTRY: RuleFacts(_REBUILT_IF_UNCLEAN, _REBUILD_INDEXES),
    Rule.INDEX_PADDED: RuleFacts(_REBUILT_IF_UNCLEAN, _REBUILD_INDEXES),
    Rule.INDEX_SHORT: RuleFacts(
        "scans the rest of the segment for every read", _REBUILD_INDEXES, Severity.NOTE
    ),
    Rule.TIME_INDEX_MISSING: RuleFacts("rebuilds it at startup", _REBUILD_INDEXES),
    Rule.TIME_INDEX_SIZE: RuleFacts("ignores the odd bytes, or fails its check", _REBUILD_INDEXES),
    Rule.TIME_INDEX_ORDER: RuleFacts(
        "finds wrong offsets for times; may keep or delete the segment wrongly", _REBUILD_INDEXES
    ),
    Rule.TIME_INDEX_ENTRY: RuleFacts(
        "finds wrong offsets for times; may keep or delete the segment wrongly", _REBUILD_INDEXES
    ),
    Rule.TIME_INDEX_PADDED: RuleFacts(
        "finds wrong offsets for times; may keep or delete the segment wrongly", _REBUILD_INDEXES
    ),
    Rule.TIME_INDEX_SHORT: RuleFacts("assumes too low a largest timestamp", _REBUILD_INDEXES),
    Rule.TIME_INDEX_OPEN: RuleFacts(
        "assumes too low a largest timestamp; Kafka before 2.0 leaves out the "
        "last entry when it recovers a segment",
        _REBUILD_INDEXES,
        Severity.NOTE,
    ),
    Rule.TXN_INDEX_SIZE: RuleFacts("rebuilds it at startup", _REBUILD_INDEXES),
    Rule.TXN_INDEX_ENTRY: RuleFacts(
        "readers of committed data see aborted records, or miss good ones", _REBUILD_INDEXES
    ),
    Rule.TXN_INDEX_SHORT: RuleFacts(
        "readers of committed data see aborted records", _REBUILD_INDEXES
    ),
    Rule.SNAPSHOT_CORRUPT: RuleFacts(
        "removes it and replays the log from an older one", _SNAPSHOTS
    ),
    Rule.SNAPSHOT_STATE: RuleFacts(
        "believes it: valid batches of producers are rejected, or duplicates accepted", _SNAPSHOTS
    ),
    Rule.SNAPSHOT_BOUNDS: RuleFacts("removes it", _SNAPSHOTS, Severity.NOTE),
    Rule.EPOCH_CHECKPOINT_CORRUPT: RuleFacts("takes the log directory offline", _EPOCHS),
    Rule.EPOCH_CHECKPOINT_ORDER: RuleFacts(
        "followers truncate their logs at wrong offsets: records are lost", _EPOCHS
    ),
    Rule.EPOCH_CHECKPOINT_BOUNDS: RuleFacts("forgets the epochs beyond the log's end", _EPOCHS),
    Rule.EPOCH_CHECKPOINT_SHORT: RuleFacts(
        "followers truncate their logs at wrong offsets: records are lost", _EPOCHS
    ),
    Rule.EPOCH_CHECKPOINT_LATE: RuleFacts(
        "knows no earlier epoch: the log start moved, or the message format was lowered and raised",
        _EPOCHS,
        Severity.NOTE,
    ),
    Rule.CHECKPOINT_CORRUPT: RuleFacts(
        "recovery point and log start: recovers everything; high watermark: takes the log "
        "directory offline",
        "nothing: move the file aside by hand; the broker derives it from the logs",
    ),
    Rule.RECOVERY_POINT_BOUNDS: RuleFacts(
        "treats unflushed records as durable; skips recovery", _CHECKPOINT
    ),
    Rule.HIGH_WATERMARK_BOUNDS: RuleFacts("uses the log's end instead", _CHECKPOINT),
    Rule.LOG_START_BOUNDS: RuleFacts(
        "deletes the whole log and starts at that offset", _CHECKPOINT
    ),
    Rule.CLEANER_OFFSET_BOUNDS: RuleFacts(
        "cleans from the log's start again", _CHECKPOINT, Severity.NOTE
    ),
    Rule.META_PROPERTIES: RuleFacts("does not start", "nothing: write it by hand"),
    Rule.ORPHAN_FILE: RuleFacts("removes it at the start", "moves it aside", Severity.NOTE),
    Rule.LEFTOVER_FILE: RuleFacts(
        "removes it, or completes the replacement, at the start", "nothing", Severity.NOTE
    ),
    Rule.UNREADABLE: RuleFacts("takes the log directory offline", "nothing: check the disk"),
    Rule.DIVERGENT: RuleFacts(
        "a follower truncates its log at the first epoch that differs and fetches again",
        "truncate the replica that is wrong at that offset",
    ),
    Rule.OLD_CRC: RuleFacts(_STOPS_07, _FILLS_07),
    Rule.OLD_SIZE: RuleFacts(_STOPS_07, _FILLS_07),
    Rule.OLD_MAGIC: RuleFacts(f"{_STOPS_07}; Kafka 0.7 then does not start at all", _FILLS_07),
    Rule.OLD_SET: RuleFacts(
        "Kafka 0.7 serves it, and consumers stop there; recovery does not look inside",
        "writes the codec that opens it, or none if the payload is not compressed; otherwise as "
        "for a wrong checksum",
    ),
    Rule.OLD_CODEC: RuleFacts(
        "Kafka 0.7 hands the compressed bytes to consumers as one message",
        "nothing: a producer may have meant it",
        Severity.NOTE,
    ),
    Rule.OLD_TORN_TAIL: RuleFacts(
        "Kafka 0.7 serves it after a clean stop, and consumers stop there; an unclean stop makes "
        "it cut the tail",
        "cuts it, as Kafka 0.7's recovery",
    ),
    Rule.OLD_HOLE: RuleFacts(
        _REFUSES_07,
        "fills up to 64 MiB with compressed messages with nothing inside; leaves larger holes",
    ),
    Rule.OLD_OVERLAP: RuleFacts(
        _REFUSES_07, "cuts bytes that the next segment repeats; nothing if the two differ"
    ),
    Rule.OLD_FILE_NAME: RuleFacts(_REFUSES_07, "moves it aside"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a rule; `path` is the file, or the directory if no single file is wrong."""

    path: str
    rule: Rule
    message: str
    # In bytes from the file's start; None if the finding concerns the whole file.
    position: int | None = None
    # Inclusive; None if the finding concerns no offsets.
    first_offset: int | None = None
    last_offset: int | None = None
    # Number of affected bytes, from `position`.
    length: int | None = None
    # Of BATCH_OFFSET and BATCH_EPOCH: the right value. Of OFFSET_ORDER: the offset expected.
    should_be: int | None = None

    @property
    def severity(self) -> Severity:
        """Return whether the violation is damage or a note."""
        return FACTS[self.rule].severity

    @property
    def broker(self) -> str:
        """Describe what a broker does when it meets the violation."""
        return FACTS[self.rule].broker

    @property
    def repair(self) -> str:
        """Describe what `kctl repair-log` would do."""
        return FACTS[self.rule].repair
