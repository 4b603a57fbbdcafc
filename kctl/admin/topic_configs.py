"""Reads one config of many topics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kctl.admin.configs import ConfigResource, ResourceType
from kctl.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

# Topics whose configs are requested at once.
TOPICS_MAX = 500


async def topic_config_values(
    admin: "AdminClient", topics: Iterable[str], name: str
) -> dict[str, str]:
    """Return the value of the config `name` of each topic, where it can be read: none from brokers
    without DescribeConfigs."""
    found: dict[str, str] = {}
    if await admin.router.max_version(ApiKey.DESCRIBE_CONFIGS) < 0:
        return found
    ordered = sorted(topics)
    for start in range(0, len(ordered), TOPICS_MAX):
        some = [ConfigResource(ResourceType.TOPIC, it) for it in ordered[start:][:TOPICS_MAX]]
        for description in await admin.configs.describe(some, names=[name]):
            for entry in description.entries:
                if entry.name == name and entry.value is not None:
                    found[description.resource.name] = entry.value
    return found
