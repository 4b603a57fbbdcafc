"""ApiVersions: list the APIs and versions that the broker supports (KIP-35).

API 18, v0-3. v3: the client's name and version (KIP-511), features (KIP-584). The response header
is always v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class ApiVersionsRequest(Message, api=ApiKey.API_VERSIONS):
    """The client's software name and version."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersionsResponseKey(Struct):
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """Versions of a feature that the broker supports."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    """Versions of a feature that the cluster has agreed on."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api=ApiKey.API_VERSIONS):
    """The APIs and features of the broker."""

    error_code: int = int16()
    api_keys: list[ApiVersionsResponseKey] = array(ApiVersionsResponseKey)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
