"""Protobuf values: the columns of a message, and a decoder that parses each value with protobuf.

Confluent's serializer puts bytes before a value: a NUL, the schema's id, and the message's indexes
in its file. They are skipped if present; no message begins with a NUL. Enums are decoded to their
names, Timestamp to a timestamp, maps to maps. An absent field is null if it tracks presence and has
its default otherwise. Unknown fields are dropped, so values of older and newer versions of a schema
can be read with any of them. A message that contains itself is text where it recurs: protobuf's
JSON mapping; so are Struct, Value and ListValue, and messages without fields inside others. A value
whose indexes name another message of the file is not decoded.
"""

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import UsageError, missing_extra
from kctl.export.decoding import Decode, EachDecoder
from kctl.export.schema_registry import CONFLUENT_BYTES
from kctl.protocol.primitives import write_uvarint

_SCALARS: dict[str, pa.DataType] = {
    "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "INT64": pa.int64(), "INT32": pa.int32(),
    "FIXED32": pa.int64(), "UINT32": pa.int64(), "SINT32": pa.int32(), "SINT64": pa.int64(),
    "SFIXED32": pa.int32(), "SFIXED64": pa.int64(), "BOOL": pa.bool_(), "STRING": pa.string(),
    "BYTES": pa.binary(), "ENUM": pa.string(),
    # Many readers of tables do not support unsigned integers.
    "UINT64": pa.decimal128(20, 0), "FIXED64": pa.decimal128(20, 0),
}  # fmt: skip
_TIMESTAMP = "google.protobuf.Timestamp"
# Messages that hold a JSON document.
_DOCUMENTS = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
# Converts a field's value to the value of its column.
_Convert = Callable[[Any], Any]


def protobuf_schema(descriptor_set: bytes, message: str | None) -> str:
    """Return the schema as `protobuf_decoder` takes it: a FileDescriptorSet and a message name, as
    JSON.

    By default the message is the first in the last file. UsageError if there is none.
    """
    descriptors = _library("descriptor_pb2")
    try:
        found = descriptors.FileDescriptorSet.FromString(descriptor_set)
    except _library("message", "google.protobuf").DecodeError as error:
        raise UsageError(f"Not a protobuf descriptor set: {error}") from None
    if not found.file or not found.file[-1].message_type:
        raise UsageError("The protobuf schema has no message")
    last = found.file[-1]
    first = ".".join(filter(None, (last.package, last.message_type[0].name)))
    files = base64.b64encode(descriptor_set).decode()
    return json.dumps({"message": message or first, "files": files})


def protobuf_columns(text: str) -> pa.DataType:
    """Return the Arrow type of the message's column; UsageError as `protobuf_decoder` raises it."""
    return _struct(_message(text)[0], ())[0]


def protobuf_decoder(
    text: str, writers: Iterable[tuple[int, str]] = ()
) -> tuple[Decode, pa.DataType]:
    """Return a decoder for the message, and the Arrow type of the decoded column.

    `text` comes from `protobuf_schema`, and so do those of `writers`, by their ids in a registry: a
    value with another id, or whose writer has a field of another type, is not decoded. UsageError
    for a message that is unknown or has no columns.
    """
    descriptor, message, decode_error = _message(text)
    kind, convert = _struct(descriptor, ())
    places = _places(descriptor)
    conflicts = {number: _conflict_of(writer, descriptor) for number, writer in writers}

    def read(data: bytes) -> Any:
        if data[:1] == b"\0":
            _check_id(data, conflicts)
            data = _after_indexes(data, places)
        return convert(message.FromString(data))

    return EachDecoder(read, kind, (decode_error, ValueError, OverflowError)), kind


def protobuf_reader(text: str) -> Callable[[bytes], Any]:
    """Return a function from bytes to the message in protobuf's JSON mapping.

    The function raises ValueError for bytes that are not such a message. UsageError for an unknown
    message.
    """
    descriptor, message, decode_error = _message(text)
    places = _places(descriptor)

    def read(data: bytes) -> Any:
        body = _after_indexes(data, places) if data[:1] == b"\0" else data
        try:
            return _document(message.FromString(body))
        except decode_error as error:
            raise ValueError(str(error)) from None

    return read


def protobuf_writer(text: str) -> Callable[[Any], bytes]:
    """Return a function from protobuf's JSON mapping to the bytes of a message; it raises
    ValueError for a document that does not fit. UsageError for an unknown message."""
    _descriptor, message, _decode_error = _message(text)
    json_format = _library("json_format")

    def write(document: Any) -> bytes:
        if not isinstance(document, dict):
            raise ValueError("not an object, which a protobuf message needs")
        try:
            found: bytes = json_format.ParseDict(document, message()).SerializeToString()
        except json_format.ParseError as error:
            raise ValueError(f"not such a message: {error}") from None
        return found

    return write


def confluent_indexes(text: str) -> bytes:
    """Return the message's indexes in its file, which follow the schema's id in Confluent's form:
    their number and each of them as zigzag varints, or one zero for the first message."""
    places = _places(_message(text)[0])
    if places == [0]:
        return b"\0"
    return b"".join(write_uvarint(number << 1) for number in (len(places), *places))


def _check_id(data: bytes, conflicts: dict[int, str | None]) -> None:
    """Raise ValueError if the value's id is not among the known ones or its schema does not fit."""
    number = int.from_bytes(data[1:CONFLUENT_BYTES], "big")
    if conflicts and number not in conflicts:
        raise ValueError(f"unknown schema id {number}")
    if conflicts.get(number) is not None:
        raise ValueError(f"schema id {number} does not fit the columns: {conflicts[number]}")


def _conflict_of(writer: str, reader: Any) -> str | None:
    """Return why values of the schema `writer` cannot be read as the message `reader`, or None."""
    try:
        found = _message(json.dumps(json.loads(writer) | {"message": reader.full_name}))[0]
    except UsageError:
        # Its values are of other messages, which their indexes show.
        return None
    return _conflict(found, reader, set())


def _conflict(writer: Any, reader: Any, seen: set[str]) -> str | None:
    if reader.full_name in seen:
        return None
    seen.add(reader.full_name)
    types = _library("descriptor_pb2").FieldDescriptorProto.Type
    for number, field in reader.fields_by_number.items():
        other = writer.fields_by_number.get(number)
        if other is None:
            continue
        if (other.type, other.is_repeated) != (field.type, field.is_repeated):
            names = [types.Name(it.type).removeprefix("TYPE_").lower() for it in (other, field)]
            ways = ["repeated " * it.is_repeated for it in (other, field)]
            return f"{field.name} is {ways[0]}{names[0]}, not {ways[1]}{names[1]}"
        if field.message_type is not None:
            inner = _conflict(other.message_type, field.message_type, seen)
            if inner is not None:
                return inner
    return None


def _library(name: str, package: str = "google.protobuf") -> Any:
    from importlib import import_module

    try:
        return import_module(f"{package}.{name}")
    except ImportError:
        raise missing_extra("Protobuf values need protobuf", "protobuf") from None


def _message(text: str) -> tuple[Any, Any, type[Exception]]:
    """Return the message's descriptor, its class, and the exception that parsing raises."""
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
            f"No message {facts['message']} in the schema", hint=f"messages: {', '.join(names)}"
        ) from None
    return descriptor, factory.GetMessageClass(descriptor), _library("message").DecodeError


def _places(descriptor: Any) -> list[int]:
    """Return the message's index in its file: that of the outermost message first, then inwards."""
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


def _after_indexes(data: bytes, places: list[int]) -> bytes:
    """Return the message after Confluent's bytes; ValueError if they name another message."""
    numbers: list[int] = []
    position, count = CONFLUENT_BYTES, 1
    while len(numbers) < count + 1:
        value = shift = 0
        while True:
            if position >= len(data) or shift > 63:
                raise ValueError("truncated")
            byte = data[position]
            position, value, shift = position + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        numbers.append(value >> 1 ^ -(value & 1))
        count = numbers[0]
        if count == 0:  # an abbreviation of [0]
            numbers = [1, 0]
            break
    if numbers[1:] != places:
        raise ValueError("another message")
    return data[position:]


def _document(message: Any) -> Any:
    """Return the message in protobuf's JSON mapping.

    ValueError if a value in it has none: NaN in a Value, the year 10000 in a Timestamp, or a type
    that the schema does not have in an Any.
    """
    json_format = _library("json_format")
    try:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (json_format.Error, TypeError, ValueError) as error:
        raise ValueError(f"no JSON: {error}") from None


def _struct(descriptor: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, _Convert]:
    is_empty = not descriptor.fields
    if descriptor.full_name in outer or descriptor.full_name in _DOCUMENTS or (outer and is_empty):
        return pa.string(), lambda found: json.dumps(_document(found), ensure_ascii=False)
    if is_empty:
        raise UsageError(f"Protobuf message {descriptor.full_name} has no fields and so no columns")
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
