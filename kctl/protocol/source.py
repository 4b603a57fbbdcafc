"""SourceWriter: lines of Python with indentation, and runs of fixed-width fields among them.

Shared by `encoder_source` and `decoder_source`. A run collects format letters until a field of
variable length follows; then the run becomes one call of one precompiled `Struct`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Packing
from typing import Any

from kctl.errors import CorruptDataError
from kctl.protocol.schema import Field, Message, Struct

# Format letter and size of each fixed-width kind.
FIXED = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}
# Number arrays up to this length have a precompiled Struct, longer ones a format made when needed.
PRECOMPILED_ARRAY_MAX = 16

_packings: dict[str, Packing] = {}


def packing(format_letters: str) -> Packing:
    """Return the big-endian `Struct` of these letters, made once."""
    made = _packings.get(format_letters)
    if made is None:
        made = _packings[format_letters] = Packing(">" + format_letters)
    return made


def number_packings(letter: str) -> tuple[Packing, ...]:
    """Return the Structs of 0, 1, 2, ... numbers of one kind."""
    return tuple(packing(letter * count) for count in range(PRECOMPILED_ARRAY_MAX + 1))


class SourceWriter:
    """The text of one function, and the names that it uses."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.is_flexible = version >= cls.flexible_from
        self.namespace: dict[str, Any] = {}
        # (format letter, expression) of the fixed-width run that is not written yet.
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._indent = 0

    def emit(self, *lines: str) -> None:
        """Add lines at the current depth."""
        for line in lines:
            self._lines.append(" " * self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent lines emitted inside the block under `head`."""
        self.emit(head)
        self._indent += 1
        size = len(self._lines)
        yield
        if len(self._lines) == size:
            self.emit("pass")
        self._indent -= 1

    def name(self, prefix: str, value: object) -> str:
        """Return a new global name for `value`."""
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def is_compact(self, field: Field) -> bool:
        """Return whether the field has varint lengths."""
        return self.is_flexible and field.flexible != "none"

    def fields(self, struct: type[Struct]) -> list[Field]:
        """Return the untagged fields that the version has, in the order of the wire."""
        return [
            field
            for field in struct.fields
            if field.is_in(self.version) and (field.tag is None or not self.is_flexible)
        ]

    def tagged_fields(self, struct: type[Struct]) -> list[Field]:
        """Return the tagged fields that the version knows."""
        return [
            field
            for field in struct.fields
            if field.is_in(self.version) and field.tag is not None and self.is_flexible
        ]

    def text(self) -> str:
        """Return the complete source."""
        return "\n".join(self._lines)


def null_error(name: str) -> CorruptDataError:
    """Return the error for a null that the version does not allow."""
    return CorruptDataError(f"{name} is null")


def size_error(name: str, size: int) -> CorruptDataError:
    """Return the error for a count or length that is impossible or too large."""
    return CorruptDataError(f"{name} claims {size} elements")
