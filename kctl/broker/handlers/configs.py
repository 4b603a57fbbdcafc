"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics and brokers.

Behaviour:
- Topics and brokers (own id, or "" for the defaults of all); broker loggers are INVALID_REQUEST,
  as kctl's log levels are not per logger.
- A change is written to the store and announced there; every broker applies it when it hears.
- Secrets are never shown.
- A resource named twice in one request is INVALID_REQUEST for both.

Versions: DescribeConfigs 0-3 (v1 synonyms, KIP-226; v3 types, KIP-569), AlterConfigs 0-1,
IncrementalAlterConfigs 0-1 (KIP-339).

Kafka 2.7: kafka.server.AdminManager.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kctl.broker.config import BrokerConfig
from kctl.broker.config_changes import (
    AlterOperation,
    ConfigChange,
    check_broker_config,
    check_topic_config,
    incremented,
    replaced,
    topic_keys,
)
from kctl.broker.config_entries import (
    BrokerConfigView,
    ConfigEntry,
    ConfigSource,
    broker_entries,
    default_broker_entries,
    topic_entries,
)
from kctl.broker.dynamic_config import BROKERS, DEFAULT, TOPICS
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.broker.topic_creation import check_topic_name
from kctl.errors import UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from kctl.store.errors import StoreError

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
_RESOURCE_NAMES = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    BROKER_LOGGER_RESOURCE: "BROKER_LOGGER",
}


# --- describe ----------------------------------------------------------------------------------


def handle_describe_configs(services: Services, request: Request) -> None:
    """Answer at once, resource by resource."""
    body: describe_configs.DescribeConfigsRequest = request.body
    results = []
    for resource in body.resources:
        result = describe_configs.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = _entries(
                services,
                resource.resource_type,
                resource.resource_name,
                # No names at all: all settings, as with null.
                resource.configuration_keys or None,
            )
            result.configs = [
                _describe(entry, resource.resource_type, body.include_synonyms, request.api_version)
                for entry in entries
            ]
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.reason
        results.append(result)
    request.reply(describe_configs.DescribeConfigsResponse(results=results))


def _entries(
    services: Services, resource_type: int, name: str, names: Sequence[str] | None
) -> list[ConfigEntry]:
    view = _broker_view(services)
    if resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        if not services.metadata_cache.contains(name):
            # No words, but not null: a client prints them as they are.
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(services.dynamic_configs.topic(name), view, names)
    if resource_type == BROKER_RESOURCE:
        if name == "":
            return default_broker_entries(view, names)
        _check_broker_id(services, name)
        return broker_entries(view, names)
    raise _unsupported(resource_type)


def _broker_view(services: Services) -> BrokerConfigView:
    dynamic = services.dynamic_configs
    return BrokerConfigView(
        services.config,
        dynamic.overrides(BROKERS, str(services.broker_id)),
        dynamic.overrides(BROKERS, DEFAULT),
    )


def _describe(
    entry: ConfigEntry, resource_type: int, include_synonyms: bool, version: int
) -> describe_configs.DescribeConfigsResourceResult:
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    is_default = (
        entry.source is not own
        if resource_type == TOPIC_RESOURCE
        else entry.source is ConfigSource.DEFAULT_CONFIG
    )
    synonyms = [
        describe_configs.DescribeConfigsSynonym(
            name=synonym.name, value=synonym.value, source=synonym.source
        )
        for synonym in (entry.synonyms if include_synonyms else ())
    ]
    return describe_configs.DescribeConfigsResourceResult(
        name=entry.key.name,
        value=entry.value,
        read_only=entry.is_read_only,
        # From version 1 on the source says it (KIP-226).
        is_default=is_default and version == 0,
        config_source=entry.source,
        is_sensitive=entry.key.is_sensitive,
        synonyms=synonyms,
        config_type=entry.key.type,
        documentation=None,
    )


# --- alter -------------------------------------------------------------------------------------


def handle_alter_configs(services: Services, request: Request) -> None:
    """Replace overrides; answer when the store has them."""
    services.runtime.scheduler.spawn(_alter(services, request, is_incremental=False), "alter")


def handle_incremental_alter_configs(services: Services, request: Request) -> None:
    """Change overrides one by one; answer when the store has them."""
    services.runtime.scheduler.spawn(_alter(services, request, is_incremental=True), "alter")


async def _alter(services: Services, request: Request, *, is_incremental: bool) -> None:
    module: Any = incremental_alter_configs if is_incremental else alter_configs
    body = request.body
    counts = Counter((r.resource_type, r.resource_name) for r in body.resources)
    responses = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        response = module.AlterConfigsResourceResponse(
            resource_type=kind, resource_name=name, error_message=None
        )
        try:
            if counts[kind, name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once")
            await _alter_one(services, resource, is_incremental, body.validate_only)
        except ApiError as error:
            response.error_code, response.error_message = error.code, error.reason
        except StoreError as error:
            response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            response.error_message = str(error)
        responses.append(response)
    answer = module.IncrementalAlterConfigsResponse if is_incremental else None
    request.reply((answer or module.AlterConfigsResponse)(responses=responses))


async def _alter_one(
    services: Services, resource: Any, is_incremental: bool, validate_only: bool
) -> None:
    kind, name = resource.resource_type, resource.resource_name
    changes = [
        ConfigChange(c.name, c.config_operation if is_incremental else AlterOperation.SET, c.value)
        for c in resource.configs
    ]
    entity_type, entity_name = _entity(services, kind, name)
    before = services.dynamic_configs.overrides(entity_type, entity_name)
    try:
        if is_incremental:
            keys = topic_keys() if kind == TOPIC_RESOURCE else BrokerConfig.KEYS
            defaults = services.config.topic_defaults() if kind == TOPIC_RESOURCE else {}
            after = incremented(before, defaults, keys, changes)
        else:
            after = replaced(changes)
        if kind == TOPIC_RESOURCE:
            check_topic_config(after)
        else:
            check_broker_config(after, [change.name for change in changes], services.config)
    except UsageError as error:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid config value for resource "
            f"ConfigResource(type={_RESOURCE_NAMES[kind]}, name='{name}'): {error}",
        ) from None
    if not validate_only:
        await services.cluster_store.change_entity_config(entity_type, entity_name, after)


def _entity(services: Services, resource_type: int, name: str) -> tuple[str, str]:
    """Where in the store the overrides are; ApiError for what cannot be altered."""
    if resource_type == TOPIC_RESOURCE:
        _check_topic(services, name)
        return TOPICS, name
    if resource_type == BROKER_RESOURCE:
        if name == "":
            return BROKERS, DEFAULT
        _check_broker_id(services, name)
        return BROKERS, name
    raise _unsupported(resource_type)


def _check_topic(services: Services, name: str) -> None:
    if not services.metadata_cache.contains(name):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_broker_id(services: Services, name: str) -> None:
    if not name.isdigit():
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    if int(name) != services.broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.broker_id}, but received {name}",
        )


def _unsupported(resource_type: int) -> ApiError:
    word = _RESOURCE_NAMES.get(resource_type, str(resource_type))
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {word}")
