"""The schema of values, from where the options say: a file, a registry, the table itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kctl.errors import UsageError

SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="FILE", help="Avro's, .proto, or fields of JSON."),
]
RegistryOption = Annotated[
    str | None,
    typer.Option("--registry", metavar="URL", help="Schema registry; of avro and protobuf."),
]
SubjectOption = Annotated[
    str | None,
    typer.Option("--subject", metavar="NAME", help="In the registry. [default: TOPIC-value]"),
]
MessageOption = Annotated[
    str | None,
    typer.Option("--message", metavar="NAME", help="Of protobuf. [default: the first]"),
]


@dataclass(frozen=True, slots=True)
class SchemaWords:
    """What the command line says of it."""

    # raw, string, json, avro or protobuf.
    value: str
    file: str | None = None
    registry: str | None = None
    subject: str | None = None
    message: str | None = None


def value_schema(
    words: SchemaWords, topics: Sequence[str], out: str
) -> tuple[str | None, tuple[tuple[int, str], ...]]:
    """The schema as ExportOptions takes it, or None if it is to be inferred; and the schemas by
    which values were written, by their numbers. UsageError for options that do not fit."""
    if words.registry is not None and words.value not in ("avro", "protobuf"):
        raise UsageError("--registry goes with --value avro or protobuf")
    if words.file is not None and words.value not in ("json", "avro", "protobuf"):
        raise UsageError("--schema goes with --value json, avro or protobuf")
    if words.message is not None and words.value != "protobuf":
        raise UsageError("--message goes with --value protobuf")
    if words.subject is not None and words.registry is None:
        raise UsageError("--subject goes with --registry")
    if words.registry is not None:
        return _from_registry(words, words.registry, topics, out)
    if words.file is None:
        return _known(words, out), ()
    return _checked(words, schema_of_file(words, words.file)), ()


def _known(words: SchemaWords, out: str) -> str | None:
    """That of the table, if there is one already."""
    if words.value not in ("avro", "protobuf"):
        return None
    from kctl.export.manifest import table_schema

    return table_schema(out)


def _from_registry(
    words: SchemaWords, registry: str, topics: Sequence[str], out: str
) -> tuple[str, tuple[tuple[int, str], ...]]:
    from kctl.cli.items import is_pattern
    from kctl.export.schema_registry import read_subject
    from kctl.runtime.real.schemas import compile_proto, get_json

    subject = words.subject
    if subject is None:
        if len(topics) != 1 or is_pattern(topics[0]):
            raise UsageError("--registry needs one --topic by its name, or --subject")
        subject = f"{topics[0]}-value"
    found = read_subject(lambda path: get_json(registry, path), subject)
    if found.kind.lower() != words.value:
        raise UsageError(f"{subject} has schemas of {found.kind}", hint=f"--value {words.value}")
    by_id = found.by_id if words.value == "avro" else ()
    # A table keeps the schema of its first run: values of later ones are resolved to it.
    known = _known(words, out)
    if known is not None and words.file is None:
        return known, by_id
    if words.file is not None:
        return _checked(words, schema_of_file(words, words.file)), by_id
    if words.value == "avro":
        return _checked(words, found.latest), by_id
    from kctl.export.protobuf import protobuf_schema

    return _checked(words, protobuf_schema(compile_proto(found.latest), words.message)), ()


def schema_of_file(words: SchemaWords, file: str) -> str:
    """What the file says, as the decoders take it; UsageError if it cannot be read."""
    path = Path(file)
    try:
        data = path.read_bytes()
        if words.value != "protobuf":
            return data.decode()
        if path.suffix != ".proto":
            compiled = data
        else:
            from kctl.runtime.real.schemas import compile_proto

            compiled = compile_proto(data.decode(), str(path.parent))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {file}: {error}") from None
    from kctl.export.protobuf import protobuf_schema

    return protobuf_schema(compiled, words.message)


def _checked(words: SchemaWords, text: str) -> str:
    """`text` if columns can be made of it; UsageError."""
    if words.value == "json":
        from kctl.export.values import json_type

        json_type(text)
    elif words.value == "avro":
        from kctl.export.avro import avro_decoder

        avro_decoder(text)
    else:
        from kctl.export.protobuf import protobuf_decoder

        protobuf_decoder(text)
    return text
