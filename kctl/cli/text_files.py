"""Reads text files that the command line names."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from kctl.errors import UsageError

_MARK = "\ufeff"
# More than any plan or list of offsets; a device may have no end.
TEXT_BYTES_MAX = 256 * 1024 * 1024


def read_text(path: str) -> str:
    """Return the text of a file; raise UsageError if it cannot be read."""
    return _text(path, lambda: Path(path).open("rb"))


def read_text_or_stdin(path: str) -> tuple[str, str]:
    """Return the name and the text of a file, or of stdin for `-`, without a byte order mark; raise
    UsageError."""
    if path == "-":
        return "stdin", _text("stdin", lambda: nullcontext(sys.stdin.buffer)).removeprefix(_MARK)
    return path, read_text(path).removeprefix(_MARK)


def _text(name: str, opened: Callable[[], AbstractContextManager[BinaryIO]]) -> str:
    try:
        with opened() as file:
            data = file.read(TEXT_BYTES_MAX + 1)
        if len(data) > TEXT_BYTES_MAX:
            raise UsageError(f"{name} has more than {TEXT_BYTES_MAX} bytes")
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UsageError(f"Cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not a text file") from None


def read_token(path: str) -> str:
    """Return the bearer token in a file, without blanks around it; raise UsageError, which does not
    show it."""
    token = read_text(path).strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise UsageError(f"{path} has no token", hint="one line of printable ASCII without blanks")
    return token
