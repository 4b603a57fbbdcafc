"""Exports records of live brokers, fetched through kctl's own client (ACLs and quotas apply).

Record sets are decoded in bulk as they are stored, never record by record. While one response is
encoded, the next request is in flight. A file is completed and committed when enough records have
been read for it, so an interrupted run continues where its last file ends.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-98, KIP-74
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.arrow_files.files import Files
from kctl.errors import CorruptDataError, KctlError, StorageError, UsageError
from kctl.export.export import (
    ExportReport,
    ExportRequest,
    Plan,
    Runner,
    inferred_schema,
    needs_sample,
    run_plan,
    with_current_schema,
)
from kctl.export.in_order import check_order
from kctl.export.lake import publish
from kctl.export.live_plan import (
    LiveSplit,
    Ranges,
    bytes_per_offset,
    live_partitions,
    live_ranges,
    offset_count,
    plan_ranges,
)
from kctl.export.manifest import Manifest, ManifestRow, leave_row, table_schema
from kctl.export.options import ExportOptions, Isolation
from kctl.export.rows import DamagedRange, LatestPerKey
from kctl.export.task import TableSink
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.columnar import Keep, RecordColumns, decode_chunks, without_control
from kctl.records.columnar_batches import BatchColumns, Mask
from kctl.records.transactions import AbortedRange, CommittedReader

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.router import Router

__all__ = [
    "PreparedExport",
    "RecordsGoneError",
    "export_live",
    "export_live_by",
    "export_topics",
    "prepare_live",
]

# Bytes requested at once; responses of this size are decoded most efficiently.
FETCH_BYTES = 8 * 1024 * 1024
_FETCH_BYTES_MIN = 64 * 1024
_MAX_WAIT_MS = 500
# Consecutive responses without a record after which reading the partition fails.
_EMPTY_RESPONSES_MAX = 60
_SAMPLE_PARTITIONS_MAX = 20


class RecordsGoneError(KctlError):
    """The leader does not hold the next offset to read: the record was deleted or truncated."""


@dataclass(frozen=True, slots=True)
class PreparedExport:
    """What `export_live_by` takes: offset ranges, bytes per offset, and the completed request."""

    ranges: Ranges
    per_offset: Mapping[TopicPartition, float]
    request: ExportRequest


async def prepare_live(admin: "AdminClient", request: ExportRequest) -> PreparedExport:
    """Ask the brokers for what an export by other processes must know, and change nothing.

    Raise UsageError if the request names no topic, NotFoundError if a name matches none.
    """
    ranges = await requested_ranges(admin, request)
    known = await with_live_schema(admin.router, ranges, request)
    return PreparedExport(ranges, await bytes_per_offset(admin, ranges), known)


async def export_topics(
    admin: "AdminClient",
    request: ExportRequest,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> ExportReport:
    """Export the topics and bounds of `request`, in this process.

    `progress` receives the number of offsets done and of all offsets, first with 0 done. Raises
    what `prepare_live` and `export_live` raise.
    """
    ranges = await requested_ranges(admin, request)
    total = offset_count(ranges)
    progress(0, total)
    return await export_live(
        admin.router, ranges, request, progress=lambda done: progress(done, total)
    )


async def requested_ranges(admin: "AdminClient", request: ExportRequest) -> Ranges:
    """Return the offsets that the topics, partitions and bounds of `request` denote now.

    Raise UsageError if the request names no topic, NotFoundError if a name matches none.
    """
    if not request.topics:
        raise UsageError(
            "Nothing to export: neither SOURCE nor --topic",
            hint="kctl export /data --out DIR, or kctl export -b HOST:PORT --topic NAME --out DIR",
        )
    partitions = await live_partitions(admin, request.topics, request.partitions)
    start, end = request.bounds
    stop = end or Position(PositionKind.LATEST)
    isolation = request.options.isolation
    return await live_ranges(admin, partitions, lambda _it: start, lambda _it: stop, isolation)


async def export_live(
    router: "Router",
    ranges: Ranges,
    request: ExportRequest,
    on_row: Callable[[ManifestRow], object] | None = None,
    progress: Callable[[int], object] = lambda _records: None,
) -> ExportReport:
    """Export offset ranges (end exclusive) to the request's table, in this process.

    `progress` receives the number of offsets done. Raises what `export_logs` raises; ApiError if a
    broker rejects a partition, UnreachableError.
    """
    request = await with_live_schema(router, ranges, request)
    manifest = Manifest.open(request.out, request.options, request.run)
    report = ExportReport(
        partitions=len(ranges), earlier_rows=sum(row.rows for row in manifest.rows)
    )
    done = 0
    splits = plan_ranges(ranges, request.options, manifest.done())
    if request.options.merges_changes:
        check_order(splits, manifest.done(), _starts(ranges, request))
    for number, split in enumerate(splits):
        attempt, before = f"{request.run}-{number}", done - split.first_offset

        def report_position(position: int, before: int = before) -> None:
            progress(before + position)

        async for row in write_live_split(
            router, split, request.options, request.out, attempt, report_position
        ):
            manifest.commit([row], replaces=request.options.replaces_partitions)
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
    """Export as `export_live` does, with splits that `runner` works on.

    `per_offset` gives the average bytes of an offset in each partition, from which splits are
    sized.
    """
    manifest = Manifest.open(request.out, request.options, request.run)
    splits = plan_ranges(ranges, request.options, manifest.done(), per_offset)
    starts = _starts(ranges, request)
    plan = Plan(splits, request.options, request.out, request.run, len(ranges), starts=starts)
    return run_plan(plan, manifest, runner, on_plan, on_row)


def _starts(ranges: Ranges, request: ExportRequest) -> dict[tuple[str, int], int]:
    """Return the first offsets of logs, which are known if the ranges begin there."""
    is_whole = request.bounds[0].kind is PositionKind.EARLIEST
    return {it: first for it, (first, _end) in ranges.items()} if is_whole else {}


async def write_live_split(
    router: "Router",
    split: LiveSplit,
    options: ExportOptions,
    out: str,
    attempt: str,
    progress: Callable[[int], object] = lambda _position: None,
) -> AsyncIterator[ManifestRow]:
    """Fetch a split and write its files below `out`; yield a row for each `file_bytes` of records.

    Nothing is committed. `progress` receives the next offset. Raises what `export_live` raises.
    """
    wanted = await _latest(router, split, options) if options.replaces_partitions else None
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
            is_full = sink.bytes_in >= options.split_bytes and wanted is None
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
    """Read the whole split once to find the last record of each key."""
    latest = LatestPerKey()
    async for columns in LiveReader(router, split, options).chunks():
        latest.add(columns)
    return latest


async def with_live_schema(
    router: "Router", ranges: Ranges, request: ExportRequest
) -> ExportRequest:
    """Return the request with the schema of JSON values: given, the table's, or inferred."""
    if not needs_sample(request.options):
        return with_current_schema(request)
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
    """Fetches one split from its partition's leader, one response ahead.

    If the leader does not hold an offset, RecordsGoneError is raised, or with `skips_deleted` the
    offset is skipped.
    """

    def __init__(
        self,
        router: "Router",
        split: LiveSplit,
        options: ExportOptions,
        *,
        skips_deleted: bool = False,
    ) -> None:
        self.partition = split.topic_partition
        self.position = split.first_offset
        self.end = split.end_offset
        self.damages: list[DamagedRange] = []
        self.bytes_read = 0
        self._router = router
        self._options = options
        self._skips_deleted = skips_deleted
        self._bytes = FETCH_BYTES
        self._bytes_per_offset = split.size / max(1, split.end_offset - split.first_offset)
        self._ahead: Any = None
        self._empty = 0

    async def chunks(self) -> AsyncIterator[RecordColumns]:
        """Yield all records of the split, and close the reader."""
        try:
            while self.position < self.end:
                for columns in await self.next():
                    if len(columns):
                        yield columns
        finally:
            self.close()

    def close(self) -> None:
        """Cancel the request in flight, if any."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    async def next(self) -> list[RecordColumns]:
        """Return the next records and move `position` past them."""
        response = await (self._ahead or self._spawn())
        self._ahead = None
        found = response.responses[0].partition_responses[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._skips_deleted:
            await self._skip_deleted()
            return []
        if found.error_code:
            raise self._refused(found.error_code)
        data = found.record_set or b""
        self.bytes_read += len(data)
        chunks = self._decode(data, found)
        if self.position < self.end:
            self._ahead = self._spawn()
        return chunks

    async def _skip_deleted(self) -> None:
        """Move to the first offset of the split that the leader holds, or to the split's end."""
        from kctl.client.offsets import OffsetsClient

        listed = (await OffsetsClient(self._router).earliest([self.partition]))[self.partition]
        if listed.error is not None:
            raise listed.error
        is_ahead = listed.offset > self.position
        self.position = min(listed.offset, self.end) if is_ahead else self.end

    def _spawn(self) -> Any:
        # Do not fetch far beyond the split's end.
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
            # Before Fetch v3, a batch larger than the limit is truncated: raise the limit.
            self._bytes, self._bytes_per_offset = min(self._bytes * 2, 2**31 - 1), 0.0
        self._empty += 1
        if self._empty >= _EMPTY_RESPONSES_MAX:
            raise KctlError(
                f"{self.partition}: no record at offset {self.position}, although the log ends at "
                f"{self.end}"
            )

    def _refused(self, code: int) -> KctlError:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return RecordsGoneError(
                f"{self.partition}: the records at offset {self.position} are gone",
                hint="run it again: it continues with the first record that still exists",
            )
        return ApiError(code, f"Cannot read {self.partition}: {ErrorCode(code).text}")
