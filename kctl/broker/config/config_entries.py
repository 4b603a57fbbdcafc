"""The entries of DescribeConfigs: the configs of a topic or broker, with sources and synonyms.
Pure.

Kafka 2.7: kafka.server.AdminManager (`describeConfigs`, `configSynonyms`); KIP-226, KIP-569.
"""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from itertools import dropwhile

from kctl.configs.broker_config import OWN_SETTINGS, BrokerConfig
from kctl.configs.broker_configs import DYNAMIC_ONLY
from kctl.configs.config_key import ConfigKey, ConfigType
from kctl.configs.link_configs import LINK_CONFIGS
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass


class ConfigSource(IntEnum):
    """The source of a value; the numbers are those of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


# Configs whose value may be given in several units, the finest first.
_BROKER_SYNONYMS = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place where a value may be set; `value` is None for secrets."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config as DescribeConfigs returns it."""

    key: ConfigKey
    value: str | None
    is_read_only: bool
    # The place that sets the value, then those that it overrides.
    synonyms: tuple[Synonym, ...]

    @property
    def source(self) -> ConfigSource:
        """Return the source of the value."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class BrokerConfigView:
    """A broker's configs with the overrides in the store, its own and those of all brokers."""

    static: BrokerConfig
    own: Mapping[str, str]
    default: Mapping[str, str]

    def with_overrides(
        self, overrides: Mapping[str, str], *, is_default: bool
    ) -> "BrokerConfigView":
        """Return the view with other overrides of the broker, or with `is_default` of all."""
        return replace(self, default=overrides) if is_default else replace(self, own=overrides)

    def synonyms(self, name: str) -> Iterator[Synonym]:
        """Yield every place that sets broker config `name`, in order of precedence.

        Where only configs in other units are set, Apache Kafka returns none of them.
        """
        layers = (
            (self.own, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static.given, ConfigSource.STATIC_BROKER_CONFIG),
        )
        base = base_name(name)
        aliases = (name,) if base is None else (name, base)
        keys = [_key(alias) for alias in _BROKER_SYNONYMS.get(name, aliases)]
        found = [
            _synonym(key, values[key.name], source)
            for values, source in layers
            for key in keys
            if key.name in values
        ]
        found += [
            _synonym(key, key.format(key.default), ConfigSource.DEFAULT_CONFIG)
            for key in keys
            if key.default is not None
        ]
        return dropwhile(lambda synonym: synonym.name != name, found)

    def effective(self) -> BrokerConfig:
        """Return the configs with all valid overrides applied; without those of the broker, and
        then without any, if they contradict each other."""
        return self.effective_and_complaint()[0]

    def effective_and_complaint(self) -> tuple[BrokerConfig, str | None]:
        """Return the configs, and the reason why overrides are left out, if some are."""
        complaint = None
        default = valid_overrides(self.default, is_default=True)
        for overrides in ({**default, **valid_overrides(self.own)}, default):
            if not overrides:
                break
            try:
                return BrokerConfig({**self.static.given, **overrides}), complaint
            except UsageError as error:
                complaint = str(error)
        return self.static, complaint


# Configs that one broker may override, but not the defaults of all brokers.
PER_BROKER_CONFIGS = frozenset(
    name
    for name, key in BrokerConfig.KEYS.items()
    if key.is_dynamic
    and name.startswith(("advertised.", "listener", "principal.builder.", "sasl.", "ssl."))
)
# Configs that change at run time only under `listener.name.<listener>.`.
PER_LISTENER_CONFIGS = frozenset(
    name
    for name in PER_BROKER_CONFIGS
    if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)
# The store holds their values encrypted, also under the prefix of a listener.
_PASSWORD_CONFIGS = tuple(
    name
    for name, key in BrokerConfig.KEYS.items()
    if key.is_dynamic and key.type is ConfigType.PASSWORD
)
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(.*)")
_CLUSTER_LISTENER_CONFIGS = ("max.connections", "max.connection.creation.rate")
# Configs of a listener that have a mechanism before their name.
_MECHANISM_CONFIGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def base_name(name: str) -> str | None:
    """Return the broker config that `listener.name.X.NAME` overrides; None for other names."""
    of_listener = _LISTENER_PREFIX.fullmatch(name)
    if of_listener is None:
        return None
    base = of_listener[1]
    return next((it for it in _MECHANISM_CONFIGS if base.endswith(it)), base)


def is_password(name: str) -> bool:
    """Return whether broker config `name` is a password that can be changed at run time."""
    return name.endswith(_PASSWORD_CONFIGS)


def is_per_broker(name: str) -> bool:
    """Return whether broker config `name` cannot be a default of all brokers."""
    of_listener = _LISTENER_PREFIX.fullmatch(name)
    if of_listener:
        return of_listener[1] not in _CLUSTER_LISTENER_CONFIGS
    return name in PER_BROKER_CONFIGS


def valid_overrides(overrides: Mapping[str, str], *, is_default: bool = False) -> dict[str, str]:
    """Return the valid broker overrides.

    The store may hold others, written by hand or by another release: values of the wrong type,
    configs that do not change at run time, and with `is_default` configs of a single broker. A
    broker ignores them.
    """
    return {
        name: text
        for name, text in overrides.items()
        if not (is_default and is_per_broker(name)) and _is_valid(name, text)
    }


def check_type(name: str, text: str) -> None:
    """Raise UsageError unless `text` is a value of broker config `name`, or of the one that it
    overrides for a listener."""
    _key(base_name(name) or name).parse(text)


def _is_valid(name: str, text: str) -> bool:
    key = BrokerConfig.KEYS.get(name)
    if name in PER_LISTENER_CONFIGS:
        return False
    if key is not None and not key.is_dynamic:
        return False
    try:
        check_type(name, text)
    except UsageError:
        return False
    return True


def _key(name: str) -> ConfigKey:
    """Return the key of a broker config; an unknown one may belong to a plugin.

    A listener's config has the type of the broker's, and is listed as read-only, as in Apache
    Kafka, although some can be changed.
    """
    known = BrokerConfig.KEYS.get(name) or DYNAMIC_ONLY.get(name)
    if known is not None:
        return known
    if name in OWN_SETTINGS:
        return ConfigKey(name, ConfigType.STRING, None)
    base = BrokerConfig.KEYS.get(base_name(name) or "")
    if base is not None:
        return replace(base, name=name, default=None, is_dynamic=False)
    return ConfigKey(name, ConfigType.UNKNOWN, None)


def _synonym(key: ConfigKey, text: str | None, source: ConfigSource) -> Synonym:
    return Synonym(key.name, None if key.is_sensitive else text, source)


def topic_entries(
    overrides: Mapping[str, str], broker: BrokerConfigView, names: Container[str] | None
) -> list[ConfigEntry]:
    """Return the configs of a topic; only those in `names` unless it is None."""
    defaults = broker.effective().topic_defaults()
    entries = []
    for name, (key, broker_name) in TOPIC_CONFIGS.items():
        if names is not None and name not in names:
            continue
        synonyms = list(broker.synonyms(broker_name)) if broker_name else []
        value = key.format(defaults[name])
        if name in overrides:
            value = key.format(key.parse(overrides[name]))
            synonyms.insert(0, Synonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        entries.append(ConfigEntry(key, value, is_read_only=False, synonyms=tuple(synonyms)))
    entries.extend(
        link_entry(name, overrides[name], is_read_only=False)
        for name in LINK_CONFIGS
        if name in overrides and (names is None or name in names)
    )
    return entries


def link_entry(name: str, value: str, *, is_read_only: bool) -> ConfigEntry:
    """Return a config that only a topic has that is a copy of another cluster's. What is read-only
    is not in the store, so that clients that replace all overrides leave it out."""
    synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG),)
    key = ConfigKey(name, ConfigType.STRING, None)
    return ConfigEntry(key, value, is_read_only, () if is_read_only else synonyms)


def broker_entries(broker: BrokerConfigView, names: Container[str] | None) -> list[ConfigEntry]:
    """Return the configs of a broker; only those in `names` unless it is None."""
    effective = broker.effective()
    entries = []
    for name in dict.fromkeys((*BrokerConfig.KEYS, *effective.given)):
        if names is None or name in names:
            key = _key(name)
            value = None
            if name in BrokerConfig.KEYS and not key.is_sensitive:
                value = key.format(effective.raw_value(name))
            elif not key.is_sensitive:
                value = effective.given[name]
            entries.append(
                ConfigEntry(key, value, not key.is_dynamic, tuple(broker.synonyms(name)))
            )
    return entries


def default_broker_entries(
    broker: BrokerConfigView, names: Container[str] | None
) -> list[ConfigEntry]:
    """Return the configs that the store overrides for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, text in broker.default.items():
        if names is None or name in names:
            key = _key(name)
            synonym = _synonym(key, text, source)
            entries.append(ConfigEntry(key, synonym.value, not key.is_dynamic, (synonym,)))
    return entries
