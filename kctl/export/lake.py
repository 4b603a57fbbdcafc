"""Delta Lake and Apache Iceberg: each run adds the files it exported to such a table as one
version, or merges the changes in them (`latest_rows`).

Tasks write files and the driver commits them to the manifest, as for Parquet. Finally the driver
adds the new files to the lake's table, or merges their changes, through the lake's own library
(delta-rs, pyiceberg).

The files of a version are written down before the lake's commit (`published`), and the commit
records the version's number. After a crash, both together show which of the two steps have
happened, so that no file is added twice, even if the lake's tools have rewritten or removed it
since.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.arrow_files.files import Files, check_reachable
from kctl.errors import StorageError, UsageError, missing_extra
from kctl.export.evolution import has_columns
from kctl.export.iceberg_catalog import (
    NUMBER_PROPERTY,
    add_columns,
    add_files,
    check_catalog,
    hint_of,
    merge_changes,
    open_table,
)
from kctl.export.latest_rows import CHANGES, DELETED, groups, read_changes
from kctl.export.manifest import Manifest, WrittenFile
from kctl.export.options import HIVE_NULL, IDENTITY, Compression, ExportOptions, TableFormat
from kctl.export.published import Published
from kctl.export.values import make_decoder
from kctl.runtime.real.object_store import storage_properties

_APP = "kctl"
# The tables of a Delta merge.
_ROW, _CHANGE = "row", "change"
_CODECS = {
    Compression.ZSTD: "ZSTD",
    Compression.SNAPPY: "SNAPPY",
    Compression.LZ4: "LZ4_RAW",
    Compression.NONE: "UNCOMPRESSED",
}


class _Lake(Protocol):
    """The operations that differ between Delta and Iceberg."""

    def number(self) -> int:
        """Return the number of kctl's newest version in the table; 0 if there is none."""
        ...

    def add(self, number: int, files: Sequence[WrittenFile]) -> None:
        """Commit version `number`, which adds `files`."""
        ...

    def columns(self) -> pa.Schema:
        """Return the table's columns."""
        ...

    def merge(self, number: int, changes: pa.Table) -> None:
        """Commit version `number`, which merges changes with these columns and DELETED, at most one
        of each key."""
        ...

    def delete_before(self, before_ms: int) -> int:
        """See the function `delete_before`."""
        ...


def check_lake(
    table_format: TableFormat, options: ExportOptions | None = None, out: str = ""
) -> None:
    """Raise UsageError if the format's library is not installed, or UsageError or StorageError if
    the catalog of `options` cannot be used, so that a run fails before its work."""
    if table_format is TableFormat.DELTA:
        _deltalake()
    elif table_format is TableFormat.ICEBERG:
        _iceberg_catalog()
        check_reachable(out)
        if options is not None and options.catalog is not None:
            files, root = Files.of(out)
            check_catalog(options, files.location(root))


def publish(out: str, options: ExportOptions, manifest: Manifest, *, are_new: bool = False) -> None:
    """Add the manifest's new files to the lake's table, or merge their changes; do nothing for
    other formats.

    `are_new`: all of the manifest's rows are; what earlier versions have added is not read.
    StorageError with the library's message.
    """
    if not options.table_format.is_lake:
        return
    place = _Place(out, options)
    with _named_failures(out):
        lake, number = _complete_begun_version(place, manifest)
        known = set() if are_new else place.published.paths()
        new = [row for row in manifest.rows if any(it.path not in known for it in row.files)]
        for rows in groups(new) if options.merges_changes else [new]:
            added = [each for row in rows for each in row.files if each.path not in known]
            if added:
                number += 1
                place.published.begin(number, (each.path for each in added))
                _add(place, lake, number, added)
        place.published.join()


class _Place:
    """Where a lake's table is, and which versions kctl has begun there."""

    def __init__(self, out: str, options: ExportOptions) -> None:
        self._out, self.options = out, options
        self.files, self.root = Files.of(out)
        self.published = Published(self.files, self.root)

    def open(self) -> _Lake:
        """Return the table as it is now; it is created if there is none."""
        return _open(self._out, self.options)

    def commit(self, lake: _Lake, number: int, added: Sequence[WrittenFile]) -> None:
        """Commit version `number`."""
        if self.options.merges_changes:
            lake.merge(number, read_changes(self.files, self.root, added, lake.columns()))
        else:
            lake.add(number, added)

    def remove_changes(self, paths: Iterable[str]) -> None:
        """Delete files of changes that are merged."""
        for path in paths:
            if path.startswith(CHANGES) and self.files.find(f"{self.root}/{path}") is not None:
                self.files.delete(f"{self.root}/{path}")


def delete_before(out: str, options: ExportOptions, before_ms: int) -> int:
    """Delete the rows of the days or hours before a moment, at the beginning of one, from a Delta
    or Iceberg table; return the number of files that it no longer has.

    StorageError with the library's message.
    """
    with _named_failures(out):
        return _open(out, options).delete_before(before_ms)


def _open(out: str, options: ExportOptions) -> _Lake:
    if options.table_format is TableFormat.DELTA:
        return _Delta(out, options)
    return _Iceberg(out, options) if options.catalog is None else _IcebergInCatalog(out, options)


@contextmanager
def _named_failures(out: str) -> Iterator[None]:
    """Make a StorageError of what the libraries raise: they document no common exception class."""
    try:
        yield
    except (UsageError, StorageError):
        raise
    except Exception as error:
        text = f"{out}: {type(error).__name__}: {error}"
        raise StorageError(text, hint=hint_of(error)) from error


def _add(place: _Place, lake: _Lake, number: int, added: Sequence[WrittenFile]) -> None:
    """Commit version `number`, which adds files or merges their changes.

    An object store may carry out a commit and answer with an error; its client repeats it and finds
    that the version exists. So after an error, the table shows whether it has the version.
    """
    try:
        place.commit(lake, number, added)
    except Exception:
        if place.open().number() < number:
            raise
    place.remove_changes(each.path for each in added)


def _complete_begun_version(place: _Place, manifest: Manifest) -> tuple[_Lake, int]:
    """Complete the version that an interrupted run began; return the table and the newest version's
    number."""
    lake = place.open()
    done = lake.number()
    begun = place.published.newest
    if begun > done + 1:
        raise StorageError(
            f"The table has version {done} of kctl, but {place.root} has begun version {begun}",
            hint="the catalog or the table's log is another one, or was restored from a backup: "
            "restore it, or export to a new --out",
        )
    paths = place.published.paths_of_newest()
    if begun > done:
        written = {each.path: each for row in manifest.rows for each in row.files}
        _add(place, lake, begun, [written[path] for path in paths if path in written])
        lake = place.open()
    # A run may have died between the commit and this.
    place.remove_changes(paths)
    return lake, max(begun, done)


def _partition_values(path: str) -> dict[str, str | None]:
    pairs = [part.split("=", 1) for part in path.split("/")[:-1]]
    return {name: None if value == HIVE_NULL else value for name, value in pairs}


def _schema(options: ExportOptions) -> pa.Schema:
    """Return the table's columns: those in the files, then those in directory names."""
    plain = make_decoder(options).schema
    names = [name for name in options.partition_by if name not in plain.names]
    return pa.schema([*plain, *(pa.field(name, pa.string()) for name in names)])


def _deltalake() -> Any:
    try:
        import deltalake  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise missing_extra("--format delta needs deltalake", "delta") from None
    return deltalake


class _Delta:
    """A Delta table in the export's directory."""

    def __init__(self, out: str, options: ExportOptions) -> None:
        self._library = _deltalake()
        self._options = options
        self._files, self._root = Files.of(out)
        schema = self._library.Schema.from_arrow(_in_microseconds(_schema(options)))
        self._schema = schema
        self._table = self._library.DeltaTable.create(
            out, schema, mode="ignore", partition_by=list(options.partition_by) or None, name=_APP
        )
        existing = pa.schema(self._table.schema().to_arrow())
        wanted = _in_microseconds(_schema(options))
        if not has_columns(existing, wanted):
            added = self._library.Schema.from_arrow(_without(wanted, existing))
            self._table.alter.add_columns(added.fields)

    def number(self) -> int:
        """See _Lake."""
        return int(self._table.transaction_version(_APP) or 0)

    def add(self, number: int, files: Sequence[WrittenFile]) -> None:
        """See _Lake."""
        action = self._library.transaction.AddAction
        actions = [
            action(
                each.path, each.size, _partition_values(each.path), self._changed_ms(each.path),
                True, json.dumps({"numRecords": each.rows}),  # noqa: FBT003
            )
            for each in files
        ]  # fmt: skip
        version = self._library.Transaction(_APP, number)
        self._table.create_write_transaction(
            actions, "append", self._schema, list(self._options.partition_by) or None,
            commit_properties=self._library.CommitProperties(app_transactions=[version]),
        )  # fmt: skip

    def columns(self) -> pa.Schema:
        """See _Lake."""
        return pa.schema(self._table.schema().to_arrow())

    def merge(self, number: int, changes: pa.Table) -> None:
        """See _Lake."""
        version = self._library.Transaction(_APP, number)
        properties = self._library.CommitProperties(app_transactions=[version])
        codec = _CODECS[self._options.compression]
        merger = self._table.merge(
            changes, " AND ".join(f"{_ROW}.{name} = {_CHANGE}.{name}" for name in IDENTITY),
            source_alias=_CHANGE, target_alias=_ROW, commit_properties=properties,
            writer_properties=self._library.WriterProperties(compression=codec),
        )  # fmt: skip
        is_deleted = f"{_CHANGE}.{DELETED}"
        merger = merger.when_matched_delete(is_deleted)
        merger = merger.when_matched_update_all(f"NOT {is_deleted}", except_cols=[DELETED])
        merger.when_not_matched_insert_all(f"NOT {is_deleted}", except_cols=[DELETED]).execute()
        if self.number() < number:
            # A merge that changes nothing commits nothing.
            self._table.create_write_transaction(
                [], "append", self._schema, list(self._options.partition_by) or None,
                commit_properties=properties,
            )  # fmt: skip

    def delete_before(self, before_ms: int) -> int:
        """See `delete_before`. The files themselves remain until VACUUM."""
        when = datetime.fromtimestamp(before_ms / 1000, UTC)
        day, hour = f"{when:%Y-%m-%d}", f"{when:%H}"
        where = f"date < '{day}'"
        if "hour" in self._options.partition_by:
            where = f"({where}) OR (date = '{day}' AND hour < '{hour}')"
        # A delete without files would be a version, too.
        old = [
            it for it in self._table.partitions()
            if it.get("date") and (it["date"], it.get("hour") or "00") < (day, hour)
        ]  # fmt: skip
        if not old:
            return 0
        return int(self._table.delete(where)["num_removed_files"])

    def _changed_ms(self, path: str) -> int:
        facts = self._files.find(f"{self._root}/{path}")
        return facts.modified_ns // 1_000_000 if facts is not None else 0


def _without(schema: pa.Schema, existing: pa.Schema) -> pa.Schema:
    """Return the top-level columns that `existing` lacks, or of which it lacks fields."""
    return pa.schema([
        it for it in schema
        if it.name not in existing.names or not has_columns(existing, pa.schema([it]))
    ])  # fmt: skip


def _in_microseconds(schema: pa.Schema) -> pa.Schema:
    """Return the schema with timestamps in microseconds, Delta's only unit; readers convert."""

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(it.name, of(it.type), it.nullable) for it in kind])
        if pa.types.is_list(kind):
            return pa.list_(of(kind.value_type))
        if pa.types.is_map(kind):
            return pa.map_(kind.key_type, of(kind.item_type))
        return kind

    return pa.schema([pa.field(it.name, of(it.type), it.nullable) for it in schema])


def _iceberg_catalog() -> Any:
    try:
        from pyiceberg.catalog.memory import (  # type: ignore[import-not-found, unused-ignore]
            InMemoryCatalog,
        )
    except ImportError:
        raise missing_extra("--format iceberg needs pyiceberg", "iceberg") from None
    return InMemoryCatalog


class _Iceberg:
    """An Iceberg table in the export's directory, in the layout of a Hadoop catalog.

    Its newest metadata are `metadata/v<N>.metadata.json`, where `version-hint.text` holds N.
    """

    def __init__(self, out: str, options: ExportOptions) -> None:
        self._files, self._root = Files.of(out)
        self._url = self._files.location(self._root)
        storage = storage_properties()
        catalog = _iceberg_catalog()(_APP, warehouse=self._url, **storage)
        catalog.create_namespace(_APP)
        name = f"{_APP}.table"
        newest = self._newest()
        self._version = newest or 0
        if newest is not None:
            self._hint()
            place = self._files.location(self._metadata(newest))
            self._table = catalog.register_table(name, place)
            add_columns(self._table, make_decoder(options).schema)
        else:
            schema = make_decoder(options).schema
            self._table = catalog.create_table(name, schema, location=self._url)
            _partition(self._table, options.partition_by)

    def number(self) -> int:
        """See _Lake."""
        return int(self._table.properties.get(NUMBER_PROPERTY, "0"))

    def add(self, number: int, files: Sequence[WrittenFile]) -> None:
        """See _Lake."""
        urls = [self._files.location(f"{self._root}/{each.path}") for each in files]
        add_files(self._table, number, urls)
        self._save()

    def columns(self) -> pa.Schema:
        """See _Lake."""
        return self._table.schema().as_arrow()

    def merge(self, number: int, changes: pa.Table) -> None:
        """See _Lake."""
        merge_changes(self._table, number, changes)
        self._save()

    def delete_before(self, before_ms: int) -> int:
        """See `delete_before`."""
        count = _delete_rows_before(self._table, before_ms)
        if count:
            self._save()
        return count

    def _save(self) -> None:
        # The in-memory catalog's commit takes effect when its metadata file is copied here.
        written, path = Files.of(self._table.metadata_location)
        data = written.read(path)
        self._version += 1
        self._files.write(self._metadata(self._version), data)
        self._hint()

    def _hint(self) -> None:
        self._files.write(f"{self._root}/metadata/version-hint.text", b"%d" % self._version)

    def _metadata(self, version: int) -> str:
        return f"{self._root}/metadata/v{version}.metadata.json"

    def _newest(self) -> int | None:
        names = [facts.name for facts in self._files.list(f"{self._root}/metadata")]
        found = [
            int(name[1:].split(".", 1)[0]) for name in names
            if name.startswith("v") and name.endswith(".metadata.json")
        ]  # fmt: skip
        return max(found, default=None)


class _IcebergInCatalog:
    """An Iceberg table with its files in the export's directory and its name in a catalog."""

    def __init__(self, out: str, options: ExportOptions) -> None:
        self._files, self._root = Files.of(out)
        schema = make_decoder(options).schema
        self._table = open_table(options, self._files.location(self._root), schema)
        add_columns(self._table, schema)
        # A run may have died between the creation of the table and that of its partitions.
        if self.number() == 0 and options.partition_by and self._table.spec().is_unpartitioned():
            _partition(self._table, options.partition_by)

    def number(self) -> int:
        """See _Lake."""
        return int(self._table.properties.get(NUMBER_PROPERTY, "0"))

    def add(self, number: int, files: Sequence[WrittenFile]) -> None:
        """See _Lake."""
        urls = [self._files.location(f"{self._root}/{each.path}") for each in files]
        add_files(self._table, number, urls)

    def columns(self) -> pa.Schema:
        """See _Lake."""
        return self._table.schema().as_arrow()

    def merge(self, number: int, changes: pa.Table) -> None:
        """See _Lake."""
        merge_changes(self._table, number, changes)

    def delete_before(self, before_ms: int) -> int:
        """See `delete_before`."""
        return _delete_rows_before(self._table, before_ms)


def _delete_rows_before(table: Any, before_ms: int) -> int:
    """Delete the rows with timestamps from 1970 until `before_ms`, and return how many files had
    any; the moment is between two partitions, so no file is rewritten."""
    # Records without a timestamp have -1.
    bounds = [datetime.fromtimestamp(it / 1000, UTC).isoformat() for it in (0, before_ms)]
    where = f"timestamp >= '{bounds[0]}' and timestamp < '{bounds[1]}'"
    count = sum(1 for _ in table.scan(row_filter=where).plan_files())
    if count:
        table.delete(where)
    return count


def _partition(table: Any, keys: Sequence[str]) -> None:
    """Partition the table by the topic, and by the day or hour of the timestamp."""
    with table.update_spec() as update:
        if "topic" in keys:
            update.add_identity("topic")
        # Iceberg rejects both on one column, and an hour implies its day.
        if "hour" in keys or "date" in keys:
            unit = "hour" if "hour" in keys else "day"
            update.add_field("timestamp", unit, f"timestamp_{unit}")
