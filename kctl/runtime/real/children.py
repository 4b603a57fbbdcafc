"""Children: processes forked from this one, each with a line (a socket) to its parent.

A child starts with all modules loaded, in memory that it shares with its parent until one of them
writes. It closes all inherited descriptors except the line. It has its own process group, so that a
terminal's Ctrl-C reaches only the parent, which knows the order in which to stop. When the line
breaks, each side knows that the other is gone, even after kill -9.

Fork only from a process with one thread.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable

from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.poller import READABLE
from kctl.runtime.real.trace import PrefixedStream

LINE_BYTES_MAX = 64 * 1024
_RECEIVE_BYTES = 4096
_REAP_MS = 2
_FIRST_INHERITED_FD = 3
_COMM = "/proc/self/comm"


class Line:
    """One end of the line between parent and child: text, one message per line."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._pending = b""
        self._scheduler: RealScheduler | None = None
        self._on_message: Callable[[str], object] | None = None
        self._on_end: Callable[[], object] | None = None

    def say(self, message: str) -> None:
        """Send one message; dropped if the other side is gone."""
        data = message.replace("\n", " ").encode()[: LINE_BYTES_MAX - 1] + b"\n"
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def listen(
        self,
        scheduler: RealScheduler,
        on_message: Callable[[str], object],
        on_end: Callable[[], object],
    ) -> None:
        """Call back on the loop for each message, and once when the other side is gone."""
        self._scheduler, self._on_message, self._on_end = scheduler, on_message, on_end
        scheduler.watch(self._socket.fileno(), READABLE, self._readable)

    def _readable(self, _mask: int) -> None:
        assert self._on_message is not None
        assert self._on_end is not None
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            self._on_message(line.decode(errors="replace"))
        if not data or len(self._pending) > LINE_BYTES_MAX:
            self.close()
            self._on_end()

    def close(self) -> None:
        """Close the line."""
        if self._scheduler is not None:
            self._scheduler.unwatch(self._socket.fileno())
            self._scheduler = None
        self._socket.close()


class ChildProcess:
    """A forked process, as its parent sees it."""

    def __init__(self, pid: int, line: Line) -> None:
        self.pid = pid
        self.line = line

    def signal(self, number: int) -> None:
        """Send a signal; a process that has ended is no error."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Children:
    """Forks processes and reports when they end."""

    def __init__(self, scheduler: RealScheduler) -> None:
        self._scheduler = scheduler

    def fork(
        self,
        name: str,
        body: Callable[[Line], int],
        on_message: Callable[[str], object],
        on_exit: Callable[[int], object],
    ) -> ChildProcess:
        """Run `body(line)` in a child, whose exit status is the result.

        `on_exit` gets that status, or minus the number of the signal that ended the child.
        """
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _be_child(name, body, theirs)
        theirs.close()
        # Set in both processes, so that the order does not matter.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        child = ChildProcess(pid, Line(ours))
        child.line.listen(self._scheduler, on_message, lambda: self._reap(child, on_exit))
        return child

    def _reap(self, child: ChildProcess, on_exit: Callable[[int], object]) -> None:
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid == 0:
            self._scheduler.call_later(_REAP_MS, self._reap, child, on_exit)
        else:
            on_exit(os.waitstatus_to_exitcode(status))


def _be_child(name: str, body: Callable[[Line], int], sock: socket.socket) -> None:
    """Run the child; never return, as the stack below is the parent's."""
    status = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        fd = sock.fileno()
        os.closerange(_FIRST_INHERITED_FD, fd)
        os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
        with contextlib.suppress(OSError), open(_COMM, "w") as comm:
            comm.write(f"kctl {name}")
        sys.stderr = PrefixedStream(sys.stderr, name)
        status = body(Line(sock))
    except BaseException as error:  # noqa: BLE001 - no caller below may see it
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
