"""File systems whose power can be cut: an image file, mounted by a loop device.

FS_IOC_SHUTDOWN ends a mounted ext4 or XFS as a power cut does: data without an fsync is lost, dirty
pages are never written, and each later write or fsync fails. Killing the process and mounting the
file system again, which replays the journal, is what a machine does when its power is back.

A machine without power sends nothing, so the processes that use the files are stopped before the
cut. Otherwise an fsync that is under way may return success (ext4 of Linux 6.18: the journal
transaction that it waits for has been dropped).
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
# Neither data nor the journal in memory reach the disk.
NO_LOG_FLUSH = 2
# The file is sparse.
IMAGE_BYTES = 2 << 30
STOP_TIMEOUT_S = 10
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}


def why_not(kind: str) -> str | None:
    """Why there can be no file system of this kind here; None if there can."""
    if os.geteuid() != 0:
        return "needs root"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    if shutil.which(MAKE[kind][0]) is None:
        return f"needs {MAKE[kind][0]}"
    return None


class CutError(RuntimeError):
    """The file system cannot be made or mounted here."""


class PowerCutFileSystem:
    """An empty file system at `mount_point`; unmounted when the context ends."""

    def __init__(self, kind: str, image: Path, mount_point: Path) -> None:
        self.kind = kind
        self.image = image
        self.mount_point = mount_point

    def __enter__(self) -> "PowerCutFileSystem":
        self.mount_point.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run(*MAKE[self.kind], str(self.image))
        self.mount()
        return self

    def __exit__(self, *exc: object) -> None:
        if os.path.ismount(self.mount_point):
            self.unmount()
        self.image.unlink()

    def mount(self) -> None:
        """Mount it; the journal is replayed."""
        _run("mount", "-o", "loop", str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        """Unmount it, at the latest when the last file is closed."""
        for _ in range(100):
            done = subprocess.run(["umount", self.mount_point], capture_output=True, check=False)
            if done.returncode == 0:
                return
            time.sleep(0.02)
        subprocess.run(["umount", "-l", self.mount_point], check=True)

    def cut(self, process: subprocess.Popen[bytes]) -> None:
        """The power is gone, and with it the process."""
        cut_power(process, self)

    def fail(self, process: subprocess.Popen[bytes]) -> None:
        """The disk fails, and the process lives on: each read and write that reaches it is EIO."""
        _stand_still(process)
        self.shut_down()
        process.send_signal(signal.SIGCONT)

    def shut_down(self) -> None:
        """No byte reaches it from now on."""
        directory = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(directory)

    def restore(self) -> None:
        """Restore the power; no process may use the files meanwhile."""
        self.unmount()
        self.mount()


def cut_power(process: subprocess.Popen[bytes], *systems: PowerCutFileSystem) -> None:
    """The power of all its disks is gone at one moment, and with it the process."""
    _stand_still(process)
    for system in systems:
        system.shut_down()
    process.kill()
    process.wait()


def _stand_still(process: subprocess.Popen[bytes]) -> None:
    """Stop all threads of the process, except those that wait for the disk."""
    process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while any(_state(task) not in "TDZX" for task in tasks.iterdir()):
        if time.monotonic() > deadline:
            raise CutError(f"process {process.pid} does not stop")


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CutError(f"{' '.join(command)}: {done.stderr.strip()}")
