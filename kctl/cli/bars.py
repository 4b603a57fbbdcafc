"""Draws numbers as bars and sparklines: block characters, or ASCII where there are none.

ASCII is drawn if the terminal's encoding has no blocks, and with NO_COLOR, as readers of a screen
set it. Labels are names of other parties: they are escaped and take one line.
"""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from kctl.cli.table_text import cell_text, text_width

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.-=+*#"
_LABEL_SHARE = 0.4
_BAR_WIDTH_MIN = 5
_WIDTH_DEFAULT = 80


class Bar(NamedTuple):
    """A number with its label before the bar and its text behind it."""

    label: str
    value: float
    text: str


def has_blocks() -> bool:
    """Return whether stdout can show block characters."""
    if os.environ.get("NO_COLOR"):
        return False
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        _EIGHTHS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar_lines(
    bars: Sequence[Bar], width: int | None = None, *, blocks: bool | None = None
) -> list[str]:
    """Return a line for each of `bars`, of at most `width` columns; the longest is the largest."""
    if not bars:
        return []
    uses_blocks = has_blocks() if blocks is None else blocks
    room = width or _WIDTH_DEFAULT
    texts = [cell_text(bar.text) for bar in bars]
    text_columns = max(map(text_width, texts))
    label_max = max(int(room * _LABEL_SHARE), room - text_columns - 40)
    labels = [shortened(cell_text(bar.label), label_max, blocks=uses_blocks) for bar in bars]
    label_columns = max(map(text_width, labels))
    columns = max(_BAR_WIDTH_MIN, room - label_columns - text_columns - 4)
    most = max(bar.value for bar in bars)
    lines = []
    for bar, label, text in zip(bars, labels, texts, strict=True):
        drawn = _drawn(bar.value / most if most > 0 else 0, columns, blocks=uses_blocks)
        lines.append(
            f"{label}{' ' * (label_columns - text_width(label))}  {drawn.ljust(columns)}  "
            f"{' ' * (text_columns - text_width(text))}{text}"
        )
    return lines


def sparkline(values: Sequence[float], *, blocks: bool | None = None) -> str:
    """Return a character for each of `values`; the highest is the largest of them."""
    levels = _LEVELS if (has_blocks() if blocks is None else blocks) else _ASCII_LEVELS
    most = max(values, default=0)
    if most <= 0:
        return levels[0] * len(values)
    top = len(levels) - 1
    return "".join(levels[min(top, max(0, round(value / most * top)))] for value in values)


def shortened(text: str, width: int, *, blocks: bool = True) -> str:
    """Return `text`, without its middle if it takes more than `width` columns."""
    if text_width(text) <= width:
        return text
    gap = "…" if blocks else "~"
    head = ""
    for character in text:
        if text_width(head + character) > (width - 1) * 2 // 3:
            break
        head += character
    tail = ""
    for character in reversed(text):
        if text_width(head + gap + character + tail) > width:
            break
        tail = character + tail
    return head + gap + tail


def _drawn(share: float, columns: int, *, blocks: bool) -> str:
    if not blocks:
        count = round(share * columns)
        return "#" * (count or (share > 0))
    eighths = round(share * columns * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
