"""Answers of a ScriptedBroker to ListOffsets and OffsetFetch."""

from kctl.protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartitionResponse,
    ListOffsetResponse,
    ListOffsetTopicResponse,
)
from kctl.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


def partition_log(start, end, *, by_time=-1):
    """Answer ListOffsets for partitions that hold [start, end), and `by_time` for any time."""

    def answer(request):
        topics = []
        for topic in request.body.topics:
            partitions = []
            for asked in topic.partitions:
                offset = {EARLIEST_TIMESTAMP: start, LATEST_TIMESTAMP: end}.get(
                    asked.timestamp, by_time
                )
                if request.api_version == 0:
                    item = ListOffsetPartitionResponse(
                        partition_index=asked.partition_index, old_style_offsets=[offset]
                    )
                else:
                    item = ListOffsetPartitionResponse(
                        partition_index=asked.partition_index, offset=offset
                    )
                partitions.append(item)
            topics.append(ListOffsetTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetResponse(topics=topics)

    return answer


def committed(**offsets):
    """Return a response to OffsetFetch: `t0=5` is offset 5 of partition 0 of topic t."""
    partitions = [
        OffsetFetchResponsePartition(partition_index=int(name[1:]), committed_offset=offset)
        for name, offset in offsets.items()
    ]
    topics = [OffsetFetchResponseTopic(name="t", partitions=partitions)]
    return OffsetFetchResponse(topics=topics)
