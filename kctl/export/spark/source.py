"""The data source `kctl`: log directories and brokers as DataFrames, batch and streaming, and
DataFrames as records of brokers (see `sink`).

    spark.dataSource.register(KctlDataSource)
    spark.read.format("kctl").option("subscribe", "orders").load("/data")
    spark.readStream.format("kctl").option("kafka.bootstrap.servers", "broker1:9092") \
        .option("subscribe", "orders").load()

Rows and options are those of Spark's Kafka source: see `options`. A schema with fewer columns reads
only these; leaderEpoch, producerId, producerEpoch and position are available in addition.

Filters are not pushed down, so ranges come from options alone, or from `filtered_read`: Spark 4.1
to 4.3 cache pushed filters with the relation, which gives wrong results if one DataFrame is used
twice.

Since Spark 4.2 a stream's reader receives the offset at which a batch begins, and so can limit the
batch.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kctl.errors import UsageError
from kctl.export.live_plan import LiveSplit, Ranges
from kctl.export.options import COLUMNS, EXTRA_COLUMNS, ExportOptions
from kctl.export.spark.admission import Admission, Limits, Offsets
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import (
    available_ranges,
    batch_splits,
    commit_offsets,
    first_offsets,
    stream_splits,
)
from kctl.export.spark.sink import KctlStreamWriter, KctlWriter
from kctl.export.spark.split_rows import rows_of
from kctl.export.splits import Split
from kctl.runtime.real.clock import RealClock

__all__ = ["KctlDataSource"]

_TYPES = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int",
    "offset": "bigint", "timestamp": "timestamp", "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>", "leaderEpoch": "int",
    "producerId": "bigint", "producerEpoch": "smallint", "position": "bigint",
}  # fmt: skip
# Added in Spark 4.2.
_LIMITS = "pyspark.sql.streaming.datasource"


class KctlDataSource(DataSource):
    """The data source; register it with `spark.dataSource.register(KctlDataSource)`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "kctl"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source, with headers if `includeHeaders` is set."""
        options = SourceOptions(self.options)
        names = [name for name in COLUMNS if name != "headers" or options.flag("includeHeaders")]
        return ", ".join(f"{name} {_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for a batch query; UsageError for invalid options."""
        options = SourceOptions(self.options)
        options.check_batch()
        return KctlReader(options, _names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for a streaming query; UsageError for invalid options."""
        options = SourceOptions(self.options)
        options.check_stream()
        return KctlStreamReader(options, _names(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for a batch query; UsageError for invalid options and columns."""
        return KctlWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002
    ) -> DataSourceStreamWriter:
        """Return a writer for a streaming query; UsageError for invalid options and columns.

        In the output mode complete, a stream writes the whole result with each batch, as Spark's
        Kafka sink does.
        """
        writer: DataSourceStreamWriter = KctlStreamWriter(self.options, schema)
        return writer


def _names(schema: StructType) -> tuple[str, ...]:
    for name in schema.fieldNames():
        if name not in COLUMNS + EXTRA_COLUMNS:
            raise UsageError(f"No column {name}", hint=f"columns: {', '.join(_TYPES)}")
    return tuple(schema.fieldNames())


class _Piece(InputPartition):
    """A split, as it is sent to an executor."""

    def __init__(self, split: Split | LiveSplit) -> None:
        super().__init__(split)
        self.split = split


class KctlReader(DataSourceReader):
    """The reader of a batch query."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.export_options(names)

    def partitions(self) -> list[InputPartition]:
        """Return the splits of the range, at least `minPartitions` if there are enough records."""
        return [_Piece(split) for split in batch_splits(self._options, self._reading)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        return _rows(self._options, self._reading, partition)


class KctlStreamReader(DataSourceStreamReader):
    """The reader of a streaming query, for its whole life.

    Its batches end at the logs' ends, at the last stable offset, or as far as the limits allow.
    """

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.export_options(names)
        self._limits = options.limits
        if self._limits is not None and find_spec(_LIMITS) is None:
            raise UsageError("Spark cannot limit the batches of a Python source before 4.2")
        self._admission = Admission(self._limits or Limits())
        self._clock = RealClock()
        # The end of a query with the trigger availableNow.
        self._target: Ranges | None = None
        # What a group has, if it is to have the offsets.
        self._committed: Offsets | None = None

    def initialOffset(self) -> Offsets:
        """Return where a query without a checkpoint begins."""
        return first_offsets(self._options, self._reading.isolation)

    # Spark before 4.2 passes neither argument.
    def latestOffset(  # type: ignore[override, unused-ignore]
        self, start: Offsets | None = None, limit: Any = None
    ) -> Offsets:
        """Return where the next batch ends. Spark may disable limits with ReadAllAvailable."""
        if start is not None:
            # Batches before this one are done. Spark calls `commit` only with a further batch.
            self._commit(start)
        ranges = self._available() if self._target is None else self._target
        is_limited = type(limit).__name__ != "ReadAllAvailable"
        admission = self._admission if is_limited else Admission(Limits())
        waits = self._target is None
        return admission.admit(start or {}, ranges, self._clock.monotonic_ms(), waits=waits)

    def getDefaultReadLimit(self) -> Any:
        """Return whether the query has limits; their values are applied by `latestOffset`."""
        from pyspark.sql.streaming import datasource  # type: ignore[attr-defined, unused-ignore]

        if self._limits is None:
            return datasource.ReadAllAvailable()
        return datasource.ReadMaxRows(self._limits.offsets_max or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end where the logs end now."""
        self._target = self._available()

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the splits between two offsets."""
        splits = stream_splits(self._options, start, end, self._reading)
        return [_Piece(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        return _rows(self._options, self._reading, partition)

    def commit(self, end: Offsets) -> None:
        """Commit the end of a batch that is done, if a group is to have the offsets."""
        self._commit(end)

    def _commit(self, offsets: Offsets) -> None:
        if offsets != self._committed:
            commit_offsets(self._options, offsets)
            self._committed = offsets

    def _available(self) -> Ranges:
        return available_ranges(self._options, self._reading.isolation)


def _rows(
    options: SourceOptions, reading: ExportOptions, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    # For a batch without splits, pyspark reads a partition that it creates itself.
    if isinstance(partition, _Piece):
        yield from rows_of(options, reading, partition.split)


if find_spec(_LIMITS) is not None:
    from pyspark.sql.streaming import datasource  # type: ignore[attr-defined, unused-ignore]

    datasource.SupportsTriggerAvailableNow.register(KctlStreamReader)
