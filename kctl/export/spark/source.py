"""The data source `kctl`: log directories as DataFrames, batch and streaming.

    spark.dataSource.register(KctlDataSource)
    spark.read.format("kctl").option("subscribe", "orders").load("/data")
    spark.readStream.format("kctl").option("subscribe", "orders").load("/data")

The rows are those of Spark's own Kafka source, and so are the options: subscribe,
subscribePattern, startingOffsets, endingOffsets, startingTimestamp, endingTimestamp,
startingOffsetsByTimestamp, endingOffsetsByTimestamp, failOnDataLoss, includeHeaders,
minPartitions, kafka.isolation.level. A schema with fewer columns reads fewer; besides the Kafka
source's there are leaderEpoch, producerId, producerEpoch and position.

Ranges come from options alone: filters that Spark pushes down are cached with the relation, and
give wrong results when one DataFrame is used twice (Spark 4.1), so none are taken.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from kctl.errors import UsageError
from kctl.export.options import COLUMNS, EXTRA_COLUMNS, ExportOptions, Isolation
from kctl.export.partition_log import PartitionLog
from kctl.export.rows import SplitReader, raw_table
from kctl.export.source import find_logs
from kctl.export.splits import Split, plan_log
from kctl.model import Position, PositionKind, TopicPartition

_TYPES = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int",
    "offset": "bigint", "timestamp": "timestamp", "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>", "leaderEpoch": "int",
    "producerId": "bigint", "producerEpoch": "smallint", "position": "bigint",
}  # fmt: skip
_TIMESTAMP = pa.timestamp("us", "UTC")
# What Spark's Kafka source writes for them in JSON.
_LATEST, _EARLIEST = -1, -2
_SPLIT_BYTES = 128 * 1024 * 1024
# topic -> partition (as text) -> offset: what a streaming checkpoint holds.
Offsets = dict[str, dict[str, int]]


class KctlDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return "kctl"

    def schema(self) -> str:
        """All columns of Spark's Kafka source; headers if they are asked for."""
        options = _Options(self.options)
        names = [name for name in COLUMNS if name != "headers" or options.flag("includeHeaders")]
        return ", ".join(f"{name} {_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a range once."""
        return KctlReader(_Options(self.options), _names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows the logs."""
        return KctlStreamReader(_Options(self.options), _names(schema))


def _names(schema: StructType) -> tuple[str, ...]:
    for name in schema.fieldNames():
        if name not in COLUMNS + EXTRA_COLUMNS:
            raise UsageError(f"No column {name}", hint=f"there are {', '.join(_TYPES)}")
    return tuple(schema.fieldNames())


class _Options:
    """The options, whose names are not case-sensitive."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        if "path" not in self._options:
            raise UsageError("No path: load(LOG_DIRECTORY)")

    def get(self, name: str) -> str | None:
        """One of them, if it is given."""
        return self._options.get(name.lower())

    def flag(self, name: str, *, default: bool = False) -> bool:
        """One that is true or false."""
        text = self.get(name)
        return default if text is None else text.lower() == "true"

    def logs(self) -> list[PartitionLog]:
        """The logs that the options name."""
        path = self._options["path"]
        topics = [it.strip() for it in (self.get("subscribe") or "").split(",") if it.strip()]
        pattern = self.get("subscribePattern")
        if pattern is None:
            return find_logs([path], topics)
        matches = re.compile(pattern).fullmatch
        return [it for it in find_logs([path], ["*"]) if matches(it.topic_partition.topic)]

    def export_options(self, names: tuple[str, ...]) -> ExportOptions:
        """What reading needs of them."""
        isolation = self.get("kafka.isolation.level") or Isolation.READ_UNCOMMITTED.value
        return ExportOptions(
            columns=names,
            isolation=Isolation(isolation),
            fails_on_damage=self.flag("failOnDataLoss", default=True),
            file_bytes=_SPLIT_BYTES,
        )

    def bound(self, which: str, log: PartitionLog) -> Position:
        """`starting` or `ending`: where that is in a log."""
        is_start = which == "starting"
        topic, partition = log.topic_partition
        instant = self.get(f"{which}Timestamp")
        if instant is not None:
            return Position(PositionKind.TIME, int(instant))
        for name, kind in (
            (f"{which}OffsetsByTimestamp", PositionKind.TIME),
            (f"{which}Offsets", PositionKind.OFFSET),
        ):
            text = self.get(name)
            if text is None:
                continue
            if text.lower() in ("earliest", "latest"):
                return Position(PositionKind[text.upper()])
            value = self._of_partition(name, text, topic, partition)
            if value is not None:
                return _position(kind, value)
        return Position(PositionKind.EARLIEST if is_start else PositionKind.LATEST)

    def _of_partition(self, name: str, text: str, topic: str, partition: int) -> int | None:
        try:
            found = json.loads(text).get(topic, {}).get(str(partition))
            return None if found is None else int(found)
        except (ValueError, TypeError, AttributeError):
            raise UsageError(
                f"{name}: not offsets: {text}", hint='e.g. earliest, or {"orders": {"0": 23}}'
            ) from None


def _position(kind: PositionKind, value: int) -> Position:
    if kind is PositionKind.OFFSET and value in (_LATEST, _EARLIEST):
        return Position(PositionKind.LATEST if value == _LATEST else PositionKind.EARLIEST)
    return Position(kind, value)


class _Piece(InputPartition):
    """A split on its way to an executor."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class KctlReader(DataSourceReader):
    """A batch query."""

    def __init__(self, options: _Options, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """The splits of the range, at least `minPartitions` if there is enough to split."""
        logs = self._options.logs()
        options = self._options.export_options(self._names)
        wanted = int(self._options.get("minPartitions") or 0)
        if wanted:
            size = sum(segment.size for log in logs for segment in log.segments)
            options = replace(options, file_bytes=max(64 * 1024, size // wanted))
        bounds = self._options.bound
        return [
            _Piece(split)
            for log in logs
            for split in plan_log(log, options, (bounds("starting", log), bounds("ending", log)))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, _Piece)
        yield from _rows(partition.split, self._options.export_options(self._names))


class KctlStreamReader(DataSourceStreamReader):
    """A streaming query; its offsets are those of the logs' ends, or of what is stable."""

    def __init__(self, options: _Options, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def initialOffset(self) -> Offsets:
        """Where a query without a checkpoint begins: startingOffsets, by default the ends."""
        is_told = any(
            self._options.get(name) is not None
            for name in ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
        )
        offsets: Offsets = {}
        for log in self._options.logs():
            at = self._options.bound("starting", log)
            start = log.resolve(at) if is_told else log.end_offset
            _put(offsets, log.topic_partition, max(start, log.start_offset))
        return offsets

    def latestOffset(self) -> Offsets:
        """Where the logs end now; before an open transaction if only committed records count."""
        options = self._options.export_options(self._names)
        offsets: Offsets = {}
        for log in self._options.logs():
            end = log.end_offset
            if options.isolation is Isolation.READ_COMMITTED:
                first_unstable = log.transactions()[1]
                end = end if first_unstable is None else min(end, first_unstable)
            _put(offsets, log.topic_partition, end)
        return offsets

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """The splits between two offsets; a partition that is new begins at its begin."""
        options = self._options.export_options(self._names)
        pieces: list[InputPartition] = []
        for log in self._options.logs():
            topic, number = log.topic_partition
            stop = end.get(topic, {}).get(str(number))
            if stop is None:
                continue
            first = start.get(topic, {}).get(str(number), log.start_offset)
            if first < log.start_offset and options.fails_on_damage:
                raise UsageError(
                    f"{log.topic_partition} begins at {log.start_offset} now: the records from "
                    f"{first} on are gone",
                    hint="failOnDataLoss=false goes on at the first that is there",
                )
            bounds = Position(PositionKind.OFFSET, first), Position(PositionKind.OFFSET, stop)
            pieces += [_Piece(split) for split in plan_log(log, options, bounds)]
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, _Piece)
        yield from _rows(partition.split, self._options.export_options(self._names))


def _put(offsets: Offsets, topic_partition: TopicPartition, offset: int) -> None:
    offsets.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset


def _rows(split: Split, options: ExportOptions) -> Iterator[pa.RecordBatch]:
    for columns in SplitReader(split, options).chunks():
        if not len(columns):
            continue
        table = raw_table(columns, split.topic, split.partition, options.columns)
        if "timestamp" in options.columns:
            at = options.columns.index("timestamp")
            table = table.set_column(at, "timestamp", table.column(at).cast(_TIMESTAMP))
        yield table
