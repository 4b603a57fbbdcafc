"""The options of kctl repair-log."""

from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.repair.repair_plan import RepairRequest

BackupOption = Annotated[
    str | None,
    Option(
        "--backup",
        metavar="DIR",
        help="Where to copy changed files. [default: beside the log directory]",
    ),
]


@dataclass
class RepairOptions:
    """What is repaired, and from where."""

    rebuild: Annotated[
        str | None,
        Option(
            "--rebuild",
            metavar="WHAT,...",
            help="Only rebuild: indexes, snapshots, epochs, or all.",
        ),
    ] = None
    truncate_to: Annotated[
        int | None,
        Option("--truncate-to", metavar="OFFSET", help="Only truncate the log."),
    ] = None
    cut: Annotated[
        str | None,
        Option("--cut", metavar="FROM..TO", help="Only remove the batches of these offsets."),
    ] = None
    drop_recovery_point: Annotated[
        bool,
        Option("--drop-recovery-point", help="Make the broker recover the whole log."),
    ] = False
    source: Annotated[
        str | None,
        Option(
            "--from",
            metavar="REPLICA",
            help="Take lost batches from this replica: a directory, or a broker as HOST:PORT.",
        ),
    ] = None

    def request(self) -> "RepairRequest":
        """Return the requested repairs; UsageError for options that contradict each other."""
        from kctl.repair.repair_plan import RepairRequest

        wanted = (
            {word.strip() for word in self.rebuild.split(",")}
            if self.rebuild is not None
            else set()
        )
        unknown = wanted - {"indexes", "snapshots", "epochs", "all"}
        if unknown:
            raise UsageError(
                f"--rebuild {min(unknown)}: unknown",
                hint="indexes, snapshots, epochs or all",
            )
        if self.truncate_to is not None and self.cut is not None:
            raise UsageError("--truncate-to and --cut cannot be combined")
        request = RepairRequest(
            rebuild_indexes=bool(wanted & {"indexes", "all"}),
            rebuild_snapshots=bool(wanted & {"snapshots", "all"}),
            rebuild_epochs=bool(wanted & {"epochs", "all"}),
            drop_recovery_point=self.drop_recovery_point,
            truncate_to=self.truncate_to,
            cut=None if self.cut is None else _offset_range(self.cut),
        )
        if self.source is not None and not request.is_automatic:
            raise UsageError(
                "--from goes with a repair of everything that is damaged",
                hint="omit --rebuild, --truncate-to, --cut and --drop-recovery-point",
            )
        return request


@dataclass
class ExtractOptions:
    """What is copied in place of a repair."""

    extract: Annotated[
        str | None,
        Option("--extract", metavar="DIR", help="Change nothing: copy readable records there."),
    ] = None
    offsets: Annotated[
        str | None,
        Option("--offset", "-O", metavar="START[..END]", help="With --extract: only these."),
    ] = None
    key: Annotated[
        list[str] | None,
        Option("--key", metavar="KEY", help="With --extract: only records with that key."),
    ] = None
    key_pattern: Annotated[
        str | None,
        Option("--key-pattern", metavar="REGEX", help="With --extract: only such keys."),
    ] = None
    codec: Annotated[
        str | None,
        Option("--codec", metavar="NAME", help="With --extract: none, gzip, snappy, lz4 or zstd."),
    ] = None


def _offset_range(text: str) -> tuple[int, int]:
    start, dots, end = text.partition("..")
    is_range = dots and is_whole_number(start) and is_whole_number(end)
    if not (is_range and int(start) < int(end)):
        raise UsageError(f"Not a range of offsets: {text}", hint="e.g. 100..200; 200 stays")
    return int(start), int(end)
