"""The options of kctl export about the table, and about records that it cannot take."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.cli.units import parse_size
from kctl.errors import UsageError
from kctl.export.options import COLUMNS, Compression, OnUndecodable
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.runtime.disk import Disk


class OnDamage(StrEnum):
    """The values of `--on-damage`."""

    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True)
class TableOptions:
    """What the table has, and where an Iceberg table has a name."""

    columns: Annotated[
        str | None, Option("--columns", metavar="NAME,NAME", help="Only these columns.")
    ] = None
    partition_by: Annotated[
        str | None,
        Option("--partition-by", metavar="KEY,KEY", help="Partition by topic, date, hour."),
    ] = None
    latest_per_key: Annotated[
        bool, Option("--latest-per-key", help="Only the last record of each key.")
    ] = False
    file_size: Annotated[
        str, Option("--file-size", metavar="SIZE", help="Bytes of log per file.")
    ] = "256MiB"
    compression: Annotated[
        Compression, Option("--compression", help="How Parquet and ORC files are compressed.")
    ] = Compression.ZSTD
    catalog: Annotated[
        str | None,
        Option(
            "--catalog", metavar="URI|NAME", help="Iceberg catalog: a URI, or pyiceberg's name."
        ),
    ] = None
    catalog_table: Annotated[
        str | None,
        Option("--catalog-table", metavar="NAMESPACE.TABLE", help="The table in the catalog."),
    ] = None

    def chosen(self) -> dict[str, Any]:
        """Return the arguments of ExportOptions; raise UsageError for options without a meaning."""
        return {
            "columns": _names(self.columns, "--columns") or COLUMNS,
            "partition_by": _names(self.partition_by, "--partition-by"),
            "latest_per_key": self.latest_per_key,
            "file_bytes": parse_size(self.file_size),
            "compression": self.compression,
            "catalog": self.catalog,
            "catalog_table": self.catalog_table,
        }


@dataclass(frozen=True)
class FailureOptions:
    """What happens to damage, and to records whose values cannot be decoded."""

    on_damage: Annotated[
        OnDamage, Option("--on-damage", help="Continue after damage, or fail.")
    ] = OnDamage.SKIP
    on_undecodable: Annotated[
        OnUndecodable | None,
        Option(
            "--on-undecodable",
            help="Keep values that cannot be decoded in value_raw, or fail. [default: fail with "
            "--registry, otherwise keep]",
        ),
    ] = None
    dead_letters: Annotated[
        str | None,
        Option("--dead-letters", metavar="DIR", help="A table of records that are undecodable."),
    ] = None

    def chosen(self, disk: "Disk", out: str, *, has_registry: bool) -> dict[str, Any]:
        """Return the arguments of ExportOptions for the table at `out`.

        UsageError for options that do not go together, or if the table and its dead letters are in
        one another, or these in a broker's log directory.
        """
        if self.dead_letters is not None and self.on_undecodable is not None:
            raise UsageError(
                "--dead-letters and --on-undecodable exclude each other",
                hint="leave one of them out",
            )
        unset = OnUndecodable.FAIL if has_registry else OnUndecodable.KEEP
        return {
            "fails_on_damage": self.on_damage is OnDamage.FAIL,
            "on_undecodable": self.on_undecodable or unset,
            "dead_letters": self._place(disk, out),
        }

    def _place(self, disk: "Disk", out: str) -> str | None:
        if self.dead_letters is None or "://" in self.dead_letters:
            return self.dead_letters
        from kctl.storage.log_directory_locks import check_outside

        check_outside(disk, self.dead_letters, "A directory of dead letters")
        place = Path(self.dead_letters).resolve()
        if place.is_file():
            raise UsageError(
                f"{self.dead_letters} is a file", hint="--dead-letters names a directory"
            )
        table = Path(out).resolve()
        if "://" not in out and (place.is_relative_to(table) or table.is_relative_to(place)):
            raise UsageError(
                "The table and its dead letters cannot be in one another",
                hint="--dead-letters names a directory beside --out",
            )
        return str(place)


def _names(text: str | None, option: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise UsageError(f"{option} names no column")
    return names
