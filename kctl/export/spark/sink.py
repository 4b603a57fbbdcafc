"""The writers of the data source `kctl`: rows of DataFrames, batch and streaming, become records.

    rows.write.format("kctl").mode("append").options(**brokers).option("topic", "orders").save()
    rows.writeStream.format("kctl").options(**brokers).option("topic", "orders").start()

Columns, options and errors are those of Spark's Kafka sink: see `sink_options`. Writers are
pickled: a task gets the driver's.

Spark: org.apache.spark.sql.kafka010.{KafkaBatchWrite, KafkaStreamingWrite}
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kctl.export.spark.batch_progress import TaskTransaction
from kctl.export.spark.sink_options import SINK_COLUMNS, SinkOptions
from kctl.export.spark.sink_tasks import (
    Job,
    abort_job,
    commit_job,
    new_job,
    write_in_transaction,
    write_rows,
)
from kctl.lazy_dataclass import dataclass

# Local properties that Spark sets for the tasks of a stream.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
# Spark 4.0 passes a stream's rows one by one; they are joined to batches of so many.
_ROWS_TOGETHER = 10_000
# Since Spark 4.1.
_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


@dataclass
class Written(WriterCommitMessage):
    """What a task leaves to the driver: an open transaction, or nothing."""

    job: Job | None = None
    transaction: TaskTransaction | None = None


class KctlWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = _checked(options, schema)
        self._options.check_batch(overwrite=overwrite)
        self._job = new_job(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        if not self._options.is_exactly_once:
            write_rows(self._options, iterator)
            return Written()
        task = _context().partitionId()
        return Written(self._job, write_in_transaction(self._options, iterator, self._job, task))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible."""
        if self._options.is_exactly_once:
            commit_job(self._options, self._job, _transactions(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop the rows of a job that failed, if they are in transactions."""
        if self._options.is_exactly_once:
            abort_job(self._options, self._job, _transactions(messages))


class KctlStreamWriter(_StreamWriter):  # type: ignore[misc]
    """The writer of a streaming query; Spark makes one for each batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = _checked(options, schema)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task of a batch."""
        rows = self._batches(iterator)
        if not self._options.is_exactly_once:
            write_rows(self._options, rows)
            return Written()
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None
        assert batch is not None
        job = Job(self._options.transactional_id or f"kctl-spark-{query}", int(batch))
        task = context.partitionId()
        return Written(job, write_in_transaction(self._options, rows, job, task))

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002 - the tasks report it
    ) -> None:
        """Make the rows of a batch visible, once."""
        for job in _jobs(messages):
            commit_job(self._options, job, _transactions(messages))

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002
    ) -> None:
        """Drop the rows of a batch that failed, if they are in transactions."""
        for job in _jobs(messages):
            abort_job(self._options, job, _transactions(messages))

    def _batches(self, iterator: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        if hasattr(datasource, "DataSourceStreamArrowWriter"):
            yield from iterator
            return
        from pyspark.sql.pandas.types import to_arrow_schema

        names = [name for name in self._schema.fieldNames() if name in SINK_COLUMNS]
        schema = to_arrow_schema(StructType([self._schema[name] for name in names]))
        while rows := list(islice(iterator, _ROWS_TOGETHER)):
            found = [{name: row.asDict(recursive=True)[name] for name in names} for row in rows]
            yield pa.RecordBatch.from_pylist(found, schema=schema)


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    checked = SinkOptions(options)
    checked.check_columns({field.name: field.dataType.simpleString() for field in schema.fields})
    return checked


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _transactions(messages: Sequence[WriterCommitMessage | None]) -> list[TaskTransaction]:
    return [
        it.transaction for it in messages if isinstance(it, Written) and it.transaction is not None
    ]


def _jobs(messages: Sequence[WriterCommitMessage | None]) -> list[Job]:
    """Return the one job of a batch's tasks; none if they do not write in transactions."""
    found = {it.job for it in messages if isinstance(it, Written) and it.job is not None}
    return sorted(found, key=lambda it: it.name)
