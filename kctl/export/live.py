"""export_live: from live brokers to a table, over kctl's own client; ACLs and quotas apply.

Record sets come as they are stored and go through the bulk decoder, never through records one by
one. While one answer is encoded the next is on its way. A file is completed and committed when
enough was read for it, so a run that died goes on where its last file ends.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-98, KIP-74
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kctl.errors import CorruptDataError, KctlError
from kctl.export.export import ExportReport, ExportRequest, inferred_schema
from kctl.export.manifest import Manifest, ManifestRow, table_schema
from kctl.export.options import FieldFormat, Isolation
from kctl.export.rows import DamagedRange
from kctl.export.splits import gaps
from kctl.export.task import TableSink
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.columnar import Keep, RecordColumns, decode_chunks, without_control
from kctl.records.columnar_batches import BatchColumns, Mask
from kctl.records.transactions import AbortedRange, CommittedReader

if TYPE_CHECKING:
    from kctl.client.router import Router

# Bytes asked for at once: the answers are decoded best in pieces of this size.
FETCH_BYTES = 8 * 1024 * 1024
_MAX_WAIT_MS = 500
# Answers without a record, one after the other, after which the partition is given up.
_EMPTY_ANSWERS_MAX = 60
_SAMPLE_PARTITIONS_MAX = 20

Ranges = Mapping[TopicPartition, tuple[int, int]]


async def export_live(
    router: "Router",
    ranges: Ranges,
    request: ExportRequest,
    on_row: Callable[[ManifestRow], object] | None = None,
    progress: Callable[[int], object] = lambda _records: None,
) -> ExportReport:
    """Export the offset ranges (end exclusive) of partitions to the request's table.

    Errors as `export_logs`; ApiError if a broker refuses a partition, UnreachableError.
    """
    request = replace(request, options=await _with_schema(router, ranges, request))
    manifest = Manifest.open(request.out, request.options, request.run)
    done = manifest.done()
    report = ExportReport(
        partitions=len(ranges), earlier_rows=sum(row.rows for row in manifest.rows)
    )

    def commit(row: ManifestRow) -> None:
        manifest.commit([row])
        report.add(row)
        if on_row is not None:
            on_row(row)

    for partition, (first, end) in sorted(ranges.items()):
        for gap_first, gap_end in gaps(first, end, done.get(partition, [])):
            reader = _LiveReader(router, partition, gap_first, gap_end, request)
            await _export_partition(reader, request, commit, progress)
    manifest.close()
    return report


async def _export_partition(
    reader: "_LiveReader",
    request: ExportRequest,
    commit: Callable[[ManifestRow], object],
    progress: Callable[[int], object],
) -> None:
    topic, partition = reader.partition
    number = 0

    def new_sink() -> TableSink:
        attempt = f"{request.run}-{topic}-{partition}-{number}"
        return TableSink(request.options, request.out, attempt, topic, partition)

    sink = new_sink()
    first = reader.position
    bytes_before = 0
    while reader.position < reader.end:
        chunks = await reader.next()
        for columns in chunks:
            if len(columns):
                sink.add(columns)
        progress(reader.position - first)
        is_full = sink.bytes_in >= request.options.file_bytes
        if is_full or reader.position >= reader.end:
            stop = min(reader.position, reader.end)
            row = sink.finish(first, stop)
            row.damages, reader.damages = reader.damages, []
            row.log_bytes = reader.bytes_read - bytes_before
            commit(row)
            number, first, bytes_before = number + 1, stop, reader.bytes_read
            sink = new_sink()
    reader.close()


class _LiveReader:
    """Fetches one partition from its leader, an answer ahead."""

    def __init__(
        self, router: "Router", partition: TopicPartition, first: int, end: int,
        request: ExportRequest,
    ) -> None:  # fmt: skip
        self.partition = partition
        self.position = first
        self.end = end
        self.damages: list[DamagedRange] = []
        self.bytes_read = 0
        self._router = router
        self._options = request.options
        self._bytes = FETCH_BYTES
        self._ahead: Any = None
        self._empty = 0

    def close(self) -> None:
        """Nothing more is wanted."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    async def next(self) -> list[RecordColumns]:
        """The next records; `position` is behind them."""
        answer = await (self._ahead or self._spawn())
        self._ahead = None
        found = answer.responses[0].partition_responses[0]
        if found.error_code:
            raise self._refused(found.error_code)
        data = found.record_set or b""
        self.bytes_read += len(data)
        chunks = self._decode(data, found)
        if self.position < self.end:
            self._ahead = self._spawn()
        return chunks

    def _spawn(self) -> Any:
        request = FetchRequest(
            replica_id=-1, max_wait_ms=_MAX_WAIT_MS, min_bytes=1, max_bytes=self._bytes,
            isolation_level=int(self._options.isolation is Isolation.READ_COMMITTED),
            topics=[FetchTopic(
                topic=self.partition.topic,
                partitions=[FetchPartition(
                    partition=self.partition.partition, fetch_offset=self.position,
                    partition_max_bytes=self._bytes,
                )],
            )],
        )  # fmt: skip
        sending = self._router.send_to_leader(self.partition, request)
        return self._router.runtime.scheduler.spawn(sending, "export")

    def _decode(self, data: Any, found: Any) -> list[RecordColumns]:
        committed: Keep = without_control
        if self._options.isolation is Isolation.READ_COMMITTED:
            aborted = found.aborted_transactions or ()
            committed = CommittedReader(
                AbortedRange(each.producer_id, each.first_offset) for each in aborted
            )
        before = position = self.position

        def keep(batches: BatchColumns, view: memoryview) -> Mask:
            if len(batches):
                self.position = max(self.position, int(batches.last_offsets.max()) + 1)
            return committed(batches, view)

        chunks = list(decode_chunks(data, keep=keep, is_complete=False))
        for columns in chunks:
            for damage in columns.damages:
                self.position = max(self.position, damage.last_offset + 1)
                self._note(damage)
        self._expect_progress(before, data, chunks)
        return [
            columns.take((columns.offsets >= position) & (columns.offsets < self.end))
            for columns in chunks
            if len(columns)
        ]

    def _note(self, damage: Any) -> None:
        damaged = DamagedRange(
            str(self.partition), damage.position, damage.size, damage.rule.value, damage.offset,
            damage.last_offset, damage.message,
        )  # fmt: skip
        if self._options.fails_on_damage:
            raise CorruptDataError(
                str(damaged), hint="--on-damage skip exports all that can be read"
            )
        self.damages.append(damaged)

    def _expect_progress(self, before: int, data: Any, chunks: list[RecordColumns]) -> None:
        if self.position > before:
            self._empty = 0
            return
        if len(data) and (not chunks or chunks[-1].end < len(data)):
            # Before Fetch v3 a batch larger than asked for comes cut: ask for more next time.
            self._bytes = min(self._bytes * 2, 2**31 - 1)
        self._empty += 1
        if self._empty >= _EMPTY_ANSWERS_MAX:
            raise KctlError(
                f"{self.partition}: no record at offset {self.position}, though the log goes on "
                f"to {self.end}"
            )

    def _refused(self, code: int) -> KctlError:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return KctlError(
                f"{self.partition}: the records at offset {self.position} are gone",
                hint="run it again: it goes on at the first that is still there",
            )
        return ApiError(code, f"Cannot read {self.partition}: {ErrorCode(code).text}")


async def _with_schema(router: "Router", ranges: Ranges, request: ExportRequest) -> Any:
    options = request.options
    if options.value_format is not FieldFormat.JSON or options.value_schema is not None:
        return options
    known = table_schema(request.out)
    if known is None:
        values: list[bytes | None] = []
        for partition, (first, end) in sorted(ranges.items())[:_SAMPLE_PARTITIONS_MAX]:
            if first < end:
                reader = _LiveReader(router, partition, first, end, request)
                for columns in await reader.next():
                    values += [columns.value(number) for number in range(min(1000, len(columns)))]
                reader.close()
        known = inferred_schema(values)
    return replace(options, value_schema=known)


def record_count(ranges: Ranges) -> int:
    """How many offsets the ranges span, for a bar."""
    return int(np.sum([end - first for first, end in ranges.values()], dtype=np.int64))
