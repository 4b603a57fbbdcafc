"""Computes an entity's overrides after AlterConfigs and IncrementalAlterConfigs. Pure.

Kafka 2.7: kafka.server.AdminManager (`alterConfigs`, `prepareIncrementalConfigs`); KIP-339.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kctl.broker.config.config_entries import (
    PER_LISTENER_CONFIGS,
    BrokerConfigView,
    base_name,
    check_type,
    is_per_broker,
)
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.broker_configs import DYNAMIC_ONLY
from kctl.configs.config_key import ConfigKey, ConfigType
from kctl.configs.link_configs import LINK_CONFIGS, check_link
from kctl.configs.listener_config import ListenerConfig
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.errors import UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode


class AlterOperation(IntEnum):
    """The change to one config (IncrementalAlterConfigs)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = tuple(AlterOperation)
# Overrides that a topic or a broker may have, and configs that a request may change of one. Their
# names and values are checked in one turn of the loop; brokers know about 300 names.
OVERRIDES_MAX = 500


class ConfigChange(NamedTuple):
    """One config of a request; `value` may be None in requests."""

    name: str
    operation: int
    value: str | None


def topic_keys() -> dict[str, ConfigKey]:
    """Return the configs that a topic may override."""
    return {name: config.key for name, config in TOPIC_CONFIGS.items()}


def replaced(changes: Iterable[ConfigChange]) -> dict[str, str]:
    """Return the overrides after AlterConfigs: exactly those of the request."""
    changes = list(changes)
    nulls = [change.name for change in changes if change.value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
        )
    return {change.name: change.value or "" for change in changes}


def incremented(
    overrides: Mapping[str, str],
    keys: Mapping[str, ConfigKey],
    changes: Iterable[ConfigChange],
) -> dict[str, str]:
    """Return the overrides after IncrementalAlterConfigs has applied `changes` in order.

    APPEND and SUBTRACT work on the text of the list, and on the config's own default if it is not
    overridden: a topic's list starts from the default of topics, not from its broker's value. Only
    the result is validated, by the caller. Raise ApiError for changes that no override can satisfy.
    """
    changes = list(changes)
    check_changes(changes)
    result = dict(overrides)
    for name, operation, value in changes:
        if operation == AlterOperation.DELETE:
            result.pop(name, None)
        elif operation == AlterOperation.SET:
            result[name] = value or ""
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            key = _list_key(keys, name, operation)
            before = _items(result.get(name, key.format(key.default) or ""))
            items = _items(value or "")
            after = (
                [*before, *items] if operation == AlterOperation.APPEND else _without(before, items)
            )
            result[name] = ",".join(after)
        else:
            raise unknown_operation()
    return result


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise ApiError (INVALID_REQUEST) for a config named twice, or without a required value."""
    repeated = [n for n, count in Counter(change.name for change in changes).items() if count > 1]
    if repeated:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Error due to duplicate config keys : {','.join(repeated)}",
        )
    nulls = [
        f"{_verb(change.operation)}:{change.name}"
        for change in changes
        if change.value is None and change.operation != AlterOperation.DELETE
    ]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
        )


def unknown_operation() -> ApiError:
    """Return the error for an operation that no version of the request defines.

    Apache Kafka fails to match one, and returns this error without a message.
    """
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _verb(operation: int) -> str:
    """Return the name of an operation; Apache Kafka calls an unknown one "null"."""
    return AlterOperation(operation).name if operation in _OPERATIONS else "null"


def _items(text: str) -> list[str]:
    """Split a list as Apache Kafka does here: an empty text has one empty entry; other texts lose
    the empty entries at their end, and blanks stay."""
    items = text.split(",")
    while text and items and not items[-1]:
        items.pop()
    return items


def _without(before: Iterable[str], items: Iterable[str]) -> list[str]:
    """Return `before` without the first equal entry for each of `items`."""
    removed = Counter(items)
    kept = []
    for item in before:
        if removed[item]:
            removed[item] -= 1
        else:
            kept.append(item)
    return kept


def _list_key(keys: Mapping[str, ConfigKey], name: str, operation: int) -> ConfigKey:
    key = keys.get(name)
    if key is None:
        # Apache Kafka fails to look up such a config and returns this error without a message.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if key.type is not ConfigType.LIST:
        verb = AlterOperation(operation).name.lower()
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Config value {verb} is not allowed for config key: {name}"
        )
    return key


def check_override_count(count: int, before_count: int = 0) -> None:
    """Raise UsageError if `count` overrides are too many; an entity that has more, which other
    tools wrote into the store, may only lose some."""
    if count > max(OVERRIDES_MAX, before_count - 1):
        raise UsageError(f"{count} configs: a resource may have {OVERRIDES_MAX}")


def check_topic_config(overrides: Mapping[str, str]) -> None:
    """Raise ApiError (INVALID_CONFIG) for an unknown name, UsageError for an invalid value."""
    check_link(overrides)
    for name, text in overrides.items():
        config = TOPIC_CONFIGS.get(name)
        if config is None and name in LINK_CONFIGS:
            continue
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


# Sizes of Apache Kafka's thread pools: a dynamic change may at most double or halve them.
_THREAD_COUNTS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def check_broker_config(
    overrides: Mapping[str, str], broker: BrokerConfigView, *, is_default: bool
) -> None:
    """Check that a running broker can replace its own overrides, or with `is_default` those of all
    brokers, by `overrides`.

    Raise UsageError for configs that are fixed while a broker runs, that belong to a listener or to
    a single broker, and for values with which the broker could not have started. Names that Apache
    Kafka does not know may belong to a plugin.
    """
    fixed = [
        name
        for name in overrides
        if name in BrokerConfig.KEYS and not BrokerConfig.KEYS[name].is_dynamic
    ]
    _reject(fixed, "Cannot update these configs dynamically")
    _reject(
        [name for name in overrides if name in PER_LISTENER_CONFIGS],
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
    )
    for name, text in overrides.items():
        if name in DYNAMIC_ONLY or base_name(name) is not None:
            check_type(name, text)
        _check_class(name, text)
    if is_default:
        _reject(
            [name for name in overrides if is_per_broker(name)],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    # `effective` would ignore invalid values: this reports them.
    BrokerConfig({**broker.static.given, **overrides})
    before = broker.effective()
    after = broker.with_overrides(overrides, is_default=is_default).effective()
    _check_thread_counts(before, after)
    _check_listeners(before, after)
    _check_listener_limits(before, after)


def _reject(names: Iterable[str], why: str) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        raise UsageError(f"{why}: Set({listed})")


# The classes of Apache Kafka that do what kctl does anyway.
_CLASSES = {
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    ),
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
}


def _check_class(name: str, text: str) -> None:
    """Raise UsageError if a config asks a running broker for a class that it cannot load."""
    base = base_name(name) or name
    known = _CLASSES.get(base)
    if known is None:
        return
    asked = [text]
    if BrokerConfig.KEYS[base].type is ConfigType.LIST:
        asked = [each for each in _items(text) if each]
    for each in asked:
        if each != known:
            raise UsageError(
                f"Invalid value {each} for configuration {name}: Class {each} could not be found."
            )


def _check_listeners(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise UsageError if listeners are added or removed, and one that stays changes as well.

    Apache Kafka accepts another address of a listener that stays, and uses it after a restart; but
    it advertises the address at once, where nothing listens.
    """
    old = {it.listener_name: it for it in before.listener_list}
    if not is_other_listeners(before, after):
        return
    for endpoint in after.listener_list:
        name = endpoint.listener_name
        known = old.get(name)
        if known is None:
            continue
        if ListenerConfig(before.given, name).given() != ListenerConfig(after.given, name).given():
            raise UsageError(
                f"Configs cannot be updated dynamically for existing listener {name}, restart"
                " broker or create a new listener for update"
            )
        if endpoint.security_protocol is not known.security_protocol:
            raise UsageError(f"Security protocol cannot be updated for existing listener {name}")
        if endpoint != known:
            raise UsageError(
                f"The address of listener {name} cannot be updated dynamically: restart the broker,"
                " or create a new listener"
            )


def is_other_listeners(before: BrokerConfig, after: BrokerConfig) -> bool:
    """Return whether the broker has to open, close or advertise other listeners."""
    return (
        before.listener_list != after.listener_list
        or before.advertised_listener_list != after.advertised_listener_list
    )


def _check_thread_counts(before: BrokerConfig, after: BrokerConfig) -> None:
    for name in _THREAD_COUNTS:
        old, new = (getattr(config, BrokerConfig.ATTRIBUTES[name]) for config in (before, after))
        if new == old:
            continue
        failed = f"Dynamic thread count update validation failed for {name}={new}, value should"
        if new < 1:
            raise UsageError(f"{failed} be at least 1")
        if new < old // 2:
            raise UsageError(f"{failed} be at least half the current value {old}")
        if new > old * 2:
            raise UsageError(f"{failed} not be greater than double the current value {old}")


def _check_listener_limits(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise UsageError if a changed limit lets a listener accept no connection at all."""
    for listener in after.listener_list:
        name = listener.listener_name
        for limit in ("max.connections", "max.connection.creation.rate"):
            new = ListenerConfig(after.given, name).integer(limit)
            if new <= 0 and new != ListenerConfig(before.given, name).integer(limit):
                raise UsageError(f"Invalid dynamic configuration: Invalid {limit} {new}")
