"""kctl dump-log --follow: what is in logs, and then what is appended to them while we watch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kctl.errors import UsageError
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.runtime.disk import Disk

_EVERY_MS = 300

# Prints the offsets [start, end) of a partition's directory.
PrintRange = Callable[[str, int, int], None]


def follow(disk: "Disk", paths: list[str], print_range: PrintRange) -> None:
    """Print what is there and then what comes; ends only with an interrupt."""
    from kctl.dump.seek import end_offset
    from kctl.dump.verify import is_partition_directory
    from kctl.runtime.real import make_runtime

    directories = [path.rstrip("/") for path in paths]
    for directory in directories:
        if not (disk.is_directory(directory) and is_partition_directory(disk, directory)):
            raise UsageError(f"--follow needs partitions' directories, {directory} is none")
    ends = dict.fromkeys(directories, 0)
    runtime = make_runtime()

    async def watch() -> None:
        while True:
            for directory, known in list(ends.items()):
                end = end_offset(disk, directory)
                if end > known:
                    print_range(directory, known, end)
                    ends[directory] = end
            await sleep(runtime.scheduler, _EVERY_MS)

    runtime.scheduler.run_until(runtime.scheduler.spawn(watch()))
