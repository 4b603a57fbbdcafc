"""Parses positions and ranges in a partition: `START`, `START..END`, `..END`, `START..`.

A position is an offset `N`, the last N records `-N`, a time `@2026-01-31T08:00` or `@-1h`, or
`earliest` or `latest` (also `beginning` and `end`). Brokers of Kafka 3.0 and later also find
`max-timestamp`, those with tiered storage `earliest-local` and `latest-tiered`. The end of a range
is exclusive.
"""

from kctl.cli.units import option_instant_ms
from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.model import Position, PositionKind

_NAMED_POSITIONS = {
    "earliest": PositionKind.EARLIEST,
    "beginning": PositionKind.EARLIEST,
    "latest": PositionKind.LATEST,
    "end": PositionKind.LATEST,
    "max-timestamp": PositionKind.MAX_TIMESTAMP,
    "earliest-local": PositionKind.EARLIEST_LOCAL,
    "latest-tiered": PositionKind.LATEST_TIERED,
}
# Offsets are 64-bit.
OFFSET_MAX = (1 << 63) - 1
_HINT = "e.g. 42, -10, @2026-01-31, @-1h, earliest, latest, 100..200, @-1h..@-30m"


def parse_position(text: str, now_ms: int) -> Position:
    """Parse a position; raise UsageError if it is invalid."""
    cleaned = text.strip()
    if cleaned in _NAMED_POSITIONS:
        return Position(_NAMED_POSITIONS[cleaned])
    if cleaned.startswith("@"):
        return Position(PositionKind.TIME, option_instant_ms(cleaned[1:], now_ms))
    digits = cleaned.removeprefix("-")
    if is_whole_number(digits, OFFSET_MAX):
        kind = PositionKind.OFFSET if digits == cleaned else PositionKind.TAIL
        return Position(kind, int(digits))
    if digits.isdecimal():
        raise UsageError(f"Not an offset: {text}", hint=f"offsets are at most {OFFSET_MAX}")
    raise UsageError(f"Not an offset or a time: {text}", hint=_HINT)


def parse_range(text: str, now_ms: int) -> tuple[Position, Position | None]:
    """Parse a range to start and end, None if absent. `..END` starts at the earliest offset."""
    start, dots, end = text.partition("..")
    if not dots:
        return parse_position(text, now_ms), None
    first = parse_position(start, now_ms) if start.strip() else Position(PositionKind.EARLIEST)
    last = parse_position(end, now_ms) if end.strip() else None
    if last is not None and _is_before(last, first):
        raise UsageError(f"The range {text} ends before it starts", hint=_HINT)
    return first, last


def check_offline(bounds: tuple[Position, Position | None]) -> None:
    """Raise UsageError if a bound of a range is a position that only a broker can find."""
    names = {kind: name for name, kind in _NAMED_POSITIONS.items()}
    for position in bounds:
        if position is not None and position.kind.needs_broker:
            raise UsageError(
                f"Only a broker can find {names[position.kind]}", hint="give an offset or a time"
            )


def _is_before(end: Position, start: Position) -> bool:
    """Return whether `end` is before `start` in every partition."""
    if end.kind is PositionKind.EARLIEST:
        return start.kind is not PositionKind.EARLIEST
    if start.kind is PositionKind.LATEST:
        return end.kind is not PositionKind.LATEST
    if end.kind is not start.kind or end.kind.needs_broker:
        return False
    if end.kind is PositionKind.TAIL:
        return end.value > start.value
    return end.value < start.value
