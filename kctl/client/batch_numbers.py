"""BatchNumbers: the producer id, the epoch and the sequences under which a producer writes.

The broker takes a batch once, and only if its sequence follows that of the batch before it. When it
is unknown which sequence a broker expects, the next batch begins an epoch, in which all partitions
start from 0: that is accepted in any case, and what is left of the old epoch is refused from then
on (KIP-360).

Kafka 2.7: org.apache.kafka.clients.producer.internals.TransactionManager
(bumpIdempotentEpochAndResetIdIfNeeded)
"""

from typing import TYPE_CHECKING

from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from kctl.client.router import Router

EPOCH_MAX = (1 << 15) - 1
_SEQUENCE_END = 1 << 31


class BatchNumbers:
    """The numbers of one producer; without a producer id, its batches have none."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        # Whether it is unknown which sequences the broker expects: `begin_epoch` comes next.
        self.is_in_doubt = False
        self._sequences: dict[TopicPartition, int] = {}
        self._is_own = False

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Write under an id and epoch that the coordinator of a transactional id has given: only
        that begins another epoch."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    async def acquire(self, router: "Router") -> None:
        """Get a producer id, if the brokers have them and give one."""
        if await router.max_version(ApiKey.INIT_PRODUCER_ID) < 0:
            return
        from kctl.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await router.send_to_any(request)
        # Not authorized (before KIP-679 a separate permission was required): do not number batches.
        self._is_own = response.error_code == 0
        self.producer_id = response.producer_id if self._is_own else NO_PRODUCER_ID
        self.producer_epoch = response.producer_epoch if self._is_own else NO_PRODUCER_EPOCH

    def take(self, partition: TopicPartition, count: int) -> int:
        """Return the sequence of the next batch of `partition`, which has `count` records."""
        if self.producer_id == NO_PRODUCER_ID:
            return NO_SEQUENCE
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + count) % _SEQUENCE_END
        return sequence

    def give_back(self, partition: TopicPartition, sequence: int) -> None:
        """Let the next batch of `partition` have the sequence of one that the broker refused."""
        if partition in self._sequences:
            self._sequences[partition] = sequence

    def doubt(self) -> bool:
        """Note that it is unknown which sequences the broker expects; return False if that has no
        remedy: the numbers are those of a transactional id, or there are none."""
        self.is_in_doubt = self._is_own
        return self._is_own

    async def begin_epoch(self, router: "Router") -> None:
        """Number further batches from 0 in the next epoch; after the last one, under another
        producer id. The batches before have their outcomes."""
        if self.producer_epoch < EPOCH_MAX:
            self.producer_epoch += 1
        else:
            await self.acquire(router)
        self._sequences.clear()
        self.is_in_doubt = False
