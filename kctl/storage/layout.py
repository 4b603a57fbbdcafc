"""Names of files and directories in a Kafka log directory, both ways.

    <log dir>/meta.properties, .lock, .kafka_cleanshutdown, *-checkpoint
    <log dir>/<topic>-<partition>/<base offset, 20 digits>.log, .index, .timeindex, .txnindex
    <log dir>/<topic>-<partition>/<offset, 20 digits>.snapshot, leader-epoch-checkpoint

A file on its way out is `.deleted`; the cleaner writes `.cleaned`, which becomes `.swap`, which
becomes the file itself. A partition on its way out is `<topic>-<partition>.<uuid>-delete`, one
that moves in from another log directory `<topic>-<partition>.<uuid>-future`.

`<offset>.truncation`, which Apache Kafka neither has nor minds, says: recovery point and log start
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
DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

META_PROPERTIES = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

# Longest name of a file or directory that file systems take.
NAME_MAX = 255
_OFFSET_NAME = re.compile(r"(\d{20})(\..+)", re.ASCII)
_PARTITION = re.compile(r"(.+)-(\d+)", re.ASCII | re.DOTALL)
_LEAVING = re.compile(r"(.+)-(\d+)\.(\w+)(-delete|-future)", re.ASCII | re.DOTALL)


class DirectoryName(NamedTuple):
    """What a partition's directory name says."""

    topic_partition: TopicPartition
    is_delete: bool
    is_future: bool


def file_name(base_offset: int, suffix: str) -> str:
    """The name of the file of `base_offset` of one kind."""
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """(offset, all suffixes together) of a segment's file or a snapshot; None for others."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def directory_name(topic_partition: TopicPartition) -> str:
    """The directory of a partition."""
    return str(topic_partition)


def delete_directory_name(topic_partition: TopicPartition, uuid_hex: str) -> str:
    """What the directory is renamed to until it is removed; an overlong topic is cut."""
    suffix = f"-{topic_partition.partition}.{uuid_hex}{DELETE_DIRECTORY_SUFFIX}"
    return topic_partition.topic[: NAME_MAX - len(suffix)] + suffix


def future_directory_name(topic_partition: TopicPartition, uuid_hex: str) -> str:
    """Where a partition's copy grows while it moves between log directories."""
    return f"{topic_partition}.{uuid_hex}{FUTURE_DIRECTORY_SUFFIX}"


def parse_directory_name(name: str) -> DirectoryName | None:
    """The partition whose directory this is; None if it is none."""
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
