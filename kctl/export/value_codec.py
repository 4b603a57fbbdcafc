"""Converts single values between their bytes and JSON documents, by a schema.

`kctl consume` decodes and `kctl produce` encodes with it; tables are decoded by columns (`values`).
Confluent's serializers put a NUL and the schema's id before a value: encoded values have both if
the schema comes from a registry, and decoding skips them.
"""

import json
from collections.abc import Callable
from typing import Any

from kctl.dump.shapes import plain
from kctl.errors import UsageError, missing_extra
from kctl.export.schema_registry import CONFLUENT_BYTES
from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """The schema of a topic's values."""

    # json, avro or protobuf.
    kind: str
    # As `avro_reader` or `protobuf_reader` take it; a JSON Schema, or None for any JSON.
    text: str | None
    # (id, schema) of each version in a registry, for Avro.
    writers: tuple[tuple[int, str], ...] = ()
    # The id of the schema in a registry, which precedes encoded values; None: nothing does.
    schema_id: int | None = None


def value_decoder(schema: ValueSchema) -> Callable[[bytes], Any]:
    """Return a function from the bytes of a value to a document for JSON; it raises ValueError for
    bytes that are not a value of the schema. UsageError for an invalid schema."""
    read: Callable[[bytes], Any]
    if schema.kind == "avro":
        from kctl.export.avro import avro_reader

        read = avro_reader(schema.text or "", schema.writers)
    elif schema.kind == "protobuf":
        from kctl.export.protobuf import protobuf_reader

        read = protobuf_reader(schema.text or "")
    else:
        check = _json_check(schema.text)

        def read(data: bytes) -> Any:
            body = data[CONFLUENT_BYTES:] if data[:1] == b"\0" else data
            return check(json.loads(body))

    def decode(data: bytes) -> Any:
        try:
            return plain(read(data))
        except RecursionError:
            raise ValueError("nested too deep") from None

    return decode


def value_encoder(schema: ValueSchema) -> Callable[[Any], bytes]:
    """Return a function from a document to the bytes of a value; it raises ValueError for a
    document that does not fit the schema. UsageError for an invalid schema."""
    prefix = b""
    if schema.schema_id is not None:
        prefix = b"\0" + schema.schema_id.to_bytes(CONFLUENT_BYTES - 1, "big")
    write: Callable[[Any], bytes]
    if schema.kind == "avro":
        from kctl.export.avro_writer import avro_writer

        write = avro_writer(schema.text or "")
    elif schema.kind == "protobuf":
        from kctl.export.protobuf import confluent_indexes, protobuf_writer

        write = protobuf_writer(schema.text or "")
        prefix += confluent_indexes(schema.text or "") if prefix else b""
    else:
        check = _json_check(schema.text)

        def write(document: Any) -> bytes:
            text = json.dumps(check(document), ensure_ascii=False, separators=(",", ":"))
            return text.encode()

    return lambda document: prefix + write(document)


def _json_check(text: str | None) -> Callable[[Any], Any]:
    """Return a function that returns a document that fits a JSON Schema, and raises ValueError for
    any other."""
    if text is None:
        return lambda document: document
    try:
        import jsonschema  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise missing_extra("A JSON Schema needs jsonschema", "json-schema") from None
    try:
        schema = json.loads(text)
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except (ValueError, jsonschema.SchemaError) as error:
        message = getattr(error, "message", error)
        raise UsageError(f"Not a JSON Schema: {message}") from None
    validator = kind(schema)

    def check(document: Any) -> Any:
        error = jsonschema.exceptions.best_match(validator.iter_errors(document))
        if error is not None:
            raise ValueError(f"{error.json_path.replace('$', 'value', 1)}: {error.message}")
        return document

    return check
