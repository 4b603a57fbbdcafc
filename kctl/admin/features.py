"""FeatureAdmin: the features of a cluster, their levels, and upgrades of them.

A feature is a format or protocol that all brokers must have before one may use it:
`metadata.version` is the format of the metadata log, `share.version` allows share groups.
Kafka 4.1: org.apache.kafka.clients.admin.KafkaAdminClient (describeFeatures, updateFeatures),
org.apache.kafka.tools.FeatureCommand; KIP-584, KIP-778
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl import __version__
from kctl.client.results import error_of
from kctl.errors import UnsupportedVersionError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError
from kctl.protocol.later_apis import LaterApi

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.schema import Message

# The version of ApiVersions that has features, and the release that introduced it.
_FEATURES_VERSION = 3
_UPGRADE = 1


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature: the levels that the broker supports, and the one that the cluster uses."""

    name: str
    # None if the broker does not support the feature that the cluster uses.
    min_level: int | None
    max_level: int | None
    # 0 if it is off.
    level: int


@dataclass(frozen=True, slots=True)
class ClusterFeatures:
    """The features of a cluster in order of name; the epoch counts changes, -1 if unknown."""

    features: Sequence[FeatureDescription]
    epoch: int


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """A new level of one feature."""

    name: str
    old_level: int
    new_level: int


@dataclass(frozen=True, slots=True)
class FeatureUpgrade:
    """The planned changes, and their result: one error for all, or None."""

    changes: Sequence[FeatureChange] = field(default_factory=list)
    error: ApiError | None = None


class FeatureAdmin:
    """The features of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(self) -> ClusterFeatures:
        """Return the features; raise UnsupportedVersionError before Kafka 2.7 (KIP-584)."""
        if await self._router.max_version(ApiKey.API_VERSIONS) < _FEATURES_VERSION:
            raise UnsupportedVersionError(
                "This cluster does not report features, which came with Kafka 2.7"
            )
        response = await self._router.send_to_any(await self._versions_request())
        supported = {it.name: it for it in response.supported_features}
        levels = {it.name: it.max_version_level for it in response.finalized_features}
        features = []
        for name in sorted({*supported, *levels}):
            known = supported.get(name)
            features.append(
                FeatureDescription(
                    name,
                    None if known is None else known.min_version,
                    None if known is None else known.max_version,
                    levels.get(name, 0),
                )
            )
        return ClusterFeatures(features, response.finalized_features_epoch)

    async def plan_upgrade(self, levels: Mapping[str, int]) -> FeatureUpgrade:
        """Return the changes that raise features to `levels`, without those that are there already.

        Raise NotFoundError for an unknown feature; the controller checks the levels.
        """
        known = {it.name: it for it in (await self.describe()).features}
        for name in levels:
            if name not in known:
                raise not_found("feature", name, known)
        changes = [FeatureChange(name, known[name].level, level) for name, level in levels.items()]
        return FeatureUpgrade([it for it in changes if it.new_level != it.old_level])

    async def upgrade(self, plan: FeatureUpgrade, *, validate_only: bool = False) -> FeatureUpgrade:
        """Raise the features to their new levels, all or none; with `validate_only` only check.

        Brokers of earlier releases cannot join the cluster afterwards, and most upgrades of
        `metadata.version` cannot be undone. Return the plan with the error of the controller, if
        any; raise ApiError if the cluster uses ZooKeeper (KIP-778).
        """
        from kctl.protocol.later.update_features import FeatureUpdateKey, UpdateFeaturesRequest

        if not plan.changes:
            return plan
        request = UpdateFeaturesRequest(
            timeout_ms=self._router.timeout_ms,
            feature_updates=[
                FeatureUpdateKey(
                    feature=it.name, max_version_level=it.new_level, upgrade_type=_UPGRADE
                )
                for it in plan.changes
            ],
            validate_only=validate_only,
        )
        response = await self._router.send_to_controller(request)
        error = error_of(response.error_code, response.error_message)
        for result in response.results:
            error = error or error_of(result.error_code, result.error_message)
        return FeatureUpgrade(plan.changes, error)

    async def _versions_request(self) -> "Message":
        """Return the request in a version that leaves no feature out, if the broker has one."""
        from kctl.client.broker_channel import SOFTWARE_NAME

        if await self._router.max_version(LaterApi.API_VERSIONS) >= 0:
            from kctl.protocol.later.api_versions import ApiVersionsRequest as LaterRequest

            return LaterRequest(
                client_software_name=SOFTWARE_NAME, client_software_version=__version__
            )
        from kctl.protocol.messages.api_versions import ApiVersionsRequest

        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
