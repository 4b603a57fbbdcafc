"""UpdateFeatures: change the cluster's finalized features (KIP-584).

API 57, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, int16, int32, string


class FeatureUpdateKey(Struct):
    """The new level of one feature; below 1 removes it."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean()


class UpdateFeaturesRequest(Message, api=ApiKey.UPDATE_FEATURES):
    """Features to change."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)


class UpdatableFeatureResult(Struct):
    """The outcome of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Message, api=ApiKey.UPDATE_FEATURES):
    """Outcomes by feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult)
