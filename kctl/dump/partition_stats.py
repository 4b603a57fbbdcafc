"""The statistics of each partition in log directories, read without a broker."""

from collections.abc import Iterable, Iterator
from dataclasses import field

from kctl.dump.dump import classify, find_files
from kctl.dump.file_stats import add_file
from kctl.dump.stats import LogStats
from kctl.dump.values import FileKind
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.storage import layout

_KINDS = (FileKind.LOG, FileKind.OLD_LOG)


@dataclass(slots=True)
class PartitionStats:
    """A partition's directory and the figures of its segments; without the most common keys."""

    directory: str
    # None: the directory is not named like a partition.
    partition: TopicPartition | None
    stats: LogStats = field(default_factory=LogStats)


def log_files(disk: Disk, paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return the .log and .kafka files at or below `paths`, and their base offsets. Raise
    UsageError for a path that does not exist or has no file of a log directory."""
    found = [(file, classify(file)) for path in paths for file in find_files(disk, path)]
    return [(file, it[1] or 0) for file, it in found if it is not None and it[0] in _KINDS]


def partition_stats(disk: Disk, paths: Iterable[str]) -> Iterator[PartitionStats]:
    """Yield the figures of each partition with a segment at or below `paths`. Damage is counted.
    Raise UsageError as `log_files` does."""
    by_directory: dict[str, list[tuple[str, int]]] = {}
    for file, base_offset in log_files(disk, paths):
        by_directory.setdefault(file.rpartition("/")[0], []).append((file, base_offset))
    for directory, files in by_directory.items():
        named = layout.parse_directory_name(directory.rpartition("/")[2])
        found = PartitionStats(directory, named.topic_partition if named else None)
        for file, base_offset in files:
            add_file(found.stats, disk, file, base_offset)
            found.stats.keys.clear()
        yield found
