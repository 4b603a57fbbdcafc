"""The rows of one split, as the data source has them."""

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.export.live_plan import LiveSplit
from kctl.export.options import ExportOptions
from kctl.export.rows import raw_table
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import chunks_of
from kctl.export.splits import Split

_TIMESTAMP = pa.timestamp("us", "UTC")


def rows_of(
    options: SourceOptions, reading: ExportOptions, split: Split | LiveSplit
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one split."""
    for columns in chunks_of(options, split, reading):
        if not len(columns):
            continue
        table = raw_table(columns, split.topic, split.partition, reading.columns)
        if "timestamp" in reading.columns:
            at = reading.columns.index("timestamp")
            table = table.set_column(at, "timestamp", table.column(at).cast(_TIMESTAMP))
        yield table
