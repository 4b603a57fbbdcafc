"""The screen of kctl top: what keys do to it, and the lines that it shows.

    LIST --enter--> DETAIL --escape--> LIST        of topics, groups and mirrors
    LIST --/--> FILTER --enter, escape--> LIST     characters go to the filter

Every other key changes a field of the state and no mode.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from kctl.cli.bars import shortened, sparkline
from kctl.cli.table_text import cell_text, text_width
from kctl.cli.units import format_bytes, format_duration
from kctl.lazy_dataclass import dataclass

Row = dict[str, object]

HISTORY_MAX = 30
FILTER_MAX = 100
_BOLD, _REVERSE, _PLAIN = "\x1b[1m", "\x1b[7m", "\x1b[0m"
_GAP = 2
# Wider than any table.
_ANY_WIDTH = 1_000_000
# Columns narrower than this are left out instead.
_NAME_WIDTH_MIN = 12


class View(Enum):
    """What is listed. A value is the word of the command line."""

    TOPICS = "topics"
    GROUPS = "groups"
    BROKERS = "brokers"
    CLIENTS = "clients"
    QUOTAS = "quotas"
    MIRRORS = "mirrors"


class Mode(Enum):
    """Where keys go."""

    LIST = 1
    FILTER = 2
    DETAIL = 3


# By view: the name of a row first, then its columns; the most important first, as the last ones
# are left out of a narrow terminal.
COLUMNS = {
    View.TOPICS: ("topic", "records_s", "bytes_s", "history", "size", "partitions"),
    View.GROUPS: ("group", "lag", "records_s", "history", "state", "members"),
    View.BROKERS: (
        "broker", "host", "records_s", "bytes_s", "history", "size", "leaders", "replicas", "rack",
    ),
    View.CLIENTS: ("client", "group", "lag", "records_s", "history", "partitions", "host"),
    View.QUOTAS: (
        "client", "quota", "throttled", "used", "limit", "share", "throttle_ms", "history",
        "broker",
    ),
    View.MIRRORS: (
        "mirror", "state", "lag", "lag_seconds", "stopped", "records_s", "bytes_s", "losses",
        "history", "lag_bytes", "partitions", "workers",
    ),
}  # fmt: skip
# Shown after bytes_s if brokers' metrics are read.
MEASURED_COLUMNS = {View.TOPICS: ("out_s",), View.BROKERS: ("out_s", "requests_s", "busy")}
DETAIL_COLUMNS = {
    View.TOPICS: ("partition", "leader", "records_s", "bytes_s", "size", "end_offset"),
    View.GROUPS: ("topic", "partition", "lag", "records_s", "client"),
    View.MIRRORS: ("topic", "partition", "records_s", "position", "target", "stopped"),
}
# The key of a row in each view, which is also that of its history.
KEYS = {
    View.TOPICS: ("topic",), View.GROUPS: ("group",), View.BROKERS: ("broker",),
    View.CLIENTS: ("client", "member", "group"), View.QUOTAS: ("client", "quota", "broker"),
    View.MIRRORS: ("mirror",),
}  # fmt: skip
_SORTED_BY = {
    View.TOPICS: "records_s", View.GROUPS: "lag", View.BROKERS: "bytes_s", View.CLIENTS: "lag",
    View.QUOTAS: "throttled", View.MIRRORS: "lag",
}  # fmt: skip
# What the sparkline of a row is of.
_HISTORY_OF = {View.QUOTAS: "share"}
_UNITS = {
    "records_s": "RECORDS/S", "bytes_s": "BYTES/S", "out_s": "OUT/S", "requests_s": "REQUESTS/S",
    "lag_seconds": "BEHIND",
}  # fmt: skip
_TEXT = frozenset(
    {"topic", "group", "client", "host", "state", "rack", "history", "quota", "mirror", "target"}
)
_HELP = "q quit  tab view  s sort  r reverse  / filter  p pause  enter open  esc back"

_STEPS = {"up": -1, "down": 1}
_PAGES = {"page-up": -1, "page-down": 1}


@dataclass(slots=True)
class Screen:
    """The state of the screen; `press` and `update` change it."""

    view: View = View.TOPICS
    mode: Mode = Mode.LIST
    sorted_by: str = "records_s"
    is_reversed: bool = False
    filter: str = ""
    is_paused: bool = False
    is_over: bool = False
    selected: int = 0
    # The name of the row whose parts are shown, and the first part that is visible.
    detail: str = ""
    detail_first: int = 0
    rows: list[Row] = field(default_factory=list)
    details: list[Row] = field(default_factory=list)
    note: str = ""
    # For how long a slow look has waited for brokers.
    waits_s: int = 0
    # How many rows fit, and are a page.
    room: int = 10
    # Key of a row -> its last rates.
    history: dict[tuple[object, ...], deque[float]] = field(default_factory=dict)

    def choose(self, view: View) -> None:
        """Show another view."""
        self.view, self.sorted_by, self.selected = view, _SORTED_BY[view], 0
        self.mode, self.is_reversed, self.filter, self.rows = Mode.LIST, False, "", []
        self.history.clear()

    def update(self, rows: Sequence[Row], details: Sequence[Row] = (), note: str = "") -> None:
        """Take new rows."""
        self.rows, self.details, self.note = list(rows), list(details), note
        known = set()
        for row in rows:
            key = self._key(row)
            known.add(key)
            rate = row.get(_HISTORY_OF.get(self.view, "records_s"))
            history = self.history.setdefault(key, deque(maxlen=HISTORY_MAX))
            history.append(float(rate) if isinstance(rate, int | float) else 0.0)
        for key in self.history.keys() - known:
            del self.history[key]

    def press(self, key: str) -> None:
        """Do what a key asks for; other keys do nothing."""
        if self.mode is Mode.FILTER:
            self._press_in_filter(key)
            return
        action = {
            "q": self._quit, "tab": self._next_view, "p": self._pause, "r": self._reverse,
            "/": self._begin_filter, "s": self._sort_by_next, "enter": self._open,
            "escape": self._go_back,
        }.get(key)  # fmt: skip
        if action is not None:
            action()
        elif key in _STEPS or key in _PAGES:
            self._move(_STEPS[key] if key in _STEPS else _PAGES[key] * self.room)

    def _move(self, rows: int) -> None:
        if self.mode is Mode.DETAIL:
            if self.details:
                last = len(self.details) - self.room
                self.detail_first = max(0, min(last, self.detail_first + rows))
        else:
            self.selected = max(0, min(len(self.shown()) - 1, self.selected + rows))

    def _quit(self) -> None:
        self.is_over = True

    def _next_view(self) -> None:
        views = list(View)
        self.choose(views[(views.index(self.view) + 1) % len(views)])

    def _pause(self) -> None:
        self.is_paused = not self.is_paused

    def _reverse(self) -> None:
        self.is_reversed = not self.is_reversed

    def _begin_filter(self) -> None:
        if self.mode is Mode.LIST:
            self.mode = Mode.FILTER

    def _sort_by_next(self) -> None:
        if self.mode is Mode.LIST:
            columns = self.figures()
            at = columns.index(self.sorted_by) if self.sorted_by in columns else -1
            self.sorted_by = columns[(at + 1) % len(columns)]

    def _open(self) -> None:
        shown = self.shown()
        if self.mode is Mode.LIST and self.view in DETAIL_COLUMNS and shown:
            chosen = shown[min(self.selected, len(shown) - 1)]
            self.detail, self.details = str(chosen[KEYS[self.view][0]]), []
            self.detail_first = 0
            self.mode = Mode.DETAIL

    def _go_back(self) -> None:
        if self.mode is Mode.LIST:
            self.filter = ""
        self.mode = Mode.LIST

    def _press_in_filter(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.mode = Mode.LIST
            if key == "escape":
                self.filter = ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and len(self.filter) < FILTER_MAX:
            self.filter += key
        self.selected = 0

    def shown(self) -> list[Row]:
        """Return the rows that the filter lets through, sorted; unknown values are last."""
        wanted = self.filter.lower()
        names = KEYS[self.view]
        rows = [row for row in self.rows if any(wanted in str(row.get(it)).lower() for it in names)]
        key = self.sorted_by
        known = [row for row in rows if row.get(key) is not None]
        known.sort(key=lambda row: _order(row[key]), reverse=(key in _TEXT) == self.is_reversed)
        return known + [row for row in rows if row.get(key) is None]

    def columns(self) -> list[str]:
        """Return the columns of the view: with those of brokers' metrics if rows have them."""
        columns = list(COLUMNS[self.view])
        more = MEASURED_COLUMNS.get(self.view, ())
        if any(row.get(it) is not None for row in self.rows for it in more):
            after = columns.index("bytes_s") + 1
            columns[after:after] = more
        return columns

    def figures(self) -> list[str]:
        """Return the columns of the view that one look has: all but the history."""
        return [it for it in self.columns() if it != "history"]

    def _key(self, row: Row) -> tuple[object, ...]:
        return tuple(row.get(it) for it in KEYS[self.view])

    # --- lines

    def lines(
        self, width: int, height: int, now: str, *, color: bool = True, blocks: bool = True
    ) -> list[str]:
        """Return at most `height` lines of at most `width` columns, escapes of styles aside."""
        if self.mode is Mode.DETAIL:
            columns: Sequence[str] = DETAIL_COLUMNS[self.view]
            rows = self.details
        else:
            columns, rows = self.columns(), self.shown()
        room = self.room = max(1, height - 4)
        wanted = self.detail_first if self.mode is Mode.DETAIL else self.selected - room // 2
        first = max(0, min(wanted, len(rows) - room))
        if self.mode is Mode.DETAIL and rows:
            # The next step begins at what is visible. A look without parts keeps the place.
            self.detail_first = first
        part = rows[first : first + room]
        table = self._table(columns, part, width, blocks=blocks)
        head = [self._title(len(rows), now, width, blocks=blocks), table[0]]
        body = table[1:]
        if color:
            head = [f"{_BOLD}{line}{_PLAIN}" for line in head]
            chosen = self.selected - first
            if self.mode is not Mode.DETAIL and 0 <= chosen < len(body):
                body[chosen] = f"{_REVERSE}{_filled(body[chosen], width)}{_PLAIN}"
        elif self.mode is not Mode.DETAIL and 0 <= self.selected - first < len(body):
            body[self.selected - first] = _marked(body[self.selected - first], width)
        below = [""] * (room - len(body))
        foot = f"/{self.filter}_" if self.mode is Mode.FILTER else self.note or _HELP
        return [*head, *body, *below, "", shortened(cell_text(foot), width, blocks=blocks)][:height]

    def table(self, width: int | None) -> list[str]:
        """Return a heading and a line for each row that the filter lets through, of at most `width`
        columns."""
        return self._table(self.figures(), self.shown(), width or _ANY_WIDTH, blocks=True)

    def _title(self, count: int, now: str, width: int, *, blocks: bool) -> str:
        name = self.view.value if self.mode is not Mode.DETAIL else cell_text(self.detail)
        arrow = "ascending" if (self.sorted_by in _TEXT) != self.is_reversed else "descending"
        parts = [
            f"kctl top {name}", f"{count}", f"by {self.sorted_by.replace('_', '/')} {arrow}",
            *([f"filter {cell_text(self.filter)}"] if self.filter else []),
            *(["PAUSED"] if self.is_paused else []),
            *([f"NO ANSWER FOR {self.waits_s}s"] if self.waits_s else []),
        ]  # fmt: skip
        left = shortened("  ".join(parts), max(1, width - len(now) - 2), blocks=blocks)
        return left + " " * max(2, width - text_width(left) - len(now)) + now

    def _table(
        self, columns: Sequence[str], rows: Sequence[Row], width: int, *, blocks: bool
    ) -> list[str]:
        cells = [[self._cell(column, row, blocks=blocks) for column in columns] for row in rows]
        titles = [_UNITS.get(it, it.upper().replace("_", "-")) for it in columns]
        widths = [
            max(text_width(title), *(text_width(row[i]) for row in cells), 0)
            for i, title in enumerate(titles)
        ]
        widths = _fitted(widths, columns, width)
        lines = []
        for row in [titles, *cells]:
            texts = [
                _padded(shortened(text, size, blocks=blocks), size, column)
                for text, size, column in zip(row, widths, columns, strict=False)
            ]
            lines.append((" " * _GAP).join(texts).rstrip())
        return lines

    def _cell(self, column: str, row: Row, *, blocks: bool) -> str:
        if column == "history":
            return sparkline(list(self.history.get(self._key(row), ())), blocks=blocks)
        value = row.get(column)
        if column in ("used", "limit"):
            return quota_text(str(row.get("quota")), value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if column in ("share", "busy"):
                return f"{value * 100:,.0f}%"
            if column == "throttle_ms":
                return f"{value:,.0f}ms"
            if column in ("bytes_s", "out_s"):
                return f"{format_bytes(round(value))}/s"
            if column == "lag_seconds":
                return format_duration(round(value * 1000))
            if column in ("size", "lag_bytes"):
                return format_bytes(round(value))
            if column in ("records_s", "requests_s"):
                return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
            return f"{value:,}" if column in ("lag", "end_offset", "position") else str(value)
        return cell_text(value)


def quota_text(key: str, value: object) -> str:
    """Return a quota, or what is used of it, with its unit.

    >>> quota_text("producer_byte_rate", 10_000_000.0), quota_text("request_percentage", 50.0)
    ('9.54 MiB/s', '50%')
    """
    if not isinstance(value, int | float):
        return cell_text(value)
    if key in ("producer_byte_rate", "consumer_byte_rate"):
        return f"{format_bytes(round(value))}/s"
    return f"{value:,.1f}".removesuffix(".0") + ("%" if key == "request_percentage" else "/s")


def _order(value: object) -> tuple[int, float | str]:
    return (0, value) if isinstance(value, int | float) else (1, str(value))


def _marked(line: str, width: int) -> str:
    return _filled(line, width - 2) + " <" if text_width(line) <= width - 2 else line


def _filled(line: str, width: int) -> str:
    return line + " " * max(0, width - text_width(line))


def _fitted(widths: Sequence[int], columns: Sequence[str], width: int) -> list[int]:
    """Return widths that fit: names are shortened first, then the last columns left out."""
    fitted = list(widths)
    while True:
        over = sum(fitted) + _GAP * (len(fitted) - 1) - width
        if over <= 0:
            return fitted
        names = [
            i for i, it in enumerate(columns[: len(fitted)]) if it in _TEXT and it != "history"
        ]
        for i in sorted(names, key=lambda i: -fitted[i]):
            less = min(over, max(0, fitted[i] - _NAME_WIDTH_MIN))
            fitted[i] -= less
            over -= less
        if over > 0:
            if len(fitted) == 1:
                return [max(1, width)]
            fitted = list(widths[: len(fitted) - 1])


def _padded(text: str, size: int, column: str) -> str:
    space = " " * (size - text_width(text))
    return text + space if column in _TEXT else space + text
