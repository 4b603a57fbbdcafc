"""--key-as and --value-as of kctl dump-log, and the schemas that some of them need."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.errors import UsageError

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


KeyAsOption = Annotated[ShapeName | None, typer.Option("--key-as", help="How keys are shown.")]
ValueAsOption = Annotated[
    ShapeName | None, typer.Option("--value-as", help="How values are shown.")
]
KeySchemaOption = Annotated[
    str | None, typer.Option("--key-schema", metavar="FILE", help="The same, of keys.")
]
KeyMessageOption = Annotated[
    str | None, typer.Option("--key-message", metavar="NAME", help="The same, of keys.")
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="FILE", help="Of values: Avro's, .proto or compiled .proto."),
]
MessageOption = Annotated[
    str | None,
    typer.Option("--message", metavar="NAME", help="Of protobuf. [default: the first]"),
]


@dataclass(frozen=True, slots=True)
class ShapeWords:
    """What the command line says of keys, or of values."""

    shape: ShapeName | None
    schema: str | None
    message: str | None
    # What its options begin with.
    option: str


def shapes_of(key: ShapeWords, value: ShapeWords) -> "Shapes | None":
    """None: both as the format has it. UsageError for options that do not fit."""
    shapers = _shaper(key), _shaper(value)
    if shapers == (None, None):
        return None
    from kctl.dump.shapes import Shapes

    return Shapes(*shapers)


def _shaper(words: ShapeWords) -> "Shaper | None":
    name, shape = words.option, words.shape
    needs_schema = shape in (ShapeName.AVRO, ShapeName.PROTOBUF)
    prefix = "" if name == "value" else f"{name}-"
    if needs_schema and words.schema is None:
        raise UsageError(f"--{name}-as {shape} needs --{prefix}schema FILE")
    if words.schema is not None and not needs_schema:
        raise UsageError(f"--{prefix}schema goes with --{name}-as avro or protobuf")
    if words.message is not None and shape is not ShapeName.PROTOBUF:
        raise UsageError(f"--{prefix}message goes with --{name}-as protobuf")
    if shape is None:
        return None
    from kctl.dump.shapes import Shape, reading, shaper

    if words.schema is None:
        return shaper(Shape(shape.value))
    from kctl.cli.export_schema import SchemaWords, schema_of_file

    text = schema_of_file(SchemaWords(shape.value, message=words.message), words.schema)
    if shape is ShapeName.AVRO:
        from kctl.export.avro import avro_reader

        return reading("avro", avro_reader(text))
    from kctl.export.protobuf import protobuf_reader

    return reading("protobuf", protobuf_reader(text))
