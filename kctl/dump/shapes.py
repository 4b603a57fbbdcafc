"""How keys and values are shown: as text, JSON, numbers or hex, whatever their bytes are.

What does not fit the wanted shape is shown in hex with a word that says so: nothing is guessed,
and no byte is lost. Shapes that need a schema are made by who has it: a reader of values.
"""

import base64
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time
from enum import StrEnum
from typing import Any

from kctl.lazy_dataclass import dataclass

_INT_SIZES = (1, 2, 4, 8)

# A value for JSON from bytes.
Shaper = Callable[[bytes], Any]


class Shape(StrEnum):
    """What bytes are taken for, where no schema is needed."""

    STRING = "string"
    JSON = "json"
    INT = "int"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shapes:
    """How keys and values are shown; None: as the output format shows bytes."""

    key: Shaper | None = None
    value: Shaper | None = None

    @property
    def is_default(self) -> bool:
        """Return whether neither keys nor values have a shape."""
        return self == Shapes()


def shaper(shape: Shape) -> Shaper:
    """Return the function that decodes bytes as `shape`."""
    return _SHAPERS[shape]


def reading(name: str, read: Callable[[bytes], Any]) -> Shaper:
    """Return a shaper that applies `read`; bytes for which it raises ValueError, or recurses too
    deep, are shown as hex."""

    def shape(data: bytes) -> Any:
        try:
            return plain(read(data))
        except (ValueError, RecursionError):
            return f"not {name}: {data.hex()}"

    return shape


def shaped(data: bytes | None, shape: Shaper) -> Any:
    """Return a value for JSON: a string, a number, whatever JSON holds; None for a null."""
    return None if data is None else shape(data)


def shaped_text(data: bytes | None, shape: Shaper) -> str:
    """Return the same in a line of text."""
    found = shaped(data, shape)
    if found is None:
        return "null"
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _string(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _int(data: bytes) -> int | str:
    if len(data) not in _INT_SIZES:
        return f"not an int: {data.hex()}"
    return int.from_bytes(data, "big", signed=True)


def plain(value: Any) -> Any:
    """Return `value` for JSON: bytes in base64, times in ISO 8601, other numbers as text."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


_SHAPERS: dict[Shape, Shaper] = {
    Shape.STRING: _string,
    Shape.JSON: reading("JSON", json.loads),
    Shape.INT: _int,
    Shape.HEX: bytes.hex,
}
