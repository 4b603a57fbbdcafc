"""Refusals: what a connection says about requests that it does not serve.

Kafka 2.7: kafka.server.KafkaApis (`handleApiVersionsRequest`); KIP-511
"""

from collections.abc import Mapping

from kctl.broker.request import RequestContext
from kctl.client.foreign_protocols import foreign_request
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import encode
from kctl.protocol.connection import response_frame
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kctl.protocol.schema import Part


def unknown_version_response(
    api: ApiKey, version: int, correlation_id: int, served: Mapping[int, tuple[int, int]]
) -> list[Part]:
    """Return the response to an unknown version of ApiVersions, as parts of a frame; raise
    CorruptDataError for any other API."""
    if api is not ApiKey.API_VERSIONS:
        raise CorruptDataError(f"API {api} version {version} is not served")
    first, last = served.get(api, (0, 0))
    response = ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        api_keys=[ApiVersionsResponseKey(api_key=api, min_version=first, max_version=last)],
    )
    return response_frame(correlation_id, 0, encode(response, 0))


def reason_of(error: CorruptDataError, first_bytes: bytes, context: RequestContext) -> str:
    """Return why a connection is closed: a ClientHello looks like a huge frame."""
    listener, protocol = context.listener_name, context.security_protocol
    return foreign_request(first_bytes, listener, protocol) or str(error)


def api_name(api_key: bytes) -> str:
    """Return the name of the API with this key, as two bytes."""
    number = int.from_bytes(api_key, "big")
    return next((key.name for key in ApiKey if key == number), f"API {number}")
