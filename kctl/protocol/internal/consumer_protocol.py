"""Subscription and assignment: the blobs that consumers of a group exchange.

A blob of a newer version begins with the fields known here, so it is read as the newest known
version (as in Kafka). Kafka 2.7: ConsumerProtocol; KIP-429 (v1, owned partitions).
"""

from typing import TypeVar

from kctl.errors import CorruptDataError
from kctl.protocol.codec import decode
from kctl.protocol.internal.versioned import encode_versioned, stored_version
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Struct, array, bytes_, int32_array, string, string_array

PROTOCOL_TYPE = "consumer"
VERSION = 1
VERSION_BYTES = 2


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = int32_array()


class ConsumerProtocolSubscription(Message, versions="0-1"):
    """The topics that a member subscribes to, and the partitions that it owns now."""

    topics: list[str] = string_array()
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-1"):
    """The partitions that a member is assigned."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(nullable="0+", default=None)


BlobT = TypeVar("BlobT", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_blob(blob: BlobT) -> bytes:
    """Return the version and the blob."""
    return encode_versioned(blob, VERSION)


def decode_blob(cls: type[BlobT], data: Buffer) -> BlobT:
    """Return a subscription or an assignment of any version."""
    version = stored_version(data)
    if version < 0:
        raise CorruptDataError(f"{cls.__name__} of version {version}")
    return decode(cls, min(version, VERSION), data, VERSION_BYTES)
