"""UnknownProducers: whether a leader may accept a batch of a producer that its log does not know.

A first batch with a sequence other than 0 has two explanations. The batches before it were in the
log, and their producer has expired or their topic was created again: then it must be accepted
(KIP-360). Or the batches before it were just rejected and are about to be resent: if it were
accepted, they could never be stored, and librdkafka would report them as delivered. Only the client
knows which, and what it resends shows it:

    the lowest sequence was sent and rejected RESENDS_AWAITED times -> accept it when it is resent
    REFUSALS_MAX others were rejected since it was last sent        -> accept: the client gave it up

Invariants: no batch is accepted before one with a lower sequence that this leader has rejected, for
whatever reason, unless the client gave up; a batch with sequence 0 is never rejected here.

Kafka 2.7 accepts any first batch: kafka.log.ProducerAppendInfo.checkSequence
"""

from typing import Final

from kctl.broker.log.producer_state import BATCHES_KEPT
from kctl.lazy_dataclass import dataclass
from kctl.records.record_batch import BatchHeader

# Rejections of the lowest sequence before it is accepted. Each is a round of the client, which
# waits for its retry.backoff.ms in between. With two, the batch before it may be late once more.
RESENDS_AWAITED: Final = 2
# Rejections of later batches since the lowest one was last sent: four rounds of all that a client
# may have in flight.
REFUSALS_MAX: Final = 4 * BATCHES_KEPT
# Producers whose batches were rejected; beyond it the table is cleared.
PRODUCERS_MAX: Final = 1_000


@dataclass(slots=True)
class RefusedBatches:
    """The rejected batches of a producer: its epoch, the lowest sequence, how often that one was
    rejected, and how many others since it was last sent."""

    producer_epoch: int
    base_sequence: int
    times: int = 0
    count_since: int = 0


class UnknownProducers:
    """The producers that a log does not know and whose batches its leader has rejected."""

    def __init__(self) -> None:
        self._refused: dict[int, RefusedBatches] = {}

    def accepts(self, producer_id: int, producer_epoch: int, base_sequence: int) -> bool:
        """Return whether the batch may be the first one in the log; change nothing."""
        if base_sequence == 0:
            return True
        refused = self._refused.get(producer_id)
        if refused is None or refused.producer_epoch != producer_epoch:
            return False
        is_resent = base_sequence == refused.base_sequence
        return refused.count_since >= REFUSALS_MAX or (
            is_resent and refused.times >= RESENDS_AWAITED
        )

    def note_rejected(self, header: BatchHeader) -> None:
        """Remember a batch that is rejected, for whatever reason: its successors must wait for it.
        Batches without a producer are ignored."""
        producer_id, sequence = header.producer_id, header.base_sequence
        if producer_id < 0 or sequence < 0:
            return
        refused = self._refused.get(producer_id)
        if refused is None or refused.producer_epoch != header.producer_epoch:
            if refused is None and len(self._refused) >= PRODUCERS_MAX:
                self._refused.clear()
            refused = self._refused[producer_id] = RefusedBatches(header.producer_epoch, sequence)
        elif sequence < refused.base_sequence:
            refused.base_sequence, refused.times = sequence, 0
        if sequence == refused.base_sequence:
            refused.times, refused.count_since = refused.times + 1, 0
        else:
            refused.count_since += 1

    def forget(self, producer_id: int) -> None:
        """Forget a producer that the log knows now."""
        self._refused.pop(producer_id, None)
