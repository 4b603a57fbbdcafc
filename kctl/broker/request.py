"""Request, RequestContext: what a handler receives, and how it responds."""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from kctl.broker.request_times import RequestTimes
from kctl.broker.security.access import UNRESTRICTED, Access
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message

ANONYMOUS: Final = "User:ANONYMOUS"
# Of clients that do not give it (KIP-511).
UNKNOWN_SOFTWARE: Final = "unknown"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The properties of a connection, which apply to all its requests."""

    connection_id: str
    client_host: str
    listener_name: str
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal: str = ANONYMOUS
    # Whether a delegation token authenticated the connection (KIP-48).
    is_token_authenticated: bool = False
    # Connections are numbered in the order of arrival.
    connection_number: int = 0
    # The requests come from this process itself. Never set for a connection.
    is_internal: bool = False
    # The name and version of the client's library, from ApiVersions (KIP-511).
    software_name: str = UNKNOWN_SOFTWARE
    software_version: str = UNKNOWN_SOFTWARE


@dataclass(slots=True)
class Request:
    """One decoded request for a handler; it has exactly one response.

    `body` may hold memoryviews into the frame (records): they are valid until the response.
    """

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    context: RequestContext
    # Monotonic milliseconds at which the frame was complete.
    received_ms: int
    # Set by the connection: takes the response message, or None for no response (acks=0).
    send: Callable[[Message | None], None]
    # Set by the connection: closes it without a response.
    close: Callable[[], None]
    answered: bool = field(default=False)
    # The request that this one is a slice of (`kctl.broker.network.slices`).
    whole: "Request | None" = None
    # The connection is lost: the response cannot be sent.
    is_abandoned: bool = False
    # The request only reads: it may be dropped if its client closes its side of the connection.
    is_cancellable: bool = False
    # What the client may do. Set before the handler is called, if access is controlled.
    access: Access = UNRESTRICTED
    # Milliseconds that the client has to pause (KIP-219): set by the handler, and by the connection
    # when it counts the response.
    throttle_ms: int = 0
    # Set by the connection: logs an error that no handler expects, and closes the connection.
    failed: "Callable[[Request, Exception], None] | None" = None
    # None: no one asks where its time goes.
    times: RequestTimes | None = None
    # Set by the connection for a large request: releases the elements of its body, in later turns,
    # once nothing else refers to the body.
    release: Callable[[], None] | None = None

    def cancellable(self) -> Callable[[], bool]:
        """Make the request end with its client; return a function that returns whether the response
        is still wanted. For requests that change nothing."""
        request = self if self.whole is None else self.whole
        request.is_cancellable = True
        return lambda: not request.is_abandoned

    def reply(self, response: Message | None) -> None:
        """Send the response, now or later; raise RuntimeError if the request already has one."""
        if self.answered:
            raise RuntimeError("the request already has a response")
        self.answered = True
        self.send(response)
        if self.is_abandoned and self.release is not None:
            # Otherwise the connection does so, after it has sent the response.
            self.release()

    def fail(self, error: Exception) -> None:
        """Log an unexpected `error`, and close the connection if the request has no response yet.
        For errors in later turns, which a handler's caller does not see."""
        if self.failed is None:
            self.close()
            raise error
        self.failed(self, error)
