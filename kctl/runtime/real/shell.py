"""Runs shell commands in a directory of their own, in which `kctl` is this kctl.

Every command is a process group of its own: Ctrl-C reaches only this process, which then stops the
rest. `close` ends all groups, politely first, and none survives it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from kctl.errors import KctlError, TimedOutError

# How long a command of the foreground may take, and a stopped one of the background.
_COMMAND_SECONDS = 120.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.05
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_DIRECTORY_PREFIX = "kctl-demo-"


class Ran(NamedTuple):
    """The exit status of a command, and what it printed on stdout and stderr."""

    status: int
    text: str


class Background:
    """A command that runs while others do; its output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    @property
    def text(self) -> str:
        """Return what it has printed so far."""
        return self._output.read_text(errors="replace")

    def wait(self) -> Ran:
        """Wait for the process to end; raise TimedOutError if it does not."""
        try:
            return Ran(self._process.wait(_COMMAND_SECONDS), self.text)
        except subprocess.TimeoutExpired:
            raise TimedOutError("A background command did not end") from None

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.is_running

    def stop(self) -> None:
        """End its process group: SIGTERM, and SIGKILL for what is left after a while."""
        self._signal(signal.SIGTERM)
        # The shell may end before the command that it started.
        for _ in range(int(_STOP_SECONDS / _POLL_SECONDS)):
            if self.ends_within(_POLL_SECONDS) and not self._signal(0):
                return
            time.sleep(_POLL_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; return whether it has a process."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block: what it creates is known before it can be lost.

    Handlers in Python, unlike ignored signals, are not passed on to what the block starts.
    """
    arrived: list[int] = []
    former = {
        number: signal.signal(number, lambda number, _: arrived.append(number))
        for number in _INTERRUPTS
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    for each in arrived:
        signal.raise_signal(each)


class Shell:
    """A temporary directory in which commands run; deleted at the end unless `keep`."""

    def __init__(self, *, keep: bool = False, columns: int = 100) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=_DIRECTORY_PREFIX))
        self._keep = keep
        self._running: list[Background] = []
        programs = self.directory / "bin"
        programs.mkdir()
        script = programs / "kctl"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kctl "$@"\n')
        script.chmod(0o755)
        path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
        self._environment = {**os.environ, "PATH": path, "COLUMNS": str(columns), "NO_COLOR": "1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set(self, name: str, value: str) -> None:
        """Set an environment variable of the commands that follow."""
        self._environment[name] = value

    def run(self, command: str) -> Ran:
        """Run `command` until it ends; TimedOutError if it does not within two minutes."""
        started = self.start(command)
        try:
            return started.wait()
        except TimedOutError:
            raise TimedOutError(f"This command did not end: {command}") from None
        finally:
            started.stop()
            self._running.remove(started)

    def start(self, command: str) -> Background:
        """Start `command` and return at once."""
        output = self.directory / f"output-{len(list(self.directory.glob('output-*')))}"
        with output.open("wb") as file, _interrupts_deferred():
            process = subprocess.Popen(
                ["sh", "-c", command], cwd=self.directory, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            self._running.append(Background(process, output))
        return self._running[-1]

    def wait_for(self, name: str, writer: Background) -> str:
        """Return the content of the file `name` as soon as `writer` has written it.

        KctlError if `writer` ends first, TimedOutError if it does not write the file.
        """
        file = self.directory / name
        for _ in range(int(_COMMAND_SECONDS / _POLL_SECONDS)):
            if file.exists() and (text := file.read_text()):
                return text
            if writer.ends_within(_POLL_SECONDS):
                raise KctlError(f"A background command ended early: {writer.text.strip()}")
        raise TimedOutError(f"{name} was not written")

    def close(self) -> None:
        """Stop all commands, the newest first, and delete the directory."""
        # A second Ctrl-C does not leave half of them behind.
        former = {number: signal.signal(number, signal.SIG_IGN) for number in _INTERRUPTS}
        for started in reversed(self._running):
            started.stop()
        self._running.clear()
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        for number, handler in former.items():
            signal.signal(number, handler)
