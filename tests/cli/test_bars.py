"""Bars and sparklines, for any name and width."""

import pytest

from kctl.cli.bars import Bar, bar_lines, shortened, sparkline
from kctl.cli.table_text import text_width

HOSTILE = ["a\nb", "\x1b[2Jgone", "\u202eevil", '"quoted"', "\ud800", "日本語" * 30, "x" * 249, ""]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("blocks", [True, False])
def test_every_bar_is_one_line_that_fits(width, blocks):
    bars = [Bar(name, i, f"{i} records") for i, name in enumerate(HOSTILE)]
    lines = bar_lines(bars, width, blocks=blocks)

    assert len(lines) == len(bars)
    assert all(text_width(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)


def test_the_largest_bar_is_full_and_the_smallest_is_seen():
    most, least, none = bar_lines(
        [Bar("a", 1e9, "1"), Bar("b", 1, "2"), Bar("c", 0, "3")], 30, blocks=True
    )

    assert most == "a  " + "█" * 24 + "  1"
    assert least == "b  ▏" + " " * 23 + "  2"
    assert none == "c  " + " " * 24 + "  3"
    assert bar_lines([Bar("a", 0, "0")], 30, blocks=False)[0].split() == ["a", "0"]


def test_a_sparkline_has_a_character_for_each_value():
    assert sparkline([0, 1, 2, 4, 8], blocks=True) == "▁▂▃▅█"
    assert sparkline([0, 1, 3, 6], blocks=False) == "_.=#"
    assert sparkline([0, 0], blocks=True) == "▁▁"
    assert sparkline([], blocks=True) == ""


def test_a_long_name_loses_its_middle():
    assert shortened("orders.eu-central-1.payments", 12) == "orders.…ents"
    assert shortened("short", 12) == "short"
