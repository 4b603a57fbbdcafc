"""ConnectionOrder: detects transactional requests that arrive late, over an abandoned connection.

Two transactions of one producer have the same id and epoch, so a late copy of a request for the
first transaction is mistaken for one of the second: a late commit commits data that the producer
later wants to abort (KAFKA-17754; KIP-890 changes the protocol for it). This class uses the numbers
of connections, which follow the order in which they were accepted. A client uses one connection to
a coordinator at a time and opens another only after it has abandoned the previous one. A request
that arrives over an older connection than the newest one seen for its producer id and epoch was
therefore sent earlier, and abandoned. It is not executed, and its connection is closed without a
response, as if it had been lost: a client that still waits retries over a newer connection.

Two cases are not detected: copies that a proxy resends over a newer connection, and requests that
were sent to a coordinator on another broker. Pure.

KAFKA-17754, KIP-890.
"""

from collections import OrderedDict

# Number of producers remembered; beyond it the least recently active ones are forgotten.
PRODUCERS_MAX = 100_000


class ConnectionOrder:
    """The newest connection of each producer."""

    def __init__(self) -> None:
        # Producer id -> (its highest epoch, the newest connection that used that epoch).
        self._youngest: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def is_late(self, producer_id: int, producer_epoch: int, connection_number: int) -> bool:
        """Return whether the request is late and must not be executed; otherwise record its
        connection."""
        known = self._youngest.pop(producer_id, None)
        if known is not None:
            epoch, youngest = known
            if producer_epoch < epoch:
                # A zombie: the coordinator itself rejects it.
                self._youngest[producer_id] = known
                return False
            if producer_epoch == epoch and connection_number < youngest:
                self._youngest[producer_id] = known
                return True
        elif len(self._youngest) >= PRODUCERS_MAX:
            del self._youngest[next(iter(self._youngest))]
        self._youngest[producer_id] = (producer_epoch, connection_number)
        return False
