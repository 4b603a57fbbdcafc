"""RealDisk: the Disk of the operating system.

Writes go directly to the system (`pwrite`, never a buffered file object), so written data survives
`kill -9`. A descriptor is closed when its RealDiskFile is no longer referenced: the interpreter's
reference count covers the owner and the FileSlices in flight. `close` only says that the owner is
done, so an owner also drops its reference.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence

from kctl.errors import LockedError, storage_failure
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import DiskFile, DiskLock
from kctl.runtime.real.mounts import other_paths
from kctl.runtime.real.open_files import writers_of

# Linux takes at most this many buffers in one writev.
_IOV_MAX = 1024


class RealDiskFile:
    """An open file; see `kctl.runtime.disk.DiskFile`."""

    __slots__ = ("_fd", "_size", "path")

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path = path
        self._fd = fd
        self._size = size

    def size(self) -> int:
        """Return the size in bytes, as this object knows it."""
        return self._size

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end; after an error the file is truncated to its old size."""
        position = self._size
        try:
            if len(parts) == 1:
                part = parts[0]
                length = len(part)
                written = os.pwrite(self._fd, part, position)
            else:
                length = sum(map(len, parts))
                written = os.pwritev(self._fd, parts[:_IOV_MAX], position)
            if written != length:
                self._write_rest(parts, written, position)
        except OSError as error:
            self._cut_back(position)
            raise storage_failure(self.path, error) from error
        self._size = position + length
        return position

    def _write_rest(self, parts: Sequence[Buffer], written: int, position: int) -> None:
        """Continue after a short write; a persistent error is raised here."""
        start = 0
        for part in parts:
            end = start + len(part)
            while written < end:
                rest = memoryview(part)[written - start :]
                count = os.pwrite(self._fd, rest, position + written)
                if count == 0:
                    raise OSError(errno.EIO, "nothing was written")
                written += count
            start = end

    def _cut_back(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise storage_failure(self.path, error) from error

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrite (and extend) at `position`."""
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                self._write_rest((data,), written, position)
        except OSError as error:
            raise storage_failure(self.path, error) from error
        self._size = max(self._size, position + len(data))

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        try:
            data = os.pread(self._fd, length, position)
            if len(data) < length:
                # Short before the end: only above 2 GiB, or on unusual file systems.
                while data and len(data) < length:
                    more = os.pread(self._fd, length - len(data), position + len(data))
                    if not more:
                        break
                    data += more
        except OSError as error:
            raise storage_failure(self.path, error) from error
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer`; return the number of bytes read."""
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise storage_failure(self.path, error) from error
        return done

    def map(self) -> memoryview:
        """Return a read-only view of the whole current file."""
        try:
            size = os.fstat(self._fd).st_size
            if size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(self._fd, size, prot=mmap.PROT_READ))
        except OSError as error:
            raise storage_failure(self.path, error) from error

    def truncate(self, size: int) -> None:
        """Truncate, or extend with NULs."""
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise storage_failure(self.path, error) from error
        self._size = size

    def fsync(self) -> None:
        """Make the contents durable."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise storage_failure(self.path, error) from error

    def fileno(self) -> int:
        """Return the descriptor; valid as long as this object is referenced."""
        return self._fd

    def close(self) -> None:
        """Do nothing: the descriptor is closed with the last reference."""

    def __del__(self) -> None:
        # The only finalizer of kctl: descriptors are not state, and slices in flight need it.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDiskLock:
    """A lock file held by flock(2) and fcntl(2), which end with the process.

    Java's FileLock is the fcntl one, so Apache Kafka and kctl exclude each other; flock also
    excludes a second holder in this process.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock; the file stays, as Kafka's does."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """The file system of this machine; see `kctl.runtime.disk.Disk`."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open `path`; with `create`, create it if it does not exist."""
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT
        try:
            fd = os.open(path, flags, 0o644)
            try:
                size = os.fstat(fd).st_size
            except OSError:
                os.close(fd)
                raise
        except OSError as error:
            raise storage_failure(path, error) from error
        return RealDiskFile(path, fd, size)

    def exists(self, path: str) -> bool:
        """Return whether `path` exists."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_failure(path, error) from error
        return True

    def is_directory(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise storage_failure(path, error) from error

    def make_directory(self, path: str) -> bool:
        """Create `path` and its parents; return False if it is a directory already."""
        try:
            try:
                os.mkdir(path)
            except FileNotFoundError:
                os.makedirs(path, exist_ok=True)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise
                return False
        except OSError as error:
            raise storage_failure(path, error) from error
        return True

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        try:
            os.replace(old, new)
        except OSError as error:
            raise storage_failure(old, error) from error

    def remove(self, path: str) -> None:
        """Unlink a file; a missing file is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_failure(path, error) from error

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; a missing directory is no error."""
        try:
            # A local import: it loads every codec of archives.
            import shutil

            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_failure(path, error) from error

    def read_file(self, path: str) -> bytes:
        """Return the whole file."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(fd, 65536)
                if len(data) < 65536:
                    return data
                chunks = [data]
                while chunk := os.read(fd, 1 << 20):
                    chunks.append(chunk)
                return b"".join(chunks)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_failure(path, error) from error

    def write_file(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace `path` durably."""
        beside = path + ".tmp"
        mode = 0o600 if is_private else 0o644
        try:
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            try:
                if is_private:
                    # A file that an earlier run left keeps its mode.
                    os.fchmod(fd, mode)
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(beside, path)
        except OSError as error:
            raise storage_failure(path, error) from error
        self.fsync_directory(os.path.dirname(path) or ".")

    def fsync_directory(self, path: str) -> None:
        """Make created, renamed and removed names durable."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_failure(path, error) from error

    def modified_ms(self, path: str) -> int:
        """Return the time of the last modification, in wall milliseconds."""
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise storage_failure(path, error) from error

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        """Set the time of the last modification, in wall milliseconds."""
        try:
            os.utime(path, ns=(when_ms * 1_000_000, when_ms * 1_000_000))
        except OSError as error:
            raise storage_failure(path, error) from error

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise storage_failure(path, error) from error

    def free_bytes(self, path: str) -> int:
        """Return the bytes that an unprivileged process may still write on that file system."""
        try:
            facts = os.statvfs(path)
        except OSError as error:
            raise storage_failure(path, error) from error
        return facts.f_bavail * facts.f_frsize

    def make_private(self, path: str) -> None:
        """Let only the owner use the file or directory `path`."""
        try:
            os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)
        except OSError as error:
            raise storage_failure(path, error) from error

    def real_path(self, path: str) -> str:
        """Return the absolute path without symbolic links."""
        return os.path.realpath(path)

    def other_paths(self, path: str) -> Sequence[str]:
        """Return the other paths of `path` due to mounts."""
        return other_paths(path)

    def identity(self, path: str) -> tuple[int, int]:
        """Return the device and the inode number."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise storage_failure(path, error) from error
        return found.st_dev, found.st_ino

    def writers(self, directories: Sequence[str]) -> Sequence[int]:
        """Return the ids of other processes that use the directories, as far as /proc shows."""
        return writers_of(directories)

    def lock(self, path: str) -> DiskLock:
        """Take the lock file `path` for this process."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise storage_failure(path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise LockedError(
                    f"{path} is locked by another process",
                    hint="another broker uses this directory; stop it or choose another one",
                ) from error
            raise storage_failure(path, error) from error
        return RealDiskLock(fd)
