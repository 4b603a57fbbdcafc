"""Predicates: reads a SQL condition and finds which offsets of a partition can satisfy it.

A condition is divided at AND, OR and NOT into comparisons of partition, offset, timestamp and
topic. What is not such a comparison counts as true, so the offsets found are never too few; Spark
applies the whole condition to the rows that were read. Times are bounds of their own: only the log
can show which offsets they select, as a later record may carry an earlier time. A region says
whether it is exact: a condition on offsets, partitions and topics alone often is.

The condition is Spark's SQL. Constants of timestamps are left to Spark (`Evaluate`), whose session
has a time zone; all others are literals.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>[A-Za-z_]+)`|(?P<number>\d+)(?![\w.])
    |'(?P<text>[^'\\]*)'(?!')|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),-])|(?P<other>.))""",
    re.VERBOSE,
)
# Their parts contain AND or comments, so the condition cannot be divided.
_INDIVISIBLE = ("case", "--", "/*")
_COLUMNS = ("partition", "offset", "timestamp", "topic")
# op -> the same with sides exchanged, and its opposite.
_SWAPPED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_SPELLINGS = {"==": "=", "<=>": "=", "<>": "!="}
_CONDITION_LENGTH_MAX = 100_000
_DEPTH_MAX = 100

# SQL of a constant -> its time in microseconds, or None if it is not a constant.
Evaluate = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class Region:
    """Rows of one partition: offsets [low, high), times [time_ms, time_end_ms)."""

    low: int = 0
    high: int | None = None
    time_ms: int | None = None
    time_end_ms: int | None = None
    # Whether every row in it satisfies the condition; otherwise some may not.
    is_exact: bool = False

    def and_(self, other: "Region") -> "Region":
        """Return what satisfies both."""
        return Region(
            max(self.low, other.low), _least(self.high, other.high),
            _greatest(self.time_ms, other.time_ms), _least(self.time_end_ms, other.time_end_ms),
            is_exact=self.is_exact and other.is_exact,
        )  # fmt: skip

    def or_(self, other: "Region") -> "Region":
        """Return the smallest region that contains both."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return Region(
            min(self.low, other.low), _loosest(max, self.high, other.high),
            _loosest(min, self.time_ms, other.time_ms),
            _loosest(max, self.time_end_ms, other.time_end_ms),
            is_exact=self.is_exact and other.is_exact and self._touches(other),
        )  # fmt: skip

    def _touches(self, other: "Region") -> bool:
        """Return whether there is no offset between the two."""
        first, second = sorted((self, other), key=lambda it: it.low)
        return first.high is None or second.low <= first.high

    @property
    def is_empty(self) -> bool:
        """Return whether no row can be in it."""
        low_ms, end_ms = self.time_ms, self.time_end_ms
        has_no_time = low_ms is not None and end_ms is not None and end_ms <= low_ms
        return has_no_time or (self.high is not None and self.high <= self.low)


def _least(first: int | None, second: int | None) -> int | None:
    return min((it for it in (first, second) if it is not None), default=None)


def _greatest(first: int | None, second: int | None) -> int | None:
    return max((it for it in (first, second) if it is not None), default=None)


def _loosest(
    choose: Callable[[int, int], int], first: int | None, second: int | None
) -> int | None:
    return None if first is None or second is None else choose(first, second)


EVERYTHING = Region()
ALL_ROWS = Region(is_exact=True)
NOTHING = Region(0, 0, is_exact=True)


class Node:
    """A condition."""

    def region(self, _partition: TopicPartition) -> Region:
        """Return a region that contains all rows of a partition that satisfy it."""
        return EVERYTHING

    def negated(self) -> "Node":
        """Return a condition that its negation implies."""
        return self


@dataclass(frozen=True, slots=True)
class Unknown(Node):
    """A condition that selects no offsets."""

    text: str


@dataclass(frozen=True, slots=True)
class Compared(Node):
    """A comparison of a column with a constant; times are in microseconds."""

    column: str
    op: str
    value: int | str

    def region(self, partition: TopicPartition) -> Region:
        """See Node."""
        if self.column == "offset":
            return self._offsets(int(self.value))
        if self.column == "timestamp":
            return self._times(int(self.value))
        is_topic = self.column == "topic"
        actual = partition.topic if is_topic else partition.partition
        return ALL_ROWS if _holds(actual, self.op, self.value) else NOTHING

    def negated(self) -> Node:
        """See Node."""
        return Compared(self.column, _OPPOSITE[self.op], self.value)

    def _times(self, value: int) -> Region:
        # Values are microseconds, times of records milliseconds.
        at = value // 1000
        low = at if self.op in ("=", ">", ">=") else None
        end = {"=": at + 1, "<=": at + 1, "<": -(-value // 1000)}.get(self.op)
        return Region(time_ms=low, time_end_ms=end)

    def _offsets(self, value: int) -> Region:
        low, high = {
            "=": (value, value + 1), ">": (value + 1, None), ">=": (value, None),
            "<": (0, value), "<=": (0, value + 1), "!=": (0, None),
        }[self.op]  # fmt: skip
        end = None if high is None else max(high, 0)
        return Region(max(low, 0), end, is_exact=self.op != "!=")


@dataclass(frozen=True, slots=True)
class All(Node):
    """Several conditions, of which all must hold."""

    parts: tuple[Node, ...]

    def region(self, partition: TopicPartition) -> Region:
        """See Node."""
        found = ALL_ROWS
        for part in self.parts:
            found = found.and_(part.region(partition))
        return found

    def negated(self) -> Node:
        """See Node."""
        return Any(tuple(part.negated() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Any(Node):
    """Several conditions, of which one must hold."""

    parts: tuple[Node, ...]

    def region(self, partition: TopicPartition) -> Region:
        """See Node."""
        found = NOTHING
        for part in self.parts:
            found = found.or_(part.region(partition))
        return found

    def negated(self) -> Node:
        """See Node."""
        return All(tuple(part.negated() for part in self.parts))


def _holds(actual: int | str, op: str, value: int | str) -> bool:
    if op in ("=", "!="):
        return (actual == value) is (op == "=")
    assert isinstance(actual, int)
    assert isinstance(value, int)
    return {
        "<": actual < value, "<=": actual <= value, ">": actual > value, ">=": actual >= value,
    }[op]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    # Names in lower case, texts without quotes.
    text: str
    start: int
    end: int


class _NotDivisibleError(Exception):
    """The condition is not in the part of SQL that is read here."""


@dataclass(slots=True)
class Predicate:
    """A condition that was read."""

    root: Node
    # The parts that select no offsets.
    unused: list[str] = field(default_factory=list)


def parse_predicate(text: str, evaluate: Evaluate) -> Predicate:
    """Return the condition `text`; what is not understood, or invalid, selects everything."""
    unused: list[str] = []
    try:
        root = _Parser(text, evaluate, unused).parse()
    except _NotDivisibleError:
        return Predicate(Unknown(text), [text])
    return Predicate(root, unused)


def _tokens(text: str) -> Iterator[_Token]:
    if len(text) > _CONDITION_LENGTH_MAX or any(it in text.lower() for it in _INDIVISIBLE):
        raise _NotDivisibleError
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _NotDivisibleError
        kind, found = match.lastgroup, match[match.lastgroup]
        if kind == "other" and found in "'\"`;":
            raise _NotDivisibleError
        if kind in ("name", "quoted"):
            found = found.lower()
        at = match.end()
        yield _Token(kind, found, match.start(match.lastgroup) - (kind in ("text", "quoted")), at)


class _Parser:
    def __init__(self, text: str, evaluate: Evaluate, unused: list[str]) -> None:
        self._text = text
        self._evaluate = evaluate
        self._unused = unused

    def parse(self) -> Node:
        tokens = list(_tokens(self._text))
        self._check_parentheses(tokens)
        return self._any(tokens, 0)

    def _any(self, tokens: list[_Token], depth: int) -> Node:
        if depth > _DEPTH_MAX:
            raise _NotDivisibleError
        parts = [self._all(part, depth) for part in _divided(tokens, "or")]
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def _all(self, tokens: list[_Token], depth: int) -> Node:
        parts = [self._one(part, depth) for part in _divided(tokens, "and")]
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self, tokens: list[_Token], depth: int) -> Node:
        if not tokens:
            raise _NotDivisibleError
        if _is_name(tokens[0], "not"):
            return self._one(tokens[1:], depth).negated()
        if _closes_first(tokens):
            return self._any(tokens[1:-1], depth + 1)
        found = self._compared(tokens)
        if found is None:
            text = self._text[tokens[0].start : tokens[-1].end]
            self._unused.append(text)
            return Unknown(text)
        return found

    def _compared(self, tokens: list[_Token]) -> Node | None:
        if tokens[0].kind in ("name", "quoted") and tokens[0].text in _COLUMNS:
            return self._of_column(tokens[0].text, tokens[1:])
        last = tokens[-1]
        if last.kind in ("name", "quoted") and last.text in _COLUMNS and len(tokens) > 2:
            op = _SPELLINGS.get(tokens[-2].text, tokens[-2].text)
            if tokens[-2].kind == "sign" and op in _SWAPPED:
                return self._simple(last.text, _SWAPPED[op], tokens[:-2])
        return None

    def _of_column(self, column: str, rest: list[_Token]) -> Node | None:
        if rest and _is_name(rest[0], "not"):
            found = (
                self._of_column(column, rest[1:])
                if len(rest) > 1 and (_is_name(rest[1], "in") or _is_name(rest[1], "between"))
                else None
            )
            return None if found is None else found.negated()
        if len(rest) > 2 and _is_name(rest[0], "in") and _closes_first(rest[1:]):
            items = [self._simple(column, "=", it) for it in _by_commas(rest[2:-1])]
            known = [it for it in items if it is not None]
            return Any(tuple(known)) if len(known) == len(items) else None
        if rest and _is_name(rest[0], "between"):
            ends = [
                self._simple(column, op, part)
                for op, part in zip((">=", "<="), _divided(rest[1:], "and"), strict=False)
            ]
            known = [it for it in ends if it is not None]
            return All(tuple(known)) if len(known) == 2 else None
        if len(rest) > 1 and rest[0].kind == "sign":
            op = _SPELLINGS.get(rest[0].text, rest[0].text)
            if op in _SWAPPED:
                return self._simple(column, op, rest[1:])
        return None

    def _simple(self, column: str, op: str, value: list[_Token]) -> Node | None:
        if column == "topic":
            is_text = len(value) == 1 and value[0].kind == "text" and op in ("=", "!=")
            return Compared(column, op, value[0].text) if is_text else None
        if column == "timestamp":
            return self._of_time(op, value)
        is_negative = bool(value) and value[0].text == "-" and value[0].kind == "sign"
        digits = value[1:] if is_negative else value
        if len(digits) != 1 or digits[0].kind != "number":
            return None
        number = int(digits[0].text)
        return Compared(column, op, -number if is_negative else number)

    def _of_time(self, op: str, value: list[_Token]) -> Node | None:
        names = {"select", "is", "like", "in", "not", "between", "rlike", "ilike", "similar"}
        signs = {"=", "<", ">", "<=", ">=", "<>", "!=", "==", "<=>"}
        if not value or any(
            (it.kind == "name" and it.text in names) or (it.kind == "sign" and it.text in signs)
            for it in value
        ):
            return None
        found = self._evaluate(self._text[value[0].start : value[-1].end])
        return None if found is None else Compared("timestamp", op, found)

    def _check_parentheses(self, tokens: list[_Token]) -> None:
        depth = 0
        for token in tokens:
            depth += _step(token)
            if depth < 0:
                raise _NotDivisibleError
        if depth:
            raise _NotDivisibleError


def _is_name(token: _Token, text: str) -> bool:
    return token.kind == "name" and token.text == text


def _step(token: _Token) -> int:
    return 0 if token.kind != "sign" else {"(": 1, ")": -1}.get(token.text, 0)


def _closes_first(tokens: list[_Token]) -> bool:
    """Return whether the first token opens a parenthesis that the last one closes."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += _step(token)
        if not depth:
            return number == len(tokens) - 1 and number > 0
    return False


def _divided(tokens: list[_Token], word: str) -> list[list[_Token]]:
    """Return the parts between the names `word`, outside of parentheses and of BETWEEN ... AND."""
    parts: list[list[_Token]] = [[]]
    depth = betweens = 0
    for token in tokens:
        depth += _step(token)
        if not depth and _is_name(token, "between"):
            betweens += 1
        elif not depth and _is_name(token, "and") and betweens:
            betweens -= 1
        elif not depth and _is_name(token, word):
            parts.append([])
            continue
        parts[-1].append(token)
    return parts


def _by_commas(tokens: list[_Token]) -> list[list[_Token]]:
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _step(token)
        if not depth and token.kind == "sign" and token.text == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
