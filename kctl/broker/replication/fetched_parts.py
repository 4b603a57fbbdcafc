"""Parts of a fetch response, each of which a follower appends in one turn of the loop.

Kafka 2.7: kafka.server.ReplicaFetcherThread.processPartitionData
"""

from collections.abc import Iterator

from kctl.protocol.primitives import Buffer
from kctl.records.memory_records import locations

# What is appended at once: a few milliseconds.
BATCHES_PER_PART = 250
BYTES_PER_PART = 512 * 1024


def parts_of(records: Buffer | None) -> Iterator[memoryview | None]:
    """Yield the whole batches of a response in parts, whose appends take a few milliseconds each;
    None for a response without a whole batch."""
    whole = memoryview(records or b"")
    start = end = count = 0
    for found in locations(whole):
        if count and (
            count == BATCHES_PER_PART or found.position + found.size - start > BYTES_PER_PART
        ):
            yield whole[start:end]
            start, count = end, 0
        end, count = found.position + found.size, count + 1
    yield whole[start:end] if count else None
