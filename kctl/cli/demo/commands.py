"""kctl demo: runs the story and shows each command with its output."""

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import CommandGroup, Option
from kctl.cli.demo.story import READY_FILE, STORY, Line, Mode, Step
from kctl.cli.failures import DONE
from kctl.cli.output import Output, terminal_width
from kctl.counts import counted
from kctl.errors import KctlError
from kctl.records.bulk import can_decode_in_bulk, require_bulk

if TYPE_CHECKING:
    from kctl.runtime.real.shell import Background, Shell

WIDTH_MAX = 100
_BOLD, _CYAN, _DIM, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "demo")(demo)


def demo(
    keep: Annotated[
        bool, Option("--keep", help="Keep the directory with the data and the logs.")
    ] = False,
) -> int:
    """Show what kctl does, on three brokers in a temporary directory, in less than a minute.

    Each step is shown with the command that does it. The demo uses free ports and touches nothing
    outside its directory, which it deletes at the end. Ctrl-C stops it.

    \b
    Examples:
      kctl demo
      kctl demo --keep
    """
    from kctl.runtime.real.shell import Shell

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    width = min(terminal_width(), WIDTH_MAX)
    with Shell(keep=keep, columns=width - 2) as shell:
        tour = _Tour(shell, Output(), width)
        for number, step in enumerate(STORY, 1):
            tour.show(number, step)
        tour.end(keep=keep)
    return DONE


class _Tour:
    """The state of the demo: the load that runs, and the styles of the terminal."""

    def __init__(self, shell: "Shell", output: Output, width: int) -> None:
        self._shell = shell
        self._output = output
        self._load: Background | None = None
        self._width = width if sys.stdout.isatty() else None
        self._has_color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def show(self, number: int, step: Step) -> None:
        """Run the commands of `step` and print them with their output."""
        title = self._styled(_BOLD, f"{number}. {step.title}")
        self._output.write_styled(f"\n{title}\n{self._styled(_DIM, step.note)}\n")
        for line in step.lines:
            if line.mode is Mode.TABLE and not can_decode_in_bulk():
                self._skip(line)
            else:
                self._run(line)

    def end(self, *, keep: bool) -> None:
        """Say what remains of the demo."""
        where = self._shell.directory
        if keep:
            serve = f"kctl serve --brokers 3 --data-dir {where}/cluster"
            text = f"The brokers stop now. To serve their data: {serve}"
        else:
            text = "The brokers stop now, and their data are deleted (--keep keeps them)."
        self._output.write_styled(f"\n{text}\n")

    def _run(self, line: Line) -> None:
        prompt = self._styled(_CYAN, f"$ {line.command}")
        background = " &" if line.mode in (Mode.BROKERS, Mode.LOAD) else ""
        self._output.write_styled(f"{prompt}{background}\n")
        text = self._outcome(line)
        lines = text.splitlines()
        if len(lines) > line.lines_shown:
            hidden = len(lines) - line.lines_shown
            lines = [f"... {counted(hidden, 'line')} more", *lines[hidden:]]
        self._output.write_styled("".join(f"{self._fit(f'  {each}')}\n" for each in lines))

    def _outcome(self, line: Line) -> str:
        """Run the command; return its output, or what is known of one in the background."""
        if line.mode is Mode.BROKERS:
            brokers = self._shell.start(line.command)
            address = self._shell.wait_for(READY_FILE, brokers).strip()
            self._shell.set("KCTL_BOOTSTRAP_SERVER", address)
            return f"{brokers.text}export KCTL_BOOTSTRAP_SERVER={address}"
        if line.mode is Mode.LOAD:
            self._load = self._shell.start(line.command)
            return ""
        status, text = self._shell.run(line.command)
        if status == line.status and line.mode is Mode.END_LOAD and self._load is not None:
            status, text = self._load.wait()
        if status != line.status:
            raise KctlError(
                f"`{line.command}` exited with {status}: {' '.join(text.split())}",
                hint="run `kctl demo --keep` and read serve.log in its directory",
            )
        return text

    def _skip(self, line: Line) -> None:
        try:
            require_bulk("kctl export")
        except KctlError as error:
            self._output.write_styled(
                f"{self._styled(_CYAN, f'$ {line.command}')}\n  skipped: {error}; {error.hint}\n"
            )

    def _fit(self, line: str) -> str:
        """Return `line` as wide as the terminal, if it goes to one."""
        if self._width is None or len(line) <= self._width:
            return line
        return line[: self._width - 1] + "…"

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{_PLAIN}" if self._has_color else text
