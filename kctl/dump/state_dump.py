"""Dumps what a broker remembers beside its logs: snapshots, checkpoints, meta.properties.

Kafka 2.7: kafka.tools.DumpLogSegments.dumpProducerIdSnapshot; the others it does not know
"""

from collections.abc import Iterator

from kctl.dump.values import CheckpointedOffset, DumpItem
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import decode_epochs, decode_offsets
from kctl.storage.meta_properties import decode_meta_properties
from kctl.storage.producer_snapshot import decode_snapshot


def dump_producer_snapshot(disk: Disk, path: str) -> Iterator[DumpItem]:
    """The producers; CorruptDataError if the file's checksum does not fit."""
    yield from decode_snapshot(disk.read_file(path), path)


def dump_offset_checkpoint(disk: Disk, path: str) -> Iterator[DumpItem]:
    """An offset per partition; CorruptDataError naming the line that makes no sense."""
    for topic_partition, offset in decode_offsets(disk.read_file(path), path).items():
        yield CheckpointedOffset(topic_partition, offset)


def dump_epoch_checkpoint(disk: Disk, path: str) -> Iterator[DumpItem]:
    """The leader epochs; CorruptDataError naming the line that makes no sense."""
    yield from decode_epochs(disk.read_file(path), path)


def dump_meta_properties(disk: Disk, path: str) -> Iterator[DumpItem]:
    """Whose directory it is; CorruptDataError if it does not say."""
    yield decode_meta_properties(disk.read_file(path), path)
