"""Files: the one place where exports touch a file system, local or remote, through Arrow.

Paths and URLs: what has a scheme (`s3://`, `gs://`, `hdfs://`, `abfs://`, `file://`) is for Arrow's
own file systems, any other scheme for fsspec if that is installed; everything else is local. Local
files are mapped, not read.
"""

import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs as arrow_fs

from kctl.errors import StorageError, UsageError

# Bytes asked of a remote file at once.
_FETCH_BYTES = 16 * 1024 * 1024
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")


class FileFacts(NamedTuple):
    """A file as a listing shows it."""

    path: str
    size: int
    is_directory: bool
    # Nanoseconds since 1970, where it is known.
    modified_ns: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]


class Files:
    """The file system of a URL; methods take paths on it and raise StorageError naming them."""

    def __init__(self, filesystem: Any, prefix: str = "") -> None:
        """`prefix` makes URLs of paths."""
        self._fs = filesystem
        self._prefix = prefix
        self._is_local = isinstance(filesystem, arrow_fs.LocalFileSystem)

    @classmethod
    def of(cls, url: str) -> "tuple[Files, str]":
        """The file system and the path on it; UsageError if there is none for the scheme."""
        match = _SCHEME.match(url)
        if match is None:
            return cls(arrow_fs.LocalFileSystem()), url.rstrip("/") or "/"
        try:
            filesystem, path = arrow_fs.FileSystem.from_uri(url)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ImportError):
            filesystem, path = _from_fsspec(url, match[1])
        except OSError as error:
            raise StorageError(f"{url}: {error}") from None
        path = path.rstrip("/")
        return cls(filesystem, url[: url.find(path)] if path else url), path

    def url(self, path: str) -> str:
        """What `of` understands, anywhere."""
        return f"{self._prefix}{path}"

    def list(self, path: str, *, recursive: bool = False) -> list[FileFacts]:
        """What is in a directory, by path; nothing if there is no such directory."""
        selector = arrow_fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        found = self._do(path, lambda: self._fs.get_file_info(selector))
        return sorted(_facts(info) for info in found)

    def find(self, path: str) -> FileFacts | None:
        """What is at `path`."""
        info = self._do(path, lambda: self._fs.get_file_info(path))
        return None if info.type == arrow_fs.FileType.NotFound else _facts(info)

    def map(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        """The whole file, mapped if it is local; of a remote one [start, end) is fetched, and
        around it are zeros that take no memory."""
        if self._is_local:
            mapped: memoryview = self._do(path, lambda: _mapped(path))
            return mapped
        with self._do(path, lambda: self._fs.open_input_file(path)) as file:
            size = self._do(path, file.size)
            view = memoryview(np.zeros(size, np.uint8).data)
            position, stop = start, size if end is None else min(end, size)
            self._do(path, lambda: file.seek(start))
            while position < stop:
                ahead = view[position : min(stop, position + _FETCH_BYTES)]
                more = self._do(path, partial(file.readinto, ahead))
                if not more:
                    raise StorageError(f"{path}: shorter than it was")
                position += more
            return view

    def read_range(self, path: str, position: int, length: int) -> bytes:
        """Some bytes of a file."""
        with self._do(path, lambda: self._fs.open_input_file(path)) as file:
            return bytes(self._do(path, lambda: file.read_at(length, position)))

    def read(self, path: str) -> bytes:
        """A small file."""
        return bytes(self.map(path))

    def write(self, path: str, data: bytes) -> None:
        """A small file, which appears as a whole."""
        self.make_parent(path)
        with self.create(f"{path}.tmp") as stream:
            self._do(path, lambda: stream.write(data))
        self.move(f"{path}.tmp", path)

    def create(self, path: str) -> Any:
        """A stream to a new file."""
        return self._do(path, lambda: self._fs.open_output_stream(path, compression=None))

    def make_parent(self, path: str) -> None:
        """The directory of `path`, with its parents."""
        parent = path.rsplit("/", 1)[0]
        if parent:
            self._do(parent, lambda: self._fs.create_dir(parent, recursive=True))

    def move(self, old: str, new: str) -> None:
        """Give a file another name; a copy on object storage."""
        self._do(old, lambda: self._fs.move(old, new))

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._do(path, lambda: self._fs.delete_file(path))

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all below it; fine if it is not there."""
        if self.find(path) is not None:
            self._do(path, lambda: self._fs.delete_dir(path))

    def _do(self, path: str, work: Any) -> Any:
        try:
            return work()
        except OSError as error:
            text = error.strerror or str(error)
            raise StorageError(f"{path}: {text}") from None


def _mapped(path: str) -> memoryview:
    with pa.memory_map(path) as file:
        return memoryview(file.read_buffer())


def _facts(info: Any) -> FileFacts:
    is_directory = info.type == arrow_fs.FileType.Directory
    return FileFacts(info.path, info.size or 0, is_directory, info.mtime_ns or 0)


def _from_fsspec(url: str, scheme: str) -> tuple[Any, str]:
    try:
        import fsspec  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise UsageError(
            f"{url}: no file system for {scheme}://",
            hint="pip install fsspec and its package for that scheme, e.g. gcsfs, adlfs",
        ) from None
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: {error}") from None
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(filesystem)), path
