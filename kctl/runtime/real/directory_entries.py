"""directory_entries: chosen entries of a large local directory, with their sizes.

A log may have 100,000 segments with three files each. To find a file's size takes longer than to
find the file.
"""

import os


def subdirectories(path: str) -> list[str]:
    """Return the names of the directories in a directory, in order. OSError."""
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def sized_files(path: str, suffixes: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return names and sizes of the files in a directory that end with `suffixes`, in any order.

    OSError if it cannot be read. Files that are deleted meanwhile are left out.
    """
    found = []
    # Names are relative to the descriptor, so the kernel resolves one name for each size.
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(suffixes) and not entry.is_dir():
                    try:
                        size = os.stat(name, dir_fd=directory).st_size
                    except FileNotFoundError:
                        continue
                    found.append((name, size))
    finally:
        os.close(directory)
    return found
