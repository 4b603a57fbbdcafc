"""Generates the decoder of one (message class, version): straight-line Python, nested structs
inlined.

The function takes (buffer, position) and returns (message, position after it). `end` is the
buffer's length and `left` the number of array elements and tags that the message may still contain.
See `codec` for the bounds, and `source` for runs.
"""

from struct import unpack_from
from typing import Any

from kctl.protocol.primitives import (
    STRING_BYTES_MAX,
    check_tag_count,
    continue_uvarint,
    read_tag_header,
    read_unknown_tags,
)
from kctl.protocol.schema import Field, Message, Struct
from kctl.protocol.source import (
    FIXED,
    PRECOMPILED_ARRAY_MAX,
    SourceWriter,
    null_error,
    number_packings,
    packing,
    size_error,
)

# Elements that one client message may hold in all its arrays together: structs take 0.7 to 2 us
# each to decode, garbage collection included (large ones in turns), and about as long to
# answer (kctl.broker.network.slices does the rest in turns).
REQUEST_ELEMENTS_MAX = 30_000
# The controller's requests are as large as the cluster: 200,000 partitions with their replicas.
CLUSTER_REQUEST_ELEMENTS_MAX = 2_000_000
RESPONSE_ELEMENTS_MAX = 10_000_000
# Structs and strings of arrays that are decoded between two yields: a few milliseconds.
STRUCTS_PER_YIELD = 1_000
# Numbers of an array that take as long as a struct.
NUMBERS_PER_STRUCT = 32
NUMBERS_PER_YIELD = STRUCTS_PER_YIELD * NUMBERS_PER_STRUCT


def decoder_source(
    cls: type[Message], version: int, *, yields: bool = False
) -> tuple[str, dict[str, Any]]:
    """Return source that defines `run(buf, pos)`, and the globals it needs.

    With `yields` it defines `run(buf, pos, keep)`, a generator that yields after every
    STRUCTS_PER_YIELD structs, or as much else. It passes each struct of an array to `keep`, after
    the structs in it, and each tuple of numbers of a long array.
    """
    writer = _DecoderWriter(cls, version, yields=yields)
    with writer.block("def run(buf, pos, keep):" if yields else "def run(buf, pos):"):
        writer.emit("end = len(buf)", f"left = {elements_max(cls)}")
        if yields:
            writer.emit("turn = STRUCTS_PER_YIELD", "if False: yield")
        writer.struct(cls, "o", 0)
        writer.flush()
        writer.emit("if pos > end: raise IndexError", "return o, pos")
    return writer.text(), writer.namespace


def elements_max(cls: type[Message]) -> int:
    """Return the budget of array elements of a message."""
    if cls.api is None or cls is not cls.api.request_class:
        return RESPONSE_ELEMENTS_MAX
    return CLUSTER_REQUEST_ELEMENTS_MAX if cls.api.is_cluster_action else REQUEST_ELEMENTS_MAX


class _DecoderWriter(SourceWriter):
    def __init__(self, cls: type[Message], version: int, *, yields: bool) -> None:
        super().__init__(cls, version)
        self._yields = yields
        self.namespace.update(
            STRUCTS_PER_YIELD=STRUCTS_PER_YIELD,
            NUMBERS_PER_YIELD=NUMBERS_PER_YIELD,
            new=object.__new__,
            unpack_from=unpack_from,
            more=continue_uvarint,
            null_error=null_error,
            size_error=size_error,
            read_unknown_tags=read_unknown_tags,
            read_tag_header=read_tag_header,
            check_tag_count=check_tag_count,
        )

    def flush(self) -> None:
        """Emit code that reads the run."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        self.run.clear()
        if letters == "B":
            self.emit(f"{targets} = buf[pos]", "pos += 1")
            return
        unpack = self.name("unpack", packing(letters).unpack_from)
        self.emit(f"{targets}, = {unpack}(buf, pos)", f"pos += {packing(letters).size}")

    def struct(self, struct: type[Struct], target: str, depth: int) -> None:
        """Emit code that creates a `struct` in the variable `target` and reads its fields; may
        leave a run."""
        self.emit(f"{target} = new({self.name('C', struct)})")
        self.absent_fields(struct, target)
        for field in self.fields(struct):
            self.field(field, target, depth)
        if self.is_flexible:
            self.tags(struct, target, depth)

    def absent_fields(self, struct: type[Struct], target: str) -> None:
        """Emit code that sets fields that the version lacks, or has as a tag, to their defaults."""
        constants: dict[str, list[str]] = {}
        for field in struct.fields:
            if field in self.fields(struct):
                continue
            if field.default is ... and field.kind == "array":
                self.emit(f"{target}.{field.name} = []")
            elif field.default is ...:
                self.emit(f"{target}.{field.name} = {self.name('C', field.element)}()")
            else:
                constants.setdefault(repr(field.default), []).append(f"{target}.{field.name}")
        constants.setdefault("()", []).append(f"{target}.unknown_tagged_fields")
        for default, names in constants.items():
            self.emit(f"{' = '.join(names)} = {default}")

    def field(self, field: Field, target: str, depth: int) -> None:
        """Emit code that reads one field, or add the field to the run."""
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind][0], f"{target}.{field.name}"))
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            inner = f"o{depth + 1}"
            if field.is_nullable_in(self.version):
                self.nullable_struct(field.element, inner, depth + 1)
            else:
                self.flush()
                self.struct(field.element, inner, depth + 1)
                self.flush()
            self.emit(f"{target}.{field.name} = {inner}")
        else:
            self.variable_field(field, target, depth)

    def nullable_struct(self, struct: type[Struct], target: str, depth: int) -> None:
        """Emit code that reads a byte, negative for null, and then the struct, if any, into the
        variable `target`; leaves no run."""
        self.run.append(("b", "n"))
        self.flush()
        self.emit(f"{target} = None")
        with self.block("if n >= 0:"):
            self.struct(struct, target, depth)
            self.flush()

    def variable_field(self, field: Field, target: str, depth: int) -> None:
        """Emit code that reads a field with a length prefix."""
        null = -1
        if self.is_compact(field):
            null = 0
            self.run.append(("B", "n"))
            self.flush()
            self.emit("if n > 127: n, pos = more(buf, pos, n)")
        else:
            self.run.append(("h" if field.kind == "string" else "i", "n"))
            self.flush()
        if field.is_nullable_in(self.version):
            with self.block(f"if n <= {null}:"):
                self.emit(f"{target}.{field.name} = None")
            with self.block("else:"):
                self.payload(field, f"{target}.{field.name}", depth, null)
        else:
            label = f"{self.cls.__name__}'s {field.name}"
            self.emit(f"if n <= {null}: raise null_error({label!r})")
            self.payload(field, f"{target}.{field.name}", depth, null)

    def payload(self, field: Field, place: str, depth: int, null: int) -> None:
        """Emit code that reads `n - 1 - null` bytes or elements into `place`; leaves no run."""
        if field.kind == "array":
            if null == 0:
                self.emit("n -= 1")
            self.array(field, place, depth)
            return
        self.emit("e = pos + n" if null else "e = pos + n - 1")
        if field.kind == "string":
            if null == 0:
                self.emit(f"if n > {STRING_BYTES_MAX + 1}: raise size_error({field.name!r}, n)")
            self.emit(f"{place} = str(buf[pos:e], 'utf-8', 'replace')")
        elif field.kind == "bytes":
            self.emit(f"{place} = bytes(buf[pos:e])")
        else:
            self.emit(f"{place} = memoryview(buf)[pos:e]")
        self.emit("pos = e")

    def array(self, field: Field, place: str, depth: int) -> None:
        """Emit code that reads `n` elements."""
        smallest = self.smallest_size(field.element)
        self.emit(
            "left -= n",
            f"if left < 0 or n * {smallest} > end - pos: raise size_error({field.name!r}, n)",
        )
        if isinstance(field.element, type):
            self.struct_array(field.element, place, depth)
        elif field.element == "string":
            self.string_array(field, place)
        else:
            self.number_array(str(field.element), place)

    def number_array(self, kind: str, place: str) -> None:
        """Emit code that reads `n` numbers in one call; with yields, very many in several."""
        letter, size = FIXED[kind]
        if self._yields:
            self.emit(f"{place} = []")
            with self.block("while n > NUMBERS_PER_YIELD:"):
                self.emit(
                    f"v = unpack_from('>%d{letter}' % NUMBERS_PER_YIELD, buf, pos)",
                    "keep(v)",
                    f"{place} += v",
                    f"pos += NUMBERS_PER_YIELD * {size}",
                    "n -= NUMBERS_PER_YIELD",
                    "yield",
                )
            self.emit(
                f"{place} += unpack_from('>%d{letter}' % n, buf, pos)",
                f"pos += n * {size}",
                f"turn -= n // {NUMBERS_PER_STRUCT}",
            )
            return
        unpackers = tuple(packed.unpack_from for packed in number_packings(letter))
        few = self.name("unpackers", unpackers)
        self.emit(
            f"{place} = list({few}[n](buf, pos) if n <= {PRECOMPILED_ARRAY_MAX}"
            f" else unpack_from('>%d{letter}' % n, buf, pos))",
            f"pos += n * {size}",
        )

    def string_array(self, field: Field, place: str) -> None:
        """Emit code that reads `n` strings, none of them null."""
        self.emit(f"v = {place} = []")
        with self.block("for _ in range(n):"):
            null = 0 if self.is_compact(field) else -1
            self.run.append(("h" if null else "B", "n"))
            self.flush()
            if null == 0:
                self.emit("if n > 127: n, pos = more(buf, pos, n)")
                self.emit(f"if n > {STRING_BYTES_MAX + 1}: raise size_error({field.name!r}, n)")
            self.emit(
                f"if n <= {null}: raise null_error({field.name!r})",
                "e = pos + n" if null else "e = pos + n - 1",
                "v.append(str(buf[pos:e], 'utf-8', 'replace'))",
                "pos = e",
            )
            self.yield_sometimes()

    def struct_array(self, element: type[Struct], place: str, depth: int) -> None:
        """Emit code that reads `n` structs; those of fixed width without tags in one sweep."""
        inner = f"o{depth + 1}"
        add = f"add{depth + 1}"
        self.emit(f"v = {place} = []", f"{add} = v.append")
        fields = self.fields(element)
        if not self.is_flexible and all(field.kind in FIXED for field in fields):
            packed = packing("".join(FIXED[field.kind][0] for field in fields))
            targets = ", ".join(f"{inner}.{field.name}" for field in fields)
            self.emit(f"e = pos + n * {packed.size}")
            sweep = self.name("sweep", packed.iter_unpack)
            with self.block(f"for x in {sweep}(buf[pos:e]):"):
                self.emit(f"{inner} = new({self.name('C', element)})", f"{targets}, = x")
                self.absent_fields(element, inner)
                self.emit(f"{add}({inner})")
                self.keep(inner)
                self.yield_sometimes()
            self.emit("pos = e")
            return
        with self.block("for _ in range(n):"):
            self.struct(element, inner, depth + 1)
            self.flush()
            self.emit(f"{add}({inner})")
            self.keep(inner)
            self.yield_sometimes()

    def keep(self, struct: str) -> None:
        """Emit code that keeps a complete struct, so that it can be released on its own."""
        if self._yields:
            self.emit(f"keep({struct})")

    def yield_sometimes(self) -> None:
        """Emit code that counts a struct or string, and yields after STRUCTS_PER_YIELD."""
        if self._yields:
            self.emit("turn -= 1")
            with self.block("if turn <= 0:"):
                self.emit("yield", "turn = STRUCTS_PER_YIELD")

    def smallest_size(self, element: type[Struct] | str | None) -> int:
        """Return the fewest bytes that one element can take."""
        if element == "string":
            return 1 if self.is_flexible else 2
        if isinstance(element, str):
            return FIXED[element][1]
        assert element is not None
        sizes = [self.smallest_field(field) for field in self.fields(element)]
        return sum(sizes) + int(self.is_flexible)

    def smallest_field(self, field: Field) -> int:
        """Return the fewest bytes that one field can take."""
        if field.kind in FIXED:
            return FIXED[field.kind][1]
        if field.kind == "struct":
            return 1 if field.nullable else self.smallest_size(field.element)
        if self.is_compact(field):
            return 1
        return 2 if field.kind == "string" else 4

    def tags(self, struct: type[Struct], target: str, depth: int) -> None:
        """Emit code that reads the tagged fields, of which there are nearly always none."""
        known = self.tagged_fields(struct)
        self.run.append(("B", "t"))
        self.flush()
        with self.block("if t:"):
            self.emit("if t > 127: t, pos = more(buf, pos, t)", "left -= t")
            self.emit("if left < 0: raise size_error('tagged fields', t)")
            if self._yields:
                self.emit("turn -= t")
            if not known:
                self.emit(f"{target}.unknown_tagged_fields, pos = read_unknown_tags(buf, pos, t)")
            else:
                self.known_tags(known, target, depth)

    def known_tags(self, known: list[Field], target: str, depth: int) -> None:
        """Emit code that reads `t` tagged fields, some of which are fields of the struct."""
        self.emit("check_tag_count(t, end - pos)", f"unknown{depth} = []")
        with self.block("for _ in range(t):"):
            # The field's end has a separate name at each depth: structs may nest in tags.
            self.emit(f"tag, pos, e{depth} = read_tag_header(buf, pos)")
            for branch, field in enumerate(known):
                with self.block(f"{'elif' if branch else 'if'} tag == {field.tag}:"):
                    self.field(field, target, depth)
                    self.flush()
                    self.emit(f"if pos != e{depth}: raise size_error({field.name!r}, t)")
            with self.block("else:"):
                self.emit(
                    f"unknown{depth}.append((tag, bytes(buf[pos:e{depth}])))", f"pos = e{depth}"
                )
        self.emit(f"{target}.unknown_tagged_fields = tuple(unknown{depth})")
