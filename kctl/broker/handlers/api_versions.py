"""ApiVersions: the APIs that this broker serves, and their versions.

Behaviour:

- Lists exactly the content of HANDLERS: an API that is not listed does not work.
- For an unknown version the connection itself replies, with a v0 body and error 35.
- From version 3 on, client software names must match [a-zA-Z0-9-.]+, else INVALID_REQUEST.
- Features (KIP-584): none are supported; the finalized epoch is 0, as on a fresh 2.7 cluster.
- On listeners with SASL the first ApiVersions is answered before authentication
  (`kctl.broker.network.authentication`).

Versions: 0-3. v3 flexible, software name and version (KIP-511).

Kafka 2.7: kafka.server.KafkaApis.handleApiVersionsRequest.
"""

from kctl.broker.api_versions import api_versions_response, is_valid_software
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponse

_SOFTWARE_VERSION = 3


def handle_api_versions(services: Services, request: Request) -> None:
    """Reply at once."""
    if request.api_version >= _SOFTWARE_VERSION and not is_valid_software(request.body):
        request.reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
    else:
        request.reply(api_versions_response(services.served))
