"""UpdateFeatures: change the levels of the cluster's features.

API 57, v1-2. v1: safe and unsafe downgrades, validation alone (KIP-778); v2: one result for the
whole request.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    """The new level of one feature. The upgrade type is 1 for an upgrade, 2 for a downgrade that
    loses nothing, and 3 for one that may lose metadata."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api=LaterApi.UPDATE_FEATURES):
    """Features to change."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    """The outcome of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Message, api=LaterApi.UPDATE_FEATURES):
    """The outcome of the request; before v2 also of each feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
