"""Microseconds to decode and encode a few messages, and milliseconds to compile their codecs.

python benchmarks/codec.py
"""

import time
import timeit
from collections.abc import Callable

from kctl.protocol.codec import compile_decoder, compile_encoder, decode, encode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kctl.protocol.schema import Message

ROUNDS = 7
ROUND_S = 0.1


def produce_request() -> ProduceRequest:
    """One batch of 100 bytes to one partition."""
    partition = PartitionProduceData(partition_index=3, records=bytes(100))
    topic = TopicProduceData(name="topic", partitions=[partition])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topics=[topic])


def produce_response() -> ProduceResponse:
    """Its answer."""
    partition = PartitionProduceResponse(partition_index=3, base_offset=10**9)
    topic = TopicProduceResponse(name="topic", partitions=[partition])
    return ProduceResponse(responses=[topic])


def fetch_request(topics: int, partitions: int) -> FetchRequest:
    """A consumer's or follower's request for everything."""
    return FetchRequest(
        max_wait_ms=500,
        topics=[
            FetchTopic(
                topic=f"topic-{topic}",
                partitions=[
                    FetchPartition(partition=partition, fetch_offset=10**6)
                    for partition in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def fetch_response() -> FetchResponse:
    """One partition with 1,000 bytes of batches."""
    partition = FetchablePartitionResponse(aborted_transactions=None, record_set=bytes(1_000))
    topic = FetchableTopicResponse(topic="topic", partition_responses=[partition])
    return FetchResponse(responses=[topic])


def metadata_response() -> MetadataResponse:
    """Three brokers, 10 topics of 10 partitions with 3 replicas."""
    return MetadataResponse(
        cluster_id="cluster",
        brokers=[MetadataResponseBroker(node_id=n, host="host", port=9092) for n in range(3)],
        topics=[
            MetadataResponseTopic(
                name=f"topic-{topic}",
                partitions=[
                    MetadataResponsePartition(
                        partition_index=partition, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
                    )
                    for partition in range(10)
                ],
            )
            for topic in range(10)
        ],
    )


CASES: list[tuple[str, Message, int]] = [
    ("Produce v8 request, 1 batch", produce_request(), 8),
    ("Produce v8 response, 1 partition", produce_response(), 8),
    ("Fetch v11 request, 1 partition", fetch_request(1, 1), 11),
    ("Fetch v11 request, 10 x 10", fetch_request(10, 10), 11),
    ("Fetch v12 request, 10 x 10", fetch_request(10, 10), 12),
    ("Fetch v11 response, 1 partition", fetch_response(), 11),
    ("Fetch v12 response, 1 partition", fetch_response(), 12),
    ("Metadata v9 response, 10 x 10", metadata_response(), 9),
]


def microseconds(function: Callable[[], object]) -> float:
    """The best of several rounds."""
    timer = timeit.Timer(function)
    once = max(timer.timeit(100) / 100, 1e-9)
    number = max(int(ROUND_S / once), 1)
    return min(timer.repeat(ROUNDS, number)) / number * 1e6


def compile_milliseconds(message: Message, version: int) -> tuple[float, float]:
    """Decoder and encoder."""
    started = time.perf_counter()
    compile_decoder(message.__class__, version)
    between = time.perf_counter()
    compile_encoder(message.__class__, version)
    return (between - started) * 1e3, (time.perf_counter() - between) * 1e3


def main() -> None:
    """Print the table."""
    head = ("decode µs", "encode µs", "compile decoder ms", "compile encoder ms")
    print(f"{'':36}" + "  ".join(head))  # noqa: T201 - a benchmark prints
    for name, message, version in CASES:
        compiled = compile_milliseconds(message, version)
        data = b"".join(encode(message, version))
        cls = message.__class__
        decoding = microseconds(
            lambda c=cls, v=version, d=data: decode(c, v, d)  # type: ignore[misc]
        )
        encoding = microseconds(lambda m=message, v=version: encode(m, v))  # type: ignore[misc]
        figures = (decoding, encoding, *compiled)
        columns = (f"{value:>{len(title)}.2f}" for value, title in zip(figures, head, strict=True))
        print(f"{name:36}" + "  ".join(columns))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
