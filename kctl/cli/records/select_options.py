"""The options of kctl consume that select records and parts of their values."""

from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import COUNT
from kctl.cli.declaration.declarations import Option
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.client.record_filter import RecordFilter


@dataclass(frozen=True)
class SelectOptions:
    """The options that select records, as they are on the command line."""

    key: Annotated[
        list[str] | None,
        Option("--key", metavar="KEY", help="Only records with this key; may be repeated."),
    ] = None
    grep: Annotated[
        str | None,
        Option("--grep", metavar="REGEX", help="Only records with such a value."),
    ] = None
    header: Annotated[
        list[str] | None,
        Option("--header", metavar="NAME[=VALUE]", help="Only records with this header."),
    ] = None
    jq: Annotated[
        str | None,
        Option(
            "--jq",
            metavar="PATH",
            help="Print this part of JSON values, e.g. .customer.id; skip values without it.",
        ),
    ] = None
    tail: Annotated[
        int | None,
        Option("--tail", metavar="N", help="Print the last N records of all partitions, and stop."),
        COUNT,
    ] = None

    def record_filter(self) -> "RecordFilter":
        """Return the filter; raise UsageError for an invalid pattern or path."""
        from kctl.client.record_filter import RecordFilter, compile_pattern, parse_path

        return RecordFilter(
            tuple(key.encode("utf-8", "surrogateescape") for key in self.key or ()),
            compile_pattern(self.grep),
            tuple(map(_header, self.header or ())),
            parse_path(self.jq) if self.jq is not None else (),
        )


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None
