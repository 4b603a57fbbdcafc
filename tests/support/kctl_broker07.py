"""Writing to a broker of Kafka 0.7, whose produce requests have no answer."""

import socket

from kctl.protocol.kafka07 import (
    OffsetsRequest,
    ProduceRequest,
    decode_offsets_answer,
    encode_request,
)

LIMIT_S = 60


def write07(port: int, topic: str, entries: bytes, partition: int = 0) -> int:
    """Write a message set and return the position after it, once that can be read."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        connection.sendall(encode_request(ProduceRequest(topic, partition, entries)))
        # Requests of one connection are served in order.
        connection.sendall(encode_request(OffsetsRequest(topic, partition, -1, 1)))
        with connection.makefile("rb") as answers:
            size = int.from_bytes(answers.read(4), "big")
            return decode_offsets_answer(answers.read(size)).offsets[0]
