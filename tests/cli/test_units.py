"""Parsing of durations, instants, positions and ranges."""

import io
import sys

import pytest

from kctl.cli.positions import parse_position, parse_range
from kctl.cli.units import (
    format_bytes,
    format_instant,
    option_instant_ms,
    parse_duration_ms,
    parse_instant_ms,
    parse_rate,
    parse_size,
)
from kctl.errors import UsageError
from kctl.model import Position, PositionKind

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
def test_durations_are_parsed(text, expected_ms):
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "10 seconds", "-1s", "1h 30x", "P", "PT", "h", "٣s"])
def test_invalid_durations_are_rejected(text):
    with pytest.raises(UsageError, match="Not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "ms", "P" + "9" * 400 + "W", "9" * 19])
def test_durations_beyond_64_bits_are_rejected(text):
    with pytest.raises(UsageError, match="Too long a duration"):
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
def test_instants_are_parsed(text, expected_ms):
    assert parse_instant_ms(text, NOW_MS) == expected_ms


@pytest.mark.parametrize("text", ["yesterday", "9" * 23, "9" * 5000, "²" * 12])
def test_invalid_instants_are_rejected(text):
    with pytest.raises(UsageError, match="Not a time"):
        parse_instant_ms(text, NOW_MS)


def test_instants_have_64_bits():
    assert parse_instant_ms(str(2**63 - 1), NOW_MS) == 2**63 - 1
    with pytest.raises(UsageError, match="Not a time"):
        parse_instant_ms(str(2**63), NOW_MS)
    with pytest.raises(UsageError, match="Too long a duration"):
        parse_instant_ms("-99999999999999d", NOW_MS)


def test_instants_are_printed_in_utc_with_milliseconds():
    assert format_instant(NOW_MS + 7) == "2026-01-31T08:00:00.007Z"
    assert format_instant(-1) == "1969-12-31T23:59:59.999Z"
    assert format_instant(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1500", 1500),
        ("9007199254740993", 2**53 + 1),
        ("100k", 100_000),
        ("50MB", 50_000_000),
        ("256MiB", 256 * 2**20),
        ("1 GB", 10**9),
        ("1.5GiB", 3 * 2**29),
        ("2t", 2 * 10**12),
    ],
)
def test_sizes_are_parsed(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "big", "-1", "5i", "1.k", "50MB/s", "1kk"])
def test_invalid_sizes_are_rejected(text):
    with pytest.raises(UsageError, match="Not a size"):
        parse_size(text)


def test_a_size_of_very_many_digits_is_rejected():
    with pytest.raises(UsageError, match="Too large a size"):
        parse_size("9" * 5000)


def test_rates_are_sizes_above_zero_with_an_optional_suffix():
    assert parse_rate("50MB") == parse_rate("50MB/s") == 50_000_000
    with pytest.raises(UsageError, match="A rate of 0/s copies nothing"):
        parse_rate("0/s")


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
def test_positions_are_parsed(text, expected):
    assert parse_position(text, NOW_MS) == expected


def test_ranges_may_be_open_at_either_end():
    early, late = Position(PositionKind.EARLIEST), Position(PositionKind.OFFSET, 9)

    assert parse_range("..9", NOW_MS) == (early, late)
    assert parse_range("9..", NOW_MS) == (late, None)
    assert parse_range("9", NOW_MS) == (late, None)
    assert parse_range("earliest..9", NOW_MS) == (early, late)


@pytest.mark.parametrize(
    "text", ["", "x", "1..y", "@", "1...2", "--1", "²", "-²", "9" * 5000, "-" + "9" * 5000]
)
def test_invalid_ranges_are_rejected(text):
    with pytest.raises(UsageError):
        parse_range(text, NOW_MS)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("2026-01-31", "2026-01-31 has no zone: it is taken as UTC, 2026-01-31T00:00:00.000Z"),
        ("2026-01-31T08:00", "2026-01-31T08:00 has no zone: it is taken as UTC"),
        ("2026-01-31T08:00Z", ""),
        ("2026-01-31T08:00+02:00", ""),
        ("-1h", ""),
        ("now", ""),
        ("1700000000000", ""),
    ],
)
def test_a_terminal_shows_which_zone_a_time_is_in(monkeypatch, text, note):
    monkeypatch.setattr(sys, "stderr", Terminal())

    instant_ms = option_instant_ms(text, NOW_MS)

    assert instant_ms == parse_instant_ms(text, NOW_MS)
    printed = sys.stderr.getvalue()
    assert note in printed
    assert bool(printed) == bool(note)


def test_a_pipe_gets_no_notes(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    option_instant_ms("2026-01-31", NOW_MS)

    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("kind", [["consume"], ["export"], ["topic", "purge"], ["produce"]])
def test_help_of_options_with_times_names_the_zone(kctl, kind):
    assert "UTC" in kctl(*kind, "--help").out


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1023 * 1024 - 600, "1022 KiB"),
        (1000 * 1024, "1000 KiB"),
        (1024 * 1024 - 1, "1 MiB"),
        (1010 * 2**30, "1010 GiB"),
        (3 * 2**40, "3.0 TiB"),
    ],
)
def test_sizes_have_no_exponent(count, text):
    assert format_bytes(count) == text
