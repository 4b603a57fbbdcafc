"""The exit statuses of kctl, and the table from exceptions to them and to messages on stderr.

KCTL_DEBUG=1 adds the traceback. See decision 0069, and `pipes` for output without a reader.
"""

import errno
import os
import sys
import traceback
from enum import IntEnum

from kctl.cli.pipes import abandon, is_message_lost, write_message
from kctl.errors import CorruptDataError, KctlError, StorageError, UnreachableError, UsageError


class ExitStatus(IntEnum):
    """The exit status of a command. The same mistake has the same status in every command.

    A status is the number, and `meaning` is its line in the help and in docs/commands.md.
    """

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "ExitStatus":
        """Return the member for `number`."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.meaning = meaning
        return member

    DONE = 0, "done; an empty result is also 0"
    FAILED = 1, "at least one item failed, does not exist, or is damaged"
    MISUSE = 2, "the command line, or a file that it names, is wrong: nothing was done"
    UNREACHABLE = 3, "no broker is reachable, or none responded in time"
    INTERRUPTED = 130, "interrupted by Ctrl-C (143: by SIGTERM)"
    BROKEN_PIPE = 141, "the reader of the output closed it before the end"


DONE = ExitStatus.DONE
FAILED = ExitStatus.FAILED
MISUSE = ExitStatus.MISUSE
UNREACHABLE = ExitStatus.UNREACHABLE
INTERRUPTED = ExitStatus.INTERRUPTED
BROKEN_PIPE = ExitStatus.BROKEN_PIPE

# Exception -> exit status. The first match counts, so subclasses precede their base classes.
_STATUS: tuple[tuple[type[BaseException], ExitStatus], ...] = (
    (UsageError, MISUSE),
    (UnreachableError, UNREACHABLE),
    (CorruptDataError, FAILED),
    (StorageError, FAILED),
    (KctlError, FAILED),
    (BrokenPipeError, BROKEN_PIPE),
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
# By the name of the error code.
_CODE_HINTS = {
    "DELEGATION_TOKEN_AUTH_DISABLED": "the brokers need delegation.token.master.key",
    "SECURITY_DISABLED": "the brokers need authorizer.class.name, as of kctl serve --acl",
    "UNSUPPORTED_VERSION": "the broker's version of Apache Kafka does not support this",
}


def exit_status(error: BaseException) -> ExitStatus:
    """Return the exit status for `error`; 1 if the table does not list it."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), FAILED)


def final_status(status: int) -> int:
    """Return the exit status of a command that returned `status`: BROKEN_PIPE in place of DONE if
    a message was lost."""
    return BROKEN_PIPE if status == DONE and is_message_lost() else status


def exit_status_of(error: BaseException) -> int:
    """Return the exit status of a command that retried until its time was up: UNREACHABLE if a
    retry could have cured `error`, else that of `exit_status`."""
    code = getattr(error, "code", None)
    return UNREACHABLE if getattr(code, "retriable", False) else exit_status(error)


def describe(error: BaseException) -> tuple[str, str | None]:
    """Return the message for the user, and a hint or None."""
    if isinstance(error, KctlError):
        code = getattr(error, "code", None)
        return str(error), error.hint or _CODE_HINTS.get(getattr(code, "name", ""))
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


def report(error: BaseException, *, usage_hint: str | None = None) -> int:
    """Report `error` on stderr and return the exit status; `usage_hint` is the hint of a UsageError
    without one."""
    status = exit_status(error)
    if os.environ.get("KCTL_DEBUG") == "1" and not isinstance(error, KeyboardInterrupt):
        write_message(sys.stderr, "".join(traceback.format_exception(error)))
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.filename is None):
        _abandon_stdout()
    if isinstance(error, BrokenPipeError):
        pass  # The reader of stdout closed it, as `head` does.
    elif not isinstance(error, KeyboardInterrupt):
        message, hint = describe(error)
        if hint is None and isinstance(error, UsageError):
            hint = usage_hint
        lines = [f"error: {_one_line(message)}"]
        if hint:
            lines.append(f"hint: {_one_line(hint)}")
        write_message(sys.stderr, "\n".join(lines) + "\n")
    return status


def _abandon_stdout() -> None:
    """Discard buffered output that cannot be written: Python would fail again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon(sys.stdout)


def _one_line(text: str) -> str:
    return " ".join(text.split())
