"""Requests filled to the brim: every request with as many elements as a client may send.

Each array of a request gives one form: this array is long, the arrays around it have one element,
all others are empty. Elements are named differently, so that nothing is looked up only once.
"""

from collections.abc import Iterator
from typing import Any

from kctl.protocol.schema import Field, Message, Struct

Path = tuple[str, ...]


def array_paths(struct: type[Struct], version: int, outer: Path = ()) -> Iterator[Path]:
    """The names that lead to every array that `version` has."""
    for field in struct.fields:
        if field.kind == "array" and field.is_in(version):
            path = (*outer, field.name)
            yield path
            if isinstance(field.element, type):
                yield from array_paths(field.element, version, path)


def filled(cls: type[Message], version: int, path: Path, count: int, name: str) -> Message:
    """A `cls` whose array at `path` has `count` elements; whatever leads there is called `name`."""
    message = _struct(cls, version, path, count, name)
    assert isinstance(message, Message)
    return message


def _struct(struct: type[Struct], version: int, path: Path, count: int, name: str) -> Struct:
    values: dict[str, Any] = {}
    for field in struct.fields:
        if not field.is_in(version):
            continue
        if field.kind == "array":
            values[field.name] = []
            if path and field.name == path[0]:
                values[field.name] = _elements(field, version, path[1:], count, name)
        elif field.kind == "string":
            values[field.name] = name
        elif field.name == "acks":
            # Else there is no answer to wait for.
            values[field.name] = 1
        elif field.name == "allow_auto_topic_creation":
            values[field.name] = False
    return struct(**values)


def _elements(field: Field, version: int, path: Path, count: int, name: str) -> list[Any]:
    if isinstance(field.element, type):
        if path:
            return [_struct(field.element, version, path, count, name)]
        return [_numbered(field.element, version, number) for number in range(count)]
    if field.element == "string":
        return [f"{number:x}" for number in range(count)]
    return list(range(count)) if field.element != "int8" else [1] * count


def _numbered(struct: type[Struct], version: int, number: int) -> Struct:
    element = _struct(struct, version, (), 0, f"{number:x}")
    for field in struct.fields:
        # The first number distinguishes the elements (a partition, a broker).
        if field.kind in ("int32", "int64") and field.is_in(version):
            setattr(element, field.name, number)
            break
    return element
