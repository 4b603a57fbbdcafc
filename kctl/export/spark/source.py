"""The data source `kctl`: log directories and brokers as DataFrames, batch and streaming.

    spark.dataSource.register(KctlDataSource)
    spark.read.format("kctl").option("subscribe", "orders").load("/data")
    spark.readStream.format("kctl").option("kafka.bootstrap.servers", "broker1:9092") \
        .option("subscribe", "orders").load()

The rows are those of Spark's own Kafka source, and so are the options: see `options`. A schema
with fewer columns reads fewer; besides the Kafka source's there are leaderEpoch, producerId,
producerEpoch and position.

Ranges come from options alone: filters that Spark pushes down are cached with the relation, and
give wrong results when one DataFrame is used twice (Spark 4.1), so none are taken.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider
"""

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from kctl.errors import UsageError
from kctl.export.live_plan import LiveSplit
from kctl.export.options import COLUMNS, EXTRA_COLUMNS, ExportOptions
from kctl.export.rows import raw_table
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import Offsets, chunks_of, place_of
from kctl.export.splits import Split

_TYPES = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int",
    "offset": "bigint", "timestamp": "timestamp", "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>", "leaderEpoch": "int",
    "producerId": "bigint", "producerEpoch": "smallint", "position": "bigint",
}  # fmt: skip
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
    """A streaming query; its offsets are those of the logs' ends, or of what is stable."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.export_options(names)

    def initialOffset(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        return place_of(self._options).first_offsets()

    # Spark 4.1 and later know a second form, which is offered limits; they take this one, too.
    def latestOffset(self) -> Offsets:  # type: ignore[override, unused-ignore]
        """Where the logs end now."""
        return place_of(self._options).end_offsets(self._reading)

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
