"""Expressions on records: `value.country == "NO" and not key == null`. Pure.

Nothing is evaluated as code.


    any      = all { "or" all }
    all      = one { "and" one }
    one      = "not" one | "(" any ")" | field [ operator literal ]
    operator = "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "matches"
    field    = ("value" | "key") { "." name | "[" number "]" } | "headers." name | "timestamp"
    literal  = JSON string, number, true, false or null

`value` and `key` are text; with a path they are JSON, and what a record does not have is null. A
field alone holds if it is neither null nor false. Values of different types are unequal, and no
order holds between them.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from kctl.errors import CorruptDataError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.records.record import Record

EXPRESSION_CHARACTERS_MAX = 10_000
_DEPTH_MAX = 50
_TOKEN = re.compile(
    r"\s*(?:(?P<literal>\"(?:[^\"\\]|\\.)*\"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z_][\w.\-]*(?:\[\d+\][\w.\-]*)*)"
    r"|(?P<sign>==|!=|<=|>=|<|>|\(|\)))"
)
_STEP = re.compile(r"\.([\w\-]+)|\[(\d+)\]")
_CONSTANTS = {"true": True, "false": False, "null": None}
_HINT = "e.g. 'value.country == \"NO\" and headers.test == null'"

Step = str | int
Test = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a record."""

    part: str
    path: tuple[Step, ...] = ()

    def of(self, record: Record) -> Any:
        """Return its value in a record; None if it has none."""
        if self.part == "timestamp":
            return record.timestamp
        if self.part == "headers":
            values = [value for name, value in record.headers if name == self.path[0]]
            return None if not values or values[-1] is None else _text(values[-1])
        data = record.value if self.part == "value" else record.key
        if data is None:
            return None
        return _text(data) if not self.path else _at(bytes(data), self.path)


def parse_field(text: str) -> Field:
    """Return the field that `text` names; raise UsageError."""
    part = re.match(r"\w+", text)
    name = part.group() if part else ""
    rest = text[len(name) :]
    if name == "headers" and len(rest) > 1 and rest.startswith("."):
        return Field(name, (rest[1:],))
    steps = [step or int(number) for step, number in _STEP.findall(rest)]
    is_whole = "".join(it.group() for it in _STEP.finditer(rest)) == rest
    if name not in ("value", "key", "timestamp") or not is_whole or (name == "timestamp" and steps):
        raise UsageError(f"Not a field of a record: {text!r}", hint="e.g. value.customer.id")
    return Field(name, tuple(steps))


def parse_expression(text: str) -> Test:
    """Return the test that `text` describes; raise UsageError."""
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise UsageError(f"An expression has at most {EXPRESSION_CHARACTERS_MAX} characters")
    parser = _Parser(text)
    test = parser.any(0)
    if parser.next is not None:
        raise parser.error()
    return test


class _Parser:
    """Tokens of an expression, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        # (kind, text) of the token that comes next.
        self.next: tuple[str, str] | None = None
        self._step()

    def error(self) -> UsageError:
        """Return an error about the token that comes next."""
        found = "its end" if self.next is None else repr(self.next[1])
        return UsageError(f"Not an expression: {self._text!r}, at {found}", hint=_HINT)

    def any(self, depth: int) -> Test:
        """Read alternatives."""
        tests = [self._all(depth)]
        while self._takes("or"):
            tests.append(self._all(depth))
        return tests[0] if len(tests) == 1 else lambda record: any(it(record) for it in tests)

    def _all(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._takes("and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda record: all(it(record) for it in tests)

    def _one(self, depth: int) -> Test:
        if depth > _DEPTH_MAX:
            raise UsageError(f"An expression is nested at most {_DEPTH_MAX} deep")
        if self._takes("not"):
            inner = self._one(depth + 1)
            return lambda record: not inner(record)
        if self._takes("("):
            inner = self.any(depth + 1)
            if not self._takes(")"):
                raise self.error()
            return inner
        if self._kind() != "word":
            raise self.error()
        field = parse_field(self._take())
        if self._word() not in _OPERATORS:
            return lambda record: field.of(record) not in (None, False)
        operator = self._take()
        wanted = self._literal()
        if operator in ("contains", "matches"):
            return _text_test(field, operator, wanted)
        compare = _OPERATORS[operator]
        return lambda record: compare(field.of(record), wanted)

    def _literal(self) -> Any:
        if self._kind() == "literal":
            try:
                return json.loads(self._take())
            except ValueError:
                raise self.error() from None
        if self._word() in _CONSTANTS:
            return _CONSTANTS[self._take()]
        raise self.error()

    def _kind(self) -> str:
        return self.next[0] if self.next is not None else ""

    def _word(self) -> str:
        return self.next[1] if self.next is not None and self.next[0] != "literal" else ""

    def _takes(self, token: str) -> bool:
        if self._word() != token:
            return False
        self._step()
        return True

    def _take(self) -> str:
        token = self.next[1] if self.next is not None else ""
        self._step()
        return token

    def _step(self) -> None:
        rest = self._text[self._position :]
        if not rest.strip():
            self.next = None
            return
        match = _TOKEN.match(rest)
        if match is None:
            self.next = ("other", rest.strip()[:20])
            raise self.error()
        self._position += match.end()
        self.next = (str(match.lastgroup), match.group(str(match.lastgroup)))


def _text_test(field: Field, operator: str, wanted: Any) -> Test:
    if not isinstance(wanted, str):
        raise UsageError(f"{operator} takes a string, not {json.dumps(wanted)}", hint=_HINT)
    if operator == "contains":
        return lambda record: isinstance(at := field.of(record), str) and wanted in at
    try:
        pattern = re.compile(wanted)
    except re.error as error:
        raise UsageError(f"Not a regular expression: {wanted}: {error}") from None
    return lambda record: isinstance(at := field.of(record), str) and bool(pattern.search(at))


def _is_equal(value: Any, wanted: Any) -> bool:
    return _kind(value) == _kind(wanted) and bool(value == wanted)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def test(value: Any, wanted: Any) -> bool:
        return _kind(value) == _kind(wanted) in ("number", "str") and compare(value, wanted)

    return test


def _kind(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _is_equal,
    "!=": lambda value, wanted: not _is_equal(value, wanted),
    "<": _ordered(lambda value, wanted: value < wanted),
    "<=": _ordered(lambda value, wanted: value <= wanted),
    ">": _ordered(lambda value, wanted: value > wanted),
    ">=": _ordered(lambda value, wanted: value >= wanted),
    "contains": _is_equal,
    "matches": _is_equal,
}


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


def _at(data: bytes, path: tuple[Step, ...]) -> Any:
    try:
        found = json.loads(data)
        for step in path:
            found = found[step]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError):
        return None
    return found


def masking(field: Field) -> Callable[[Record], Record]:
    """Return a change that replaces a field of the JSON value by `"***"`, or removes a header.

    UsageError for another field. A JSON value without the field stays as it is, byte for byte. The
    change raises CorruptDataError for a value that is not JSON: what is not understood is not
    passed on unmasked.
    """
    if field.part == "headers":
        name = field.path[0]
        return lambda it: it._replace(headers=tuple(h for h in it.headers if h[0] != name))
    if field.part != "value" or not field.path:
        raise UsageError(
            "--mask takes a field of the value, or a header", hint="e.g. --mask value.card.number"
        )

    def mask(record: Record) -> Record:
        if record.value is None:
            return record
        try:
            document = json.loads(bytes(record.value))
        except (ValueError, RecursionError):
            raise CorruptDataError("A value is not JSON, and cannot be masked") from None
        try:
            parent = document
            for step in field.path[:-1]:
                parent = parent[step]
            _ = parent[field.path[-1]]
            parent[field.path[-1]] = "***"
        except (KeyError, IndexError, TypeError):
            return record
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return record._replace(value=text.encode("utf-8", "surrogatepass"))

    return mask
