"""Reads text files that the command line names."""

from pathlib import Path

from kctl.errors import UsageError


def read_text(path: str) -> str:
    """Return the text of a file; raise UsageError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file") from None


def read_token(path: str) -> str:
    """Return the bearer token in a file, without blanks around it; raise UsageError, which does not
    show it."""
    token = read_text(path).strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise UsageError(f"{path} has no token", hint="one line of printable ASCII without blanks")
    return token
