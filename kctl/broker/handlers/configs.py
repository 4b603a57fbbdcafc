"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: configs of topics and brokers.

Behaviour:

- Topics, brokers (own id, or "" for the defaults of all) and the levels of this broker's loggers,
  which IncrementalAlterConfigs changes until the broker stops (KIP-412).
- The overrides of a topic are read from the store for each request, to describe and to change
  them: this broker's copy may be older than a change that another broker has acknowledged.
- A change is written to the store and retried after a concurrent change; the store announces it,
  and every broker applies it on notification.
- Secrets are never returned.
- IncrementalAlterConfigs applies the last entry of a resource that it names twice, and returns one
  result for it. AlterConfigs with a null value changes nothing and returns UNKNOWN_SERVER_ERROR for
  each of its resources; one that names a resource twice returns INVALID_REQUEST for each (Apache
  Kafka 2.7.2 fails and never responds).

Versions: DescribeConfigs 0-3 (v1 synonyms, KIP-226; v3 types, KIP-569), AlterConfigs 0-1,
IncrementalAlterConfigs 0-1 (KIP-339).

Kafka 2.7: kafka.server.AdminManager.
"""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from kctl.broker.config.config_changes import (
    AlterOperation,
    ConfigChange,
    check_broker_config,
    check_override_count,
    check_topic_config,
    incremented,
    replaced,
    topic_keys,
)
from kctl.broker.config.config_entries import (
    BrokerConfigView,
    ConfigEntry,
    ConfigSource,
    broker_entries,
    default_broker_entries,
    link_entry,
    topic_entries,
    valid_overrides,
)
from kctl.broker.config.stored_passwords import check_password_count
from kctl.broker.loggers import altered
from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.link_configs import (
    MIRROR_SOURCE,
    MIRROR_STATUS,
    check_link_change,
    link_of,
    status_partitions,
)
from kctl.configs.topic_name import check_topic_name
from kctl.errors import UsageError
from kctl.protocol.constants import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    INTERNAL_TOPICS,
    TOPIC_RESOURCE,
)
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from kctl.runtime.turns import pace_of
from kctl.store.errors import StoreError
from kctl.store.znodes import BROKER_CONFIGS, DEFAULT_ENTITY, TOPIC_CONFIGS
from kctl.work import Pace

_RESOURCE_NAMES = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    BROKER_LOGGER_RESOURCE: "BROKER_LOGGER",
}
# Work in units of `Pace`: the description of a resource, of each of its configs and of a partition
# of a link; a name that is looked up; the alteration of a topic, and of a broker, whose configs in
# force are computed.
UNITS_PER_RESOURCE = 10
UNITS_PER_CONFIG = 5
UNITS_PER_LINKED = 3
UNITS_PER_NAME = 2
UNITS_OF_TOPIC = 50
UNITS_OF_BROKER = 2_000
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


# --- describe ----------------------------------------------------------------------------------


def handle_describe_configs(services: Services, request: Request) -> None:
    """Reply when the topics' overrides have been read from the store."""
    reply_from(
        services.runtime.scheduler, request, _describe_all(services, request), "describe-configs"
    )


async def _describe_all(services: Services, request: Request) -> None:
    body: describe_configs.DescribeConfigsRequest = request.body
    names = [r.resource_name for r in body.resources if r.resource_type == TOPIC_RESOURCE]
    topics = [name for name in dict.fromkeys(names) if services.metadata_cache.contains(name)]
    overrides: Mapping[str, Mapping[str, str]] = {}
    store_error: StoreError | None = None
    try:
        overrides = await services.cluster_store.get_entity_configs(TOPIC_CONFIGS, topics)
    except StoreError as error:
        store_error = error
    # One description of each resource, however often it is named.
    described: dict[tuple[object, ...], describe_configs.DescribeConfigsResult] = {}
    results = []
    pace = pace_of(services.runtime.scheduler)
    for resource in body.resources:
        keys = resource.configuration_keys
        which = (resource.resource_type, resource.resource_name, None if keys is None else (*keys,))
        if which not in described:
            # The configs of brokers may change in a turn; each description is made in one.
            result = _described(services, request, resource, overrides, store_error)
            if resource.resource_type == TOPIC_RESOURCE and not result.error_code:
                is_link = MIRROR_SOURCE in overrides.get(resource.resource_name, {})
                await _describe_link(services, request, resource, result, pace, is_link=is_link)
            described[which] = result
            await pace.spend(UNITS_PER_RESOURCE + UNITS_PER_CONFIG * len(result.configs))
        results.append(described[which])
    request.reply(describe_configs.DescribeConfigsResponse(results=results))


async def _describe_link(
    services: Services,
    request: Request,
    resource: describe_configs.DescribeConfigsResource,
    result: describe_configs.DescribeConfigsResult,
    pace: Pace,
    *,
    is_link: bool,
) -> None:
    """Add what this broker knows of a link: how many of its partitions are in which phase, and for
    configs that are named how each is.

    A topic that is no longer a link in the store has descriptions of the partitions to which this
    broker has not applied that yet: clients cannot write to them.
    """
    names = resource.configuration_keys or ([MIRROR_STATUS] if is_link else [])
    if not any(name.startswith(MIRROR_STATUS) for name in names):
        return
    topic, links = resource.resource_name, services.links
    count = services.metadata_cache.partition_count(topic) or 0
    for name in dict.fromkeys(names):
        await pace.spend()
        if name == MIRROR_STATUS and is_link:
            phases: Counter[str] = Counter()
            async for numbers in pace.over(range(count)):
                phases.update(it.phase for it in links.among(topic, numbers))
            value = ", ".join(f"{phase}: {phases[phase]}" for phase in sorted(phases))
        elif (described := status_partitions(name, count)) is not None:
            if not is_link and not links.among(topic, described):
                continue
            value = links.status(topic, described)
            await pace.spend(UNITS_PER_LINKED * len(described))
        else:
            continue
        entry = link_entry(name, value, is_read_only=True)
        result.configs.append(
            _describe(entry, TOPIC_RESOURCE, request.body.include_synonyms, request.api_version)
        )


def _described(
    services: Services,
    request: Request,
    resource: describe_configs.DescribeConfigsResource,
    overrides: Mapping[str, Mapping[str, str]],
    store_error: StoreError | None,
) -> describe_configs.DescribeConfigsResult:
    result = describe_configs.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    # An empty list means all configs, as does null.
    keys = resource.configuration_keys
    names = frozenset(keys) if keys else None
    try:
        if resource.resource_type == BROKER_LOGGER_RESOURCE:
            result.configs = _describe_loggers(services, resource.resource_name, names)
            return result
        if store_error is not None and resource.resource_type == TOPIC_RESOURCE:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(store_error))
        entries = _entries(
            services,
            resource.resource_type,
            resource.resource_name,
            names,
            overrides,
        )
        has_synonyms, version = request.body.include_synonyms, request.api_version
        result.configs = [
            _describe(entry, resource.resource_type, has_synonyms, version) for entry in entries
        ]
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.reason
    return result


def _describe_loggers(
    services: Services, name: str, names: Container[str] | None
) -> list[describe_configs.DescribeConfigsResourceResult]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_broker_id(services, name, f"{services.broker_id}")
    return [
        describe_configs.DescribeConfigsResourceResult(
            name=logger, value=level.name, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        )
        for logger, level in services.loggers.levels.shown().items()
        if names is None or logger in names
    ]


def _entries(
    services: Services,
    resource_type: int,
    name: str,
    names: Container[str] | None,
    topic_overrides: Mapping[str, Mapping[str, str]],
) -> list[ConfigEntry]:
    view = _broker_view(services)
    if resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        if name not in topic_overrides:
            # An empty message, but not null: clients print it as it is.
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        try:
            return topic_entries(topic_overrides[name], view, names)
        except UsageError as error:
            # Only tools that write to the store directly can leave invalid values there.
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    if resource_type == BROKER_RESOURCE:
        if name == "":
            return default_broker_entries(view, names)
        _check_broker_id(services, name, f"{services.broker_id} or empty string,")
        return broker_entries(view, names)
    raise _unsupported(resource_type)


def _broker_view(services: Services) -> BrokerConfigView:
    dynamic = services.dynamic_configs
    return BrokerConfigView(
        services.config,
        dynamic.overrides(BROKER_CONFIGS, str(services.broker_id)),
        dynamic.overrides(BROKER_CONFIGS, DEFAULT_ENTITY),
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
        # From version 1 on the source states this (KIP-226).
        is_default=is_default and version == 0,
        config_source=entry.source,
        is_sensitive=entry.key.is_sensitive,
        synonyms=synonyms,
        config_type=entry.key.type,
        documentation=None,
    )


# --- alter -------------------------------------------------------------------------------------


def handle_alter_configs(services: Services, request: Request) -> None:
    """Replace overrides; reply when they are in the store."""
    reply_from(
        services.runtime.scheduler,
        request,
        _alter(services, request, is_incremental=False),
        "alter",
    )


def handle_incremental_alter_configs(services: Services, request: Request) -> None:
    """Change single overrides; reply when they are in the store."""
    reply_from(
        services.runtime.scheduler, request, _alter(services, request, is_incremental=True), "alter"
    )


async def _alter(services: Services, request: Request, *, is_incremental: bool) -> None:
    module: Any = incremental_alter_configs if is_incremental else alter_configs
    body = request.body
    responses = []
    pace = pace_of(services.runtime.scheduler)
    refusal = None
    if is_incremental:
        resources = await _last_of_each(body.resources, pace)
    else:
        resources, refusal = body.resources, await _refusal(body.resources, pace)
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        response = module.AlterConfigsResourceResponse(
            resource_type=kind, resource_name=name, error_message=None
        )
        try:
            if refusal is not None:
                raise refusal
            await _alter_one(services, resource, is_incremental, body.validate_only)
        except ApiError as error:
            response.error_code, response.error_message = error.code, error.reason
        except StoreError as error:
            response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            response.error_message = str(error)
        responses.append(response)
        await pace.spend(UNITS_OF_BROKER if kind == BROKER_RESOURCE else UNITS_OF_TOPIC)
    answer = module.IncrementalAlterConfigsResponse if is_incremental else None
    request.reply((answer or module.AlterConfigsResponse)(responses=responses))


async def _last_of_each(resources: Sequence[Any], pace: Pace) -> Sequence[Any]:
    """Return the last entry of each resource, at the place of its first."""
    last = {}
    for it in resources:
        last[it.resource_type, it.resource_name] = it
        await pace.spend(UNITS_PER_NAME)
    return list(last.values())


async def _refusal(resources: Sequence[Any], pace: Pace) -> ApiError | None:
    """Return why AlterConfigs alters none of its resources; None if it alters each by itself."""
    names = set()
    for it in resources:
        if any(config.value is None for config in it.configs):
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        names.add((it.resource_type, it.resource_name))
        await pace.spend(UNITS_PER_NAME + len(it.configs))
    if len(names) < len(resources):
        return ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once")
    return None


async def _alter_one(
    services: Services, resource: Any, is_incremental: bool, validate_only: bool
) -> None:
    kind, name = resource.resource_type, resource.resource_name
    try:
        check_override_count(len(resource.configs))
        changes = [
            ConfigChange(
                c.name, c.config_operation if is_incremental else AlterOperation.SET, c.value
            )
            for c in resource.configs
        ]
        if kind == BROKER_LOGGER_RESOURCE and is_incremental:
            if name:
                _check_broker_id(services, name, f"{services.broker_id},")
            levels = altered(services.loggers.levels, changes)
            if not validate_only:
                services.loggers.levels.change(levels)
            return
        await _check_resource(services, kind, name)
        if kind == TOPIC_RESOURCE:
            await _alter_topic(services, name, changes, is_incremental, validate_only)
        else:
            entity_name = str(int(name)) if name else DEFAULT_ENTITY
            await _alter_broker(services, entity_name, changes, is_incremental, validate_only)
    except UsageError as error:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid config value for resource "
            f"ConfigResource(type={_RESOURCE_NAMES[kind]}, name='{name}'): {error}",
        ) from None


async def _alter_topic(
    services: Services,
    topic: str,
    changes: Sequence[ConfigChange],
    is_incremental: bool,
    validate_only: bool,
) -> None:
    def updated(before: Mapping[str, str]) -> dict[str, str]:
        after = incremented(before, topic_keys(), changes) if is_incremental else replaced(changes)
        check_override_count(len(after), len(before))
        check_topic_config(after)
        check_link_change(before, after)
        if topic in INTERNAL_TOPICS and link_of(after) is not None:
            raise UsageError("An internal topic cannot follow another cluster")
        return after

    store = services.cluster_store
    if validate_only:
        updated(await store.get_entity_config(TOPIC_CONFIGS, topic))
    else:
        await store.update_entity_config(TOPIC_CONFIGS, topic, updated)


async def _alter_broker(
    services: Services,
    entity_name: str,
    changes: Sequence[ConfigChange],
    is_incremental: bool,
    validate_only: bool,
) -> None:
    """Change the overrides of this broker or of all; their passwords are stored encrypted."""
    store, passwords = services.cluster_store, services.dynamic_configs.passwords
    is_default = entity_name == DEFAULT_ENTITY
    view = _broker_view(services)

    def updated(before: Mapping[str, str]) -> dict[str, str]:
        if is_incremental:
            valid = valid_overrides(before, is_default=is_default)
            after = incremented(valid, BrokerConfig.KEYS, changes)
        else:
            after = replaced(changes)
        check_override_count(len(after), len(before))
        check_broker_config(after, view, is_default=is_default)
        check_password_count(after)
        return after

    before = await passwords.decoded(await store.get_entity_config(BROKER_CONFIGS, entity_name))
    after = updated(before)
    effective = view.with_overrides(after, is_default=is_default).effective()
    if not is_default:
        await services.listeners.check(effective)
    named = {change.name for change in changes}
    encoded = await passwords.encoded({name: after[name] for name in named & after.keys()})
    if validate_only:
        return

    def changed(stored: Mapping[str, str]) -> dict[str, str]:
        known = passwords.decoded_now(stored)
        # As they were read, unless another broker has changed them since.
        wanted = after if known == before else updated(known)
        return {
            name: stored[name] if known.get(name) == text else encoded.get(name, text)
            for name, text in wanted.items()
        }

    await store.update_entity_config(BROKER_CONFIGS, entity_name, changed)
    if not is_default:
        # Also reads files again that have changed under the same name.
        services.listeners.apply(effective)


async def _check_resource(services: Services, resource_type: int, name: str) -> None:
    """Raise ApiError if the resource cannot be altered.

    The store is also checked for the topic: an override of a topic that was just deleted would
    apply to a later topic of the same name.
    """
    if resource_type == TOPIC_RESOURCE:
        if not services.metadata_cache.contains(name) or not (
            await services.cluster_store.topic_exists(name)
        ):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
    elif resource_type != BROKER_RESOURCE:
        raise _unsupported(resource_type)
    elif name:
        _check_broker_id(services, name, f"{services.broker_id},")


def _check_broker_id(services: Services, name: str, expected: str) -> None:
    """Raise ApiError unless `name` is the number of this broker, in any spelling."""
    if not _INTEGER.fullmatch(name) or not -(1 << 31) <= int(name) < 1 << 31:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    if int(name) != services.broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {expected} but received {name}",
        )


def _unsupported(resource_type: int) -> ApiError:
    type_name = _RESOURCE_NAMES.get(resource_type, str(resource_type))
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {type_name}")
