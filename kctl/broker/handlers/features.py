"""UpdateFeatures: changes of the cluster's finalized features.

Behaviour:

- Only the controller handles it; other brokers return NOT_CONTROLLER.
- Brokers of 2.7 support no feature, so none can be finalized and none can be deleted.

Versions: 0, flexible.

Kafka 2.7: KafkaController.processFeatureUpdates; KIP-584.
"""

from kctl.broker.replies import reply_in_turns
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kctl.work import Work, parts

# Updates that are answered in one turn.
UPDATES_PER_TURN = 1_000


def handle_update_features(services: Services, request: Request) -> None:
    """Reply at once."""
    body: UpdateFeaturesRequest = request.body
    if not services.controller.is_active:
        request.reply(
            UpdateFeaturesResponse(
                error_code=ErrorCode.NOT_CONTROLLER, error_message=_NOT_CONTROLLER
            )
        )
        return
    reply_in_turns(services.runtime.scheduler, request, _results(body))


def _results(body: UpdateFeaturesRequest) -> Work[UpdateFeaturesResponse]:
    """Return the response; of a feature that is named twice the last update counts."""
    results: dict[str, UpdatableFeatureResult] = {}
    for number, updates in enumerate(parts(body.feature_updates, UPDATES_PER_TURN)):
        if number:
            yield
        results.update((update.feature, _result(update)) for update in updates)
    return UpdateFeaturesResponse(error_message=None, results=list(results.values()))


_NOT_CONTROLLER = "This is not the correct controller for this cluster."


def _result(update: FeatureUpdateKey) -> UpdatableFeatureResult:
    return UpdatableFeatureResult(
        feature=update.feature,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=_refusal(update),
    )


def _refusal(update: FeatureUpdateKey) -> str:
    if not update.feature:
        return "Feature name can not be empty."
    if update.max_version_level < 1:
        if not update.allow_downgrade:
            return (
                f"Can not provide maxVersionLevel: {update.max_version_level} less than 1"
                f" without setting the allowDowngrade flag to true in the request."
            )
        return "Can not delete non-existing finalized feature."
    return "Could not apply finalized feature update because the provided feature is not supported."
