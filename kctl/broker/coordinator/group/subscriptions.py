"""Parses the topics to which consumers subscribe from their metadata. Pure.

The broker does not otherwise interpret the metadata. It needs the topics because an offset of a
topic without subscribers may expire, and one of a subscribed topic must not be deleted.

Kafka 2.7: kafka.coordinator.group.GroupMetadata.computeSubscribedTopics; KIP-496.
"""

from kctl.broker.coordinator.group.group import Group
from kctl.errors import CorruptDataError
from kctl.protocol.codec import decoding
from kctl.protocol.internal.consumer_protocol import VERSION_BYTES, ConsumerProtocolSubscription
from kctl.work import Work

# Metadata of a group, equal ones counted once, beyond which its topics are not known: a set of
# topics takes up to 20 times as much memory as their names in the metadata.
METADATA_BYTES_MAX = 4 * 1024 * 1024
# Topics of a group beyond which they are not known: a set is released at once.
TOPICS_MAX = 200_000
# Metadata decoded per turn of the loop, and what each counts in addition to its length.
BYTES_PER_TURN = 16 * 1024
BYTES_OF_EACH = 32
# Topics added to a set per turn of the loop, which also releases those that are named twice.
TOPICS_PER_TURN = 5_000
# Every version begins with the fields of this one.
_FIRST_VERSION = 0


def subscribed_topics(group: Group) -> Work[set[str] | None]:
    """Return the topics of the group's current protocol, in turns.

    Return None for other than consumer groups, if a member's metadata cannot be parsed, and if
    there is more than METADATA_BYTES_MAX of it or more than TOPICS_MAX topics.
    """
    if not group.is_consumer_group:
        return None
    name = group.protocol_name
    if group.members and name is None:
        return None
    topics: set[str] = set()
    # Most members of a group send the same metadata.
    read: set[bytes] = set()
    total = bytes_of_turn = 0
    for metadata in [member.protocols[name or ""] for member in group.members.values()]:
        if metadata in read:
            continue
        read.add(metadata)
        total += len(metadata)
        if total > METADATA_BYTES_MAX:
            return None
        try:
            yield from _read_topics(metadata, topics)
        except CorruptDataError:
            return None
        if len(topics) > TOPICS_MAX:
            return None
        bytes_of_turn += len(metadata) + BYTES_OF_EACH
        if bytes_of_turn >= BYTES_PER_TURN:
            bytes_of_turn = 0
            yield
    return topics


def _read_topics(metadata: bytes, topics: set[str]) -> Work[None]:
    """Add the topics in `metadata` to `topics`; raise CorruptDataError."""
    subscription = yield from decoding(
        ConsumerProtocolSubscription, _FIRST_VERSION, metadata, VERSION_BYTES
    )
    names = subscription.topics
    while len(names) > TOPICS_PER_TURN:
        if len(topics) <= TOPICS_MAX:
            topics.update(names[-TOPICS_PER_TURN:])
        del names[-TOPICS_PER_TURN:]
        yield
    topics.update(names)
