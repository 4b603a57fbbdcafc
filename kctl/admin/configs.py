"""ConfigAdmin: describe and alter the configs of topics, brokers and broker loggers.

`alter` uses IncrementalAlterConfigs. Brokers older than 2.3 do not have it: there the configs are
read, merged and replaced as a whole with AlterConfigs, so that concurrent changes may be lost, as
with the tools of these versions.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.admin.ConfigCommand; KIP-133,
KIP-226, KIP-339
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.client.results import error_of
from kctl.counts import is_whole_number
from kctl.errors import UnsupportedVersionError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE
from kctl.protocol.error_codes import ApiError
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.schema import Message


class ResourceType(IntEnum):
    """The types of resources that have configs, with the numbers of the protocol."""

    TOPIC = TOPIC_RESOURCE
    BROKER = BROKER_RESOURCE
    BROKER_LOGGER = BROKER_LOGGER_RESOURCE


class ConfigSource(IntEnum):
    """The source of a value, with the numbers of the protocol."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A topic by name, or a broker by id; an empty id is the default of all brokers."""

    resource_type: ResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """The value of a config at another level."""

    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class ConfigEntry:
    """A config; the value is None if it is sensitive or not set."""

    name: str
    value: str | None
    # A ConfigSource; UNKNOWN if the broker is too old to report it.
    source: int
    is_default: bool
    is_read_only: bool = False
    is_sensitive: bool = False
    config_type: int = 0
    synonyms: list[ConfigSynonym] = field(default_factory=list)

    @property
    def source_name(self) -> str:
        """Return Kafka's name of the source; its number if a later Kafka introduced it."""
        try:
            return ConfigSource(self.source).name
        except ValueError:
            return str(self.source)

    def is_own_of(self, resource: ConfigResource) -> bool:
        """Return whether `resource` itself has the value, and does not inherit it."""
        return self.source == _own_source(resource)


@dataclass(slots=True)
class ConfigDescription:
    """The configs of one resource, sorted by name."""

    resource: ConfigResource
    entries: list[ConfigEntry] = field(default_factory=list)
    error: ApiError | None = None


@dataclass(slots=True)
class ConfigResult:
    """The result of changing one resource."""

    resource: ConfigResource
    error: ApiError | None = None


@dataclass(slots=True)
class ConfigChanges:
    """The changes to the configs of one resource."""

    set: Mapping[str, str] = field(default_factory=dict)
    delete: Sequence[str] = ()
    # For configs that are lists: items to add and to remove.
    append: Mapping[str, str] = field(default_factory=dict)
    subtract: Mapping[str, str] = field(default_factory=dict)

    def operations(self) -> list[tuple[str, ConfigOperation, str | None]]:
        """Return the changes as (name, operation, value), as IncrementalAlterConfigs encodes
        them."""
        return [
            *((name, ConfigOperation.SET, value) for name, value in self.set.items()),
            *((name, ConfigOperation.DELETE, None) for name in self.delete),
            *((name, ConfigOperation.APPEND, value) for name, value in self.append.items()),
            *((name, ConfigOperation.SUBTRACT, value) for name, value in self.subtract.items()),
        ]


class ConfigAdmin:
    """The configs of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(
        self,
        resources: Sequence[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        include_synonyms: bool = False,
    ) -> list[ConfigDescription]:
        """Return the configs of `resources`, in their order; only `names` if given.

        An unknown topic or broker has its error in its description (KIP-133). With
        `include_synonyms`, every config also has its values at other levels (KIP-226).
        """
        found: dict[ConfigResource, ConfigDescription] = {}
        for broker_id, group in _by_broker(resources).items():
            has_synonyms = await self._router.max_version(ApiKey.DESCRIBE_CONFIGS) >= 1
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=int(resource.resource_type),
                        resource_name=resource.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for resource in group
                ],
                include_synonyms=include_synonyms and has_synonyms,
            )
            response: DescribeConfigsResponse = await self._send(broker_id, request)
            for result in response.results:
                description = _description(result)
                found[description.resource] = description
        return [found[resource] for resource in resources if resource in found]

    async def alter(
        self,
        changes: Mapping[ConfigResource, ConfigChanges],
        *,
        validate_only: bool = False,
    ) -> list[ConfigResult]:
        """Change configs and return a result per resource; with `validate_only` only check the
        changes.

        Each resource succeeds or fails as a whole, independently of others (KIP-339).
        """
        if await self._router.max_version(ApiKey.INCREMENTAL_ALTER_CONFIGS) < 0:
            return await self._alter_whole(changes, validate_only=validate_only)
        from kctl.protocol.messages.incremental_alter_configs import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
        )

        results: list[ConfigResult] = []
        for broker_id, group in _by_broker(list(changes)).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=int(resource.resource_type),
                        resource_name=resource.name,
                        configs=[
                            AlterableConfig(name=name, config_operation=int(what), value=value)
                            for name, what, value in changes[resource].operations()
                        ],
                    )
                    for resource in group
                ],
                validate_only=validate_only,
            )
            results += _results(await self._send(broker_id, request))
        return results

    async def _alter_whole(
        self, changes: Mapping[ConfigResource, ConfigChanges], *, validate_only: bool
    ) -> list[ConfigResult]:
        from kctl.protocol.messages.alter_configs import (
            AlterableConfig,
            AlterConfigsRequest,
            AlterConfigsResource,
        )

        results: list[ConfigResult] = []
        for description in await self.describe(list(changes)):
            resource = description.resource
            if description.error is not None:
                results.append(ConfigResult(resource, description.error))
                continue
            if resource.resource_type is ResourceType.BROKER_LOGGER:
                raise UnsupportedVersionError(
                    "This broker is older than Kafka 2.3: it does not support altering loggers"
                )
            merged = _merge(description, changes[resource])
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=int(resource.resource_type),
                        resource_name=resource.name,
                        configs=[AlterableConfig(name=n, value=v) for n, v in merged.items()],
                    )
                ],
                validate_only=validate_only,
            )
            results += _results(await self._send(_broker_of(resource), request))
        return results

    async def _send(self, broker_id: int | None, request: "Message") -> Any:
        if broker_id is None:
            return await self._router.send_to_any(request)
        return await self._router.send_to_broker(broker_id, request)


def _broker_of(resource: ConfigResource) -> int | None:
    """Return the broker that must be asked, as only it knows its configs; None if any broker can
    answer."""
    if resource.resource_type is ResourceType.TOPIC or not resource.name:
        return None
    if not is_whole_number(resource.name):
        raise UsageError(f"A broker is named by its id, not {resource.name!r}")
    return int(resource.name)


def _by_broker(resources: Sequence[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        groups.setdefault(_broker_of(resource), []).append(resource)
    return groups


def _description(result: DescribeConfigsResult) -> ConfigDescription:
    resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
    entries = [_entry(item, resource.resource_type) for item in result.configs]
    return ConfigDescription(
        resource,
        sorted(entries, key=lambda entry: entry.name),
        error_of(result.error_code, result.error_message),
    )


def _entry(item: DescribeConfigsResourceResult, resource_type: ResourceType) -> ConfigEntry:
    source = item.config_source
    if source < 0:  # version 0 only reports whether it is a default
        by_type = {
            ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
            ResourceType.BROKER: ConfigSource.STATIC_BROKER_CONFIG,
        }
        source = ConfigSource.DEFAULT_CONFIG if item.is_default else by_type[resource_type]
    return ConfigEntry(
        item.name,
        None if item.is_sensitive else item.value,
        int(source),
        is_default=source == ConfigSource.DEFAULT_CONFIG,
        is_read_only=item.read_only,
        is_sensitive=item.is_sensitive,
        config_type=item.config_type,
        synonyms=[ConfigSynonym(s.name, s.value, s.source) for s in item.synonyms],
    )


def _own_source(resource: ConfigResource) -> ConfigSource:
    if resource.resource_type is ResourceType.TOPIC:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG
    if resource.resource_type is ResourceType.BROKER_LOGGER:
        return ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    if resource.name:
        return ConfigSource.DYNAMIC_BROKER_CONFIG
    return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def _merge(description: ConfigDescription, changes: ConfigChanges) -> dict[str, str | None]:
    """Return all overrides after `changes`, for AlterConfigs, which replaces them."""
    values = {entry.name: entry.value for entry in description.entries}
    merged = {e.name: e.value for e in description.entries if e.is_own_of(description.resource)}
    merged.update(changes.set)
    for name in changes.delete:
        merged.pop(name, None)
    for name, items in changes.append.items():
        present = _items(values.get(name))
        added = [item for item in _items(items) if item not in present]
        merged[name] = ",".join([*present, *added])
    for name, items in changes.subtract.items():
        gone = _items(items)
        merged[name] = ",".join(item for item in _items(values.get(name)) if item not in gone)
    return merged


def _items(text: str | None) -> list[str]:
    return [item for item in (text or "").split(",") if item]


def _results(response: Any) -> list[ConfigResult]:
    # Both responses have the same fields.
    return [
        ConfigResult(
            ConfigResource(ResourceType(item.resource_type), item.resource_name),
            error_of(item.error_code, item.error_message),
        )
        for item in response.responses
    ]
