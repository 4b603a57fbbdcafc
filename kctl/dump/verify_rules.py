"""The rules of `kctl verify-log`: what is checked, how bad a breach is, and what follows from it.

One table. A Rule names a kind of breach; its facts say what a broker of Kafka 2.7 does when it
meets one, and what `kctl repair-log` would do. A note is worth knowing, but no damage: what a
broker leaves behind in its ordinary life (an index padded by `kill -9`, a file to be deleted).

Kafka 2.7: kafka.log.LogSegment.recover, kafka.log.Log.loadSegments, kafka.log.LogManager
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether a finding is damage."""

    DAMAGE = "damage"
    NOTE = "note"


class Rule(StrEnum):
    """What can be wrong; the value is its name in output, which never changes."""

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


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """What follows from a breach."""

    broker: str
    repair: str
    severity: Severity = Severity.DAMAGE


_CUTS = (
    "serves it until a client finds out; after an unclean stop cuts the log here and deletes every "
    "later segment (kctl: only if nothing valid follows, else the partition goes offline)"
)
_CUT_OUT = "cuts the range out, its offsets are kept"
_REBUILT_IF_UNCLEAN = (
    "uses it as it is: reads may start at the wrong place or find nothing; only an unclean stop "
    "makes it build the index anew"
)
_REBUILD_INDEXES = "builds the segment's indexes anew"
_SNAPSHOTS = "builds producer snapshots anew from the batches"
_EPOCHS = "builds the checkpoint anew from the batches"
_CHECKPOINT = "drops the partition's line; the broker then works it out from the log"

FACTS: dict[Rule, RuleFacts] = {
    Rule.BATCH_CRC: RuleFacts(_CUTS, _CUT_OUT),
    Rule.BATCH_SIZE: RuleFacts(_CUTS, _CUT_OUT),
    Rule.BATCH_MAGIC: RuleFacts(_CUTS, _CUT_OUT),
    Rule.BATCH_OFFSET: RuleFacts(
        "serves the records under wrong offsets; readers skip or repeat some",
        "writes the offset that the neighbours prove",
    ),
    Rule.BATCH_EPOCH: RuleFacts(
        "a follower that asks where the epoch ends gets a wrong answer",
        "writes the epoch that its neighbours have",
    ),
    Rule.RECORDS: RuleFacts(
        "serves the batch; consumers fail on it, the log cleaner gives the partition up",
        _CUT_OUT,
    ),
    Rule.DUPLICATE_OFFSETS: RuleFacts(
        "serves what its index leads to; after an unclean stop an index cannot be built",
        "cuts out what comes a second time",
    ),
    Rule.OFFSET_ORDER: RuleFacts(
        "serves what its index leads to; after an unclean stop an index cannot be built",
        "cuts out what does not follow what is before it",
    ),
    Rule.OFFSET_RANGE: RuleFacts(
        "after an unclean stop cuts the log here; an index cannot hold the offset", _CUT_OUT
    ),
    Rule.MISSING_OFFSETS: RuleFacts("readers pass over them", "nothing: they are not there"),
    Rule.NONSENSE: RuleFacts(_CUTS, _CUT_OUT),
    Rule.ZERO_BLOCK: RuleFacts(_CUTS, _CUT_OUT),
    Rule.ZERO_TAIL: RuleFacts("after an unclean stop cuts it off", "cuts it off"),
    Rule.PREALLOCATED: RuleFacts(
        "room for records to come; cut off at the next start or roll", "cuts it off", Severity.NOTE
    ),
    Rule.TORN_TAIL: RuleFacts("after an unclean stop cuts it off", "cuts it off"),
    Rule.SEGMENT_NAME: RuleFacts(
        "looks for its records elsewhere; reads of them fail", "moves the segment's files aside"
    ),
    Rule.SEGMENT_OVERLAP: RuleFacts(
        "serves the later segment's records from its base offset on",
        "cuts the earlier segment where the later one begins",
    ),
    Rule.MISSING_SEGMENT: RuleFacts("readers pass over the gap", "nothing: it is not there"),
    Rule.INDEX_MISSING: RuleFacts("builds it anew at the start", _REBUILD_INDEXES),
    Rule.INDEX_SIZE: RuleFacts("ignores the odd bytes, or fails its check", _REBUILD_INDEXES),
    Rule.INDEX_ORDER: RuleFacts(_REBUILT_IF_UNCLEAN, _REBUILD_INDEXES),
    Rule.INDEX_ENTRY: RuleFacts(_REBUILT_IF_UNCLEAN, _REBUILD_INDEXES),
    Rule.INDEX_PADDED: RuleFacts(_REBUILT_IF_UNCLEAN, _REBUILD_INDEXES),
    Rule.INDEX_SHORT: RuleFacts(
        "scans the rest of the segment for every read", _REBUILD_INDEXES, Severity.NOTE
    ),
    Rule.TIME_INDEX_MISSING: RuleFacts("builds it anew at the start", _REBUILD_INDEXES),
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
    Rule.TIME_INDEX_SHORT: RuleFacts(
        "takes the segment's youngest record for older than it is", _REBUILD_INDEXES
    ),
    Rule.TXN_INDEX_SIZE: RuleFacts("builds it anew at the start", _REBUILD_INDEXES),
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
        "believes it: good batches of producers are refused, or duplicates taken", _SNAPSHOTS
    ),
    Rule.SNAPSHOT_BOUNDS: RuleFacts("removes it", _SNAPSHOTS, Severity.NOTE),
    Rule.EPOCH_CHECKPOINT_CORRUPT: RuleFacts("takes the log directory offline", _EPOCHS),
    Rule.EPOCH_CHECKPOINT_ORDER: RuleFacts(
        "followers cut their logs at wrong offsets: records are lost", _EPOCHS
    ),
    Rule.EPOCH_CHECKPOINT_BOUNDS: RuleFacts("forgets the epochs beyond the log's end", _EPOCHS),
    Rule.EPOCH_CHECKPOINT_SHORT: RuleFacts(
        "followers cut their logs at wrong offsets: records are lost", _EPOCHS
    ),
    Rule.CHECKPOINT_CORRUPT: RuleFacts(
        "recovery point and log start: recovers everything; high watermark: takes the log "
        "directory offline",
        "nothing: move the file aside by hand; the broker works it out from the logs",
    ),
    Rule.RECOVERY_POINT_BOUNDS: RuleFacts(
        "takes what is not flushed for durable; skips recovery", _CHECKPOINT
    ),
    Rule.HIGH_WATERMARK_BOUNDS: RuleFacts("takes the log's end for it", _CHECKPOINT),
    Rule.LOG_START_BOUNDS: RuleFacts(
        "deletes the whole log and starts at that offset", _CHECKPOINT
    ),
    Rule.CLEANER_OFFSET_BOUNDS: RuleFacts(
        "cleans from the log's start again", _CHECKPOINT, Severity.NOTE
    ),
    Rule.META_PROPERTIES: RuleFacts("does not start", "nothing: it must be written by hand"),
    Rule.ORPHAN_FILE: RuleFacts("removes it at the start", "moves it aside", Severity.NOTE),
    Rule.LEFTOVER_FILE: RuleFacts(
        "removes it, or completes the replacement, at the start", "nothing", Severity.NOTE
    ),
    Rule.UNREADABLE: RuleFacts("takes the log directory offline", "nothing: ask the disk"),
    Rule.DIVERGENT: RuleFacts(
        "a follower cuts its log at the first epoch that differs and fetches anew",
        "truncate the replica that is wrong at that offset",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule; `path` is the file, or the directory if no one file is to blame."""

    path: str
    rule: Rule
    message: str
    # Bytes in the file; None where the file as a whole is meant.
    position: int | None = None
    # Inclusive; None where no offsets are concerned.
    first_offset: int | None = None
    last_offset: int | None = None
    # Bytes concerned, from `position` on.
    length: int | None = None
    # Of BATCH_OFFSET and BATCH_EPOCH: the right value. Of OFFSET_ORDER: the offset expected.
    should_be: int | None = None

    @property
    def severity(self) -> Severity:
        return FACTS[self.rule].severity

    @property
    def broker(self) -> str:
        """What a broker does with it."""
        return FACTS[self.rule].broker

    @property
    def repair(self) -> str:
        """What `kctl repair-log` would do."""
        return FACTS[self.rule].repair
