"""How keys and values are shown: as text, JSON, numbers or hex, whatever their bytes are.

What does not fit the wanted shape is shown in hex with a word that says so: nothing is guessed,
and no byte is lost.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_INT_SIZES = (1, 2, 4, 8)


class Shape(StrEnum):
    """What bytes are taken for."""

    STRING = "string"
    JSON = "json"
    INT = "int"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of keys and of values; None: as the format has it."""

    key: Shape | None = None
    value: Shape | None = None

    @property
    def is_default(self) -> bool:
        return self == Shapes()


def shaped(data: bytes | None, shape: Shape) -> Any:
    """A value for JSON: a string, a number, whatever JSON holds; None for a null."""
    return None if data is None else _SHAPERS[shape](data)


def shaped_text(data: bytes | None, shape: Shape) -> str:
    """The same in a line of text."""
    found = shaped(data, shape)
    if found is None:
        return "null"
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _string(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return f"not JSON: {data.hex()}"


def _int(data: bytes) -> int | str:
    if len(data) not in _INT_SIZES:
        return f"not an int: {data.hex()}"
    return int.from_bytes(data, "big", signed=True)


_SHAPERS: dict[Shape, Callable[[bytes], Any]] = {
    Shape.STRING: _string,
    Shape.JSON: _json,
    Shape.INT: _int,
    Shape.HEX: bytes.hex,
}
