"""Encodes JSON documents as Avro values.

A document has the form in which kctl prints values: bytes in base64, times in ISO 8601, decimals as
text. A union takes the first branch that the value fits. Fields that the document lacks take the
schema's default. Avro 1.11: org.apache.avro.generic.GenericDatumWriter
"""

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.export.avro import parsed_schema

_TIMESTAMPS = ("timestamp-millis", "timestamp-micros")


def avro_writer(text: str) -> Callable[[Any], bytes]:
    """Return a function from a JSON document to the bytes of a value of the schema `text`; it
    raises ValueError, with the place, for a document that does not fit.

    UsageError for an invalid schema.
    """
    fastavro, schema = parsed_schema(text)
    encoder = _Encoder(fastavro)
    encoder.learn(schema)

    def write(document: Any) -> bytes:
        value = encoder.value(schema, document, "value")
        stream = pa.BufferOutputStream()
        try:
            fastavro.schemaless_writer(stream, schema, value)
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            raise ValueError(f"not a value of the Avro schema: {error}") from None
        data: bytes = stream.getvalue().to_pybytes()
        return data

    return write


class _Encoder:
    """Converts documents to what fastavro writes, by the schema."""

    def __init__(self, fastavro: Any) -> None:
        self._fastavro = fastavro
        # Full name -> schema of a record, enum or fixed.
        self._named: dict[str, Any] = {}

    def learn(self, schema: Any) -> None:
        """Find all named types."""
        if isinstance(schema, list):
            for branch in schema:
                self.learn(branch)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for field in schema.get("fields", ()):
                self.learn(field["type"])
            for key in ("items", "values"):
                self.learn(schema.get(key))
            if isinstance(schema["type"], dict | list):
                self.learn(schema["type"])

    def value(self, schema: Any, document: Any, place: str) -> Any:
        """Return the value of `document`, found at `place`; raise ValueError if it does not fit."""
        if isinstance(schema, list):
            return self._of_union(schema, document, place)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.value(kind, document, place)
        if kind == "record":
            return self._of_record(schema, document, place)
        if kind == "array" and isinstance(document, list):
            items = enumerate(document)
            return [self.value(schema["items"], it, f"{place}[{n}]") for n, it in items]
        if kind == "map" and isinstance(document, dict):
            pairs = document.items()
            return {k: self.value(schema["values"], it, f"{place}.{k}") for k, it in pairs}
        value = _scalar(schema, document, place)
        if not self._fastavro.validation.validate(value, schema, raise_errors=False):
            raise ValueError(f"{place} is not of Avro type {schema.get('name', kind)}")
        return value

    def _of_union(self, branches: list[Any], document: Any, place: str) -> Any:
        failures = []
        for branch in branches:
            try:
                return self.value(branch, document, place)
            except ValueError as error:
                failures.append((branch, error))
        others = [error for branch, error in failures if branch != "null"]
        # With one type besides null, its error says more.
        raise others[0] if len(others) == 1 else ValueError(f"{place} fits no branch of its union")

    def _of_record(self, schema: Any, document: Any, place: str) -> dict[str, Any]:
        if not isinstance(document, dict):
            raise ValueError(f"{place} is not an object, which {schema['name']} needs")
        names = [field["name"] for field in schema["fields"]]
        unknown = [name for name in document if name not in names]
        if unknown:
            raise ValueError(f"{place}.{unknown[0]} is not a field of {schema['name']}")
        values = {}
        for field in schema["fields"]:
            name = field["name"]
            if name in document:
                values[name] = self.value(field["type"], document[name], f"{place}.{name}")
            elif "default" in field:
                values[name] = field["default"]
            else:
                raise ValueError(f"{place}.{name} is missing, and has no default")
        return values


def _scalar(schema: Any, document: Any, place: str) -> Any:
    """Return the value of a type without parts; other documents are left for validation."""
    if not isinstance(document, str | int | float):
        return document
    logical, kind = schema.get("logicalType"), schema["type"]
    try:
        if logical == "decimal":
            return Decimal(str(document))
        if isinstance(document, str) and logical == "date":
            return date.fromisoformat(document)
        if isinstance(document, str) and logical in _TIMESTAMPS:
            found = datetime.fromisoformat(document)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(document, str) and kind in ("bytes", "fixed"):
            return base64.b64decode(document, validate=True)
    except (ValueError, InvalidOperation):
        what = logical or "base64"
        raise ValueError(f"{place} is not a {what}: {document!r}") from None
    return document
