"""Files on local and remote file systems, through Arrow: the only module of export and import that
opens one.

A URL with a scheme that Arrow knows (`s3://`, `gs://`, `hdfs://`, `abfs://`, `file://`) uses
Arrow's file system, any other scheme uses fsspec if it is installed, as `hdfs://` does where
hdfs-native is, and a path without a scheme is local. Local files are mapped into memory, not read.
"""

import re
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs as arrow_fs

from kctl.errors import StorageError, UsageError, storage_failure
from kctl.runtime.real.directory_entries import sized_files, subdirectories

__all__ = ["FileFacts", "Files"]

# Bytes requested from a remote file at once.
_FETCH_BYTES = 16 * 1024 * 1024
_PATH = attrgetter("path")
# Arrow needs Hadoop's own client for these; the package hdfs-native does not.
_HDFS_SCHEMES = ("hdfs", "viewfs")
_HDFS_HINT = (
    "pip install 'kctl-kafka[hdfs]'; or set JAVA_HOME, HADOOP_HOME, ARROW_LIBHDFS_DIR and "
    "CLASSPATH for Hadoop's libhdfs"
)
_ERROR_CHARACTERS_MAX = 200
_GCS_SCHEMES = ("gs", "gcs")
_GCS_RETRY, _GCS_RETRY_SECONDS = "retry_limit_seconds", 60
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")


class FileFacts(NamedTuple):
    """An entry of a directory listing."""

    path: str
    size: int
    is_directory: bool
    # Nanoseconds since 1970; 0 if unknown.
    modified_ns: int = 0

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]


Listing = list[FileFacts]


class Files:
    """A file system. Methods take paths on it and raise StorageError, which names the path."""

    def __init__(self, filesystem: Any, prefix: str = "", suffix: str = "") -> None:
        """Wrap `filesystem`; `prefix`, a path and `suffix`, the parameters, are its URL."""
        self._fs = filesystem
        self._prefix, self._suffix = prefix, suffix
        self._is_local = isinstance(filesystem, arrow_fs.LocalFileSystem)

    @classmethod
    def of(cls, url: str) -> "tuple[Files, str]":
        """Return the file system of `url` and the path on it.

        UsageError if no file system handles the scheme, StorageError if it cannot be reached.
        """
        match = _SCHEME.match(url)
        if match is None:
            return cls(arrow_fs.LocalFileSystem()), url.rstrip("/") or "/"
        is_hdfs = match[1] in _HDFS_SCHEMES
        try:
            if is_hdfs and find_spec("hdfs_native") is not None:
                filesystem, path = _from_fsspec(url, match[1])
            else:
                filesystem, path = arrow_fs.FileSystem.from_uri(_bounded(url, match[1]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ImportError):
            filesystem, path = _from_fsspec(url, match[1])
        except OSError as error:
            # Arrow lists each place where it looked for a library.
            text = str(error)[:_ERROR_CHARACTERS_MAX]
            raise StorageError(f"{url}: {text}", hint=_HDFS_HINT if is_hdfs else None) from None
        path = path.rstrip("/")
        place, mark, parameters = url.partition("?")
        prefix = place[: place.find(path)] if path else place
        return cls(filesystem, prefix, mark + parameters), path

    def url(self, path: str) -> str:
        """Return the URL that `of` resolves to `path`, in any process."""
        return f"{self._prefix}{path}{self._suffix}"

    def location(self, path: str) -> str:
        """Return the URL without parameters, as the log of a lake names its files."""
        return f"{self._prefix}{path}"

    def list(self, path: str, *, recursive: bool = False) -> Listing:
        """Return the entries of a directory, ordered by path; empty if it does not exist."""
        selector = arrow_fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        found = self._do(path, lambda: self._fs.get_file_info(selector))
        return sorted(map(_facts, found), key=_PATH)

    def directories(self, path: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Listing]]:
        """Yield each directory in `path`, in order, with the files in it, at least those whose
        names end with one of `suffixes`."""
        if self._is_local:
            prefix = path.rstrip("/")
            for name in self._do(path, lambda: subdirectories(path)):
                directory = f"{prefix}/{name}"
                found = self._do(directory, partial(sized_files, directory, suffixes))
                if found:
                    yield directory, [FileFacts(f"{directory}/{it}", size, is_directory=False)
                                      for it, size in found]  # fmt: skip
            return
        # One listing, because each takes a request.
        by_directory: dict[str, Listing] = {}
        for facts in self.list(path, recursive=True):
            if not facts.is_directory:
                by_directory.setdefault(facts.path.rpartition("/")[0], []).append(facts)
        for directory, listing in sorted(by_directory.items()):
            if directory.rpartition("/")[0] == path:
                yield directory, listing

    def find(self, path: str) -> FileFacts | None:
        """Return the entry at `path`, or None if there is none."""
        info = self._do(path, lambda: self._fs.get_file_info(path))
        return None if info.type == arrow_fs.FileType.NotFound else _facts(info)

    def map(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        """Return the contents of a file. A local file is mapped as a whole.

        Of a remote file, only [start, end) is fetched; the rest of the view is zeros that occupy no
        memory.
        """
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
                    raise StorageError(f"{path}: the file is shorter than when it was opened")
                position += more
            return view

    def read_range(self, path: str, position: int, length: int) -> bytes:
        """Return `length` bytes from `position` on, or fewer at the end of the file."""
        with self._do(path, lambda: self._fs.open_input_file(path)) as file:
            return bytes(self._do(path, lambda: file.read_at(length, position)))

    def read(self, path: str) -> bytes:
        """Return the contents of a small file."""
        return bytes(self.map(path))

    def write(self, path: str, data: bytes) -> None:
        """Write a small file atomically: it is written under another name, then renamed."""
        self.make_parent(path)
        stream = self.create(f"{path}.tmp")

        def fill() -> None:
            # An object store reports at the end that it does not take the file.
            with stream:
                stream.write(data)

        self._do(path, fill)
        self.move(f"{path}.tmp", path)

    def create(self, path: str) -> Any:
        """Create a file and return a stream to it."""
        return self._do(path, lambda: self._fs.open_output_stream(path, compression=None))

    def make_parent(self, path: str) -> None:
        """Create the parent directory of `path`, with its own parents."""
        parent = path.rsplit("/", 1)[0]
        if parent:
            self._do(parent, lambda: self._fs.create_dir(parent, recursive=True))

    def move(self, old: str, new: str) -> None:
        """Rename a file; object storage copies it."""
        self._do(old, lambda: self._fs.move(old, new))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._do(path, lambda: self._fs.delete_file(path))

    def delete_tree(self, path: str) -> None:
        """Delete a directory with its contents; do nothing if it does not exist."""
        if self.find(path) is not None:
            self._do(path, lambda: self._fs.delete_dir(path))

    def _do(self, path: str, work: Any) -> Any:
        try:
            return work()
        except OSError as error:
            raise storage_failure(path, error) from None
        except pa.ArrowException as error:
            # Azure's client, of failures that have no number of an operating system's.
            raise StorageError(f"{path}: {error}") from None


def _bounded(url: str, scheme: str) -> str:
    """Return the URL with a limit of the time for which Google's client repeats a request: without
    credentials, or without a network, it is silent for a quarter of an hour."""
    if scheme not in _GCS_SCHEMES or _GCS_RETRY in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}{_GCS_RETRY}={_GCS_RETRY_SECONDS}"


def check_reachable(url: str) -> None:
    """Raise UsageError if `url` is on HDFS and pyiceberg, which uses Arrow's file system, cannot
    reach it."""
    match = _SCHEME.match(url)
    if match is None or match[1] not in _HDFS_SCHEMES:
        return
    try:
        arrow_fs.FileSystem.from_uri(url)
    except OSError:
        raise UsageError(
            f"{url}: pyiceberg needs Hadoop's libhdfs for tables on HDFS",
            hint="--format delta or parquet needs hdfs-native only; or set JAVA_HOME, HADOOP_HOME, "
            "ARROW_LIBHDFS_DIR and CLASSPATH",
        ) from None


def _mapped(path: str) -> memoryview:
    with pa.memory_map(path) as file:
        return memoryview(file.read_buffer())


def _facts(info: Any) -> FileFacts:
    size = info.size
    # Only files have a size, and the type takes longer to read.
    is_directory = size is None and info.type == arrow_fs.FileType.Directory
    return FileFacts(info.path, size or 0, is_directory, info.mtime_ns or 0)


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
