"""WriteTxnMarkers: a transaction coordinator has the ends of transactions written (KIP-98).

Behaviour:
- Every partition gets one control batch a marker, appended with acks=all.
- A partition of a topic in a format before 0.11 is UNSUPPORTED_FOR_MESSAGE_FORMAT: it holds no
  transactions.
- When markers are committed in partitions of __consumer_offsets, the group coordinator is told:
  the transaction's offsets count now, or are dropped.

Versions: 0.

Kafka 2.7: kafka.server.KafkaApis.handleWriteTxnMarkersRequest.
"""

from collections.abc import Sequence

from kctl.broker.coordinator.group_coordinator_service import GROUP_METADATA_TOPIC
from kctl.broker.replication.replica_manager import (
    ACKS_ALL,
    AppendEntry,
    AppendOrigin,
    AppendResult,
)
from kctl.broker.request import Request
from kctl.broker.services import Services
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

_UNSUPPORTED_FORMAT = int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


def handle_write_txn_markers(services: Services, request: Request) -> None:
    """Answered when every marker is committed or has failed."""
    body: WriteTxnMarkersRequest = request.body
    now_ms = services.runtime.clock.wall_ms()
    results = [WritableTxnMarkerResult(producer_id=it.producer_id) for it in body.markers]
    entries: list[AppendEntry] = []
    # For each entry: the marker, and where its error code is to go.
    waiting: list[tuple[WritableTxnMarker, str, WritableTxnMarkerPartitionResult]] = []
    for marker, result in zip(body.markers, results, strict=True):
        for topic in marker.topics:
            outcomes = [
                WritableTxnMarkerPartitionResult(partition_index=number)
                for number in topic.partition_indexes
            ]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=outcomes))
            for outcome in outcomes:
                if _is_old_format(services, topic.name, outcome.partition_index):
                    outcome.error_code = _UNSUPPORTED_FORMAT
                    continue
                records = _records(marker, now_ms)
                entries.append((topic.name, outcome.partition_index, records))
                waiting.append((marker, topic.name, outcome))

    def answer(appended: Sequence[AppendResult]) -> None:
        ended: dict[tuple[int, bool], list[int]] = {}
        for (marker, topic, outcome), result in zip(waiting, appended, strict=True):
            outcome.error_code = result.error_code
            if topic == GROUP_METADATA_TOPIC and not result.error_code:
                key = (marker.producer_id, marker.transaction_result)
                ended.setdefault(key, []).append(outcome.partition_index)
        for (producer_id, is_commit), partitions in ended.items():
            services.group_coordinator.on_transaction_ended(
                producer_id, partitions, is_commit=is_commit
            )
        request.reply(WriteTxnMarkersResponse(markers=results))

    if not entries:
        answer([])
        return
    services.replica_manager.append_records(
        entries,
        ACKS_ALL,
        services.config.request_timeout_ms,
        answer,
        origin=AppendOrigin.COORDINATOR,
    )


def _is_old_format(services: Services, topic: str, number: int) -> bool:
    partition = services.replica_manager.partitions.get((topic, number))
    log = partition.log if partition is not None else None
    return log is not None and log.config.magic < 2


def _records(marker: WritableTxnMarker, now_ms: int) -> bytearray:
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    return marker_batch(
        EndTransactionMarker(kind, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp=now_ms,
    )
