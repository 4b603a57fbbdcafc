"""Message, Struct and their fields: the language of the message modules.

One class describes a message in all its versions; each field lists the versions that have it:

    class TopicProduceData(Struct):
        name: str = string()
        partitions: list[PartitionProduceData] = array(PartitionProduceData)

"0+" (the default) is every version, "3+" version 3 and later, "0-4" up to 4, "2" only that one.
Instances are created by keyword, take the defaults of Kafka's schema, and compare by value. A field
that a version lacks keeps its default when decoded; when encoded it must have its default, unless
it is `ignorable`. Nothing is compiled when a class is created, to keep imports fast: `__init__` is
generated on the first call, encoders and decoders (`codec`) on first use.

Record data (`records`) is opaque: anything with len(), or a list or tuple of such parts.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, overload

from kctl.protocol.api_keys import Api
from kctl.protocol.primitives import UnknownTag

# Bytes-like, or anything with len() that a transport can send (`kctl.runtime.disk.FileSlice`).
Part = Any
# The value of a record field: a memoryview when decoded; a Part, a list or tuple of Parts, or None.
Records = Any

EVERY_VERSION = "0+"
VERSION_MAX = 0x7FFF
# The default of a UUID.
NO_UUID = bytes(16)


class Field:
    """One field of a struct, as declared in its class."""

    __slots__ = (
        "default", "element", "flexible", "ignorable", "kind", "name", "nullable", "tag",
        "versions",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        versions: str,
        default: object,
        ignorable: bool,
        *,
        nullable: str | None = None,
        tag: int | None = None,
        element: "type[Struct] | str | None" = None,
        flexible: str | None = None,
    ) -> None:
        self.name = ""
        # int8..int64, uint16, float64, bool, uuid, string, bytes, records, struct or array.
        self.kind = kind
        self.versions = versions
        # A number, text, bytes or None; arrays and structs: None, or ... for a new empty one.
        self.default = default
        self.ignorable = ignorable
        # Versions in which it may be null.
        self.nullable = nullable
        # Its number, if it is a tagged field in all versions that have it (KIP-482).
        self.tag = tag
        # Of an array or struct: the struct's class, or the kind of numbers or strings.
        self.element = element
        # "none": it keeps the old encoding in flexible versions too.
        self.flexible = flexible

    def is_in(self, version: int) -> bool:
        """Return whether `version` has this field."""
        return is_in(self.versions, version)

    def is_nullable_in(self, version: int) -> bool:
        """Return whether the field may be null in `version`."""
        return self.nullable is not None and is_in(self.nullable, version)


def version_range(versions: str) -> tuple[int, int]:
    """Return the first and last version of a range such as "3+", "0-4" or "2"; "none" is empty."""
    if versions == "none":
        return 1, 0
    if versions.endswith("+"):
        return int(versions[:-1]), VERSION_MAX
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def is_in(versions: str, version: int) -> bool:
    """Return whether the range holds `version`."""
    first, last = version_range(versions)
    return first <= version <= last


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Turns the fields of a class body into slots."""

    fields: tuple[Field, ...]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        """Move the fields out of the class body; `__init_subclass__` takes Message's options."""
        fields = []
        for key, value in list(namespace.items()):
            if value.__class__ is Field:
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple([field.name for field in fields])
        namespace["fields"] = () if name == "Struct" else tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


def _unknown_tags() -> tuple[UnknownTag, ...]:
    made: Any = Field("tags", EVERY_VERSION, (), ignorable=True)
    return cast(tuple[UnknownTag, ...], made)


class Struct(metaclass=StructMeta):
    """A part of a message."""

    __hash__ = None  # type: ignore[assignment]  # mutable

    # Tagged fields that arrived and that the schema does not know; encoded again unchanged.
    unknown_tagged_fields: tuple[UnknownTag, ...] = _unknown_tags()

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        """Return whether both are of the same class and equal in every field."""
        if self.__class__ is not other.__class__:
            return NotImplemented
        values = attrgetter(
            "unknown_tagged_fields", *[field.name for field in self.__class__.fields]
        )
        return bool(values(self) == values(other))

    def __repr__(self) -> str:
        """Return its class and every field, as a call that would create it."""
        names = [field.name for field in self.__class__.fields]
        if self.unknown_tagged_fields:
            names.append("unknown_tagged_fields")
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__name__}({shown})"


class Message(Struct):
    """A request, a response, or a value stored in an internal topic.

    Versions come from the Api, or are given for messages without one: `versions="0-3"`,
    `flexible="none"`.
    """

    api: ClassVar[Api | None] = None
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    # The first version with compact strings and tagged fields; beyond max_version if none has.
    flexible_from: ClassVar[int] = VERSION_MAX
    # Filled by `codec`: version -> function.
    encoders: ClassVar[dict[int, Callable[[Any], list[Part]]]]
    yielding_encoders: ClassVar[dict[int, Callable[[Any, Callable[[object], object]], Any]]]
    yielding_decoders: ClassVar[dict[int, Callable[[Any, int, Callable[[object], object]], Any]]]
    decoders: ClassVar[dict[int, Callable[[Any, int], tuple[Any, int]]]]

    def __init_subclass__(
        cls, api: Api | None = None, versions: str = "0", flexible: str = "none"
    ) -> None:
        cls.encoders = {}
        cls.yielding_encoders = {}
        cls.yielding_decoders = {}
        cls.decoders = {}
        if api is not None:
            cls.api = api
            cls.min_version, cls.max_version = api.min_version, api.max_version
            cls.flexible_from = api.flexible_from
        else:
            cls.min_version, cls.max_version = version_range(versions)
            first, last = version_range(flexible)
            cls.flexible_from = first if first <= last else VERSION_MAX


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Return `__init__` with one keyword per field; lists and structs are created for
    each object."""
    namespace: dict[str, Any] = {}
    arguments, body = [], []
    for field in cls.fields:
        name = field.name
        if field.default is ...:
            fresh = "[]"
            if field.kind == "struct":
                namespace[fresh := f"make_{name}"] = field.element
                fresh += "()"
            arguments.append(f"{name}=...")
            body.append(f" self.{name} = {fresh} if {name} is ... else {name}")
        else:
            namespace[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
            body.append(f" self.{name} = {name}")
    arguments.append("unknown_tagged_fields=()")
    body.append(" self.unknown_tagged_fields = unknown_tagged_fields")
    head = f"def __init__(self, *, {', '.join(arguments)}):"
    exec("\n".join([head, *body]), namespace)
    function: Callable[..., None] = namespace["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    return function


def int8(
    versions: str = EVERY_VERSION, *, default: int = 0, ignorable: bool = False,
    tag: int | None = None,
) -> int:  # fmt: skip
    """Declare a signed byte."""
    return Field("int8", versions, default, ignorable, tag=tag)  # type: ignore[return-value]


def int16(
    versions: str = EVERY_VERSION, *, default: int = 0, ignorable: bool = False,
    tag: int | None = None,
) -> int:  # fmt: skip
    """Declare a signed number of two bytes."""
    return Field("int16", versions, default, ignorable, tag=tag)  # type: ignore[return-value]


def int32(
    versions: str = EVERY_VERSION, *, default: int = 0, ignorable: bool = False,
    tag: int | None = None,
) -> int:  # fmt: skip
    """Declare a signed number of four bytes."""
    return Field("int32", versions, default, ignorable, tag=tag)  # type: ignore[return-value]


def int64(
    versions: str = EVERY_VERSION, *, default: int = 0, ignorable: bool = False,
    tag: int | None = None,
) -> int:  # fmt: skip
    """Declare a signed number of eight bytes."""
    return Field("int64", versions, default, ignorable, tag=tag)  # type: ignore[return-value]


def float64(versions: str = EVERY_VERSION, *, default: float = 0.0) -> float:
    """Declare a double."""
    return Field("float64", versions, default, ignorable=False)  # type: ignore[return-value]


def uint16(versions: str = EVERY_VERSION) -> int:
    """Declare an unsigned number of two bytes, such as a port."""
    return Field("uint16", versions, 0, ignorable=False)  # type: ignore[return-value]


def boolean(
    versions: str = EVERY_VERSION, *, default: bool = False, ignorable: bool = False,
    tag: int | None = None,
) -> bool:  # fmt: skip
    """Declare one byte, 0 or 1; any other byte reads as true."""
    return Field("bool", versions, default, ignorable, tag=tag)  # type: ignore[return-value]


@overload
def string(
    versions: str = ..., *, default: str = ..., ignorable: bool = ..., tag: int | None = ...
) -> str: ...
@overload
def string(
    versions: str = ..., *, nullable: str, default: str | None = ..., ignorable: bool = ...,
    tag: int | None = ..., flexible: str | None = ...,
) -> str | None: ...  # fmt: skip
def string(
    versions: str = EVERY_VERSION, *, nullable: str | None = None, default: str | None = "",
    ignorable: bool = False, tag: int | None = None, flexible: str | None = None,
) -> Any:  # fmt: skip
    """Declare UTF-8 text of at most 32,767 bytes."""
    return Field(
        "string", versions, default, ignorable, nullable=nullable, tag=tag, flexible=flexible
    )


@overload
def bytes_(versions: str = ..., *, default: bytes = ...) -> bytes: ...
@overload
def bytes_(versions: str = ..., *, nullable: str, default: bytes | None = ...) -> bytes | None: ...
def bytes_(
    versions: str = EVERY_VERSION, *, nullable: str | None = None, default: bytes | None = b""
) -> Any:
    """Declare bytes, copied out of the frame when decoded."""
    return Field("bytes", versions, default, ignorable=False, nullable=nullable)


def records(versions: str = EVERY_VERSION, *, nullable: str | None = None) -> Records:
    """Declare record batches: a view into the frame when decoded, passed through when encoded."""
    return Field("records", versions, None, ignorable=False, nullable=nullable)


def uuid(versions: str = EVERY_VERSION, *, ignorable: bool = False) -> bytes:
    """Declare a UUID, as its 16 bytes."""
    return Field("uuid", versions, NO_UUID, ignorable)  # type: ignore[return-value]


StructT = TypeVar("StructT", bound=Struct)


def struct(
    element: type[StructT], versions: str = EVERY_VERSION, *, tag: int | None = None
) -> StructT:
    """Declare a nested struct."""
    made: Any = Field("struct", versions, ..., ignorable=False, tag=tag, element=element)
    return cast(StructT, made)


def nullable_struct(
    element: type[StructT], versions: str = EVERY_VERSION, *, nullable: str
) -> StructT | None:
    """Declare a nested struct that is null unless set (KIP-893)."""
    made: Any = Field("struct", versions, None, ignorable=False, nullable=nullable, element=element)
    return cast(StructT, made)


@overload
def array(
    element: type[StructT], versions: str = ..., *, ignorable: bool = ..., tag: int | None = ...
) -> list[StructT]: ...
@overload
def array(
    element: type[StructT], versions: str = ..., *, nullable: str, default: None = ...,
    ignorable: bool = ...,
) -> list[StructT] | None: ...  # fmt: skip
def array(
    element: type[StructT], versions: str = EVERY_VERSION, *, nullable: str | None = None,
    default: Any = ..., ignorable: bool = False, tag: int | None = None,
) -> Any:  # fmt: skip
    """Return a list of structs; empty unless `default` is None."""
    return Field("array", versions, default, ignorable, nullable=nullable, tag=tag, element=element)


@overload
def int32_array(versions: str = ..., *, ignorable: bool = ...) -> list[int]: ...
@overload
def int32_array(versions: str = ..., *, nullable: str, default: None = ...) -> list[int] | None: ...
def int32_array(
    versions: str = EVERY_VERSION, *, nullable: str | None = None, default: Any = ...,
    ignorable: bool = False,
) -> Any:  # fmt: skip
    """Return a list of int32."""
    return Field("array", versions, default, ignorable, nullable=nullable, element="int32")


def int64_array(versions: str = EVERY_VERSION) -> list[int]:
    """Return a list of int64."""
    made: Any = Field("array", versions, ..., ignorable=False, element="int64")
    return cast(list[int], made)


@overload
def string_array(versions: str = ...) -> list[str]: ...
@overload
def string_array(versions: str = ..., *, nullable: str) -> list[str] | None: ...
def string_array(versions: str = EVERY_VERSION, *, nullable: str | None = None) -> Any:
    """Return a list of texts, none of them null."""
    return Field("array", versions, ..., ignorable=False, nullable=nullable, element="string")
