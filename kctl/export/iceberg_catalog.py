"""Iceberg tables in a catalog: REST, SQL, Hive and what else pyiceberg connects to.

The catalog holds the pointer to the newest metadata, and its commit is atomic. kctl's version
number is a property that the same commit sets, so both exist or neither (see `lake`).
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute as pc

from kctl.errors import StorageError, UsageError, missing_extra
from kctl.export.latest_rows import DELETED
from kctl.export.options import IDENTITY, ExportOptions
from kctl.runtime.real.object_store import storage_properties

NUMBER_PROPERTY = "kctl.published"
_DIRECTORY_PROPERTY = "kctl.directory"
# Of a table that is merged: a merge has one file at a time in memory.
_FILE_SIZE = "write.target-file-size-bytes"
FILE_BYTES = 64 * 1024 * 1024
_NAME = "kctl"
# Hive's type of timestamps with a zone, since 3.0.
_HIVE_TYPE = "timestamp with local time zone"
# What Hive Metastores report, and the remedy.
_HIVE_HINTS = {
    "Failed to acquire lock": "a run that was killed may have left the lock: the metastore removes "
    "it after hive.txn.timeout, and the next run completes the table",
    "types incompatible with the existing columns": "the metastore accepts new fields inside a "
    "column with hive.metastore.disallow.incompatible.col.type.changes=false",
}


def check_catalog(options: ExportOptions, directory: str) -> None:
    """Raise UsageError or StorageError unless the catalog answers and the table is free or that of
    `directory`, a URL."""
    if options.catalog is not None:
        existing_table(_connect(options.catalog), options, directory)


def open_table(options: ExportOptions, directory: str, schema: Any) -> Any:
    """Return pyiceberg's table, which is created in `directory` if the catalog lacks it.

    UsageError if the table belongs to something else, or if a Hive Metastore needs a setting; the
    library's own errors otherwise.
    """
    catalog = _connect(str(options.catalog))
    table = existing_table(catalog, options, directory)
    if table is not None:
        return table
    name = str(options.catalog_table)
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    properties = {_DIRECTORY_PROPERTY: directory}
    table = catalog.create_table(name, schema, location=directory, properties=properties)
    if str(catalog.properties.get("uri")).startswith("thrift:"):
        _check_types(catalog, table)
    return table


def _check_types(catalog: Any, table: Any) -> None:
    """Raise UsageError if the Hive Metastore does not know the types of a new table, which is then
    dropped: releases before 3.0 accept such a table, but no change of it, not even of its types."""
    try:
        with table.transaction() as transaction:
            transaction.set_properties({NUMBER_PROPERTY: "0"})
    except Exception as error:
        if _HIVE_TYPE not in str(error):
            raise
        catalog.drop_table(table.name())
        raise UsageError(
            f"The Hive Metastore has no type '{_HIVE_TYPE}': it is older than 3.0",
            hint="configure the catalog with hive.hive2-compatible: for a URI, set "
            f"PYICEBERG_CATALOG__{_NAME.upper()}__HIVE__HIVE2_COMPATIBLE=true",
        ) from error


def existing_table(catalog: Any, options: ExportOptions, directory: str) -> Any:
    """Return the table, or None if the catalog lacks it; UsageError if another directory's."""
    from pyiceberg.exceptions import (  # type: ignore[import-not-found, unused-ignore]
        NoSuchNamespaceError,
        NoSuchTableError,
    )

    try:
        table = catalog.load_table(options.catalog_table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        # The clients of catalogs document no common exception class.
        raise _unreachable(error) from error
    if table.properties.get(_DIRECTORY_PROPERTY) != directory:
        raise UsageError(
            f"The catalog's table {options.catalog_table} is not the table of {directory}",
            hint="choose another --catalog-table, or the --out of its first run",
        )
    return table


def add_columns(table: Any, schema: pa.Schema) -> None:
    """Add the columns and fields of `schema` that the table lacks, in a commit of their own; do
    nothing if there are none."""
    wanted = {name for it in schema for name in _names(it.name, it.type)}
    if not wanted <= set(table.schema().column_names):
        with table.update_schema() as update:
            update.union_by_name(schema)


def _names(path: str, kind: pa.DataType) -> list[str]:
    """Return the names of a column and its fields, as Iceberg has them."""
    if pa.types.is_struct(kind):
        return [path, *(name for it in kind for name in _names(f"{path}.{it.name}", it.type))]
    if pa.types.is_list(kind):
        return [path, *_names(f"{path}.element", kind.value_type)]
    if pa.types.is_map(kind):
        return [path, *_names(f"{path}.value", kind.item_type)]
    return [path]


def add_files(table: Any, number: int, urls: Sequence[str]) -> None:
    """Commit version `number`, which adds the files."""
    with table.transaction() as transaction:
        transaction.add_files(list(urls))
        transaction.set_properties({NUMBER_PROPERTY: str(number)})


def merge_changes(table: Any, number: int, changes: pa.Table) -> None:
    """Commit version `number`, which merges changes: see `latest_rows`. Iceberg's library writes
    no deletes of single rows, so files with rows of these keys are written again."""
    rows = changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])
    existing = _existing(table, changes.select(list(IDENTITY)))
    with table.transaction() as transaction:
        if _FILE_SIZE not in table.properties:
            transaction.set_properties({_FILE_SIZE: str(FILE_BYTES)})
        if len(existing):
            transaction.delete(_condition(existing))
        if len(rows):
            transaction.append(rows)
        transaction.set_properties({NUMBER_PROPERTY: str(number)})


def _existing(table: Any, wanted: pa.Table) -> pa.Table:
    """Return the identities among `wanted` that have rows in the table. A condition is slow with
    many keys, most of which are often new."""
    columns = wanted.column_names
    batches = table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()
    found = [wanted.slice(0, 0)]
    for batch in batches:
        part = pa.table(batch).select(columns).cast(wanted.schema)
        found.append(part.join(wanted, columns, join_type="left semi"))
    return pa.concat_tables(found)


def _condition(identities: pa.Table) -> Any:
    """Return the condition that holds for the rows with these identities."""
    from pyiceberg import expressions  # type: ignore[import-not-found, unused-ignore]

    of: Any = expressions
    keys = identities.group_by(["topic", "partition"]).aggregate([("key", "list")])
    found = [
        of.And(
            of.EqualTo("topic", row["topic"]),
            of.EqualTo("partition", row["partition"]),
            of.In("key", row["key_list"]),
        )
        for row in keys.to_pylist()
    ]
    return of.Or(*found) if len(found) > 1 else found[0]


def hint_of(error: Exception) -> str | None:
    """Return what to do about an error of a catalog, if kctl knows it."""
    return next((hint for text, hint in _HIVE_HINTS.items() if text in str(error)), None)


def _connect(catalog: str) -> Any:
    """Return pyiceberg's catalog of that URI, or of that name in pyiceberg's configuration."""
    try:
        from pyiceberg.catalog import load_catalog  # type: ignore[import-not-found, unused-ignore]
        from pyiceberg.exceptions import NotInstalledError
    except ImportError:
        raise missing_extra("--catalog needs pyiceberg", "iceberg") from None
    try:
        if "://" in catalog:
            return load_catalog(_NAME, uri=catalog, **storage_properties())
        return load_catalog(catalog)
    except (NotInstalledError, ImportError) as error:
        raise UsageError(
            f"pyiceberg lacks a package for this catalog: {error}",
            hint="pip install 'pyiceberg[hive]', or the extra of the catalog's kind",
        ) from None
    except ValueError as error:
        raise UsageError(
            f"pyiceberg cannot open the catalog: {error}",
            hint="a URI (http://, sqlite:///, postgresql://, thrift://), or a name that "
            "~/.pyiceberg.yaml or PYICEBERG_CATALOG__<NAME>__URI configures",
        ) from None
    except Exception as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> StorageError:
    return StorageError(
        f"The catalog failed: {type(error).__name__}: {error}",
        hint="check its address, and its credentials in ~/.pyiceberg.yaml or PYICEBERG_CATALOG__*",
    )
