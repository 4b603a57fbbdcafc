"""Generates the encoder of one (message class, version): straight-line Python, nested structs
inlined.

The function takes the message and returns its parts. Pieces of bytes are added to `out` (by its
method `w`) and joined once, or once before each field of record data, which becomes a separate
part. See `source` for runs; in a run of the encoder the expressions are the arguments of `pack`.
"""

from struct import pack
from typing import Any

from kctl.errors import UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import (
    SMALL_UVARINTS,
    STRING_BYTES_MAX,
    write_tags,
    write_uvarint,
)
from kctl.protocol.schema import Field, Message, Struct
from kctl.protocol.source import (
    FIXED,
    PRECOMPILED_ARRAY_MAX,
    SourceWriter,
    number_packings,
    packing,
)

# Structs of arrays that are encoded between two yields: a millisecond or two.
STRUCTS_PER_YIELD = 1_000


def encoder_source(
    cls: type[Message], version: int, *, yields: bool = False
) -> tuple[str, dict[str, Any]]:
    """Return source that defines `run(o)`, and the globals it needs.

    With `yields` it defines `run(o, keep)`, a generator that yields after every STRUCTS_PER_YIELD
    structs. What these wrote is then a part: to join the pieces of all structs at once may take
    0.1 s. It passes each struct of an array to `keep`, after the structs in it.
    """
    writer = _EncoderWriter(cls, version, yields=yields)
    with writer.block("def run(o, keep):" if yields else "def run(o):"):
        writer.emit("parts = []", "out = []", "w = out.append")
        if yields:
            writer.emit("left = STRUCTS_PER_YIELD", "if False: yield")
        writer.struct(cls, "o", 0)
        writer.flush()
        writer.emit("if out or not parts: parts.append(b''.join(out))", "return parts")
    return writer.text(), writer.namespace


class _EncoderWriter(SourceWriter):
    def __init__(self, cls: type[Message], version: int, *, yields: bool) -> None:
        super().__init__(cls, version)
        self._yields = yields
        # Inside a tagged field, `out` holds its payload.
        self._is_in_tags = False
        self.namespace.update(
            STRUCTS_PER_YIELD=STRUCTS_PER_YIELD,
            uvarint=write_uvarint,
            small=SMALL_UVARINTS,
            pack=pack,
            write_tags=write_tags,
            string_size=string_size,
            absent=_absent_value_check(cls, version),
            check_tags=_tag_checker(cls, version),
        )

    def flush(self) -> None:
        """Emit code that writes the run."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.run.clear()
        self.emit(f"w({self.name('pack', packing(letters).pack)}({values}))")

    def struct(self, struct: type[Struct], source: str, depth: int) -> None:
        """Emit code that writes the `struct` in the variable `source`; may leave a run."""
        self.check_absent_values(struct, source)
        for field in self.fields(struct):
            self.field(field, source, depth)
        if self.is_flexible:
            self.tags(struct, source, depth)

    def check_absent_values(self, struct: type[Struct], source: str) -> None:
        """Emit code that raises if a field that the version lacks has a value (Kafka's rule)."""
        for field in struct.fields:
            if not field.is_in(self.version) and not field.ignorable:
                place = f"{source}.{field.name}"
                with self.block(f"if {self.differs(field, place)}:"):
                    self.emit(f"absent({field.name!r}, {place})")
        if not self.is_flexible:
            self.emit(f"if {source}.unknown_tagged_fields: check_tags()")

    def differs(self, field: Field, place: str) -> str:
        """Return an expression: whether `place` differs from the field's default."""
        if field.kind == "struct" and field.default is ...:
            assert isinstance(field.element, type)
            inner = [self.differs(each, f"{place}.{each.name}") for each in field.element.fields]
            return " or ".join([*inner, f"{place}.unknown_tagged_fields"])
        if field.default is None:
            return f"{place} is not None"
        if field.default is ...:
            return f"{place} is None or {place}" if field.nullable else place
        return f"{place} != {field.default!r}"

    def field(self, field: Field, source: str, depth: int) -> None:
        """Emit code that writes one field, or add the field to the run."""
        place = f"{source}.{field.name}"
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind][0], place))
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            inner = f"o{depth + 1}"
            self.emit(f"{inner} = {place}")
            if field.is_nullable_in(self.version):
                self.nullable_struct(field.element, inner, depth + 1)
            else:
                self.struct(field.element, inner, depth + 1)
        else:
            self.variable_field(field, place, depth)

    def nullable_struct(self, struct: type[Struct], source: str, depth: int) -> None:
        """Emit code that writes a byte, -1 for null, and then the struct in `source`, if any."""
        self.flush()
        with self.block(f"if {source} is None:"):
            self.emit(r"w(b'\xff')")
        with self.block("else:"):
            self.emit(r"w(b'\x01')")
            self.struct(struct, source, depth)
            self.flush()

    def variable_field(self, field: Field, place: str, depth: int) -> None:
        """Emit code that writes a field with a length prefix."""
        is_records = field.kind == "records"
        value = {"array": f"v{depth}", "string": "s"}.get(field.kind, "b")
        self.emit(f"{value} = {place}")
        measure = [f"n = len({value})"]
        if field.kind == "string":
            measure = ["b = s.encode()", "n = len(b)"]
        elif is_records:
            measure = ["n = sum(map(len, b)) if isinstance(b, (list, tuple)) else len(b)"]
        if field.is_nullable_in(self.version):
            with self.block(f"if {value} is None:"):
                self.emit("n = -1", "b = b''")
                if field.kind == "array":
                    self.emit(f"{value} = ()")
            with self.block("else:"):
                self.emit(*measure)
        else:
            self.emit(*measure)
        self.length(field)
        if is_records:
            self.record_parts()
        elif field.kind == "array":
            self.elements(field, value, depth)
        else:
            self.emit("w(b)")

    def length(self, field: Field) -> None:
        """Emit code that writes `n`; leaves no run."""
        if self.is_compact(field):
            self.flush()
            if field.kind == "string":
                self.emit(f"if n > 126: string_size({field.name!r}, n)")
            self.emit("w(small[n + 1] if n < 127 else uvarint(n + 1))")
        else:
            self.run.append(("h" if field.kind == "string" else "i", "n"))
            self.flush()

    def record_parts(self) -> None:
        """Emit code that passes record data through as separate parts."""
        with self.block("if n > 0:"):
            self.emit("if out: parts.append(b''.join(out))", "out = []", "w = out.append")
            self.emit("parts.extend(b) if isinstance(b, (list, tuple)) else parts.append(b)")

    def elements(self, field: Field, value: str, depth: int) -> None:
        """Emit code that writes the elements of the array in the variable `value`."""
        if isinstance(field.element, type):
            self.struct_elements(field.element, value, depth)
        elif field.element == "string":
            with self.block(f"for s in {value}:"):
                self.emit("b = s.encode()", "n = len(b)")
                self.length(Field("string", "0+", "", ignorable=False, flexible=field.flexible))
                self.emit("w(b)")
        else:
            letter = FIXED[str(field.element)][0]
            packers = tuple(packed.pack for packed in number_packings(letter))
            few = self.name("packers", packers)
            self.emit(
                f"w({few}[n](*{value}) if 0 <= n <= {PRECOMPILED_ARRAY_MAX}"
                f" else pack('>%d{letter}' % len({value}), *{value}))"
            )

    def struct_elements(self, element: type[Struct], value: str, depth: int) -> None:
        """Emit code that writes the structs of an array in order."""
        inner = f"o{depth + 1}"
        with self.block(f"for {inner} in {value}:"):
            self.struct(element, inner, depth + 1)
            self.flush()
            if self._yields:
                self.emit(f"keep({inner})", "left -= 1")
                with self.block("if left == 0:"):
                    if not self._is_in_tags:
                        self.emit("parts.append(b''.join(out))", "out = []", "w = out.append")
                    self.emit("yield", "left = STRUCTS_PER_YIELD")

    def tags(self, struct: type[Struct], source: str, depth: int) -> None:
        """Emit code that writes the tagged fields, of which there are nearly always none."""
        known = self.tagged_fields(struct)
        if not known:
            self.unknown_tags(source)
            return
        self.flush()
        tags = f"tags{depth}"
        self.emit(f"{tags} = list({source}.unknown_tagged_fields)")
        for field in known:
            with self.block(f"if {self.differs(field, f'{source}.{field.name}')}:"):
                # The payload is gathered in a separate list; the outer one is saved.
                self.emit(f"out{depth} = out", "out = []", "w = out.append")
                was_in_tags, self._is_in_tags = self._is_in_tags, True
                self.field(field, source, depth)
                self._is_in_tags = was_in_tags
                self.flush()
                self.emit(f"{tags}.append(({field.tag}, b''.join(out)))")
                self.emit(f"out = out{depth}", "w = out.append")
        self.emit(f"w(write_tags({tags}) if {tags} else small[0])")

    def unknown_tags(self, source: str) -> None:
        """Emit code that writes the tagged fields of a struct without known ones: a NUL closes the
        run."""
        letters = "".join(letter for letter, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.run.clear()
        self.emit(f"t = {source}.unknown_tagged_fields")
        if not letters:
            self.emit("w(write_tags(t) if t else small[0])")
            return
        closed = self.name("pack", packing(letters + "x").pack)
        open_ended = self.name("pack", packing(letters).pack)
        self.emit(f"w({open_ended}({values}) + write_tags(t) if t else {closed}({values}))")


def string_size(name: str, size: int) -> None:
    """Raise UsageError for a string that no reader accepts."""
    if size > STRING_BYTES_MAX:
        raise UsageError(f"{name} has {size} bytes; a string has at most {STRING_BYTES_MAX}")


def _absent_value_check(cls: type[Message], version: int) -> Any:
    def refuse(name: str, value: object) -> None:
        message = f"{cls.__name__} v{version} has no field for {name}={value!r}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)

    return refuse


def _tag_checker(cls: type[Message], version: int) -> Any:
    def refuse() -> None:
        message = f"{cls.__name__} v{version} has no tagged fields"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)

    return refuse
