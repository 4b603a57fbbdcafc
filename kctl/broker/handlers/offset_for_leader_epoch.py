"""OffsetForLeaderEpoch: the end of an epoch, so that followers and consumers can truncate.

Behaviour:

- Returns the largest epoch not beyond the requested one, and its end; (-1, -1) if none is known.

Versions: 0-3. v1 epoch in the response (KIP-279); v2 current leader epoch (KIP-320); v3 replica id.

Kafka 2.7: kafka.server.KafkaApis.handleOffsetForLeaderEpochRequest.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ApiError
from kctl.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)

UNDEFINED = -1


def handle_offset_for_leader_epoch(services: Services, request: Request) -> None:
    """Reply at once, partition by partition."""
    body: OffsetForLeaderEpochRequest = request.body
    request.reply(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    name=topic.name,
                    partitions=[
                        _look_up(services, topic.name, asked) for asked in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
    )


def _look_up(
    services: Services, topic: str, asked: OffsetForLeaderPartition
) -> OffsetForLeaderPartitionResult:
    result = OffsetForLeaderPartitionResult(
        partition_index=asked.partition_index, leader_epoch=UNDEFINED, end_offset=UNDEFINED
    )
    try:
        partition = services.replica_manager.partition(topic, asked.partition_index)
        found = partition.end_offset_for_epoch(asked.leader_epoch, asked.current_leader_epoch)
    except ApiError as error:
        result.error_code = error.code
        return result
    if found is not None:
        result.leader_epoch, result.end_offset = found
    return result
