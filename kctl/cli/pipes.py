"""What a command does when the reader of its output is gone, as after `| head`.

One policy:

- Data on stdout: the write raises BrokenPipeError, the command stops there, and `failures` maps the
  error to BROKEN_PIPE, the status of a program that SIGPIPE ends (128 plus its number). A command
  writes its files and does its work before it prints.
- Messages on stderr: they are discarded. Work that has begun is not abandoned because its messages
  have no reader. A command that would return 0 returns BROKEN_PIPE.
- A reader that is there and does not read, as a pager: a command that is interrupted while another
  thread waits for the reader leaves that thread behind. Python would wait for it at exit, and then
  abort, so the process ends without Python's clean-up. So does one that is interrupted twice, or
  whose buffered output has no room after LAST_WRITE_S: Python would wait for it at exit, too.
- A thread that still runs, as one that looks up a name or loads libraries: the process ends without
  Python's clean-up, too, after everything registered at exit. The thread would use what is freed.
- While Python cleans up, Ctrl-C ends the process as SIGINT does; Python would print a traceback.
"""

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import IO, NoReturn

from kctl.runtime.terminal_text import for_terminal

# How long an interrupted command waits for the reader of stdout, in seconds.
LAST_WRITE_S = 0.2
_INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


class _Stderr:
    """Whether a message of this process found no reader."""

    is_lost = False


class _Stdout:
    """Whether nothing more is written to stdout, as its reader may pause for ever."""

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
    """Note that nothing waits for the reader of stdout any longer; a thread may be left behind."""
    _Stdout.is_stuck = True


def is_stdout_left() -> bool:
    """Return whether a command was interrupted while it waited for the reader of stdout."""
    return _Stdout.is_stuck


def end_process(status: int) -> NoReturn:
    """End this process with `status`; after a signal, without waiting for the reader of stdout."""
    if _Stdout.is_stuck or (status in _INTERRUPTED and not _is_flushed()):
        os._exit(status)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _is_thread_left():
        atexit._run_exitfuncs()  # noqa: SLF001
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        # Output is lost, which Python reports.
    sys.exit(status)


def _is_thread_left() -> bool:
    """Return whether other threads run, all of which Python would not wait for."""
    threading = sys.modules.get("threading")
    if threading is None:
        return False
    others = [it for it in threading.enumerate() if it is not threading.main_thread()]
    return bool(others) and all(it.daemon for it in others)


def _is_flushed() -> bool:
    """Write what is buffered for stdout; return whether it was written within LAST_WRITE_S."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LAST_WRITE_S)
    try:
        sys.stdout.flush()
    except TimeoutError:
        return False
    except (OSError, ValueError):
        # Reported by Python at exit, unless the stream is abandoned.
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True


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
