"""Lays out rows as aligned columns that fit a terminal.

There are three layouts for a table that is too wide:

1. The widest cells are wrapped, no column narrower than its header.
2. Headers are wrapped as well, at their hyphens, and columns become narrower.
3. Each row is a block of lines, one for each cell, as in psql's expanded display.

The second is taken if the first does not fit, and the third if it needs fewer lines than they do or
neither fits.

Numbers are never wrapped. Widths are counted in columns of the terminal: a character of East Asian
scripts takes two.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

# Between two columns of a table.
_GAP = "  "
# Columns are not made narrower than this, or than their header, by the first layout.
_COMFORTABLE_WIDTH_MIN = 12
# ... or than this, or than a word of their header, by the second.
_WIDTH_MIN = 6
# Where a cell is wrapped: after blanks, after the commas of a list and the slashes of a path.
_CELL_PIECES = re.compile(r"[^\s,/]*(?:[,/]|\s+)?")
_HEADER_PIECES = re.compile(r"[^-]*-?")
# Where a word that is wider than its column is divided, if one of these is in its second half.
_PUNCTUATION = ".-_/:=@"
_TEXT_PIECES = re.compile(r"\S*\s*")


def table_lines(
    columns: Sequence[str], rows: Sequence[Mapping[str, object]], width: int | None = None
) -> list[str]:
    """Return the header and the rows as aligned lines; numbers are aligned to the right.

    No line is wider than `width` columns of the terminal, if one is given.
    """
    header, body = header_and_body(columns, rows, width)
    return header + body


def header_and_body(
    columns: Sequence[str], rows: Sequence[Mapping[str, object]], width: int | None = None
) -> tuple[list[str], list[str]]:
    """Return the lines of the header, of which blocks have none, and those of the rows."""
    if not columns:
        return [], []
    grid = _Grid(columns, rows)
    if width is None:
        return grid.lines_of(grid.natural_widths)
    widths = grid.fitting_widths(width)
    if widths == grid.natural_widths or not rows:
        return grid.lines_of(widths or grid.natural_widths)
    blocks = list(grid.blocks(width))
    if widths is None:
        return [], blocks
    header, body = grid.lines_of(widths)
    return ([], blocks) if len(blocks) < len(header) + len(body) else (header, body)


def wrapped_text(text: str, width: int | None) -> list[str]:
    """Return `text` as lines of at most `width` columns, wrapped after blanks."""
    return [text] if width is None else _wrapped(text, max(width, 1), _TEXT_PIECES)


def cell_text(value: object) -> str:
    """Return the text of a cell: lists with commas, a dash for an absent or empty value."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={cell_text(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ",".join(cell_text(item) for item in value) or "-"
    # Control characters in a name must not move the terminal's cursor.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


def text_width(text: str) -> int:
    """Return the number of columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


class _Grid:
    """The cells of a table as text, and what is needed to place them."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
        raw = [[row.get(column) for column in columns] for row in rows]
        self.header = [column.upper().replace("_", "-") for column in columns]
        self.cells = [[cell_text(value) for value in row] for row in raw]
        self._numeric = [_is_numeric([row[i] for row in raw]) for i in range(len(columns))]
        self._content = [
            max(map(text_width, column), default=0)
            for column in (list(zip(*self.cells, strict=True)) or [()] * len(columns))
        ]

    @property
    def natural_widths(self) -> list[int]:
        """Return the widths at which nothing is wrapped."""
        return [
            max(text_width(title), content)
            for title, content in zip(self.header, self._content, strict=True)
        ]

    def fitting_widths(self, width: int) -> list[int] | None:
        """Return the widths of the first layout that fits; None if only blocks do."""
        available = width - len(_GAP) * (len(self.header) - 1)
        for least in (self._comfortable_widths(), self._least_widths()):
            fitted = _reduced(self.natural_widths, least, available)
            if sum(fitted) <= available:
                return fitted
        return None

    def _comfortable_widths(self) -> list[int]:
        return [
            max(text_width(title), content if numeric else min(content, _COMFORTABLE_WIDTH_MIN))
            for title, content, numeric in self._facts()
        ]

    def _least_widths(self) -> list[int]:
        return [
            max(
                *map(text_width, _HEADER_PIECES.findall(title)),
                content if numeric else min(content, _WIDTH_MIN),
            )
            for title, content, numeric in self._facts()
        ]

    def _facts(self) -> Iterator[tuple[str, int, bool]]:
        return zip(self.header, self._content, self._numeric, strict=True)

    def lines_of(self, widths: Sequence[int]) -> tuple[list[str], list[str]]:
        """Return the lines of the header, and those of the cells, in columns of `widths`."""
        body = [line for row in self.cells for line in self.lines(row, widths)]
        return self.lines(self.header, widths), body

    def lines(self, row: Sequence[str], widths: Sequence[int]) -> list[str]:
        """Return `row`, the header or one of the cells, as lines of columns of `widths`."""
        pieces = _HEADER_PIECES if row is self.header else _CELL_PIECES
        wrapped = [_wrapped(cell, width, pieces) for cell, width in zip(row, widths, strict=True)]
        return [
            _GAP.join(map(_padded, parts, widths, self._numeric)).rstrip()
            for parts in itertools.zip_longest(*wrapped, fillvalue="")
        ]

    def blocks(self, width: int) -> Iterator[str]:
        """Yield each row as lines of a header and its cell, and an empty line between rows."""
        titles = max(map(text_width, self.header))
        room = max(width - titles - len(_GAP), 1)
        for i, row in enumerate(self.cells):
            if i:
                yield ""
            for title, cell in zip(self.header, row, strict=True):
                first, *rest = _wrapped(cell, room, _CELL_PIECES)
                yield f"{title.ljust(titles)}{_GAP}{first}"
                yield from (" " * titles + _GAP + line for line in rest)


def _reduced(widths: Sequence[int], least: Sequence[int], available: int) -> list[int]:
    """Return `widths`, the widest of them reduced until all take `available` columns."""
    fitted = list(widths)
    limit = max(widths)
    while sum(fitted) > available and limit > _WIDTH_MIN:
        limit -= 1
        fitted = [min(own, max(limit, low)) for own, low in zip(widths, least, strict=True)]
    return fitted


def _wrapped(cell: str, width: int, pieces: re.Pattern[str]) -> list[str]:
    """Return the lines of at most `width` columns into which `cell` is divided."""
    if text_width(cell) <= width:
        return [cell]
    lines = [""]
    for piece in pieces.findall(cell):
        if text_width(lines[-1]) + text_width(piece.rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while text_width(lines[-1].rstrip()) > width:
            lines[-1:] = _divided(lines[-1], width)
    return [line.rstrip() for line in lines]


def _divided(text: str, width: int) -> list[str]:
    """Return the start of `text` that fits `width` columns, and the rest."""
    end = width
    while end > 1 and text_width(text[:end]) > width:
        end -= 1
    after = 1 + max(text.rfind(mark, 0, end) for mark in _PUNCTUATION)
    if after > end // 2:
        end = after
    return [text[:end], text[end:]]


def _padded(cell: str, width: int, is_numeric: bool) -> str:
    padding = " " * (width - text_width(cell))
    return padding + cell if is_numeric else cell + padding


def _is_numeric(values: Sequence[object]) -> bool:
    """Return whether a column holds numbers, and nothing else but absent values."""
    return any(map(_is_number, values)) and all(it is None or _is_number(it) for it in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
