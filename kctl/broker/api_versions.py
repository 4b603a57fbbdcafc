"""The response to ApiVersions, which is the same before and after authentication. Pure.

Kafka 2.7: ApiVersionsResponse, ApiVersionsRequest.isValid; KIP-511.
"""

import re
from collections.abc import Mapping
from typing import Any

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_valid_software(body: Any) -> bool:
    """Return whether the software name and version of an ApiVersions request are valid."""
    return bool(
        _SOFTWARE_NAME.fullmatch(body.client_software_name)
        and _SOFTWARE_NAME.fullmatch(body.client_software_version)
    )


def api_versions_response(
    served: Mapping[ApiKey, tuple[int, int]] | Mapping[int, tuple[int, int]],
    error_code: int = ErrorCode.NONE,
) -> ApiVersionsResponse:
    """Return the table of what is served: API -> (first, last version)."""
    keys = [
        ApiVersionsResponseKey(api_key=int(key), min_version=first, max_version=last)
        for key, (first, last) in served.items()
    ]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys, finalized_features_epoch=0)
