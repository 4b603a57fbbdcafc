"""TlsState: the states of a TlsTransport, and its moves."""

from enum import Enum


class TlsState(Enum):
    """The states of a connection."""

    HANDSHAKING = "handshaking"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


_S = TlsState

NEXT_STATES: dict[TlsState, frozenset[TlsState]] = {
    _S.HANDSHAKING: frozenset({_S.OPEN, _S.CLOSED}),
    _S.OPEN: frozenset({_S.CLOSING, _S.CLOSED}),
    _S.CLOSING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}
