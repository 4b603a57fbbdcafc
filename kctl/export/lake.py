"""Delta Lake and Apache Iceberg: each run adds the files it exported to such a table as one
version.

Tasks write files and the driver commits them to the manifest, as for Parquet. Finally the driver
adds the new files to the lake's table through the lake's own library (delta-rs, pyiceberg).

    <out>/_kctl/published/<number>.json       the files that kctl's version `number` adds

That file is written before the lake's commit, and the commit records the number. After a crash,
both together show which of the two steps have happened, so that no file is added twice, even if the
lake's tools have rewritten or removed it since.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
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
    open_table,
)
from kctl.export.manifest import DIRECTORY, Manifest, WrittenFile
from kctl.export.options import HIVE_NULL, ExportOptions, TableFormat
from kctl.export.values import make_decoder
from kctl.runtime.real.object_store import storage_properties

_PUBLISHED = f"{DIRECTORY}/published"
_APP = "kctl"


class _Lake(Protocol):
    """The operations that differ between Delta and Iceberg."""

    def number(self) -> int:
        """Return the number of kctl's newest version in the table; 0 if there is none."""
        ...

    def add(self, number: int, files: Sequence[WrittenFile]) -> None:
        """Commit version `number`, which adds `files`."""
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


def publish(out: str, options: ExportOptions, manifest: Manifest) -> None:
    """Add the manifest's new files to the lake's table; do nothing for other formats.

    StorageError with the library's message.
    """
    if not options.table_format.is_lake:
        return
    files, root = Files.of(out)
    with _named_failures(out):
        opened = partial(_open, out, options)
        lake, number = _complete_begun_version(opened, files, root, manifest)
        known = {path for it in _versions(files, root) for path in json.loads(files.read(it))}
        new = [each for row in manifest.rows for each in row.files if each.path not in known]
        if new:
            paths = json.dumps([each.path for each in new])
            files.write(f"{root}/{_path(number + 1)}", paths.encode())
            _add(opened, lake, number + 1, new)


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


def _add(
    opened: Callable[[], _Lake], lake: _Lake, number: int, added: Sequence[WrittenFile]
) -> None:
    """Commit version `number`, which adds files.

    An object store may carry out a commit and answer with an error; its client repeats it and finds
    that the version exists. So after an error, the table shows whether it has the version.
    """
    try:
        lake.add(number, added)
    except Exception:
        if opened().number() < number:
            raise


def _complete_begun_version(
    opened: Callable[[], _Lake], files: Files, root: str, manifest: Manifest
) -> tuple[_Lake, int]:
    """Complete the version that an interrupted run began; return the table and the newest version's
    number."""
    lake = opened()
    done = lake.number()
    begun = len(_versions(files, root))
    if begun > done + 1:
        raise StorageError(
            f"The table has version {done} of kctl, but {root} has begun version {begun}",
            hint="the catalog or the table's log is another one, or was restored from a backup: "
            "restore it, or export to a new --out",
        )
    if begun > done:
        paths = set(json.loads(files.read(f"{root}/{_path(begun)}")))
        wanted = [each for row in manifest.rows for each in row.files if each.path in paths]
        _add(opened, lake, begun, wanted)
        lake = opened()
    return lake, max(begun, done)


def _versions(files: Files, root: str) -> list[str]:
    found = files.list(f"{root}/{_PUBLISHED}")
    return [facts.path for facts in found if facts.name.endswith(".json")]


def _path(number: int) -> str:
    return f"{_PUBLISHED}/{number:08d}.json"


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
