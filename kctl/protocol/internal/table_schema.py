"""TableSchema: reads messages of later Kafka versions into plain values by a table of their fields.

kctl is Kafka 2.7; forensics also reads what later versions left in a log. Those messages are only
read, so a table suffices, one line per field, nested fields indented:

    RegisterBrokerRecord 0 0-3 flexible 0+      name, number, versions, flexible versions
    brokerId int32 0+                           field, type, versions that have it
    rack string 0+ ?0+                          ? versions in which it may be null
    logDirs []uuid 3+ #0                        # tag of a tagged field
      directory uuid 1+ #1 =null                = its default, unless 0, false or empty

A message reads as a dict in the order of the table. Values are those of Kafka's JSON converters:
bytes in base64, UUIDs as Kafka writes them, tagged fields only where they differ from the default.

Kafka 4.1: the JSON schemas in common/message and common/metadata of its jars; KIP-482, KIP-631.
"""

import base64
import struct
from dataclasses import field
from typing import Any

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer, check_tag_count, read_tag_header, read_uvarint
from kctl.protocol.schema import is_in

_NUMBERS = {
    "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "uint32": ">I",
    "float64": ">d", "bool": ">?",
}  # fmt: skip
_UUID_BYTES = 16
# The largest depth of nested fields in a table.
_INDENT = 2

Value = Any
Document = dict[str, Value]


@dataclass(slots=True)
class TableField:
    """One line of a table."""

    name: str
    kind: str
    versions: str
    nullable: str | None = None
    tag: int | None = None
    default: Value = None
    fields: list["TableField"] = field(default_factory=list)

    @property
    def is_array(self) -> bool:
        return self.kind.startswith("[]")


@dataclass(slots=True)
class TableSchema:
    """A message: `number` is its apiKey or record type, -1 if it has none."""

    name: str
    number: int
    versions: str
    flexible: str
    fields: list[TableField] = field(default_factory=list)

    def read(self, version: int, data: Buffer, position: int = 0) -> Document:
        """Read the message; CorruptDataError for an unknown version or invalid bytes."""
        if not is_in(self.versions, version):
            raise CorruptDataError(f"{self.name} has no version {version}")
        reader = _Reader(data, position, version, is_in(self.flexible, version))
        try:
            return reader.struct(self.fields)
        except (struct.error, IndexError):
            raise CorruptDataError(f"{self.name} of version {version} is truncated") from None


def parse_tables(text: str) -> list[TableSchema]:
    """Parse the messages of a table."""
    schemas: list[TableSchema] = []
    parents: list[list[TableField]] = []
    for line in text.strip("\n").split("\n"):
        depth = (len(line) - len(line.lstrip())) // _INDENT
        words = line.split()
        if not depth:
            number = -1 if words[1] == "-" else int(words[1])
            schema = TableSchema(words[0], number, words[2], _range(words[4]))
            schemas.append(schema)
            parents = [schema.fields]
            continue
        made = _parse_field(words)
        del parents[depth:]
        parents[-1].append(made)
        parents.append(made.fields)
    return schemas


def _range(versions: str) -> str:
    # A range without versions.
    return "32767" if versions == "none" else versions


def _parse_field(words: list[str]) -> TableField:
    made = TableField(words[0], words[1], words[2])
    made.default = _plain_default(made.kind)
    for word in words[3:]:
        if word[0] == "?":
            made.nullable = word[1:]
        elif word[0] == "#":
            made.tag = int(word[1:])
        elif word == "=null":
            made.default = None
        else:
            made.default = int(word[1:])
    return made


def _plain_default(kind: str) -> Value:
    if kind.startswith("[]"):
        return []
    defaults = {"string": "", "bytes": "", "bool": False, "struct": None, "float64": 0.0}
    return uuid_text(bytes(_UUID_BYTES)) if kind == "uuid" else defaults.get(kind, 0)


def uuid_text(data: bytes) -> str:
    """Return a UUID as Kafka writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class _Reader:
    """Reads one message of one version."""

    def __init__(self, data: Buffer, position: int, version: int, is_flexible: bool) -> None:
        self._data = memoryview(data)
        self._position = position
        self._version = version
        self._is_flexible = is_flexible

    def struct(self, fields: list[TableField]) -> Document:
        present = [it for it in fields if is_in(it.versions, self._version)]
        found = {it.name: self._field(it) for it in present if it.tag is None}
        tagged = self._tagged([it for it in present if it.tag is not None])
        found |= tagged
        # The order is that of the table, tagged or not.
        return {it.name: found[it.name] for it in present if it.name in found}

    def _tagged(self, known: list[TableField]) -> Document:
        # A converter omits a tagged field with its default, except for a null struct.
        found: Document = {it.name: None for it in known if it.kind == "struct" and it.nullable}
        if not self._is_flexible:
            return found
        by_tag = {it.tag: it for it in known}
        count = self._uvarint()
        check_tag_count(count, len(self._data) - self._position)
        for _ in range(count):
            tag, self._position, end = read_tag_header(self._data, self._position)
            if tag in by_tag:
                value = self._field(by_tag[tag])
                if value != by_tag[tag].default:
                    found[by_tag[tag].name] = value
            self._position = end
        return found

    def _field(self, it: TableField) -> Value:
        nullable = it.nullable is not None and is_in(it.nullable, self._version)
        if it.is_array:
            count = self._size("int32")
            if count > len(self._data) - self._position:
                raise CorruptDataError(f"{it.name} of {count} elements reaches past the end")
            return None if count < 0 else [self._value(it.kind[2:], it) for _ in range(count)]
        if it.kind == "struct" and nullable and self._is_null(it):
            return None
        return self._value(it.kind, it)

    def _is_null(self, it: TableField) -> bool:
        """Read the null marker of a nullable struct."""
        if it.tag is not None:
            return self._uvarint() == 0
        is_null: bool = self._number("int8") < 0
        return is_null

    def _value(self, kind: str, it: TableField) -> Value:
        if kind in _NUMBERS:
            return self._number(kind)
        if kind == "struct":
            return self.struct(it.fields)
        if kind == "uuid":
            return uuid_text(self._take(_UUID_BYTES))
        size = self._size("int16" if kind == "string" else "int32")
        if size < 0:
            return None
        data = self._take(size)
        return data.decode("utf-8", "replace") if kind == "string" else _base64(data)

    def _size(self, kind: str) -> int:
        """Return the length prefix of a string, bytes or array; -1 for null."""
        size: int = self._uvarint() - 1 if self._is_flexible else self._number(kind)
        return size

    def _uvarint(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value

    def _number(self, kind: str) -> Value:
        layout = _NUMBERS[kind]
        (value,) = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return value

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise IndexError
        taken = bytes(self._data[self._position : end])
        self._position = end
        return taken


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
