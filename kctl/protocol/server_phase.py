"""ServerPhase: the phases of a server-side connection, and the moves between them.

    READING -> IN_FLIGHT -> READING ...
    READING -> SENDING -> READING      the peer is slow to read, or other connections come first
    READING -> MUTED -> READING        the client exceeds a quota (KIP-219)
    IN_FLIGHT -> DRAINING -> OVER      the server stops while the last request is in flight
    any phase -> OVER

At most one request of a connection is in flight, however many the client has sent: the next one
begins in READING only (Apache Kafka mutes the channel). An end of file is not a phase: a client
that has shut down its sending side still receives the responses to the requests it sent.

Invariant: an illegal move raises and changes nothing.

`BrokerConnection` and `kctl.broker.network.server_connection.ServerConnection` use this table.
Kafka 2.7: org.apache.kafka.common.network.KafkaChannel.ChannelMuteState.
"""

from enum import IntEnum
from typing import Final


class ServerPhase(IntEnum):
    """The phase of a server-side connection."""

    # No request is in flight; the next one may begin.
    READING = 0
    # A request waits for its response.
    IN_FLIGHT = 1
    # The last response waits for the client to read, or the next request for another turn.
    SENDING = 2
    # A request waits for its response, and the connection ends with it.
    DRAINING = 3
    # Closed, or closing with nothing more to serve.
    OVER = 4
    # The client has to pause: nothing more is served until then.
    MUTED = 5


_P = ServerPhase

# Phase -> the phases that may follow. Ending twice is legal: an abort may follow a close.
LEGAL_MOVES: Final[dict[ServerPhase, frozenset[ServerPhase]]] = {
    _P.READING: frozenset({_P.IN_FLIGHT, _P.SENDING, _P.MUTED, _P.OVER}),
    _P.IN_FLIGHT: frozenset({_P.READING, _P.DRAINING, _P.OVER}),
    _P.SENDING: frozenset({_P.READING, _P.OVER}),
    _P.DRAINING: frozenset({_P.OVER}),
    _P.MUTED: frozenset({_P.READING, _P.OVER}),
    _P.OVER: frozenset({_P.OVER}),
}


def moved(phase: ServerPhase, target: ServerPhase) -> ServerPhase:
    """Return `target`; raise RuntimeError if the table does not allow the move from `phase`."""
    if target not in LEGAL_MOVES[phase]:
        raise RuntimeError(f"a connection cannot go from {phase.name} to {target.name}")
    return target
