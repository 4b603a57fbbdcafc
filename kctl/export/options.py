"""ExportOptions: what an export writes and how; the same for every task, so it is picklable."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kctl.errors import UsageError


class TableFormat(StrEnum):
    """What the files are."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    NDJSON = "ndjson"
    # Files of Parquet, and a lake's own log beside them.
    DELTA = "delta"
    ICEBERG = "iceberg"

    @property
    def is_text(self) -> bool:
        """Whether bytes must become text before they can be written."""
        return self in (TableFormat.CSV, TableFormat.NDJSON)

    @property
    def is_lake(self) -> bool:
        """Whether there is a log of the table's versions: see `lake`."""
        return self in (TableFormat.DELTA, TableFormat.ICEBERG)

    @property
    def suffix(self) -> str:
        """What the names of files end with."""
        return TableFormat.PARQUET.value if self.is_lake else self.value


class FieldFormat(StrEnum):
    """What keys or values are taken for."""

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Isolation(StrEnum):
    """Whose records are read."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


# Columns that are always there, in this order, and those that may be asked for.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
EXTRA_COLUMNS = ("leaderEpoch", "producerId", "producerEpoch", "position")
# What rows may be partitioned by, and the columns that tell it.
PARTITION_COLUMNS = {"topic": "topic", "date": "timestamp", "hour": "timestamp"}

DEFAULT_FILE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """See the module. Field formats and schemas are those of `values`."""

    table_format: TableFormat = TableFormat.PARQUET
    columns: tuple[str, ...] = COLUMNS
    partition_by: tuple[str, ...] = ()
    key_format: FieldFormat = FieldFormat.RAW
    value_format: FieldFormat = FieldFormat.RAW
    # Of json: field names to types, as text of JSON; None: to be inferred before the tasks run.
    # Of avro: the schema as it is. Of protobuf: as `protobuf_schema` makes it.
    value_schema: str | None = None
    # Of avro: the schemas by which values were written, by their numbers in a registry.
    value_writers: tuple[tuple[int, str], ...] = ()
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    latest_per_key: bool = False
    # Not part of what the table is, so a later run may choose others; nor are value_writers.
    fails_on_damage: bool = False
    file_bytes: int = DEFAULT_FILE_BYTES

    def __post_init__(self) -> None:
        for name in self.columns:
            if name not in COLUMNS + EXTRA_COLUMNS:
                raise UsageError(
                    f"No column {name}", hint=f"there are {', '.join(COLUMNS + EXTRA_COLUMNS)}"
                )
        for name in self.partition_by:
            if name not in PARTITION_COLUMNS:
                raise UsageError(
                    f"Cannot partition by {name}", hint=f"there are {', '.join(PARTITION_COLUMNS)}"
                )
        if self.value_format in (FieldFormat.AVRO, FieldFormat.PROTOBUF):
            kind = self.value_format.value.capitalize()
            if self.value_schema is None:
                raise UsageError(
                    f"{kind} values need their schema", hint="--schema FILE, or --registry URL"
                )
            if self.table_format.is_text:
                raise UsageError(f"{kind} values go to Parquet or ORC")
        if self.key_format not in (FieldFormat.RAW, FieldFormat.STRING):
            raise UsageError("Keys are exported raw or as string")
        self._check_lake()
        if self.file_bytes < 1024:
            raise UsageError("Files of less than 1 KiB make no table")

    def _check_lake(self) -> None:
        if self.table_format.is_lake and self.latest_per_key:
            raise UsageError(
                "--latest-per-key replaces files, of which a lake keeps the versions",
                hint="--format parquet; or keep all records in the lake, and ask it for "
                "max_by(value, offset) of each key",
            )
        if self.table_format is TableFormat.ICEBERG:
            for key in self.partition_by:
                column = PARTITION_COLUMNS[key]
                if column not in self.columns:
                    raise UsageError(
                        f"Iceberg partitions by {key} as the column {column} tells it",
                        hint=f"--columns must name {column}, or leave out --partition-by {key}",
                    )

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """The columns that are in the files; the topic may be told by the directory instead, but
        not to Iceberg."""
        is_told = "topic" in self.partition_by and self.table_format is not TableFormat.ICEBERG
        return tuple(name for name in self.columns if not (is_told and name == "topic"))

    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for two runs to add to one table."""
        facts = asdict(self)
        del facts["fails_on_damage"], facts["file_bytes"], facts["value_writers"]
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain
