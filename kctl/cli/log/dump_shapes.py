"""--key-as and --value-as of kctl dump-log, and the schemas that some of them need."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.records.bulk import require_bulk

if TYPE_CHECKING:
    from kctl.dump.shapes import Shaper, Shapes


class ShapeName(StrEnum):
    """How keys or values are shown."""

    STRING = "string"
    JSON = "json"
    INT = "int"
    HEX = "hex"
    AVRO = "avro"
    PROTOBUF = "protobuf"


KeyAsOption = Annotated[ShapeName | None, Option("--key-as", help="How keys are shown.")]
ValueAsOption = Annotated[ShapeName | None, Option("--value-as", help="How values are shown.")]
KeySchemaOption = Annotated[
    str | None, Option("--key-schema", metavar="FILE", help="The same, of keys.")
]
KeyMessageOption = Annotated[
    str | None, Option("--key-message", metavar="NAME", help="The same, of keys.")
]
SchemaOption = Annotated[
    str | None,
    Option("--schema", metavar="FILE", help="Of values: Avro's, .proto or compiled .proto."),
]
MessageOption = Annotated[
    str | None,
    Option("--message", metavar="NAME", help="Of protobuf. [default: the first]"),
]


@dataclass
class ShapeOptions:
    """How keys and values are shown."""

    key_as: KeyAsOption = None
    value_as: ValueAsOption = None
    schema: SchemaOption = None
    message: MessageOption = None
    key_schema: KeySchemaOption = None
    key_message: KeyMessageOption = None

    def shapes(self) -> "Shapes | None":
        """Return how both are shown, or None to leave it to the format.

        Raise UsageError for options that do not go together.
        """
        shapers = (
            _shaper("key", self.key_as, self.key_schema, self.key_message),
            _shaper("value", self.value_as, self.schema, self.message),
        )
        if shapers == (None, None):
            return None
        from kctl.dump.shapes import Shapes

        return Shapes(*shapers)


def _shaper(
    name: str, shape: ShapeName | None, schema: str | None, message: str | None
) -> "Shaper | None":
    """Return how the `key` or `value` is shown; its options begin with that name."""
    needs_schema = shape in (ShapeName.AVRO, ShapeName.PROTOBUF)
    prefix = "" if name == "value" else f"{name}-"
    if needs_schema and schema is None:
        raise UsageError(f"--{name}-as {shape} needs --{prefix}schema FILE")
    if schema is not None and not needs_schema:
        raise UsageError(f"--{prefix}schema goes with --{name}-as avro or protobuf")
    if message is not None and shape is not ShapeName.PROTOBUF:
        raise UsageError(f"--{prefix}message goes with --{name}-as protobuf")
    if shape is None:
        return None
    from kctl.dump.shapes import Shape, reading, shaper

    if schema is None:
        return shaper(Shape(shape.value))
    require_bulk(f"--{name}-as {shape}", shape.value)
    from kctl.cli.tables.export_schema import SchemaRequest, schema_of_file

    text = schema_of_file(SchemaRequest(shape.value, message=message), schema)
    if shape is ShapeName.AVRO:
        from kctl.export.avro import avro_reader

        return reading("avro", avro_reader(text))
    from kctl.export.protobuf import protobuf_reader

    return reading("protobuf", protobuf_reader(text))
