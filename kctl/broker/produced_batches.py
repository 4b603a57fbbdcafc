"""produced_batches: whether the batches of a Produce request belong to transactions or idempotent
producers, as their own headers say. Pure.

Versions 3 and later hold one batch per partition. Older ones hold any number; those beyond
BATCHES_MAX are not looked at, and count as written by idempotent producers.

Kafka 2.7: org.apache.kafka.common.requests.ProduceRequest (hasTransactionalRecords,
hasIdempotentRecords); CVE-2018-17196.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kctl.protocol.messages.produce import ProduceRequest
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, TRANSACTIONAL_MASK

BATCHES_MAX = 1_000
# Length, magic, attributes, producer id of a batch.
_header = Struct(">8xi4xb4xh20xq").unpack_from
_SINGLE_BATCH_FROM = 3


class ProducedBatches(NamedTuple):
    """What the batches of a request have in common."""

    is_transactional: bool
    has_producer_id: bool


def produced_batches(body: ProduceRequest, version: int) -> ProducedBatches:
    """Return what is found in any batch of the request."""
    is_transactional = has_producer_id = False
    for topic in body.topics:
        for partition in topic.partitions:
            records = partition.records
            if records is None:
                continue
            for number, (attributes, producer_id) in enumerate(_batches(records)):
                is_transactional |= bool(attributes & TRANSACTIONAL_MASK)
                has_producer_id |= producer_id >= 0
                if version >= _SINGLE_BATCH_FROM:
                    break
                if number >= BATCHES_MAX:
                    has_producer_id = True
                    break
    return ProducedBatches(is_transactional, has_producer_id)


def _batches(records: memoryview | bytearray | bytes) -> Iterator[tuple[int, int]]:
    """Yield attributes and producer id of each batch; (0, -1) for those of older formats."""
    position = 0
    while len(records) - position >= RECORD_BATCH_OVERHEAD:
        length, magic, attributes, producer_id = _header(records, position)
        yield (attributes, producer_id) if magic >= CURRENT_MAGIC else (0, -1)
        if length <= 0:
            return
        position += LOG_OVERHEAD + length
