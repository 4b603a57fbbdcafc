"""Facts about messages: tables of Apache Kafka's definitions, and the same facts of our classes."""

from pathlib import Path

from kctl.protocol.schema import Struct

FACTS = Path(__file__).parent / "facts"
DEFAULTS = {
    "string": "", "bytes": b"", "bool": False, "float64": 0.0, "records": None, "uuid": bytes(16),
}  # fmt: skip


def facts(table="messages-2.7.2.txt"):
    """class name -> (versions, flexible, {path: facts}) of every block in the table."""
    messages = {}
    for block in (FACTS / table).read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            _, name, versions, flexible = lines[0].split()
            fields = dict(fields_of(name, lines[1:]))
            messages[name] = (versions.split("=")[1], flexible.split("=")[1], fields)
    return messages


def fields_of(message, lines):
    """(path, facts) of each field; structs that are defined apart are found under "struct"."""
    path, outer_depth = [message], 0
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2 - outer_depth
        name, kind, *rest = line.split()
        if name == "struct":
            path, outer_depth = ["struct " + kind], 1
            continue
        del path[depth:]
        path.append(name)
        yield ".".join(path), fact(kind, rest)


def fact(kind, rest):
    """(kind, versions, nullable, tag, default, ignorable); `key` is of no concern on the wire."""
    options = dict(option.split("=", 1) for option in rest[1:] if "=" in option)
    is_array = kind.startswith("[]")
    default = options.get("default")
    if default is None:
        default = ... if is_array or kind[0].isupper() else DEFAULTS.get(kind, 0)
    elif default == "null":
        default = None
    elif kind == "string":
        default = default.strip('"')
    elif kind == "bool":
        default = default == "true"
    else:
        default = int(default, 0)
    tag = options.get("tag")
    if tag is not None:
        tag, _, versions = tag.partition("@")
        assert versions == rest[0]
        tag = int(tag)
    return kind, rest[0], options.get("nullable"), tag, default, "ignorable" in rest


def ours(struct: type[Struct], path):
    """(path, facts) as our classes state them, structs included."""
    for field in struct.fields:
        kind = field.kind
        if kind in ("array", "struct"):
            element = field.element
            kind = element if isinstance(element, str) else element.__name__
            kind = "[]" + kind if field.kind == "array" else kind
        here = f"{path}.{field.name}"
        nullable = field.nullable
        yield here, (kind, field.versions, nullable, field.tag, field.default, field.ignorable)
        if isinstance(field.element, type):
            yield from ours(field.element, here)


def expected(fields, different=None):
    """The table's facts, with structs that are defined apart put in their places."""
    result = {}

    def place(path, values):
        result[path] = values
        inner = f"struct {values[0].removeprefix('[]')}."
        for key, value in fields.items():
            if key.startswith(inner):
                place(f"{path}.{key.removeprefix(inner)}", value)

    for path, values in fields.items():
        if not path.startswith("struct "):
            place(path, values)
    return {path: (different or {}).get(path, values) for path, values in result.items()}
