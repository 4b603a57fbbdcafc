"""ApiVersions: which APIs this broker serves, and in which versions.

Behaviour:
- Lists what HANDLERS holds, no more: what is not listed does not work.
- A version that is not known is answered by the connection itself with a v0 body and error 35.
- From version 3 on, client software names must be words of [a-zA-Z0-9-.], else INVALID_REQUEST.
- Features (KIP-584): none are supported; the finalized epoch is 0, as on a fresh 2.7 cluster.

Versions: 0-3. v3 flexible, software name and version (KIP-511).

Kafka 2.7: kafka.server.KafkaApis.handleApiVersionsRequest.
"""

import re
from collections.abc import Mapping

from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseKey,
)

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(services: Services, request: Request) -> None:
    """Answer at once."""
    body: ApiVersionsRequest = request.body
    if request.api_version >= 3 and not (
        _SOFTWARE_NAME.fullmatch(body.client_software_name)
        and _SOFTWARE_NAME.fullmatch(body.client_software_version)
    ):
        request.reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
    else:
        request.reply(api_versions_response(services.served))


def api_versions_response(
    served: Mapping[ApiKey, tuple[int, int]], error_code: int = ErrorCode.NONE
) -> ApiVersionsResponse:
    """The table of what is served."""
    keys = [
        ApiVersionsResponseKey(api_key=int(key), min_version=first, max_version=last)
        for key, (first, last) in served.items()
    ]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys, finalized_features_epoch=0)
