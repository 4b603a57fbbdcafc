"""Finds the schema of values: in a file, a registry or, for `kctl export`, the existing table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.records.bulk import require_bulk

if TYPE_CHECKING:
    from kctl.export.evolution import RegisteredSchemas, SchemaReader
    from kctl.export.registries import Registry
    from kctl.export.schema_registry import Subject
    from kctl.export.value_codec import ValueSchema

SchemaOption = Annotated[
    str | None,
    Option("--schema", metavar="FILE", help="Avro or JSON Schema, .proto file, or JSON fields."),
]
RegistryOption = Annotated[
    str | None,
    Option(
        "--registry",
        metavar="URL",
        help="Schema registry: http://, apicurio+http:// or glue://REGION/NAME.",
    ),
]
SubjectOption = Annotated[
    str | None,
    Option("--subject", metavar="NAME", help="Subject in the registry. [default: TOPIC-value]"),
]
MessageOption = Annotated[
    str | None,
    Option("--message", metavar="NAME", help="Protobuf message. [default: the first]"),
]


@dataclass
class SchemaOptions:
    """The options about the schema of values."""

    schema: SchemaOption = None
    registry: RegistryOption = None
    subject: SubjectOption = None
    message: MessageOption = None


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """How values are decoded, and where their schema is."""

    # One of raw, string, json, avro, protobuf.
    value: str
    file: str | None = None
    registry: str | None = None
    subject: str | None = None
    message: str | None = None


def value_schema(
    given: SchemaOptions, value: str, topics: Sequence[str], out: str
) -> tuple[str | None, tuple[tuple[int, str], ...]]:
    """Return the schema as ExportOptions takes it, and the writers' schemas by id.

    The schema is None if it must be inferred. UsageError for options that do not go together.
    """
    options = SchemaRequest(value, given.schema, given.registry, given.subject, given.message)
    if options.registry is not None and options.value not in ("json", "avro", "protobuf"):
        raise UsageError("--registry goes with --value json, avro or protobuf")
    if options.file is not None and options.value not in ("json", "avro", "protobuf"):
        raise UsageError("--schema goes with --value json, avro or protobuf")
    if options.message is not None and options.value != "protobuf":
        raise UsageError("--message goes with --value protobuf")
    if options.subject is not None and options.registry is None:
        raise UsageError("--subject goes with --registry")
    if options.registry is not None:
        return _from_registry(options, options.registry, topics, out)
    if options.file is None:
        return _known(options, out), ()
    return _checked(options, schema_of_file(options, options.file)), ()


def registry_reader(
    given: SchemaOptions, value: str, topics: Sequence[str]
) -> "SchemaReader | None":
    """Return a function that reads the newest schema of the subject and the schemas of all its
    versions by id; None without a registry."""
    registry = given.registry
    if registry is None:
        return None
    options = SchemaRequest(value, given.schema, registry, given.subject, given.message)
    reader = _RegistryReader(options, registry, topics)
    return reader.read


def record_schema(given: SchemaOptions, value: str, topics: Sequence[str]) -> "ValueSchema":
    """Return the schema by which single values of `topics` are decoded or encoded.

    `value` is json, avro or protobuf. UsageError for options that do not go together.
    """
    from kctl.export.value_codec import ValueSchema

    if value != "json":
        require_bulk(f"--value {value}", value)
    if given.message is not None and value != "protobuf":
        raise UsageError("--message goes with --value protobuf")
    if given.subject is not None and given.registry is None:
        raise UsageError("--subject goes with --registry")
    if given.registry is not None and given.schema is not None:
        raise UsageError(
            "--schema and --registry cannot be combined", hint="the registry has the schemas"
        )
    options = SchemaRequest(value, given.schema, given.registry, given.subject, given.message)
    if options.registry is None:
        if options.file is not None:
            return ValueSchema(value, schema_of_file(options, options.file))
        if value == "json":
            return ValueSchema(value, None)
        raise UsageError(f"--value {value} needs --schema FILE or --registry URL")
    found = _subject(options, options.registry, topics)
    if found.wire is not None:
        raise UsageError(
            "kctl consume and kctl produce know Confluent's bytes before values only",
            hint="the HTTP API of Confluent, which Apicurio also has: http://host/apis/ccompat/v7",
        )
    text, writers = _texts(options, found)
    return ValueSchema(value, text, writers, found.versions[-1].number)


def _known(options: SchemaRequest, out: str) -> str | None:
    """Return the schema of the existing table, or None."""
    if options.value not in ("avro", "protobuf") and options.registry is None:
        return None
    from kctl.export.manifest import table_schema

    return table_schema(out)


def _from_registry(
    options: SchemaRequest, registry: str, topics: Sequence[str], out: str
) -> tuple[str, tuple[tuple[int, str], ...]]:
    found = _subject(options, registry, topics)
    # A table keeps the schema of its first run: later values are resolved to it.
    known = _known(options, out)
    if options.file is not None:
        known = _checked(options, schema_of_file(options, options.file))
    text, writers = _texts(options, found)
    return known if known is not None else _checked(options, text), writers


def _texts(options: SchemaRequest, found: "Subject") -> tuple[str, tuple[tuple[int, str], ...]]:
    """Return the newest schema as the decoders take it, and all schemas by their ids."""
    if options.value == "avro":
        from kctl.export.avro import with_references

        by_id = [(it.number, with_references(it.text, it.references)) for it in found.versions]
        return by_id[-1][1], tuple(by_id)
    if options.value == "protobuf":
        from kctl.export.protobuf import protobuf_schema
        from kctl.runtime.real.schemas import compile_proto

        made = []
        for it in found.versions:
            compiled = compile_proto(it.text, imports=it.references)
            made.append((it.number, protobuf_schema(compiled, options.message)))
        return made[-1][1], tuple(made)
    from kctl.export.json_schema import registered_json_schema

    documents = [
        (it.number, registered_json_schema(it.text, it.references)) for it in found.versions
    ]
    return documents[-1][1], tuple(documents)


class _RegistryReader:
    """Reads a subject again and again; what it has read of a version is not read again."""

    def __init__(self, options: SchemaRequest, registry: str, topics: Sequence[str]) -> None:
        from kctl.export.registries import parse_registry

        self._options = options
        at = parse_registry(registry)
        self._name = _subject_name(options, at, topics)
        self._read = _subject_reader(at)
        self._found: Subject | None = None
        self._texts: tuple[str, tuple[tuple[int, str], ...]] = "", ()

    def subject(self) -> "Subject":
        """Return the versions that the registry has now; UsageError if their kind is another."""
        found = self._read(self._name)
        if found.kind.lower() != self._options.value:
            kind = found.kind.lower()
            raise UsageError(f"{self._name} has {found.kind} schemas", hint=f"--value {kind}")
        if found.wire is not None and self._options.value == "protobuf":
            raise UsageError(
                "Protobuf values of Apicurio's and AWS Glue's serializers are not read",
                hint="values with Confluent's bytes are, by the HTTP API of Confluent",
            )
        return found

    def read(self) -> "RegisteredSchemas":
        """See SchemaReader."""
        from kctl.export.evolution import RegisteredSchemas

        found = self.subject()
        if found != self._found:
            self._texts = _texts(self._options, found)
            self._found = found
        newest, writers = self._texts
        # A schema in a file determines the columns.
        return RegisteredSchemas(
            None if self._options.file is not None else newest, writers, found.wire
        )


def _subject(options: SchemaRequest, registry: str, topics: Sequence[str]) -> "Subject":
    """Return the versions of the requested subject, or of that of the only topic."""
    return _RegistryReader(options, registry, topics).subject()


def _subject_name(options: SchemaRequest, registry: "Registry", topics: Sequence[str]) -> str:
    from kctl.admin.selection import is_pattern
    from kctl.export.registries import RegistryKind

    if options.subject is not None:
        return options.subject
    if len(topics) != 1 or is_pattern(topics[0]):
        raise UsageError("--registry needs exactly one topic (a name), or --subject")
    return topics[0] if registry.kind is RegistryKind.GLUE else f"{topics[0]}-value"


def _subject_reader(registry: "Registry") -> "Callable[[str], Subject]":
    """Return a function from a subject's name to its versions, which asks the registry for what it
    has not read before."""
    from kctl.export.registries import RegistryKind
    from kctl.runtime.real.schemas import get_json, get_text

    url = registry.url
    if registry.kind is RegistryKind.GLUE:
        from kctl.export.glue import GlueReader
        from kctl.runtime.real.glue import GlueClient

        return GlueReader(GlueClient(registry.region, registry.name)).read
    if registry.kind is RegistryKind.APICURIO:
        from kctl.export.apicurio import ArtifactReader

        return ArtifactReader(
            lambda path: get_json(url, path), lambda path: get_text(url, path),
            api=registry.api, ids=registry.ids,
        ).read  # fmt: skip
    from kctl.export.schema_registry import SubjectReader

    return SubjectReader(lambda path: get_json(url, path)).read


def schema_of_file(options: SchemaRequest, file: str) -> str:
    """Return the schema in a file, as the decoders take it; UsageError if it cannot be read."""
    path = Path(file)
    try:
        data = path.read_bytes()
        if options.value != "protobuf":
            return data.decode()
        if path.suffix != ".proto":
            compiled = data
        else:
            from kctl.runtime.real.schemas import compile_proto

            compiled = compile_proto(data.decode(), str(path.parent))
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read {file}: {error}") from None
    from kctl.export.protobuf import protobuf_schema

    return protobuf_schema(compiled, options.message)


def _checked(options: SchemaRequest, text: str) -> str:
    """Return `text` if columns can be derived from it; UsageError otherwise."""
    if options.value == "json":
        from kctl.export.json_schema import json_schema_columns
        from kctl.export.values import is_json_schema_text, json_type

        if options.registry is not None or is_json_schema_text(text):
            json_schema_columns(text)
        else:
            json_type(text)
    elif options.value == "avro":
        from kctl.export.avro import avro_decoder

        avro_decoder(text)
    else:
        from kctl.export.protobuf import protobuf_decoder

        protobuf_decoder(text)
    return text
