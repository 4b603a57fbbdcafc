"""A DataFrame of splits that are already planned: it needs no process of Python to plan it.

Spark asks a Python data source for its schema and its tasks in two processes, which takes longer
than to read some thousand rows. Here Spark plans a range with one number for each split, and one
function in Python reads the splits of the numbers. Rows are those of the data source.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.export.live_plan import LiveSplit
from kctl.export.options import ExportOptions
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.split_rows import rows_of
from kctl.export.splits import Split

# Every task receives all splits.
SPLITS_MAX = 1000


def frame_of(
    spark: Any,
    options: SourceOptions,
    reading: ExportOptions,
    schema: str,
    splits: Sequence[Split | LiveSplit],
) -> Any:
    """Return a DataFrame of the splits' rows, a task for each; `schema` has the columns that
    `reading` names."""
    numbers = spark.range(0, len(splits), 1, max(1, len(splits)))
    return numbers.mapInArrow(KctlRows(options, reading, splits), schema)


class KctlRows:
    """Reads the splits of numbers; pickled to the executors. Plans show its name."""

    def __init__(
        self, options: SourceOptions, reading: ExportOptions, splits: Sequence[Split | LiveSplit]
    ) -> None:
        self._options = options
        self._reading = reading
        self._splits = splits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the splits whose numbers the batches hold."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(self._options, self._reading, self._splits[number])
