"""Protobuf values: a message's columns, and a decoder that asks protobuf's library for each value.

Confluent's bytes before a value (a NUL, the schema's number, the message's place in its file) are
skipped if they are there: no message begins with a NUL. Enums become their names, Timestamp a time,
maps maps; a field that may be absent is null then, another has its default. Fields that the message
does not know are left out, so values of older and newer versions of a schema are read by any of
them; a value whose bytes name another message of the file is not decoded.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import UsageError
from kctl.export.decoding import Decode, decode_each
from kctl.export.schema_registry import CONFLUENT_BYTES

_SCALARS: dict[str, pa.DataType] = {
    "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "INT64": pa.int64(), "INT32": pa.int32(),
    "FIXED32": pa.int64(), "UINT32": pa.int64(), "SINT32": pa.int32(), "SINT64": pa.int64(),
    "SFIXED32": pa.int32(), "SFIXED64": pa.int64(), "BOOL": pa.bool_(), "STRING": pa.string(),
    "BYTES": pa.binary(), "ENUM": pa.string(),
    # Readers of tables know no unsigned numbers.
    "UINT64": pa.decimal128(20, 0), "FIXED64": pa.decimal128(20, 0),
}  # fmt: skip
_TIMESTAMP = "google.protobuf.Timestamp"
# A field's value to that of its column.
_Convert = Callable[[Any], Any]


def protobuf_schema(descriptor_set: bytes, message: str | None) -> str:
    """The schema as `protobuf_decoder` takes it: a compiled FileDescriptorSet, and the name of the
    message; by default the first in the last file. UsageError if there is none."""
    descriptors = _library("descriptor_pb2")
    try:
        found = descriptors.FileDescriptorSet.FromString(descriptor_set)
    except _library("message", "google.protobuf").DecodeError as error:
        raise UsageError(f"Not a descriptor set of protobuf's: {error}") from None
    if not found.file or not found.file[-1].message_type:
        raise UsageError("The protobuf schema has no message")
    last = found.file[-1]
    first = ".".join(filter(None, (last.package, last.message_type[0].name)))
    files = base64.b64encode(descriptor_set).decode()
    return json.dumps({"message": message or first, "files": files})


def protobuf_decoder(text: str) -> tuple[Decode, pa.DataType]:
    """A function from binary values to (decoded values, which of them are not decoded or None),
    and the type of what it makes. UsageError for a message that is not there or has no columns."""
    descriptor, message, decode_error = _message(text)
    kind, convert = _struct(descriptor, ())
    places = _places(descriptor)

    def read(data: bytes) -> Any:
        if data[:1] == b"\0":
            data = _behind_indexes(data, places)
        return convert(message.FromString(data))

    return decode_each(read, kind, (decode_error, ValueError, OverflowError)), kind


def protobuf_reader(text: str) -> Callable[[bytes], Any]:
    """A function from bytes to the message in protobuf's own JSON; it raises ValueError for bytes
    that are none. UsageError for a message that is not there."""
    descriptor, message, decode_error = _message(text)
    to_document = _library("json_format").MessageToDict
    places = _places(descriptor)

    def read(data: bytes) -> Any:
        body = _behind_indexes(data, places) if data[:1] == b"\0" else data
        try:
            return to_document(message.FromString(body), preserving_proto_field_name=True)
        except decode_error as error:
            raise ValueError(str(error)) from None

    return read


def _library(name: str, package: str = "google.protobuf") -> Any:
    from importlib import import_module

    try:
        return import_module(f"{package}.{name}")
    except ImportError:
        raise UsageError(
            "Protobuf values need protobuf", hint="pip install 'kctl[protobuf]'"
        ) from None


def _message(text: str) -> tuple[Any, Any, type[Exception]]:
    """(descriptor, class, the error of bytes that are none)."""
    facts = json.loads(text)
    pools, factory = _library("descriptor_pool"), _library("message_factory")
    found = _library("descriptor_pb2").FileDescriptorSet.FromString(
        base64.b64decode(facts["files"])
    )
    pool = pools.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    try:
        descriptor = pool.FindMessageTypeByName(facts["message"])
    except KeyError:
        names = [it.name for file in found.file for it in file.message_type]
        raise UsageError(
            f"No message {facts['message']} in the schema", hint=f"there is {', '.join(names)}"
        ) from None
    return descriptor, factory.GetMessageClass(descriptor), _library("message").DecodeError


def _places(descriptor: Any) -> list[int]:
    """Where a message is in its file: the number of the outermost one, and so on inwards."""
    places: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = (
            outer.nested_types if outer is not None
            else list(descriptor.file.message_types_by_name.values())
        )  # fmt: skip
        places.insert(0, [it.full_name for it in siblings].index(descriptor.full_name))
        descriptor = outer
    return places


def _behind_indexes(data: bytes, places: list[int]) -> bytes:
    """The message behind Confluent's bytes; ValueError if they name another one."""
    numbers: list[int] = []
    position, count = CONFLUENT_BYTES, 1
    while len(numbers) < count + 1:
        value = shift = 0
        while True:
            if position >= len(data) or shift > 63:
                raise ValueError("cut short")
            byte = data[position]
            position, value, shift = position + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        numbers.append(value >> 1 ^ -(value & 1))
        count = numbers[0]
        if count == 0:  # short for [0]
            numbers = [1, 0]
            break
    if numbers[1:] != places:
        raise ValueError("another message")
    return data[position:]


def _struct(descriptor: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, _Convert]:
    if descriptor.full_name in outer:
        raise UsageError(f"Protobuf message {descriptor.full_name} has no column: it holds itself")
    if not descriptor.fields:
        raise UsageError(f"Protobuf message {descriptor.full_name} has no fields, so no columns")
    names = (*outer, descriptor.full_name)
    fields = [(field, *_field(field, names)) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            field.name: None
            if field.has_presence and not message.HasField(field.name)
            else read(getattr(message, field.name))
            for field, _kind, read in fields
        }

    return pa.struct([(field.name, kind) for field, kind, _read in fields]), convert


def _field(field: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, _Convert]:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key_kind, _ = _single(entry.fields_by_name["key"], outer)
        value_kind, read = _single(entry.fields_by_name["value"], outer)
        return pa.map_(key_kind, value_kind), lambda found: [(k, read(found[k])) for k in found]
    kind, read = _single(field, outer)
    if field.is_repeated:
        return pa.list_(kind), lambda found: [read(it) for it in found]
    return kind, read


def _single(field: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, _Convert]:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC"), lambda found: found.ToMicroseconds()
        return _struct(field.message_type, outer)
    if field.enum_type is not None:
        names = {it.number: it.name for it in field.enum_type.values}
        return pa.string(), lambda found: names.get(found, str(found))
    types = _library("descriptor_pb2").FieldDescriptorProto.Type
    return _SCALARS[types.Name(field.type).removeprefix("TYPE_")], lambda found: found
