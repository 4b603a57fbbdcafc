"""DiskSpill: files in a temporary directory, for what a comparison does not keep in memory."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.runtime.disk import Disk


class DiskSpill:
    """A file for each name in `directory`, which the caller removes; see proof.last_values.Spill.

    StorageError if a file cannot be written or read.
    """

    def __init__(self, disk: "Disk", directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._sizes: dict[str, int] = {}

    def append(self, name: str, data: bytes) -> None:
        """Append to the file."""
        file = self._disk.open(self._path(name), create=True)
        try:
            file.append([data])
        finally:
            file.close()
        self._sizes[name] = self.size(name) + len(data)

    def size(self, name: str) -> int:
        """Return the number of bytes of the file; 0 if there is none."""
        return self._sizes.get(name, 0)

    def read(self, name: str, position: int, size: int) -> bytes:
        """Return bytes of the file."""
        file = self._disk.open(self._path(name), read_only=True)
        try:
            return file.pread(size, position)
        finally:
            file.close()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
