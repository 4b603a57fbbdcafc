"""What AlterConfigs and IncrementalAlterConfigs make of an entity's overrides. Pure.

Kafka 2.7: kafka.server.AdminManager (`alterConfigs`, `prepareIncrementalConfigs`); KIP-339.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kctl.broker.config import BrokerConfig
from kctl.broker.config_key import ConfigKey, ConfigType
from kctl.broker.topic_configs import TOPIC_CONFIGS
from kctl.errors import UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode


class AlterOperation(IntEnum):
    """What to do with one setting (IncrementalAlterConfigs)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_WITH_VALUE = (AlterOperation.SET, AlterOperation.APPEND, AlterOperation.SUBTRACT)


class ConfigChange(NamedTuple):
    """One setting of a request; `value` may be None on the wire."""

    name: str
    operation: int
    value: str | None


def topic_keys() -> dict[str, ConfigKey]:
    """The settings that a topic may override."""
    return {name: config.key for name, config in TOPIC_CONFIGS.items()}


def replaced(changes: Iterable[ConfigChange]) -> dict[str, str]:
    """AlterConfigs: the overrides are just what the request holds."""
    changes = list(changes)
    nulls = [change.name for change in changes if change.value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
        )
    return {change.name: change.value or "" for change in changes}


def incremented(
    overrides: Mapping[str, str],
    defaults: Mapping[str, Any],
    keys: Mapping[str, ConfigKey],
    changes: Iterable[ConfigChange],
) -> dict[str, str]:
    """IncrementalAlterConfigs: the overrides with `changes` carried out one by one."""
    changes = list(changes)
    repeated = [n for n, count in Counter(change.name for change in changes).items() if count > 1]
    if repeated:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Error due to duplicate config keys : {','.join(repeated)}",
        )
    nulls = [
        f"{AlterOperation(change.operation).name}:{change.name}"
        for change in changes
        if change.value is None and change.operation in _WITH_VALUE
    ]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
        )
    result = dict(overrides)
    for name, operation, value in changes:
        if operation == AlterOperation.DELETE:
            result.pop(name, None)
        elif operation == AlterOperation.SET:
            result[name] = value or ""
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            key = _list_key(keys, name, operation)
            before = key.parse(result[name]) if name in result else defaults.get(name) or []
            items = key.parse(value or "")
            result[name] = ",".join(
                [*before, *items]
                if operation == AlterOperation.APPEND
                else [item for item in before if item not in items]
            )
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown AlterConfigOp type {operation}")
    return result


def _list_key(keys: Mapping[str, ConfigKey], name: str, operation: int) -> ConfigKey:
    key = keys.get(name)
    if key is None or key.type is not ConfigType.LIST:
        verb = AlterOperation(operation).name.lower()
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Config value {verb} is not allowed for config key: {name}"
        )
    return key


def check_topic_config(overrides: Mapping[str, str]) -> None:
    """ApiError INVALID_CONFIG for an unknown name, UsageError for a bad value."""
    for name, text in overrides.items():
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        config.key.parse(text)
    _check_compaction_lags(overrides)


def _check_compaction_lags(overrides: Mapping[str, str]) -> None:
    names = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    if all(name in overrides for name in names):
        smallest, largest = (int(overrides[name]) for name in names)
        if smallest > largest:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "conflict topic config setting min.compaction.lag.ms "
                f"({smallest}) > max.compaction.lag.ms ({largest})",
            )


def check_broker_config(
    overrides: Mapping[str, str], changed: Iterable[str], static: BrokerConfig
) -> None:
    """UsageError unless every setting in `changed` may change while brokers run, and for a value
    that the broker could not have started with. What Kafka does not know may be a plugin's."""
    fixed = [
        name
        for name in changed
        if name in BrokerConfig.KEYS and not BrokerConfig.KEYS[name].is_dynamic
    ]
    if fixed:
        raise UsageError(
            f"Cannot update these configs dynamically: Set({', '.join(sorted(fixed))})"
        )
    BrokerConfig({**static.given, **overrides})
