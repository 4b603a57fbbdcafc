"""Failures: the one table from an exception to the words on stderr and the exit status.

0 done, 1 something failed (any item of several too), 2 misuse: nothing was done, 3 nobody
reachable or no answer in time, 130 interrupted. A traceback appears only under KCTL_DEBUG=1.
"""

import errno
import os
import sys

from kctl.errors import CorruptDataError, KctlError, StorageError, UnreachableError, UsageError

DONE = 0
FAILED = 1
MISUSE = 2
UNREACHABLE = 3
INTERRUPTED = 130

# Exception -> exit status; the first that fits wins, so the most specific come first.
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (UsageError, MISUSE),
    (UnreachableError, UNREACHABLE),
    (CorruptDataError, FAILED),
    (StorageError, FAILED),
    (KctlError, FAILED),
    (BrokenPipeError, DONE),
    (OSError, FAILED),
    (UnicodeError, FAILED),
    (MemoryError, FAILED),
    (KeyboardInterrupt, INTERRUPTED),
)

_OS_HINTS = {
    errno.ENOSPC: "free some space on that file system and run it again",
    errno.EACCES: "check the owner and mode of that path",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
}


def exit_status(error: BaseException) -> int:
    """The exit status that `error` means; 1 for what is not in the table."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), FAILED)


def describe(error: BaseException) -> tuple[str, str | None]:
    """One line for the user and the way out, if there is one to tell."""
    if isinstance(error, KctlError):
        code = getattr(error, "code", None)
        if error.hint is None and getattr(code, "name", "") == "UNSUPPORTED_VERSION":
            return str(error), "this needs another version of Apache Kafka than the broker's"
        return str(error), error.hint
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        if error.filename is not None:
            text = f"{text}: {os.fsdecode(error.filename)}"
        return text, _OS_HINTS.get(error.errno or 0)
    if isinstance(error, UnicodeError):
        return f"Input is not valid text: {error}", None
    if isinstance(error, MemoryError):
        return "Out of memory", None
    name = type(error).__name__
    return f"Internal error: {name}: {error}", "run it with KCTL_DEBUG=1 and report the traceback"


def report(error: BaseException) -> int:
    """Tell the user about `error` on stderr and return the exit status."""
    status = exit_status(error)
    if os.environ.get("KCTL_DEBUG") == "1" and not isinstance(error, KeyboardInterrupt):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError) and error.filename is None:
        _abandon_stdout()
    if isinstance(error, BrokenPipeError):
        pass  # Whoever read us has enough.
    elif not isinstance(error, KeyboardInterrupt):
        message, hint = describe(error)
        lines = [f"error: {_one_line(message)}"]
        if hint:
            lines.append(f"hint: {_one_line(hint)}")
        sys.stderr.write("\n".join(lines) + "\n")
    return status


def _abandon_stdout() -> None:
    """If stdout takes nothing more, drop what is left: Python would fail once more at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _one_line(text: str) -> str:
    return " ".join(text.split())
