"""The data source `kctl`: log directories and brokers as DataFrames, batch and streaming.

    spark.dataSource.register(KctlDataSource)
    spark.read.format("kctl").option("subscribe", "orders").load("/data")
    spark.readStream.format("kctl").option("kafka.bootstrap.servers", "broker1:9092") \
        .option("subscribe", "orders").load()

The rows are those of Spark's own Kafka source, and so are the options: see `options`. A schema
with fewer columns reads fewer; besides the Kafka source's there are leaderEpoch, producerId,
producerEpoch and position.

Ranges come from options alone: filters that Spark pushes down are cached with the relation, and
give wrong results when one DataFrame is used twice (Spark 4.1 to 4.3), so none are taken.

Since Spark 4.2 a stream's reader is told where a batch begins, and so can limit it.

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
    InputPartition,
)
from pyspark.sql.types import StructType

from kctl.errors import UsageError
from kctl.export.live_plan import LiveSplit, Ranges
from kctl.export.options import COLUMNS, EXTRA_COLUMNS, ExportOptions
from kctl.export.rows import raw_table
from kctl.export.spark.admission import Admission, Limits, Offsets
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import chunks_of, place_of
from kctl.export.splits import Split
from kctl.runtime.real.clock import RealClock

_TYPES = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int",
    "offset": "bigint", "timestamp": "timestamp", "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>", "leaderEpoch": "int",
    "producerId": "bigint", "producerEpoch": "smallint", "position": "bigint",
}  # fmt: skip
# Spark 4.2 brought it.
_LIMITS = "pyspark.sql.streaming.datasource"
_TIMESTAMP = pa.timestamp("us", "UTC")


class KctlDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return "kctl"

    def schema(self) -> str:
        """All columns of Spark's Kafka source; headers if they are asked for."""
        options = SourceOptions(self.options)
        names = [name for name in COLUMNS if name != "headers" or options.flag("includeHeaders")]
        return ", ".join(f"{name} {_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a range once."""
        return KctlReader(SourceOptions(self.options), _names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows the logs."""
        return KctlStreamReader(SourceOptions(self.options), _names(schema))


def _names(schema: StructType) -> tuple[str, ...]:
    for name in schema.fieldNames():
        if name not in COLUMNS + EXTRA_COLUMNS:
            raise UsageError(f"No column {name}", hint=f"there are {', '.join(_TYPES)}")
    return tuple(schema.fieldNames())


class _Piece(InputPartition):
    """A split on its way to an executor."""

    def __init__(self, split: Split | LiveSplit) -> None:
        super().__init__(split)
        self.split = split


class KctlReader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.export_options(names)

    def partitions(self) -> list[InputPartition]:
        """The splits of the range, at least `minPartitions` if there is enough to split."""
        return [_Piece(split) for split in place_of(self._options).splits(self._reading)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        return _rows(self._options, self._reading, partition)


class KctlStreamReader(DataSourceStreamReader):
    """A streaming query, from its start to its end; its offsets are those of the logs' ends, or of
    what is stable, or as far as limits let it go."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.export_options(names)
        self._limits = options.limits
        if self._limits is not None and find_spec(_LIMITS) is None:
            raise UsageError("Spark cannot limit the batches of a Python source before 4.2")
        self._admission = Admission(self._limits or Limits())
        self._clock = RealClock()
        # Where a query that takes what is available now ends.
        self._target: Ranges | None = None

    def initialOffset(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        return place_of(self._options).first_offsets()

    # Spark before 4.2 tells neither.
    def latestOffset(  # type: ignore[override, unused-ignore]
        self, start: Offsets | None = None, limit: Any = None
    ) -> Offsets:
        """Where the next batch ends; Spark may forbid limits."""
        ranges = self._target or place_of(self._options).ranges(self._reading)
        is_limited = type(limit).__name__ != "ReadAllAvailable"
        admission = self._admission if is_limited else Admission(Limits())
        waits = self._target is None
        return admission.admit(start or {}, ranges, self._clock.monotonic_ms(), waits=waits)

    def getDefaultReadLimit(self) -> Any:
        """Whether there are any; Spark only says whether they count."""
        from pyspark.sql.streaming import datasource  # type: ignore[attr-defined, unused-ignore]

        if self._limits is None:
            return datasource.ReadAllAvailable()
        return datasource.ReadMaxRows(self._limits.offsets_max or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the logs end now."""
        self._target = place_of(self._options).ranges(self._reading)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """The splits between two offsets."""
        place = place_of(self._options)
        return [_Piece(split) for split in place.splits_between(start, end, self._reading)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        return _rows(self._options, self._reading, partition)


def _rows(
    options: SourceOptions, reading: ExportOptions, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Piece)
    split = partition.split
    for columns in chunks_of(options, split, reading):
        if not len(columns):
            continue
        table = raw_table(columns, split.topic, split.partition, reading.columns)
        if "timestamp" in reading.columns:
            at = reading.columns.index("timestamp")
            table = table.set_column(at, "timestamp", table.column(at).cast(_TIMESTAMP))
        yield table


if find_spec(_LIMITS) is not None:
    from pyspark.sql.streaming import datasource  # type: ignore[attr-defined, unused-ignore]

    datasource.SupportsTriggerAvailableNow.register(KctlStreamReader)
