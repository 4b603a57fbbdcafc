"""Plans config changes: finds those that may make the broker delete records, and applies them.

Such changes are shorter retention, and a cleanup policy that newly deletes or compacts. Kafka 2.7:
the rules of kafka.log.Log (`deleteOldSegments`) and kafka.log.LogCleaner.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.configs import (
    ConfigChanges,
    ConfigDescription,
    ConfigOperation,
    ConfigResource,
    ConfigResult,
    ResourceType,
)
from kctl.admin.selection import did_you_mean, unknown_topic
from kctl.client.results import is_unknown_topic
from kctl.errors import not_found
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kctl.admin.admin_client import AdminClient
    from kctl.admin.topics import TopicResult
    from kctl.protocol.error_codes import ApiError

_RETENTION = ("retention.ms", "retention.bytes")
_FOREVER = -1
_POLICY = "cleanup.policy"


class Loss(NamedTuple):
    """A config whose change may delete records; `new` is None if it returns to the default."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """Changes of one resource, and those of them that may delete records."""

    resource: ConfigResource
    changes: ConfigChanges
    losses: list[Loss] = field(default_factory=list)
    # The new number of partitions of a topic; None leaves it.
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """The results of a plan; None for a part that the plan does not have."""

    configs: ConfigResult | None = None
    partitions: "TopicResult | None" = None


async def describe_configs(
    admin: "AdminClient", resource: ConfigResource, names: Sequence[str] | None = None
) -> ConfigDescription:
    """Return the configs of one resource, only `names` if given.

    Raise KctlError if the topic or broker does not exist, ApiError.
    """
    await _check_broker(admin, resource)
    [found] = await admin.configs.describe([resource], names=names)
    if is_unknown_topic(found.error):
        raise await unknown_topic(admin, resource.name)
    if found.error is not None:
        raise found.error
    return found


async def plan_changes(
    admin: "AdminClient",
    resource: ConfigResource,
    changes: ConfigChanges,
    partitions: int | None = None,
) -> ConfigPlan:
    """Return what `changes` may delete, without changing anything; `partitions` enlarges a topic.

    Raise KctlError for an unknown broker: a request to it would wait until it registers. An unknown
    topic fails when the plan is applied.
    """
    await _check_broker(admin, resource)
    if not changes.operations():
        return ConfigPlan(resource, changes, [], partitions)
    [current] = await admin.configs.describe([resource])
    return ConfigPlan(
        resource, changes, [] if current.error else losses(current, changes), partitions
    )


async def apply_changes(
    admin: "AdminClient", plan: ConfigPlan, *, validate_only: bool = False
) -> ConfigOutcome:
    """Apply a plan, configs first; with `validate_only` the broker only checks it."""
    altered, enlarged = None, None
    if plan.changes.operations():
        [altered] = await admin.configs.alter(
            {plan.resource: plan.changes}, validate_only=validate_only
        )
    if plan.partitions is not None:
        [enlarged] = await admin.topics.add_partitions(
            {plan.resource.name: plan.partitions}, validate_only=validate_only
        )
    return ConfigOutcome(altered, enlarged)


def explain_invalid(error: "ApiError", names: Sequence[str]) -> str:
    """Return the broker's message about invalid configs, with the name that was probably meant."""
    from kctl.configs.broker_configs import BrokerSettings
    from kctl.configs.topic_configs import TOPIC_CONFIGS

    known = [*TOPIC_CONFIGS, *BrokerSettings.KEYS]
    for name in names:
        if name not in known and name in str(error) and (hint := did_you_mean(name, known)):
            return f"{error} ({hint})"
    return str(error)


async def _check_broker(admin: "AdminClient", resource: ConfigResource) -> None:
    if resource.resource_type is ResourceType.TOPIC or not resource.name:
        return
    brokers = [str(it.broker_id) for it in (await admin.cluster.describe()).brokers]
    if resource.name not in brokers:
        raise not_found("broker", resource.name, brokers)


def losses(current: ConfigDescription, changes: ConfigChanges) -> list[Loss]:
    """Return those of `changes` that may delete records, given the current configs."""
    if current.resource.resource_type is not ResourceType.TOPIC:
        return []
    return list(_losses(current, changes))


def _losses(current: ConfigDescription, changes: ConfigChanges) -> "Iterator[Loss]":
    values = {entry.name: entry.value for entry in current.entries}
    own = {entry.name for entry in current.entries if not entry.is_default}
    for name, operation, value in changes.operations():
        old = values.get(name)
        if operation is ConfigOperation.DELETE:
            # The default is not known here: removing any retention of the topic may shorten it.
            if name in own and name in (*_RETENTION, _POLICY):
                yield Loss(name, old, None)
        elif (name in _RETENTION and _is_shorter(old, value)) or (
            name == _POLICY
            and operation is not ConfigOperation.SUBTRACT
            and _items(value) - _items(old)
        ):
            yield Loss(name, old, value)


def _is_shorter(old: str | None, new: str | None) -> bool:
    try:
        before, after = int(old or _FOREVER), int(new or _FOREVER)
    except ValueError:
        return False  # the broker will reject it
    return after >= 0 and (before < 0 or after < before)


def _items(text: str | None) -> set[str]:
    return {item.strip() for item in (text or "").split(",") if item.strip()}
