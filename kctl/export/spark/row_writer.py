"""RowWriter: writes the rows of a DataFrame as records, in bulk.

Rows are collected up to a limit in bytes, divided by topic and partition as Kafka's clients divide
records, and encoded as columns; no record is a Python object. Order within a partition is kept.

Spark: org.apache.spark.sql.kafka010.KafkaRowWriter
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.arrow_files.partitioning import ROWS_TOGETHER, partitions_of
from kctl.client.producer import PartitionBatch, Producer, wait_for_topic
from kctl.client.results import is_unknown_topic
from kctl.errors import KctlError, NotFoundError, UnsupportedVersionError, UsageError
from kctl.export.spark.sink_options import SinkOptions
from kctl.protocol.error_codes import ApiError
from kctl.records.builder import RecordBatchBuilder
from kctl.records.columnar_arrow import HEADERS
from kctl.records.columnar_encoder import SCHEMA, encode_records

if TYPE_CHECKING:
    from kctl.client.producer_transaction import ProducerTransaction
    from kctl.client.router import Router

# Rows that are written together, in bytes of Arrow's columns.
CHUNK_BYTES = 4 << 20
_FIRST_ROW_BELOW = 1 << 20
_INT16_MAX = (1 << 15) - 1
_COLUMNS = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()),
    ("value", pa.binary()), ("headers", HEADERS),
])  # fmt: skip


class RowWriter:
    """Writes to the topics that the rows name, or to one. With a `transaction`, all records belong
    to it, and there is one topic."""

    def __init__(
        self,
        router: "Router",
        options: SinkOptions,
        transaction: "ProducerTransaction | None" = None,
    ) -> None:
        self._router = router
        self._topic = options.topic
        self._settings = options.producer
        self._batch_bytes = options.batch_bytes
        self._transaction = transaction
        self._producers: dict[str, Producer] = {}
        # Rows without a key take turns from here.
        self._row = router.runtime.entropy.random_below(_FIRST_ROW_BELOW) * ROWS_TOGETHER

    async def write(self, rows: pa.RecordBatch) -> None:
        """Write rows; all are acknowledged when it returns.

        NotFoundError for a topic that does not exist and is not created, UsageError for rows that
        cannot be written, otherwise the first error of a record: some may have been written.
        """
        if not rows.num_rows:
            return
        columns = _as_columns(rows, self._topic)
        self._check_sizes(columns)
        parts = _by_topic(columns) if self._topic is None else [(self._topic, columns)]
        for topic, part in parts:
            producer = await self.producer_of(topic)
            batches = list(self._batches(producer, topic, part))
            await producer.write(batches)
            for batch in batches:
                if batch.error is not None:
                    raise KctlError(f"{batch.partition}: {batch.error}", hint=batch.error.hint)

    async def producer_of(self, topic: str) -> Producer:
        """Return the producer of a topic, opened; with a transaction, this begins it."""
        producer = self._producers.get(topic)
        if producer is None:
            producer = Producer(
                self._router,
                topic,
                acks=self._settings.acks,
                compression_type=self._settings.compression_of(topic),
                timeout_ms=self._settings.delivery_timeout_ms,
                transaction=self._transaction,
                is_idempotent=self._settings.is_idempotent,
            )
            try:
                await wait_for_topic(self._router, topic)
            except ApiError as error:
                if not is_unknown_topic(error):
                    raise
                raise NotFoundError(f"No topic {topic}") from None
            await producer.open()
            self._producers[topic] = producer
        return producer

    def _batches(
        self, producer: Producer, topic: str, rows: pa.RecordBatch
    ) -> Iterator[PartitionBatch]:
        count = producer.partition_count
        numbers = partitions_of(rows.column("key"), rows.column("partition"), count, self._row)
        self._row += rows.num_rows
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        if len(wrong):
            raise UsageError(f"A row names partition {wrong[0]} of {topic}, which has {count}")
        now_ms = self._router.runtime.clock.wall_ms()
        for number, part in _divided(rows, numbers):
            times = pa.array(np.full(part.num_rows, now_ms, np.int64))
            records = pa.RecordBatch.from_arrays(
                [part.column("key"), part.column("value"), times, part.column("headers")],
                schema=SCHEMA,
            )
            for encoded in encode_records(records, batch_bytes=self._batch_bytes):
                batch = producer.new_batch(number)
                if not isinstance(batch.builder, RecordBatchBuilder):
                    raise UnsupportedVersionError("Brokers before Kafka 0.11 cannot be written to")
                batch.builder.append_encoded(encoded.data, encoded.end - encoded.start, now_ms)
                yield batch

    def _check_sizes(self, columns: pa.RecordBatch) -> None:
        lengths = [
            pc.fill_null(pc.binary_length(columns.column(name)), 0) for name in ("key", "value")
        ]
        largest = pc.max(pc.add(*lengths)).as_py()
        most = self._settings.message_bytes_max
        if largest > most:
            raise UsageError(
                f"A record of {largest} bytes is larger than kafka.max.request.size, {most}"
            )


def chunked(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield `rows` in batches of at least CHUNK_BYTES, except the last."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        waiting.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]


def _as_columns(rows: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return the columns of records. The option `topic` takes precedence over the column."""
    found = []
    for field in _COLUMNS:
        if field.name == "topic" and topic is not None:
            found.append(pa.repeat(pa.scalar(topic, pa.string()), rows.num_rows))
        elif field.name in rows.schema.names:
            column = rows.column(field.name)
            found.append(column if column.type == field.type else column.cast(field.type))
        else:
            found.append(pa.nulls(rows.num_rows, field.type))
    columns = pa.RecordBatch.from_arrays(found, schema=_COLUMNS)
    if columns.column("topic").null_count:
        raise UsageError(
            "null topic present in the data", hint="the option topic sets it for all rows"
        )
    pairs = columns.column("headers").flatten()
    if len(pairs) and pc.struct_field(pairs, "key").null_count:
        raise UsageError("A header has no key")
    return columns


def _by_topic(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    encoded = rows.column("topic").dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for code, part in _divided(rows, encoded.indices.to_numpy(zero_copy_only=False)):
        yield names[code], part


def _divided(rows: pa.RecordBatch, codes: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each code, in their order."""
    if codes[0] == codes[-1] and (codes == codes[0]).all():
        yield int(codes[0]), rows
        return
    # NumPy sorts 16-bit numbers by their digits, in a fraction of the time.
    is_small = int(codes.min()) >= 0 and int(codes.max()) <= _INT16_MAX
    order = np.argsort(codes.astype(np.int16) if is_small else codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    taken = rows.take(pa.array(order))
    for start, end in zip(starts, np.append(starts[1:], len(codes)), strict=True):
        yield int(ordered[start]), taken.slice(start, end - start)
