"""The options of kctl consume and kctl produce about the format of values and its schema."""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.client.consumer import FetchedRecord
    from kctl.export.value_codec import ValueSchema

Encode = Callable[[Any], bytes]


class ValueName(StrEnum):
    """The values of `--value`."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True)
class ValueOptions:
    """The format of values, and where their schema is."""

    value: Annotated[
        ValueName,
        Option(
            "--value",
            help="The encoding of values in the topic; they are shown and entered as JSON.",
        ),
    ] = ValueName.RAW
    schema: Annotated[
        str | None,
        Option("--schema", metavar="FILE", help="Avro schema, .proto file, or JSON Schema."),
    ] = None
    registry: Annotated[
        str | None, Option("--registry", metavar="URL", help="Schema registry.")
    ] = None
    subject: Annotated[
        str | None,
        Option("--subject", metavar="NAME", help="Subject in the registry. [default: TOPIC-value]"),
    ] = None
    message: Annotated[
        str | None,
        Option("--message", metavar="NAME", help="Protobuf message. [default: the first]"),
    ] = None

    def value_schema(self, topics: Sequence[str]) -> "ValueSchema | None":
        """Return the schema, or None for raw values; raise UsageError if there is none."""
        from kctl.cli.tables.export_schema import SchemaOptions, record_schema

        given = SchemaOptions(self.schema, self.registry, self.subject, self.message)
        if self.value is not ValueName.RAW:
            return record_schema(given, self.value, topics)
        if given != SchemaOptions():
            raise UsageError("A schema goes with --value json, avro or protobuf")
        return None

    def encoder(self, topic: str) -> "Encode | None":
        """Return a function from a document to a value's bytes, or None for raw values; the
        function raises KctlError for a document that does not fit the schema."""
        schema = self.value_schema([topic])
        if schema is None:
            return None
        from kctl.export.value_codec import value_encoder

        write = value_encoder(schema)

        def encode(document: Any) -> bytes:
            try:
                return write(document)
            except (ValueError, RecursionError) as error:
                raise KctlError(str(error)) from None

        return encode


class JsonText(bytes):
    """A decoded value: the text of a JSON document."""


class ValueDecoder:
    """Replaces the values of records by JSON, and counts those that cannot be decoded, which stay
    as they are. Without a schema, all values stay."""

    def __init__(self, schema: "ValueSchema | None") -> None:
        self.undecodable = 0
        self._decode: Callable[[bytes], Any] | None = None
        if schema is not None:
            from kctl.export.value_codec import value_decoder

            self._decode = value_decoder(schema)

    def decoded(self, records: "list[FetchedRecord]") -> "list[FetchedRecord]":
        """Return the records with their values decoded."""
        if self._decode is None:
            return records
        return [self._decoded(it, self._decode) for it in records]

    def _decoded(self, fetched: "FetchedRecord", decode: Callable[[bytes], Any]) -> "FetchedRecord":
        value = fetched.record.value
        if value is None:
            return fetched
        try:
            text = json.dumps(decode(bytes(value)), ensure_ascii=False)
        except ValueError:
            self.undecodable += 1
            return fetched
        return fetched._replace(record=fetched.record._replace(value=JsonText(text.encode())))
