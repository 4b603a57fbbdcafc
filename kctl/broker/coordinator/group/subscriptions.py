"""What the broker understands of consumers' metadata: the topics they subscribe to. Pure.

The metadata is between the consumers; but an offset of a topic that nobody subscribes to any more
may expire, and one of a topic that somebody does must not be deleted.

Kafka 2.7: kafka.coordinator.group.GroupMetadata.computeSubscribedTopics; KIP-496.
"""

from kctl.broker.coordinator.group.group import Group
from kctl.errors import CorruptDataError
from kctl.protocol.internal.consumer_protocol import ConsumerProtocolSubscription, decode_blob


def subscribed_topics(group: Group) -> set[str] | None:
    """Topics of the group's current protocol; None if it is not a consumer group, or says what
    the broker cannot read."""
    if not group.is_consumer_group:
        return None
    name = group.protocol_name
    if group.members and name is None:
        return None
    topics: set[str] = set()
    try:
        for member in group.members.values():
            metadata = member.protocols[name or ""]
            topics.update(decode_blob(ConsumerProtocolSubscription, metadata).topics)
    except CorruptDataError:
        return None
    return topics
