"""Dumps what a broker remembers beside its logs: snapshots, checkpoints, meta.properties.

Kafka 2.7: kafka.tools.DumpLogSegments.dumpProducerIdSnapshot; the others it does not know
"""

from collections.abc import Iterator

from kctl.dump.values import CheckpointedOffset, DumpItem
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import decode_epochs, decode_offsets
from kctl.storage.meta_properties import read_any_meta_properties
from kctl.storage.producer_snapshot import decode_snapshot


def dump_producer_snapshot(disk: Disk, path: str) -> Iterator[DumpItem]:
    """Yield the producers; CorruptDataError if the file's checksum does not fit."""
    yield from decode_snapshot(disk.read_file(path), path)


def dump_offset_checkpoint(disk: Disk, path: str) -> Iterator[DumpItem]:
    """Yield an offset per partition; CorruptDataError naming the invalid line."""
    for topic_partition, offset in decode_offsets(disk.read_file(path), path).items():
        yield CheckpointedOffset(topic_partition, offset)


def dump_epoch_checkpoint(disk: Disk, path: str) -> Iterator[DumpItem]:
    """Yield the leader epochs; CorruptDataError naming the invalid line."""
    yield from decode_epochs(disk.read_file(path), path)


def dump_meta_properties(disk: Disk, path: str) -> Iterator[DumpItem]:
    """Yield the ids in the file; CorruptDataError if it has none."""
    yield read_any_meta_properties(disk.read_file(path), path)
