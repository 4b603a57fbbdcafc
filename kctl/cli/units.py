"""Durations and instants as people type them."""

import re
from datetime import UTC, datetime

from kctl.errors import UsageError

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?"
    r"(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
# Bare digits of at least this length are milliseconds since the epoch, not a year.
_EPOCH_DIGITS_MIN = 9


def parse_duration_ms(text: str) -> int:
    """`500ms`, `10s`, `1h30m`, `2d`, ISO 8601's `PT1H30M`; a bare number is seconds."""
    cleaned = text.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", cleaned):
        return round(float(cleaned) * 1000)
    parts = _SIMPLE.findall(cleaned)
    if parts and "".join(number + unit for number, unit in parts) == cleaned:
        return round(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
    iso = _ISO.fullmatch(cleaned.upper())
    if iso and any(iso.groups()):
        return round(
            sum(
                float(number) * _UNIT_MS[unit]
                for unit, number in iso.groupdict().items()
                if number is not None
            )
        )
    raise UsageError(f"Not a duration: {text}", hint="e.g. 500ms, 10s, 1h30m, 2d, PT1H")


def parse_instant_ms(text: str, now_ms: int) -> int:
    """`2026-01-31`, `2026-01-31T08:00:00[.123][Z|+02:00]`, `-1h` (ago), `now`, or milliseconds
    since the epoch. Without a zone it is UTC, as for Kafka's own tools."""
    cleaned = text.strip()
    if cleaned == "now":
        return now_ms
    if cleaned.startswith("-"):
        return now_ms - parse_duration_ms(cleaned[1:])
    if cleaned.isdigit() and len(cleaned) >= _EPOCH_DIGITS_MIN:
        return int(cleaned)
    try:
        instant = datetime.fromisoformat(cleaned)
    except ValueError:
        raise UsageError(
            f"Not a time: {text}", hint="e.g. 2026-01-31, 2026-01-31T08:00:00+02:00, -1h, now"
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return round(instant.timestamp() * 1000)


def format_instant(timestamp_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds; for a timestamp beyond the calendar, the number."""
    try:
        instant = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
