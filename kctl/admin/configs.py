"""ConfigAdmin: describe and alter the settings of topics, brokers and broker loggers.

`alter` asks for IncrementalAlterConfigs; against brokers older than 2.3, which lack it, the
settings are read, merged and written back whole by AlterConfigs (two writers at once may then undo
each other, as with those brokers' own tools).

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.admin.ConfigCommand; KIP-133,
KIP-226, KIP-339
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.admin.result import error_of
from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey
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
    """What a setting may belong to, as the wire numbers it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A topic by name, a broker by its id (empty: the default of all brokers)."""

    resource_type: ResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """A value that was, or would be, used at another level."""

    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class ConfigEntry:
    """One setting; the value is None where it is secret or not set."""

    name: str
    value: str | None
    # A ConfigSource; UNKNOWN where the broker is too old to tell.
    source: int
    is_default: bool
    is_read_only: bool = False
    is_sensitive: bool = False
    config_type: int = 0
    synonyms: list[ConfigSynonym] = field(default_factory=list)

    @property
    def source_name(self) -> str:
        """Kafka's name of the source; its number if it is of a later Kafka."""
        try:
            return ConfigSource(self.source).name
        except ValueError:
            return str(self.source)


@dataclass(slots=True)
class ConfigDescription:
    """The settings of one resource by name."""

    resource: ConfigResource
    entries: list[ConfigEntry] = field(default_factory=list)
    error: ApiError | None = None


@dataclass(slots=True)
class ConfigResult:
    """What became of the changes to one resource."""

    resource: ConfigResource
    error: ApiError | None = None


@dataclass(slots=True)
class ConfigChanges:
    """What to do to the settings of one resource."""

    set: Mapping[str, str] = field(default_factory=dict)
    delete: Sequence[str] = ()
    # For settings that are lists: items to add and to take away.
    append: Mapping[str, str] = field(default_factory=dict)
    subtract: Mapping[str, str] = field(default_factory=dict)

    def operations(self) -> list[tuple[str, ConfigOperation, str | None]]:
        """As IncrementalAlterConfigs states them."""
        return [
            *((name, ConfigOperation.SET, value) for name, value in self.set.items()),
            *((name, ConfigOperation.DELETE, None) for name in self.delete),
            *((name, ConfigOperation.APPEND, value) for name, value in self.append.items()),
            *((name, ConfigOperation.SUBTRACT, value) for name, value in self.subtract.items()),
        ]


class ConfigAdmin:
    """The settings of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(
        self,
        resources: Sequence[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        include_synonyms: bool = False,
    ) -> list[ConfigDescription]:
        """The settings of `resources`, in their order; only `names` if given."""
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
        """Change settings, each resource on its own."""
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
                raise UsageError("This broker is older than Kafka 2.3: it cannot alter loggers")
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
    """Only a broker itself knows its settings; None: anybody may answer."""
    if resource.resource_type is ResourceType.TOPIC or not resource.name:
        return None
    if not resource.name.isdigit():
        raise UsageError(f"A broker is named by its number, not {resource.name!r}")
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
    if source < 0:  # version 0 tells only whether it is a default
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


def _merge(description: ConfigDescription, changes: ConfigChanges) -> dict[str, str | None]:
    """The whole set of overrides after `changes`, for AlterConfigs, which replaces them all."""
    own_sources = {
        ResourceType.TOPIC: (ConfigSource.DYNAMIC_TOPIC_CONFIG,),
        ResourceType.BROKER: (
            (ConfigSource.DYNAMIC_BROKER_CONFIG,)
            if description.resource.name
            else (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,)
        ),
    }[description.resource.resource_type]
    values = {entry.name: entry.value for entry in description.entries}
    merged = {e.name: e.value for e in description.entries if e.source in own_sources}
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
    # Both kinds of answer have the same fields.
    return [
        ConfigResult(
            ConfigResource(ResourceType(item.resource_type), item.resource_name),
            error_of(item.error_code, item.error_message),
        )
        for item in response.responses
    ]
