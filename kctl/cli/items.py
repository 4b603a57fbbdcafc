"""Helpers for commands on several items: one row per item, and the exit status of all."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import OutputFormat
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.cli.session import Change, Session

P = TypeVar("P")
R = TypeVar("R")


def row(
    key: str, name: object, status: str, error: object = None, **more: object
) -> dict[str, Any]:
    """Return the result of one item as a row: `{key: name, ..., status, error}`."""
    text = None if error is None else str(error)
    return {key: name, **more, "status": "failed" if text else status, "error": text}


def show_results(
    session: "Session",
    rows: Sequence[Mapping[str, Any]],
    key: str,
    *,
    hidden: Sequence[str] = (),
) -> int:
    """Print a row per item without the `hidden` columns; return the exit status."""
    failed = [item for item in rows if item["error"]]
    shown = rows
    if session.output.format is OutputFormat.NAME:
        # Names are the input of other programs: only those of successful items.
        shown = [item for item in rows if not item["error"]]
        for item in failed:
            session.output.say(f"error: {item[key]}: {item['error']}")
    if not rows and session.output.format is OutputFormat.TABLE:
        return DONE
    columns = [name for name in (rows[0] if rows else [key, "status"]) if name not in hidden]
    if not failed and "error" in columns:
        columns.remove("error")
    session.output.show(shown, columns, name=key)
    return FAILED if failed else DONE


def show_change(
    session: "Session",
    change: "Change[P, R]",
    key: str,
    planned: Callable[[P], Sequence[Mapping[str, Any]]],
    done: Callable[[R], Sequence[Mapping[str, Any]]],
) -> int:
    """Print the rows of a plan, or those of its result if it was executed; return the exit status.
    Of a change that the user declined, nothing is printed."""
    if change.is_declined:
        return DONE
    rows = planned(change.plan) if change.result is None else done(change.result)
    return show_results(session, rows, key)


def positive(number: int | None, option: str) -> int | None:
    """Return `number`; raise UsageError for `option` if it is below 1."""
    if number is not None and number < 1:
        raise UsageError(f"{option} must be at least 1, not {number}")
    return number
