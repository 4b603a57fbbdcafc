"""Follows the logs of partition directories: yields their offsets, then those appended later."""

from collections.abc import Callable, Iterator, Sequence

from kctl.dump.seek import end_offset
from kctl.errors import UsageError
from kctl.runtime.disk import Disk
from kctl.verify.verification import is_partition_directory


def follow(
    disk: Disk, paths: Sequence[str], wait: Callable[[], object]
) -> Iterator[tuple[str, int, int]]:
    """Yield (directory, first offset, end offset) for each range of new offsets, without end.

    `wait` is called between two looks at the directories. Raise UsageError if a path is not a
    partition's directory.
    """
    directories = [path.rstrip("/") for path in paths]
    for directory in directories:
        if not (disk.is_directory(directory) and is_partition_directory(disk, directory)):
            raise UsageError(f"--follow needs partitions' directories; {directory} is not one")
    ends = dict.fromkeys(directories, 0)
    while True:
        for directory, known in list(ends.items()):
            end = end_offset(disk, directory)
            if end > known:
                yield directory, known, end
                ends[directory] = end
        wait()
