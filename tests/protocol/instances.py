"""Random messages for tests: every class, every version, every field that the version has.

Same seed, same messages. Values are drawn where encodings change: 127 and 128 bytes or elements,
the ends of number ranges, nulls, empty and non-ASCII text, unknown tagged fields.
"""

import random  # noqa: TID251 - only ever seeded
from collections.abc import Iterator

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Field, Message, Struct

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "topic-1", "żółw", "日本語", "\N{SNAKE}", "x" * 126, "y" * 127, "z" * 300)
BLOBS = (b"", b"\x00", b"\xff" * 126, b"\x01" * 127, bytes(range(256)))
FIRST_UNKNOWN_TAG = 50


def all_messages() -> Iterator[tuple[ApiKey, type[Message], int]]:
    """Every request and response of 2.7 in every version."""
    for api in ApiKey:
        for cls in (api.request_class, api.response_class):
            for version in range(api.max_version + 1):
                yield api, cls, version


class Instances:
    """Draws messages; `rules` may narrow what a field is given: (field) -> value or None."""

    def __init__(self, seed: int, *, unknown_tags: bool = True, rules=None) -> None:
        self.random = random.Random(seed)
        self.unknown_tags = unknown_tags
        self.rules = rules

    def message(self, cls: type[Message], version: int) -> Message:
        """A message whose every field is one that `version` can say."""
        return self._struct(cls, version, version >= cls.flexible_from)

    def _struct(self, cls: type[Struct], version: int, is_flexible: bool) -> Struct:
        values = {
            field.name: self._value(field, version, is_flexible)
            for field in cls.fields
            if field.is_in(version)
        }
        if is_flexible and self.unknown_tags and self.random.random() < 0.2:
            count = self.random.choice((1, 2, 130))
            numbers = range(FIRST_UNKNOWN_TAG, FIRST_UNKNOWN_TAG + count)
            values["unknown_tagged_fields"] = tuple((n, self._choice(BLOBS)) for n in numbers)
        return cls(**values)

    def _value(self, field: Field, version: int, is_flexible: bool):
        if field.is_nullable_in(version) and self.random.random() < 0.2:
            return None
        if field.kind == "struct":
            return self._struct(field.element, version, is_flexible)
        if field.kind == "array":
            return [
                self._struct(field.element, version, is_flexible)
                if isinstance(field.element, type)
                else self._plain(field, field.element)
                for _ in range(self._count(field))
            ]
        return self._plain(field, field.kind)

    def _count(self, field: Field) -> int:
        if not isinstance(field.element, type) and self.random.random() < 0.1:
            return self.random.choice((16, 17, 126, 127, 300))
        return self._choice((0, 1, 1, 2, 3))

    def _plain(self, field: Field, kind: str):
        ruled = self.rules(field) if self.rules is not None else None
        if ruled is not None:
            return ruled
        if kind in BITS:
            return self._number(BITS[kind])
        if kind == "uint16":
            return self._choice((0, 1, 9092, 0x7FFF, 0xFFFF))
        if kind == "uuid":
            return self.random.randbytes(16)
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "float64":
            return self._choice((0.0, -1.5, 1e300, self.random.random()))
        return self._choice(TEXTS if kind == "string" else BLOBS)

    def _number(self, bits: int) -> int:
        top = 1 << (bits - 1)
        edges = (0, 1, -1, -top, top - 1)
        return self._choice((*edges, self.random.randrange(-top, top)))

    def _choice(self, values):
        return values[self.random.randrange(len(values))]
