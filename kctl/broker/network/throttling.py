"""Throttling: what a connection's requests count towards the quotas of its client, and its pauses.

A client without a limit is not counted, so its requests may take the fast paths, which count
nothing. Whether it has one is looked up once, and again when its client id or any quota changes.

Invariant: what was looked up is used only for the same client id, principal, and quotas.

Kafka 2.7: kafka.server.ClientQuotaManager; KIP-124, KIP-219
"""

from typing import Final

from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.network.connection_host import ConnectionHost
from kctl.broker.request import Request, RequestContext
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message

# Where a request's header has the client id: after its API, version and correlation id.
CLIENT_ID_AT: Final = 8
_LENGTH_BYTES: Final = 2
_NEVER: Final = -1


class Throttling:
    """The quotas of one connection's client."""

    __slots__ = ("_client_id", "_host", "_is_unlimited", "_quotas_version", "pause_ms")

    def __init__(self, host: ConnectionHost) -> None:
        # How long the client has to pause after the response being sent.
        self.pause_ms = 0
        self._host = host
        # What was looked up: for this client id, with its length, and these quotas.
        self._client_id = b""
        self._quotas_version = _NEVER
        self._is_unlimited = False

    def is_unlimited(self, frame: Buffer, quotas: ClientQuotas, context: RequestContext) -> bool:
        """Return whether no quota applies to the client that sends `frame`."""
        known = self._client_id
        if (
            self._quotas_version != quotas.version
            or bytes(frame[CLIENT_ID_AT : CLIENT_ID_AT + len(known)]) != known
        ):
            self._look_up(frame, quotas, context)
        return self._is_unlimited

    def forget(self) -> None:
        """Look up the quotas again, because the principal has changed."""
        self._quotas_version = _NEVER

    def needs_times(self) -> bool:
        """Return whether the time of a request counts towards a quota (KIP-124)."""
        quotas = self._host.client_quotas
        return quotas is not None and quotas.times_requests

    def count(
        self, quotas: ClientQuotas, request: Request, frame_bytes: int, response: Message | None
    ) -> None:
        """Count a request, and set for how long its client has to pause."""
        # Until now, if the handler still runs: the response is noted first.
        busy_ns = 0 if request.times is None else request.times.local_ns
        pause_ms = quotas.answered(request, frame_bytes, busy_ns, self._host.now_ms())
        self.pause_ms = request.throttle_ms = pause_ms
        if pause_ms and response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = pause_ms

    def _look_up(self, frame: Buffer, quotas: ClientQuotas, context: RequestContext) -> None:
        start = CLIENT_ID_AT + _LENGTH_BYTES
        length = int.from_bytes(frame[CLIENT_ID_AT:start], "big", signed=True)
        # Null has the length -1, and the quotas of an empty one.
        end = start + max(length, 0)
        self._client_id = bytes(frame[CLIENT_ID_AT:end])
        self._quotas_version = quotas.version
        try:
            client_id = str(frame[start:end], "utf-8")
        except UnicodeDecodeError:
            self._is_unlimited = False
            return
        self._is_unlimited = len(frame) >= end and not quotas.counts(context, client_id)
