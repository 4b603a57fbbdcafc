"""Request, RequestContext: what a handler is given, and how it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a connection tells about every request that comes over it."""

    connection_id: str
    client_host: str
    listener_name: str
    security_protocol: str = "PLAINTEXT"
    principal: str = ANONYMOUS
    # Connections are numbered as they come: the younger, the higher.
    connection_number: int = 0


@dataclass(slots=True)
class Request:
    """One decoded request on its way through a handler; answered exactly once.

    `body` may hold memoryviews into the frame (records): they are valid until the answer.
    """

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    context: RequestContext
    # Monotonic milliseconds at which the frame was complete.
    received_ms: int
    # Set by the connection: takes the response message, or None for "no answer" (acks=0).
    send: Callable[[Message | None], None]
    # Set by the connection: closes it without an answer.
    close: Callable[[], None]
    answered: bool = field(default=False)

    def reply(self, response: Message | None) -> None:
        """Answer, now or later; a second answer is a bug and raises RuntimeError."""
        if self.answered:
            raise RuntimeError("a request is answered once")
        self.answered = True
        self.send(response)
