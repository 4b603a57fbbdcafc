"""Durations, instants, positions and ranges as people type them."""

import pytest

from kctl.admin.offsets import Position, PositionKind
from kctl.cli.positions import parse_position, parse_range
from kctl.cli.units import format_instant, parse_duration_ms, parse_instant_ms
from kctl.errors import UsageError

NOW_MS = 1_769_846_400_000  # 2026-01-31T08:00:00Z


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1.5s", 1_500),
        ("7", 7_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("P2W", 1_209_600_000),
    ],
)
def test_durations(text, expected_ms):
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "10 seconds", "-1s", "1h 30x", "P", "PT", "h"])
def test_what_is_no_duration(text):
    with pytest.raises(UsageError, match="Not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("now", NOW_MS),
        ("-1h", NOW_MS - 3_600_000),
        ("2026-01-31", NOW_MS - 8 * 3_600_000),
        ("2026-01-31T08:00", NOW_MS),
        ("2026-01-31T08:00:00Z", NOW_MS),
        ("2026-01-31T10:00:00+02:00", NOW_MS),
        ("2026-01-31T08:00:00.123", NOW_MS + 123),
        ("1769846400000", NOW_MS),
    ],
)
def test_instants(text, expected_ms):
    assert parse_instant_ms(text, NOW_MS) == expected_ms


def test_what_is_no_instant():
    with pytest.raises(UsageError, match="Not a time"):
        parse_instant_ms("yesterday", NOW_MS)


def test_instants_are_printed_in_utc_with_milliseconds():
    assert format_instant(NOW_MS + 7) == "2026-01-31T08:00:00.007Z"
    assert format_instant(-1) == "1969-12-31T23:59:59.999Z"
    assert format_instant(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", Position(PositionKind.OFFSET, 42)),
        ("-10", Position(PositionKind.TAIL, 10)),
        ("earliest", Position(PositionKind.EARLIEST)),
        ("beginning", Position(PositionKind.EARLIEST)),
        ("latest", Position(PositionKind.LATEST)),
        ("end", Position(PositionKind.LATEST)),
        ("@-1h", Position(PositionKind.TIME, NOW_MS - 3_600_000)),
    ],
)
def test_positions(text, expected):
    assert parse_position(text, NOW_MS) == expected


def test_ranges_may_be_open_at_either_end():
    early, late = Position(PositionKind.EARLIEST), Position(PositionKind.OFFSET, 9)

    assert parse_range("..9", NOW_MS) == (early, late)
    assert parse_range("9..", NOW_MS) == (late, None)
    assert parse_range("9", NOW_MS) == (late, None)
    assert parse_range("earliest..9", NOW_MS) == (early, late)


@pytest.mark.parametrize("text", ["", "x", "1..y", "@", "1...2", "--1"])
def test_what_is_no_range(text):
    with pytest.raises(UsageError):
        parse_range(text, NOW_MS)
