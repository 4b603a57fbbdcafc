"""RealDisk: what is written is there, what fails names its path."""

import errno
import os
import subprocess
import sys

import pytest

from kctl.errors import StorageError, storage_failure
from kctl.runtime.disk import FileSlice
from kctl.runtime.real.disk import RealDisk


def test_append_returns_the_position_and_needs_no_flush(tmp_path):
    path = str(tmp_path / "a.log")
    file = RealDisk().open(path, create=True)

    assert file.append([b"abc"]) == 0
    assert file.append([b"de", bytearray(b"f"), memoryview(b"gh")]) == 3

    assert file.size() == 8
    assert (tmp_path / "a.log").read_bytes() == b"abcdefgh"
    assert file.pread(100, 6) == b"gh"


def test_append_of_more_parts_than_one_system_call_takes(tmp_path):
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    parts = [bytes([i % 251]) for i in range(3000)]

    file.append(parts)

    assert (tmp_path / "a").read_bytes() == b"".join(parts)


def test_failed_append_leaves_the_old_size(tmp_path):
    # A file limited to 8 bytes simulates a full disk: the write is short.
    code = """
import resource, signal, sys
from kctl.runtime.real.disk import RealDisk
from kctl.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = RealDisk().open(sys.argv[1], create=True)
file.append([b"12345"])
resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
try:
    file.append([b"6789", b"abcd"])
except StorageError as error:
    assert sys.argv[1] in str(error), error
    assert file.size() == 5
    file.append([b"xy"])
    sys.exit(42)
"""
    path = str(tmp_path / "full")
    done = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert done.returncode == 42
    assert (tmp_path / "full").read_bytes() == b"12345xy"


def test_slice_survives_close_rename_and_removal(tmp_path):
    disk = RealDisk()
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    file.append([b"hello world"])
    in_flight = FileSlice(file, 6, 5)

    file.close()
    del file
    disk.rename(path, path + ".deleted")
    disk.remove(path + ".deleted")

    assert os.pread(in_flight.file.fileno(), in_flight.length, in_flight.position) == b"world"
    fd = in_flight.file.fileno()
    del in_flight
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_write_file_replaces_whole_contents(tmp_path):
    disk = RealDisk()
    path = str(tmp_path / "checkpoint")
    disk.write_file(path, b"a longer text")
    disk.write_file(path, b"short")

    assert disk.read_file(path) == b"short"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


def test_read_file_of_more_than_one_read(tmp_path):
    data = os.urandom(300_000)
    (tmp_path / "big").write_bytes(data)
    assert RealDisk().read_file(str(tmp_path / "big")) == data


def test_map_shows_the_file_and_an_empty_one(tmp_path):
    disk = RealDisk()
    file = disk.open(str(tmp_path / "a"), create=True)
    assert bytes(file.map()) == b""
    file.append([b"abc"])
    assert bytes(file.map()) == b"abc"


def test_errors_name_the_path(tmp_path):
    disk = RealDisk()
    missing = str(tmp_path / "no" / "file")
    for attempt in (
        lambda: disk.open(missing),
        lambda: disk.list(missing),
        lambda: disk.read_file(missing),
        lambda: disk.write_file(missing, b""),
        lambda: disk.rename(missing, missing + "2"),
        lambda: disk.size(missing),
        lambda: disk.modified_ms(missing),
        lambda: disk.fsync_directory(missing),
        lambda: disk.lock(missing),
    ):
        with pytest.raises(StorageError, match="/no/file: No such file"):
            attempt()


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.ENOSPC, "free some space on this file system"),
        (errno.EDQUOT, "free some space on this file system"),
        (errno.EFBIG, "raise the limit of file sizes: ulimit -f"),
        (errno.EROFS, "check owner and permissions"),
        (errno.EIO, None),
    ],
)
def test_an_error_says_how_to_go_on(code, hint):
    failure = storage_failure("/data/x", OSError(code, "No"))
    assert (str(failure), failure.hint) == ("/data/x: No", hint)


def test_removing_what_is_gone_is_fine(tmp_path):
    disk = RealDisk()
    disk.remove(str(tmp_path / "gone"))
    disk.remove_tree(str(tmp_path / "gone"))
    assert not disk.exists(str(tmp_path / "gone"))


def test_second_holder_of_a_lock_gets_an_error_that_names_the_cause(tmp_path):
    disk = RealDisk()
    path = str(tmp_path / ".lock")
    held = disk.lock(path)
    with pytest.raises(StorageError, match="locked by another process"):
        disk.lock(path)
    held.release()
    disk.lock(path).release()


def test_modification_time_can_be_set(tmp_path):
    disk = RealDisk()
    path = str(tmp_path / "a")
    disk.open(path, create=True)
    disk.set_modified_ms(path, 1_600_000_000_123)
    assert disk.modified_ms(path) == 1_600_000_000_123
    assert disk.free_bytes(path) > 0
