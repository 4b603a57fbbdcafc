"""What commands about several items share: patterns, one row an item, near misses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import OutputFormat
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.cli.session import Session

_GLOB = frozenset("*?[")


def is_pattern(text: str) -> bool:
    """Whether `text` is a glob; no topic's name can contain its characters."""
    return not _GLOB.isdisjoint(text)


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Those of `names` that equal or match one of `patterns`; all if there are none."""
    from fnmatch import fnmatchcase

    return [
        name
        for name in names
        if not patterns or any(name == p or fnmatchcase(name, p) for p in patterns)
    ]


def counted(number: int, noun: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint if something like `name` is among `known`."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else None


def row(
    key: str, name: object, status: str, error: object = None, **more: object
) -> dict[str, Any]:
    """One item's answer: `{key: name, ..., status, error}`."""
    text = None if error is None else str(error)
    return {key: name, **more, "status": "failed" if text else status, "error": text}


def show_results(
    session: "Session",
    rows: Sequence[Mapping[str, Any]],
    key: str,
    *,
    hidden: Sequence[str] = (),
) -> int:
    """Print one row an item, without the `hidden` columns, and return the exit status: 1 if any
    failed."""
    broken = [item for item in rows if item["error"]]
    shown = rows
    if session.output.format is OutputFormat.NAME:
        # Names go to the next program: only of what was done.
        shown = [item for item in rows if not item["error"]]
        for item in broken:
            session.output.say(f"error: {item[key]}: {item['error']}")
    if not rows and session.output.format is OutputFormat.TABLE:
        return DONE
    columns = [name for name in (rows[0] if rows else [key, "status"]) if name not in hidden]
    if not broken and "error" in columns:
        columns.remove("error")
    session.output.show(shown, columns, name=key)
    return FAILED if broken else DONE


def positive(number: int | None, option: str) -> int | None:
    """`number` if it is above zero or not given."""
    if number is not None and number < 1:
        raise UsageError(f"{option} must be at least 1, not {number}")
    return number
