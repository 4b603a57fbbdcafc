"""Whether records can be decoded in bulk: NumPy and pyarrow come with the extra `export`.

Verification, dumps and statistics do without them, one record at a time; tables need them.
"""

from importlib.util import find_spec

from kctl.errors import missing_extra

_LIBRARIES = ("numpy", "pyarrow")


def can_decode_in_bulk() -> bool:
    """Return whether NumPy and pyarrow are installed; neither is imported."""
    return all(find_spec(name) is not None for name in _LIBRARIES)


def require_bulk(task: str, extra: str = "export") -> None:
    """Raise UsageError unless NumPy and pyarrow are installed.

    `task` names what needs them, `extra` the extra that brings them.
    """
    if not can_decode_in_bulk():
        raise missing_extra(f"{task} needs NumPy and pyarrow", extra)
