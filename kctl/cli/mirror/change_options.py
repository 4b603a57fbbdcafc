"""The options of kctl mirror run that change records, or keep them from going round."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.mirror.record_changes import Change, Loops
    from kctl.records.record import Record

# A position, whose metadata have this text, has 4,096 bytes at most (offset.metadata.max.bytes).
_TEXT_MAX = 500


def loops_of(*, ring: bool, mesh: bool) -> "Loops":
    """Return what keeps records from going round; raise UsageError for both."""
    from kctl.mirror.record_changes import Loops

    if ring and mesh:
        raise UsageError("--ring and --mesh cannot be combined")
    return Loops.RING if ring else Loops.MESH if mesh else Loops.ALLOWED


@dataclass(frozen=True)
class ChangeOptions:
    """What is done to records; then batches are decoded."""

    ring: Annotated[
        bool,
        Option("--ring", help="Mark records with their way, and send none where it has been."),
    ] = False
    mesh: Annotated[
        bool,
        Option("--mesh", help="As --ring, for mirrors from each cluster to each other one."),
    ] = False
    filter: Annotated[
        list[str] | None,
        Option(
            "--filter",
            metavar="EXPR",
            help="Copy only such records, e.g. 'value.country == \"NO\"'.",
        ),
    ] = None
    mask: Annotated[
        list[str] | None,
        Option("--mask", metavar="FIELD", help="Replace a field of JSON values, or drop a header."),
    ] = None
    transform: Annotated[
        list[str] | None,
        Option(
            "--transform",
            metavar="MODULE:FUNCTION",
            help="Pass each record through this Python function.",
        ),
    ] = None

    def loops(self) -> "Loops":
        """Return what keeps records from going round; raise UsageError for both."""
        return loops_of(ring=self.ring, mesh=self.mesh)

    def changes(self) -> "list[Change]":
        """Return what is done to each record, in this order: filters, functions, masks."""
        from kctl.mirror.record_expressions import masking, parse_expression, parse_field

        tests = [parse_expression(it) for it in self.filter or ()]
        found: list[Change] = []
        if tests:
            found.append(lambda record: record if all(it(record) for it in tests) else None)
        found += [_function(it) for it in self.transform or ()]
        return found + [masking(parse_field(it)) for it in self.mask or ()]

    def text(self) -> str:
        """Return the options as they were given; empty if there are none."""
        words = ["--ring"] * self.ring + ["--mesh"] * self.mesh
        given = (("--filter", self.filter), ("--transform", self.transform), ("--mask", self.mask))
        words += [f"{name} {it}" for name, items in given for it in items or ()]
        text = " ".join(words)
        return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."


def _function(text: str) -> "Change":
    """Import a function; what it raises stops the partition of the record."""
    from importlib import import_module

    from kctl.records.record import Record

    name, _, attribute = text.partition(":")
    try:
        function: Any = getattr(import_module(name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--transform {text}: {error}", hint="e.g. mypackage.mirror:masked"
        ) from None
    if not callable(function):
        raise UsageError(f"--transform {text}: not a function")

    def change(record: "Record") -> "Record | None":
        try:
            found = function(record)
        except Exception as error:
            raise KctlError(f"{text} failed at offset {record.offset}: {error!r}") from error
        if found is not None and not isinstance(found, Record):
            raise KctlError(f"{text} returned {type(found).__name__}, not a Record or None")
        return found

    return change
