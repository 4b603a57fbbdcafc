"""The grammar of positions and ranges in a partition: `START`, `START..END`, `..END`, `START..`.

A position is an offset `N`, the last N records `-N`, a time `@2026-01-31T08:00` or `@-1h`, or
`earliest` or `latest` (also `beginning` and `end`). The end of a range is exclusive.
"""

import re

from kctl.admin.offsets import Position, PositionKind
from kctl.cli.units import parse_instant_ms
from kctl.errors import UsageError

_WORDS = {
    "earliest": PositionKind.EARLIEST,
    "beginning": PositionKind.EARLIEST,
    "latest": PositionKind.LATEST,
    "end": PositionKind.LATEST,
}
_HINT = "e.g. 42, -10, @2026-01-31, @-1h, earliest, latest, 100..200, @-1h..@-30m"


def parse_position(text: str, now_ms: int) -> Position:
    """One position; UsageError if it is none."""
    cleaned = text.strip()
    if cleaned in _WORDS:
        return Position(_WORDS[cleaned])
    if cleaned.startswith("@"):
        return Position(PositionKind.TIME, parse_instant_ms(cleaned[1:], now_ms))
    if re.fullmatch(r"-?\d+", cleaned):
        number = int(cleaned)
        if cleaned.startswith("-"):
            return Position(PositionKind.TAIL, -number)
        return Position(PositionKind.OFFSET, number)
    raise UsageError(f"Not an offset or a time: {text}", hint=_HINT)


def parse_range(text: str, now_ms: int) -> tuple[Position, Position | None]:
    """Start and end; no end (None) means: go on for ever. `..END` starts at the earliest."""
    start, dots, end = text.partition("..")
    if not dots:
        return parse_position(text, now_ms), None
    first = parse_position(start, now_ms) if start.strip() else Position(PositionKind.EARLIEST)
    return first, parse_position(end, now_ms) if end.strip() else None
