"""WriteTxnMarkers: writes the markers of a transaction coordinator (KIP-98).

Behaviour:

- Every partition gets one control batch per marker, appended with acks=all.
- A partition of a topic in a format before 0.11 is UNSUPPORTED_FOR_MESSAGE_FORMAT: it holds no
  transactions. So is a partition that follows another cluster: its markers come from there.
- When markers are committed in partitions of __consumer_offsets, the group coordinator is
  notified: it applies or discards the transaction's offsets, before the response.

Versions: 0.

Kafka 2.7: kafka.server.KafkaApis.handleWriteTxnMarkersRequest.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kctl.broker.replication.replica_manager import AppendEntry, AppendOrigin, AppendResult
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.constants import ACKS_ALL, GROUP_METADATA_TOPIC
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.runtime.turns import in_turns
from kctl.work import Work, parts

# Markers appended per turn of the loop, within 5 ms.
MARKERS_PER_TURN = 20
# Markers prepared per turn, before the first is appended.
GATHERED_PER_TURN = 1_000
# Markers and offsets that the group coordinator applies per turn, within 5 ms.
GROUP_UNITS_PER_TURN = 2_000
_UNSUPPORTED_FORMAT = int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


class _Waiting(NamedTuple):
    """A marker for one partition, and where its error code is stored."""

    marker: WritableTxnMarker
    topic: str
    result: WritableTxnMarkerPartitionResult


def handle_write_txn_markers(services: Services, request: Request) -> None:
    """Append the markers, and reply when all are committed or have failed."""
    body: WriteTxnMarkersRequest = request.body
    results: list[WritableTxnMarkerResult] = []
    waiting: list[_Waiting] = []
    of_groups: list[_Waiting] = []
    left = 0

    def appended(part: Sequence[_Waiting], outcomes: Sequence[AppendResult]) -> None:
        nonlocal left
        for entry, outcome in zip(part, outcomes, strict=True):
            entry.result.error_code = outcome.error_code
        of_groups.extend(it for it in part if it.topic == GROUP_METADATA_TOPIC)
        left -= 1
        if not left:
            in_turns(
                services.runtime.scheduler,
                _ending_for_groups(services, of_groups),
                lambda _: request.reply(WriteTxnMarkersResponse(markers=results)),
                request.fail,
            )

    def work() -> Work[None]:
        nonlocal left
        yield from _gathering(body.markers, results, waiting)
        left = max(-(-len(waiting) // MARKERS_PER_TURN), 1)
        # From the end, so that what is appended is released in the turns, too.
        waiting.reverse()
        for number in range(left):
            if number:
                yield
            part = waiting[: -MARKERS_PER_TURN - 1 : -1]
            del waiting[-MARKERS_PER_TURN:]
            _append(services, part, appended)

    # Not in the WorkQueue: transactions must not wait for clients' searches.
    in_turns(services.runtime.scheduler, work(), lambda _: None, request.fail)


def _gathering(
    markers: Sequence[WritableTxnMarker],
    results: list[WritableTxnMarkerResult],
    waiting: list[_Waiting],
) -> Work[None]:
    """Add all markers to `waiting`, partition by partition, and their results to `results`, with a
    `yield` after every GATHERED_PER_TURN."""
    gathered = 0
    for marker in markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        results.append(result)
        # Also a marker without topics.
        gathered += 1
        if gathered >= GATHERED_PER_TURN:
            gathered = 0
            yield
        for topic in marker.topics:
            if gathered >= GATHERED_PER_TURN:
                gathered = 0
                yield
            outcomes: list[WritableTxnMarkerPartitionResult] = []
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=outcomes))
            for part in parts(topic.partition_indexes, GATHERED_PER_TURN):
                new = [WritableTxnMarkerPartitionResult(partition_index=it) for it in part]
                outcomes += new
                waiting += [_Waiting(marker, topic.name, outcome) for outcome in new]
                gathered += len(part)
                if gathered >= GATHERED_PER_TURN:
                    gathered = 0
                    yield
            # Also of a topic without partitions.
            gathered += 1


def _append(
    services: Services,
    part: Sequence[_Waiting],
    on_done: Callable[[Sequence[_Waiting], Sequence[AppendResult]], object],
) -> None:
    """Append the markers of `part`, except for partitions in an old format."""
    now_ms = services.runtime.clock.wall_ms()
    appended: list[_Waiting] = []
    entries: list[AppendEntry] = []
    for entry in part:
        number = entry.result.partition_index
        if _is_old_format(services, entry.topic, number):
            entry.result.error_code = _UNSUPPORTED_FORMAT
            continue
        entries.append((entry.topic, number, _records(entry.marker, now_ms)))
        appended.append(entry)
    if not entries:
        on_done([], [])
        return
    services.replica_manager.append_records(
        entries,
        ACKS_ALL,
        services.config.request_timeout_ms,
        partial(on_done, appended),
        origin=AppendOrigin.COORDINATOR,
    )


def _ending_for_groups(services: Services, appended: Sequence[_Waiting]) -> Work[None]:
    """Have the group coordinator apply what ended, with a `yield` after about
    GROUP_UNITS_PER_TURN offsets and markers."""
    units = 0
    for marker, _, result in appended:
        if units >= GROUP_UNITS_PER_TURN:
            units = 0
            yield
        units += 1
        if not result.error_code:
            units += yield from services.group_coordinator.ending_transaction(
                marker.producer_id, result.partition_index, is_commit=marker.transaction_result
            )


def _is_old_format(services: Services, topic: str, number: int) -> bool:
    partition = services.replica_manager.partitions.get((topic, number))
    log = partition.log if partition is not None else None
    if partition is not None and partition.read_only is not None:
        # The markers of a copy are those of the original. The coordinator drops the partition from
        # its transaction.
        return True
    return log is not None and log.config.magic < 2


def _records(marker: WritableTxnMarker, now_ms: int) -> bytearray:
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    return marker_batch(
        EndTransactionMarker(kind, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp=now_ms,
    )
