"""Tools find the lock of the log directory that files are really in, by whatever path they are
given."""

import shutil
import subprocess
import sys

import pytest

from kctl.errors import StorageError, UsageError
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.mounts import other_candidates, parse_mounts
from kctl.storage.log_directory_locks import (
    check_outside,
    locked_log_directories,
    log_directories,
    real_directory,
)

DISK = RealDisk()
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def logs(tmp_path):
    """A log directory with partition t-0, as a broker leaves it."""
    directory = tmp_path / "broker" / "logs"
    (directory / "t-0").mkdir(parents=True)
    (directory / ".lock").touch()
    (directory / "meta.properties").touch()
    (directory / "t-0" / SEGMENT).write_bytes(b"records")
    return directory


def link_to_partition(logs, tmp_path):
    (tmp_path / "link").symlink_to(logs / "t-0")
    return tmp_path / "link"


def link_to_log_directory(logs, tmp_path):
    (tmp_path / "link").symlink_to(logs)
    return tmp_path / "link" / "t-0"


def link_to_parent(logs, tmp_path):
    (tmp_path / "link").symlink_to(logs.parent)
    return tmp_path / "link" / "logs" / "t-0"


def link_to_link(logs, tmp_path):
    (tmp_path / "first").symlink_to(logs / "t-0")
    (tmp_path / "link").symlink_to("first")
    return tmp_path / "link"


def link_to_segment(logs, tmp_path):
    (tmp_path / "mine" / "t-0").mkdir(parents=True)
    (tmp_path / "mine" / "t-0" / SEGMENT).symlink_to(logs / "t-0" / SEGMENT)
    return tmp_path / "mine" / "t-0"


def plain(logs, _tmp_path):
    return logs / "t-0"


def log_directory_itself(logs, _tmp_path):
    return logs


def what_is_not_there_yet(logs, _tmp_path):
    return logs / "new-0"


@pytest.mark.parametrize(
    "way",
    [
        plain, log_directory_itself, what_is_not_there_yet, link_to_partition,
        link_to_log_directory, link_to_parent, link_to_link, link_to_segment,
    ],
)  # fmt: skip
def test_the_lock_is_found_by_whatever_path(logs, tmp_path, way):
    path = str(way(logs, tmp_path))
    assert log_directories(DISK, path) == [str(logs)]
    lock = DISK.lock(f"{logs}/.lock")
    with pytest.raises(StorageError, match="locked"), locked_log_directories(DISK, [path]):
        pytest.fail("the lock is held by somebody else")
    lock.release()
    with locked_log_directories(DISK, [path]), pytest.raises(StorageError, match="locked"):
        DISK.lock(f"{logs}/.lock")
    DISK.lock(f"{logs}/.lock").release()


@pytest.mark.parametrize("way", [link_to_partition, link_to_log_directory, link_to_link])
def test_a_partition_is_worked_on_in_its_log_directory(logs, tmp_path, way):
    assert real_directory(DISK, str(way(logs, tmp_path))) == str(logs / "t-0")


def test_a_relative_path_is_resolved(logs, tmp_path, monkeypatch):
    monkeypatch.chdir(logs / "t-0")
    assert log_directories(DISK, ".") == [str(logs)]
    assert log_directories(DISK, "../t-0") == [str(logs)]
    assert real_directory(DISK, ".") == str(logs / "t-0")


def test_one_lock_is_taken_once(logs, tmp_path):
    """flock counts open files: a process that took one lock twice would wait for itself."""
    paths = [str(logs / "t-0"), str(link_to_partition(logs, tmp_path)), str(logs)]
    with locked_log_directories(DISK, paths):
        pass


def test_a_process_that_writes_to_the_files_gives_a_broker_away(logs, tmp_path):
    """
    logs/u-0 -> elsewhere/u-0       the broker's way to the files
    elsewhere/u-0                   the tool's: nothing there leads to the lock
    """
    elsewhere = tmp_path / "elsewhere" / "u-0"
    elsewhere.mkdir(parents=True)
    (elsewhere / SEGMENT).write_bytes(b"records")
    (logs / "u-0").symlink_to(elsewhere)
    code = "import sys; f = open(sys.argv[1], sys.argv[2]); print(flush=True); sys.stdin.read()"
    for mode, is_refused in (("r+b", True), ("rb", False)):
        broker = subprocess.Popen(
            [sys.executable, "-c", code, str(logs / "u-0" / SEGMENT), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert broker.stdout.readline()
            if is_refused:
                expected = pytest.raises(StorageError, match=f"process {broker.pid} has files")
                with expected, locked_log_directories(DISK, [str(elsewhere)]):
                    pytest.fail("a process writes there")
            else:
                with locked_log_directories(DISK, [str(elsewhere)]):
                    pass
        finally:
            broker.communicate()


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_broker_that_links_to_an_idle_partition_is_found_by_its_lock(logs, tmp_path, is_relative):
    """
    logs/u-0 -> elsewhere/u-0       the broker's way to the files, none of which it has open
    elsewhere/u-0                   the tool's
    """
    elsewhere = tmp_path / "elsewhere" / "u-0"
    elsewhere.mkdir(parents=True)
    (elsewhere / SEGMENT).touch()
    (logs / "gone-0").symlink_to(tmp_path / "gone")
    (logs / "u-0").symlink_to("../../elsewhere/u-0" if is_relative else elsewhere)
    code = "import sys; f = open(sys.argv[1], 'r+b'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(logs / ".lock")]
    broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert broker.stdout.readline()
        expected = pytest.raises(StorageError, match=f"process {broker.pid} has")
        with expected, locked_log_directories(DISK, [str(elsewhere)]):
            pytest.fail("a broker uses the partition")
        (logs / "u-0").unlink()
        with locked_log_directories(DISK, [str(elsewhere)]):
            pass
    finally:
        broker.communicate()


def test_output_does_not_go_into_a_log_directory(logs, tmp_path):
    for path in (logs, logs / "out", logs / "t-0" / "out", link_to_partition(logs, tmp_path)):
        with pytest.raises(UsageError, match="cannot be in the log directory"):
            check_outside(DISK, str(path), "The backup")
    check_outside(DISK, str(logs.parent / "out"), "The backup")


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
30 22 8:1 /data/logs/t-0 /mnt/t-0 rw,relatime shared:1 - ext4 /dev/sda1 rw
31 22 8:1 /data/logs /mnt/with\\040blank rw,relatime shared:1 - ext4 /dev/sda1 rw
32 22 8:2 / /mnt/other rw,relatime shared:1 - ext4 /dev/sdb1 rw
"""


def test_mounts_of_one_file_system_lead_to_the_same_files():
    mounts = parse_mounts(MOUNTS)
    assert other_candidates(mounts, "/mnt/t-0") == ["/data/logs/t-0", "/mnt/with blank/t-0"]
    assert other_candidates(mounts, "/data/logs") == ["/mnt/with blank"]
    assert other_candidates(mounts, "/mnt/t-0/x.log")[0] == "/data/logs/t-0/x.log"
    assert other_candidates(mounts, "/mnt/other/a") == []
    assert other_candidates(mounts, "/home") == []


@pytest.fixture
def mounted(logs, tmp_path):
    """A bind mount of partition t-0 elsewhere."""
    place = tmp_path / "mounted"
    place.mkdir()
    bind = ["mount", "--bind", str(logs / "t-0"), str(place)]
    if (
        shutil.which("mount") is None
        or subprocess.run(bind, check=False, capture_output=True).returncode
    ):
        pytest.skip("this user cannot mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_the_lock_is_found_through_a_bind_mount(logs, mounted):
    assert str(logs) in log_directories(DISK, str(mounted))
    assert real_directory(DISK, str(mounted)) == str(logs / "t-0")
    lock = DISK.lock(f"{logs}/.lock")
    with pytest.raises(StorageError), locked_log_directories(DISK, [str(mounted)]):
        pytest.fail("the lock is held by somebody else")
    lock.release()


def test_output_does_not_go_into_a_log_directory_through_a_bind_mount(logs, mounted):
    for path in (mounted, mounted / "out", mounted / "new" / "out"):
        with pytest.raises(UsageError, match=f"cannot be in the log directory {logs}"):
            check_outside(DISK, str(path), "A table")
