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
