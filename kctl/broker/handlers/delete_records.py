"""DeleteRecords: raises log start offsets (KIP-107).

Behaviour:

- Offset -1 means the high watermark; beyond it is OFFSET_OUT_OF_RANGE.
- Compact-only topics return POLICY_VIOLATION.
- Waits until all replicas followed, or until the timeout.

Versions: 0-2. v2 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleDeleteRecordsRequest.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle_delete_records(services: Services, request: Request) -> None:
    """Delete records, and reply with the low watermarks reached."""
    body: DeleteRecordsRequest = request.body
    wanted = [
        (topic.name, partition.partition_index, partition.offset)
        for topic in body.topics
        for partition in topic.partitions
    ]

    def answer(results: list[tuple[str, int, int, int]]) -> None:
        topics: dict[str, DeleteRecordsTopicResult] = {}
        for name, number, low_watermark, code in results:
            if name not in topics:
                topics[name] = DeleteRecordsTopicResult(name=name)
            topics[name].partitions.append(
                DeleteRecordsPartitionResult(
                    partition_index=number, low_watermark=low_watermark, error_code=code
                )
            )
        request.reply(DeleteRecordsResponse(topics=list(topics.values())))

    services.replica_manager.delete_records(wanted, body.timeout_ms, answer)
