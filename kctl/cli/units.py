"""Parses and formats durations, instants and sizes."""

import re
import sys
from datetime import UTC, datetime

from kctl.cli.pipes import write_message
from kctl.counts import INT64_MAX, is_whole_number
from kctl.errors import UsageError

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_ISO = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?"
    r"(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_SIZE = re.compile(r"(\d+)(\.\d+)?\s*(?:([kmgt])(i?))?b?", re.IGNORECASE | re.ASCII)
_SIZE_UNITS = ("", "k", "m", "g", "t")
# Bare digits of at least this length are milliseconds since the epoch, not a year.
_EPOCH_DIGITS_MIN = 9
_DURATION_HINT = "e.g. 500ms, 10s, 1h30m, 2d, PT1H"
_SIZE_HINT = "e.g. 1048576, 50MB, 1.5GiB"


def parse_duration_ms(text: str) -> int:
    """Parse `500ms`, `10s`, `1h30m`, `2d`, ISO 8601's `PT1H30M`; a bare number is in seconds.

    Raise UsageError for anything else, and for a duration of more milliseconds than 64 bits hold.
    """
    parts = _parts_of_duration(text.strip())
    if not parts:
        raise UsageError(f"Not a duration: {text}", hint=_DURATION_HINT)
    duration_ms = sum(float(number) * _UNIT_MS[unit] for number, unit in parts)
    # Of very many digits, `float` makes infinity.
    if duration_ms >= INT64_MAX:
        raise UsageError(f"Too long a duration: {text}", hint=_DURATION_HINT)
    return round(duration_ms)


def _parts_of_duration(text: str) -> list[tuple[str, str]]:
    """Return the numbers and units of a duration; none if `text` is no duration."""
    if _NUMBER.fullmatch(text):
        return [(text, "s")]
    parts = _SIMPLE.findall(text)
    if "".join(number + unit for number, unit in parts) == text:
        return parts
    iso = _ISO.fullmatch(text.upper())
    found = iso.groupdict() if iso else {}
    return [(number, unit) for unit, number in found.items() if number is not None]


def parse_instant_ms(text: str, now_ms: int) -> int:
    """Parse an instant to ms since the epoch; raise UsageError if it is invalid.

    The forms are `2026-01-31`, `2026-01-31T08:00:00[.123][Z|+02:00]`, `-1h` (ago), `now`, and
    milliseconds since the epoch, of 64 bits. Without a zone it is in UTC, as in Apache Kafka's
    tools.
    """
    cleaned = text.strip()
    if cleaned == "now":
        return now_ms
    if cleaned.startswith("-"):
        return now_ms - parse_duration_ms(cleaned[1:])
    if _is_of_epoch(cleaned):
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


def option_instant_ms(text: str, now_ms: int) -> int:
    """Parse an instant that a user typed, as `parse_instant_ms`.

    On a terminal, state how a time without a zone is understood.
    """
    instant_ms = parse_instant_ms(text, now_ms)
    if _has_no_zone(text) and sys.stderr.isatty():
        note = f"{text} has no zone: it is taken as UTC, {format_instant(instant_ms)}"
        write_message(sys.stderr, f"note: {note}\n")
    return instant_ms


def _is_of_epoch(text: str) -> bool:
    return len(text) >= _EPOCH_DIGITS_MIN and is_whole_number(text)


def _has_no_zone(text: str) -> bool:
    cleaned = text.strip()
    if _is_of_epoch(cleaned):
        return False
    try:
        return datetime.fromisoformat(cleaned).tzinfo is None
    except ValueError:  # now, -1h
        return False


def format_instant(timestamp_ms: int) -> str:
    """Format as ISO 8601 in UTC with milliseconds; beyond the year 9999, as the number."""
    try:
        instant = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def parse_size(text: str) -> int:
    """Parse a number of bytes: `1500`, `100k`, `50MB`, `1.5GiB`; raise UsageError for anything
    else, and for more digits than a number of 64 bits has."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"Not a size: {text}", hint=_SIZE_HINT)
    whole, fraction, unit, is_binary = found.groups("")
    if not is_whole_number(whole):
        raise UsageError(f"Too large a size: {text}", hint=_SIZE_HINT)
    scale: int = (1024 if is_binary else 1000) ** _SIZE_UNITS.index(unit.lower())
    return int(whole) * scale + (round(float(fraction) * scale) if fraction else 0)


def parse_rate(
    text: str, *, zero: str = "copies nothing", hint: str = "e.g. 50MB; omit it for no limit"
) -> int:
    """Parse a rate in bytes/s, `50MB` or `50MB/s`; raise UsageError for 0, which never ends: the
    error has what a rate of `zero` does, and `hint`."""
    rate = parse_size(re.sub("/s$", "", text.strip(), flags=re.IGNORECASE))
    if rate < 1:
        raise UsageError(f"A rate of {text} {zero}", hint=hint)
    return rate


def format_bytes(count: int) -> str:
    """Format as `1.5 GiB`, with three significant digits, or four: `1010 KiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        # What rounds to 1024 has the next unit.
        if size < 1023.5:
            digits = 3 if size < 999.5 else 4
            return f"{count} B" if unit == "B" else f"{size:.{digits}g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def format_duration(duration_ms: int) -> str:
    """Format as `800ms`, `12s`, `3m20s`, `2h05m` or `3d04h`."""
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
