"""Request and response headers as messages; `connection` reads the frequent ones by hand.

Kafka 2.7: RequestHeaderData, ResponseHeaderData. ApiKey knows the header version of each request.
"""

from kctl.protocol.schema import Message, int16, int32, string


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """The header of every request; the client id keeps its old encoding in v2."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string("1+", nullable="1+", flexible="none", ignorable=True)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of every response."""

    correlation_id: int = int32()
