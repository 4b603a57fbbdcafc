"""Parses the topics to which consumers subscribe from their metadata. Pure.

The broker does not otherwise interpret the metadata. It needs the topics because an offset of a
topic without subscribers may expire, and one of a subscribed topic must not be deleted.

Kafka 2.7: kafka.coordinator.group.GroupMetadata.computeSubscribedTopics; KIP-496.
"""

from kctl.broker.coordinator.group.group import Group
from kctl.errors import CorruptDataError
from kctl.protocol.internal.consumer_protocol import ConsumerProtocolSubscription, decode_blob
from kctl.work import Work

# Subscriptions decoded per turn of the loop.
METADATA_PER_TURN = 1_000


def subscribed_topics(group: Group) -> Work[set[str] | None]:
    """Return the topics of the group's current protocol, in turns of METADATA_PER_TURN members.

    Return None for other than consumer groups and if a member's metadata cannot be parsed.
    """
    if not group.is_consumer_group:
        return None
    name = group.protocol_name
    if group.members and name is None:
        return None
    topics: set[str] = set()
    try:
        # Most members of a group send the same metadata.
        different = {member.protocols[name or ""]: None for member in group.members.values()}
        for number, metadata in enumerate(different, 1):
            topics.update(decode_blob(ConsumerProtocolSubscription, metadata).topics)
            if number % METADATA_PER_TURN == 0:
                yield
    except CorruptDataError:
        return None
    return topics
