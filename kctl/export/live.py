"""Records of live brokers, fetched over kctl's own client (ACLs and quotas apply), into tables.

Record sets come as they are stored and go through the bulk decoder, never through records one by
one. While one answer is encoded the next is on its way. A file is completed and committed when
enough was read for it, so a run that died goes on where its last file ends.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-98, KIP-74
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import CorruptDataError, KctlError, StorageError
from kctl.export.export import (
    ExportReport,
    ExportRequest,
    Plan,
    Runner,
    inferred_schema,
    needs_sample,
    run_plan,
)
from kctl.export.files import Files
from kctl.export.lake import publish
from kctl.export.live_plan import LiveSplit, Ranges, plan_ranges
from kctl.export.manifest import Manifest, ManifestRow, leave_row, table_schema
from kctl.export.options import ExportOptions, Isolation
from kctl.export.rows import DamagedRange, LatestPerKey
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
_FETCH_BYTES_MIN = 64 * 1024
_MAX_WAIT_MS = 500
# Answers without a record, one after the other, after which the partition is given up.
_EMPTY_ANSWERS_MAX = 60
_SAMPLE_PARTITIONS_MAX = 20


async def export_live(
    router: "Router",
    ranges: Ranges,
    request: ExportRequest,
    on_row: Callable[[ManifestRow], object] | None = None,
    progress: Callable[[int], object] = lambda _records: None,
) -> ExportReport:
    """Export the offset ranges (end exclusive) of partitions to the request's table, from here;
    `progress` is told how many offsets are done.

    Errors as `export_logs`; ApiError if a broker refuses a partition, UnreachableError.
    """
    request = await with_live_schema(router, ranges, request)
    manifest = Manifest.open(request.out, request.options, request.run)
    report = ExportReport(
        partitions=len(ranges), earlier_rows=sum(row.rows for row in manifest.rows)
    )
    done = 0
    for number, split in enumerate(plan_ranges(ranges, request.options, manifest.done())):
        attempt, before = f"{request.run}-{number}", done - split.first_offset

        def tell(position: int, before: int = before) -> None:
            progress(before + position)

        async for row in write_live_split(
            router, split, request.options, request.out, attempt, tell
        ):
            manifest.commit([row], replaces=request.options.latest_per_key)
            report.add(row)
            if on_row is not None:
                on_row(row)
        done += split.end_offset - split.first_offset
    publish(request.out, request.options, manifest)
    manifest.close()
    return report


def export_live_by(
    runner: Runner,
    ranges: Ranges,
    request: ExportRequest,
    per_offset: Mapping[TopicPartition, float],
    on_plan: Callable[[Plan], object] | None = None,
    on_row: Callable[[ManifestRow], object] | None = None,
) -> ExportReport:
    """The same, its splits (made by the size of an offset) worked on by a runner."""
    manifest = Manifest.open(request.out, request.options, request.run)
    splits = plan_ranges(ranges, request.options, manifest.done(), per_offset)
    plan = Plan(splits, request.options, request.out, request.run, len(ranges))
    return run_plan(plan, manifest, runner, on_plan, on_row)


async def write_live_split(
    router: "Router",
    split: LiveSplit,
    options: ExportOptions,
    out: str,
    attempt: str,
    progress: Callable[[int], object] = lambda _position: None,
) -> AsyncIterator[ManifestRow]:
    """Fetch the split and write its files below `out`: a row for each `file_bytes` of records.

    Nothing is committed; `progress` is told how far it is. Errors as `export_live`.
    """
    wanted = await _latest(router, split, options) if options.latest_per_key else None
    reader = LiveReader(router, split, options)
    first, number, bytes_before = split.first_offset, 0, 0
    sink: TableSink | None = None
    try:
        while reader.position < reader.end:
            sink = sink or TableSink(
                options, out, f"{attempt}-{number}", split.topic, split.partition
            )
            for columns in await reader.next():
                chosen = columns if wanted is None else columns.take(wanted.of(columns))
                if len(chosen):
                    sink.add(chosen)
            progress(reader.position)
            is_full = sink.bytes_in >= options.file_bytes and wanted is None
            if is_full or reader.position >= reader.end:
                stop = min(reader.position, reader.end)
                row = sink.finish(first, stop)
                row.damages, reader.damages = reader.damages, []
                row.log_bytes = reader.bytes_read - bytes_before
                files, root = Files.of(out)
                leave_row(files, root, f"{attempt}-{number}", row)
                yield row
                number, first, bytes_before, sink = number + 1, stop, reader.bytes_read, None
    except pa.ArrowException as error:
        raise StorageError(f"{out}: cannot write {split.topic_partition}: {error}") from None
    finally:
        reader.close()


async def _latest(router: "Router", split: LiveSplit, options: ExportOptions) -> LatestPerKey:
    """A first pass over the split."""
    latest = LatestPerKey()
    async for columns in LiveReader(router, split, options).chunks():
        latest.add(columns)
    return latest


async def with_live_schema(
    router: "Router", ranges: Ranges, request: ExportRequest
) -> ExportRequest:
    """The request with the schema of JSON values: given, the table's, or inferred."""
    if not needs_sample(request.options):
        return request
    known = table_schema(request.out)
    if known is None:
        values: list[bytes | None] = []
        for split in plan_ranges(ranges, request.options)[:_SAMPLE_PARTITIONS_MAX]:
            reader = LiveReader(router, split, request.options)
            for columns in await reader.next():
                values += [columns.value(number) for number in range(min(1000, len(columns)))]
            reader.close()
        known = inferred_schema(values)
    return replace(request, options=replace(request.options, value_schema=known))


class LiveReader:
    """Fetches one split from its partition's leader, an answer ahead."""

    def __init__(self, router: "Router", split: LiveSplit, options: ExportOptions) -> None:
        self.partition = split.topic_partition
        self.position = split.first_offset
        self.end = split.end_offset
        self.damages: list[DamagedRange] = []
        self.bytes_read = 0
        self._router = router
        self._options = options
        self._bytes = FETCH_BYTES
        self._bytes_per_offset = split.size / max(1, split.end_offset - split.first_offset)
        self._ahead: Any = None
        self._empty = 0

    async def chunks(self) -> AsyncIterator[RecordColumns]:
        """All records of the split."""
        try:
            while self.position < self.end:
                for columns in await self.next():
                    if len(columns):
                        yield columns
        finally:
            self.close()

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
        # What lies behind the split's end would be fetched for nothing.
        left = int((self.end - self.position) * self._bytes_per_offset * 1.1)
        wanted = min(self._bytes, max(left, _FETCH_BYTES_MIN)) if left else self._bytes
        request = FetchRequest(
            replica_id=-1, max_wait_ms=_MAX_WAIT_MS, min_bytes=1, max_bytes=wanted,
            isolation_level=int(self._options.isolation is Isolation.READ_COMMITTED),
            topics=[FetchTopic(
                topic=self.partition.topic,
                partitions=[FetchPartition(
                    partition=self.partition.partition, fetch_offset=self.position,
                    partition_max_bytes=wanted,
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
        if self.position > before:
            self._bytes_per_offset = len(data) / (self.position - before)
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
            self._bytes, self._bytes_per_offset = min(self._bytes * 2, 2**31 - 1), 0.0
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
