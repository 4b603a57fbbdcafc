"""Names of files and directories in a Kafka log directory, both ways.

    <log dir>/meta.properties, .lock, .kafka_cleanshutdown, *-checkpoint
    <log dir>/<topic>-<partition>/<base offset, 20 digits>.log, .index, .timeindex, .txnindex
    <log dir>/<topic>-<partition>/<offset, 20 digits>.snapshot, leader-epoch-checkpoint

A file to be deleted is `.deleted`; the cleaner writes `.cleaned`, which becomes `.swap`, which
becomes the file itself. A partition to be deleted is `<topic>-<partition>.<uuid>-delete`, one
that moves in from another log directory `<topic>-<partition>.<uuid>-future`.

`<offset>.truncation`, which Apache Kafka ignores, means: recovery point and log start
are not beyond that offset, whatever the checkpoints say.

Kafka 2.7: kafka.log.Log (companion object), kafka.log.LogManager; KIP-113
"""

import re
from typing import NamedTuple

from kctl.model import TopicPartition

LOG_SUFFIX = ".log"
# Of Kafka 0.7.
OLD_LOG_SUFFIX = ".kafka"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TRUNCATION_SUFFIX = ".truncation"
# A file with one of these after its name is being deleted or added.
PASSING_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

META_PROPERTIES = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
# Of kctl: imports wrote the first logs of the directory.
IMPORTED_FILE = ".kctl-import"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
# Those that have a line for each partition of the log directory.
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

# Longest name of a file or directory on common file systems.
NAME_MAX = 255
_OFFSET_NAME = re.compile(r"(\d{20})(\..+)", re.ASCII)
_PARTITION = re.compile(r"(.+)-(\d+)", re.ASCII | re.DOTALL)
_LEAVING = re.compile(r"(.+)-(\d+)\.(\w+)(-delete|-future)", re.ASCII | re.DOTALL)


_METADATA_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


class DirectoryName(NamedTuple):
    """The parts of a partition's directory name."""

    topic_partition: TopicPartition
    is_delete: bool
    is_future: bool


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of the file of `base_offset` of one kind."""
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Return (offset, all suffixes together) of a segment's file or a snapshot; None for others."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_metadata_snapshot_name(name: str) -> tuple[int, int] | None:
    """Return end offset and epoch of a snapshot of KRaft's metadata; None for other files."""
    if name == BOOTSTRAP_CHECKPOINT:
        return 0, 0
    match = _METADATA_SNAPSHOT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def directory_name(topic_partition: TopicPartition) -> str:
    """Return the directory of a partition."""
    return str(topic_partition)


def delete_directory_name(topic_partition: TopicPartition, uuid_hex: str) -> str:
    """Return the name of a directory until it is removed; a long topic name is shortened."""
    suffix = f"-{topic_partition.partition}.{uuid_hex}{DELETE_DIRECTORY_SUFFIX}"
    return topic_partition.topic[: NAME_MAX - len(suffix)] + suffix


def future_directory_name(topic_partition: TopicPartition, uuid_hex: str) -> str:
    """Return the name of a partition's copy while it moves between log directories."""
    return f"{topic_partition}.{uuid_hex}{FUTURE_DIRECTORY_SUFFIX}"


def parse_directory_name(name: str) -> DirectoryName | None:
    """Return the partition of a directory name; None if it is not a partition's."""
    match = _LEAVING.fullmatch(name)
    if match:
        tp = TopicPartition(match[1], int(match[2]))
        is_delete = match[4] == DELETE_DIRECTORY_SUFFIX
        return DirectoryName(tp, is_delete, not is_delete)
    match = _PARTITION.fullmatch(name)
    if match:
        tp = TopicPartition(match[1], int(match[2]))
        return DirectoryName(tp, is_delete=False, is_future=False)
    return None
