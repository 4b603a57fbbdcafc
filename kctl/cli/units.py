"""Durations, instants and sizes as people type and read them."""

import re
from datetime import UTC, datetime

from kctl.errors import UsageError

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?"
    r"(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:/s)?", re.IGNORECASE)
_SIZE_UNITS = ("", "k", "m", "g", "t")
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


def parse_bytes(text: str) -> int:
    """`1500`, `50MB`, `1.5GiB`; a rate may end in `/s`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"Not a number of bytes: {text}", hint="e.g. 1048576, 50MB, 1.5GiB")
    number, unit, is_binary = found.groups()
    base = 1024 if is_binary else 1000
    return round(float(number) * float(base ** _SIZE_UNITS.index(unit.lower())))


def format_bytes(count: int) -> str:
    """`1.5 GiB`: three digits at most but for bytes."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def format_duration(duration_ms: int) -> str:
    """`800ms`, `12s`, `3m20s`, `2h05m`, `3d04h`."""
    seconds = duration_ms // 1000
    if seconds < 1:
        return f"{duration_ms}ms"
    for unit, below, inner, seconds_each in (("m", 3600, "s", 60), ("h", 86400, "m", 3600)):
        if seconds < 60:
            return f"{seconds}s"
        if seconds < below:
            whole, rest = divmod(seconds, seconds_each)
            return f"{whole}{unit}{rest // (seconds_each // 60):02d}{inner}"
    days, rest = divmod(seconds, 86400)
    return f"{days}d{rest // 3600:02d}h"
