"""What a command does when the reader of its output is gone, as after `| head`.

One policy:

- Data on stdout: the write raises BrokenPipeError, the command stops there, and `failures` maps the
  error to BROKEN_PIPE, the status of a program that SIGPIPE ends (128 plus its number). A command
  writes its files and does its work before it prints.
- Messages on stderr: they are discarded. Work that has begun is not abandoned because its messages
  have no reader. A command that would return 0 returns BROKEN_PIPE.
- A reader that is there and does not read, as a pager: a command that is interrupted while another
  thread waits for the reader leaves that thread behind. Python would wait for it at exit, and then
  abort, so the process ends without Python's clean-up.
"""

import os
import sys
from contextlib import suppress
from typing import IO, NoReturn

from kctl.runtime.terminal_text import for_terminal


class _Stderr:
    """Whether a message of this process found no reader."""

    is_lost = False


class _Stdout:
    """Whether a thread waits for the reader of stdout, for ever perhaps."""

    is_stuck = False


def write_message(stream: IO[str], text: str) -> None:
    """Write `text` to `stream` and flush; discard it if the reader is gone.

    Unsafe characters are escaped, also for a file: messages are for people, who look at it on a
    terminal later.
    """
    _write(stream, for_terminal(text))


def write_over(stream: IO[str], text: str) -> None:
    """Write `text` from the start of the current line on, as `write_message` does."""
    _write(stream, "\r" + for_terminal(text))


def _write(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _Stderr.is_lost = True
        abandon(stream)


def begin_command() -> None:
    """Forget messages that an earlier command of this process lost."""
    _Stderr.is_lost = False
    _Stdout.is_stuck = False


def leave_stdout() -> None:
    """Note that a thread waits for the reader of stdout and is left behind."""
    _Stdout.is_stuck = True


def end_process(status: int) -> NoReturn:
    """End this process with `status`."""
    if _Stdout.is_stuck:
        os._exit(status)
    sys.exit(status)


def is_message_lost() -> bool:
    """Return whether a message of this command found no reader."""
    return _Stderr.is_lost


def abandon(stream: IO[str]) -> None:
    """Direct a stream without a reader to the null device: Python flushes it again at exit, and
    would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(null, stream.fileno())
    os.close(null)
    with suppress(OSError):
        stream.flush()
