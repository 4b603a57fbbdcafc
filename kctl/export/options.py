"""ExportOptions: what an export writes and how. All tasks of a run share one; it can be pickled."""

import json
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.export.wire_formats import WireFormat

__all__ = [
    "COLUMNS",
    "EXTRA_COLUMNS",
    "PARTITION_COLUMNS",
    "Compression",
    "ExportOptions",
    "FieldFormat",
    "Isolation",
    "OnUndecodable",
    "TableFormat",
]

# The directory name of a null in a Hive partition.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class TableFormat(StrEnum):
    """The file format of a table."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    NDJSON = "ndjson"
    # Files of Parquet, and a lake's own log beside them.
    DELTA = "delta"
    ICEBERG = "iceberg"

    @property
    def is_text(self) -> bool:
        """Return whether bytes must be encoded as text."""
        return self in (TableFormat.CSV, TableFormat.NDJSON)

    @property
    def is_lake(self) -> bool:
        """Return whether the table has a log of its versions: see `lake`."""
        return self in (TableFormat.DELTA, TableFormat.ICEBERG)

    @property
    def suffix(self) -> str:
        """Return the suffix of the file names."""
        return TableFormat.PARQUET.value if self.is_lake else self.value


class Compression(StrEnum):
    """The codec of Parquet and ORC files; text formats are never compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    NONE = "none"


class FieldFormat(StrEnum):
    """How keys or values are decoded."""

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


# The formats whose schemas a registry may have.
REGISTERED_FORMATS = (FieldFormat.JSON, FieldFormat.AVRO, FieldFormat.PROTOBUF)


class OnUndecodable(StrEnum):
    """What happens to a value that cannot be decoded, if there is no place for dead letters."""

    # The column value is null, and value_raw holds the bytes.
    KEEP = "keep"
    # The export stops.
    FAIL = "fail"


class Isolation(StrEnum):
    """Which records are read: all, or only those of committed transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def parse_isolation(text: str | None, option: str) -> Isolation:
    """Return the isolation level given by `option`, by default read_uncommitted.

    UsageError, which names the levels, for any other text; case matters, as in Kafka's clients.
    """
    if text is None:
        return Isolation.READ_UNCOMMITTED
    try:
        return Isolation(text)
    except ValueError:
        levels = " nor ".join(Isolation)
        raise UsageError(f"{option} is neither {levels}: {text}") from None


# The columns by default, in this order, and those on request.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
EXTRA_COLUMNS = ("leaderEpoch", "producerId", "producerEpoch", "position")
# Partition keys, and the columns they are derived from.
PARTITION_COLUMNS = {"topic": "topic", "date": "timestamp", "hour": "timestamp"}

# What identifies a row of a table with the latest record of each key: see `latest_rows`.
IDENTITY = ("key", "topic", "partition")

DEFAULT_FILE_BYTES = 256 * 1024 * 1024
# The largest file of changes: see `latest_rows`.
MERGED_FILE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export; field formats and schemas are those of `values`."""

    table_format: TableFormat = TableFormat.PARQUET
    columns: tuple[str, ...] = COLUMNS
    partition_by: tuple[str, ...] = ()
    key_format: FieldFormat = FieldFormat.RAW
    value_format: FieldFormat = FieldFormat.RAW
    # For json: field names and types, as JSON; None: inferred before the tasks run.
    # For avro: the schema. For protobuf: what `protobuf_schema` returns.
    value_schema: str | None = None
    # For avro and protobuf: the writers' schemas by their ids in a registry.
    value_writers: tuple[tuple[int, str], ...] = ()
    # How values name their writers' schemas; None: by Confluent's bytes.
    value_wire: "WireFormat | None" = None
    # The id of the newest version in a registry whose columns value_schema has.
    schema_id: int | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    latest_per_key: bool = False
    # For Iceberg: a URI or a name of pyiceberg's configuration, and the table's name there.
    catalog: str | None = None
    catalog_table: str | None = None
    # These, value_writers, value_wire, schema_id and catalog may differ between runs to the same
    # table: readers find each file's codec in it.
    compression: Compression = Compression.ZSTD
    fails_on_damage: bool = False
    file_bytes: int = DEFAULT_FILE_BYTES
    on_undecodable: OnUndecodable = OnUndecodable.KEEP
    # The directory of records whose values cannot be decoded; None: `on_undecodable` decides.
    dead_letters: str | None = None

    def __post_init__(self) -> None:
        for name in self.columns:
            if name not in COLUMNS + EXTRA_COLUMNS:
                raise UsageError(
                    f"No column {name}", hint=f"columns: {', '.join(COLUMNS + EXTRA_COLUMNS)}"
                )
        for name in self.partition_by:
            if name not in PARTITION_COLUMNS:
                raise UsageError(
                    f"Cannot partition by {name}", hint=f"keys: {', '.join(PARTITION_COLUMNS)}"
                )
        if self.value_format in (FieldFormat.AVRO, FieldFormat.PROTOBUF):
            kind = self.value_format.value.capitalize()
            if self.value_schema is None:
                raise UsageError(
                    f"{kind} values need a schema", hint="--schema FILE, or --registry URL"
                )
            if self.table_format.is_text:
                raise UsageError(f"{kind} values can be exported to Parquet or ORC only")
        if self.key_format not in (FieldFormat.RAW, FieldFormat.STRING):
            raise UsageError("Keys can be exported raw or as string only")
        self._check_dead_letters()
        self._check_lake()
        self._check_files()

    def _check_files(self) -> None:
        if self.table_format.is_text and self.compression in (Compression.SNAPPY, Compression.LZ4):
            raise UsageError(
                f"--compression is for Parquet and ORC; files of {self.table_format} are text",
                hint="leave it out",
            )
        if self.file_bytes < 1024:
            raise UsageError("The file size must be at least 1 KiB")

    def _check_dead_letters(self) -> None:
        is_raw = self.value_format is FieldFormat.RAW and not self.table_format.is_text
        if self.dead_letters is not None and (is_raw or "value" not in self.columns):
            raise UsageError(
                "Values are not decoded, so there are no dead letters",
                hint="--dead-letters goes with --value string, json, avro or protobuf",
            )

    def _check_lake(self) -> None:
        if self.merges_changes:
            self._check_merge()
        if (self.catalog is None) != (self.catalog_table is None):
            raise UsageError("--catalog and --catalog-table belong together")
        if self.catalog_table is not None:
            if self.table_format is not TableFormat.ICEBERG:
                raise UsageError(
                    f"--catalog is for Iceberg, not for {self.table_format}",
                    hint="--format iceberg",
                )
            if not all(self.catalog_table.split(".")) or "." not in self.catalog_table:
                raise UsageError(
                    f"--catalog-table is not NAMESPACE.TABLE: {self.catalog_table}",
                    hint="for example --catalog-table sales.orders",
                )
        if self.table_format is TableFormat.ICEBERG:
            for key in self.partition_by:
                column = PARTITION_COLUMNS[key]
                if column not in self.columns:
                    raise UsageError(
                        f"Iceberg derives the partition key {key} from the column {column}",
                        hint=f"--columns must name {column}, or leave out --partition-by {key}",
                    )

    def _check_merge(self) -> None:
        missing = [name for name in IDENTITY if name not in self.columns]
        if missing:
            raise UsageError(
                f"The latest record of each key needs the column {missing[0]}",
                hint="name key, topic and partition in --columns, or leave --columns out",
            )
        if set(self.partition_by) - {"topic"}:
            raise UsageError(
                "A key has one row in a lake, whatever day its record is from",
                hint="--partition-by topic, or leave --partition-by out",
            )

    @property
    def split_bytes(self) -> int:
        """Return the bytes of log in a file; a merge holds a file of changes in memory."""
        return min(self.file_bytes, MERGED_FILE_BYTES) if self.merges_changes else self.file_bytes

    @property
    def merges_changes(self) -> bool:
        """Return whether the table has the latest record of each key by merges: see
        `latest_rows`."""
        return self.latest_per_key and self.table_format.is_lake

    @property
    def replaces_partitions(self) -> bool:
        """Return whether the latest record of each key is found by exporting whole partitions."""
        return self.latest_per_key and not self.table_format.is_lake

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Return the columns in the files. The topic may be in directory names instead, except for
        Iceberg."""
        is_in_path = "topic" in self.partition_by and self.table_format is not TableFormat.ICEBERG
        is_in_path = is_in_path and not self.merges_changes
        return tuple(name for name in self.columns if not (is_in_path and name == "topic"))

    def fingerprint(self) -> dict[str, Any]:
        """Return the options that must be the same for two runs to add to one table."""
        facts = asdict(self)
        del facts["fails_on_damage"], facts["file_bytes"], facts["value_writers"]
        del facts["value_wire"], facts["compression"]
        del facts["on_undecodable"], facts["dead_letters"], facts["schema_id"]
        # It may hold a password, and a catalog may move.
        del facts["catalog"]
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain
