"""ApiVersions: list the APIs and features of the broker.

API 18, v4. v4: features whose first version is 0 (KAFKA-17011). A connection begins with v3, which
every broker answers; v4 is for those that want the features.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api=LaterApi.API_VERSIONS):
    """The client's software name and version."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Struct):
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
    """The level of a feature that the cluster has agreed on."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, api=LaterApi.API_VERSIONS):
    """The APIs and features of the broker."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", ignorable=True, tag=0
    )
    finalized_features_epoch: int = int64("3+", default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", ignorable=True, tag=2
    )
    zk_migration_ready: bool = boolean("3+", ignorable=True, tag=3)
