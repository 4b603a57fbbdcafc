"""Requests as bytes, for tests that talk to a broker over a plain socket."""

import struct

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode
from kctl.protocol.connection import ClientConnection
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.protocol.schema import Message


class RequestWriter:
    """Frames with consecutive correlation ids."""

    def __init__(self, client_id: str | None = "test") -> None:
        self._connection = ClientConnection(client_id)

    def frame(self, message: Message, version: int) -> bytes:
        _, parts = self._connection.send_request(message, version, is_answered=False)
        return b"".join(bytes(part) for part in parts)


def produce_request(records: bytes, *, acks: int = 1, topic: str = "t") -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topics=[
            TopicProduceData(
                name=topic,
                partitions=[PartitionProduceData(partition_index=0, records=records)],
            )
        ],
    )


def correlation_id(response: bytes) -> int:
    return struct.unpack_from(">i", response)[0]


def decode_response(api: ApiKey, version: int, response: bytes) -> Message:
    position = 4 + api.response_header_version(version)
    return decode(api.response_class, version, response, position)
