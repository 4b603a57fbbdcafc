"""ConnectionOrder: which requests of a producer come late, over a connection that it has given up.

Two transactions of one producer have the same id and epoch, so a late copy of a request for the
first is taken for one of the second: a late commit commits what the producer goes on to abort
(KAFKA-17754; KIP-890 changes the protocol for it). Here connections are numbered in the order in
which they were accepted. A client asks a coordinator over one connection at a time, and takes a new
one only when it has given up the old one; so what comes over an older connection than the youngest
that has spoken for this id and epoch was sent before, and given up. It is not carried out, and its
connection is closed without an answer, as if it had been lost on the way: a client that is still
there, whatever its habits, asks again over a younger connection.

What this does not see: copies that something between client and broker sends anew over a younger
connection, and requests that a coordinator on another broker was given. Pure.

KAFKA-17754, KIP-890.
"""

# Producers that are remembered; beyond it the ones that were silent longest are forgotten.
PRODUCERS_MAX = 100_000


class ConnectionOrder:
    """The youngest connection of each producer."""

    def __init__(self) -> None:
        # Producer id -> (its highest epoch, the youngest connection that spoke for that).
        self._youngest: dict[int, tuple[int, int]] = {}

    def is_late(self, producer_id: int, producer_epoch: int, connection_number: int) -> bool:
        """Whether the request is not to be carried out; if it is, its connection is noted."""
        known = self._youngest.pop(producer_id, None)
        if known is not None:
            epoch, youngest = known
            if producer_epoch < epoch:
                # A zombie: the coordinator itself refuses it.
                self._youngest[producer_id] = known
                return False
            if producer_epoch == epoch and connection_number < youngest:
                self._youngest[producer_id] = known
                return True
        elif len(self._youngest) >= PRODUCERS_MAX:
            del self._youngest[next(iter(self._youngest))]
        self._youngest[producer_id] = (producer_epoch, connection_number)
        return False
