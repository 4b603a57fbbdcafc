"""What DescribeConfigs shows of a topic or broker: each setting, where its value comes from, and
what it would fall back to. Pure.

Kafka 2.7: kafka.server.AdminManager (`describeConfigs`, `configSynonyms`); KIP-226, KIP-569.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile

from kctl.broker.config import BrokerConfig
from kctl.broker.config_key import ConfigKey, ConfigType
from kctl.broker.topic_configs import TOPIC_CONFIGS


class ConfigSource(IntEnum):
    """Where a value was set; the numbers are DescribeConfigs'."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


# Settings whose value may be given in several units, the finest first.
_BROKER_SYNONYMS = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place where a value could come from; `value` is None for secrets."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as DescribeConfigs answers it."""

    key: ConfigKey
    value: str | None
    is_read_only: bool
    # Where the value comes from is the first of them; then what it overrides.
    synonyms: tuple[Synonym, ...]

    @property
    def source(self) -> ConfigSource:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class BrokerConfigView:
    """A broker's settings with the overrides that the store holds for it and for all brokers."""

    static: BrokerConfig
    own: Mapping[str, str]
    default: Mapping[str, str]

    def synonyms(self, name: str) -> Iterator[Synonym]:
        """Every place that gives broker setting `name` a value, the one that counts first. Where
        only settings in other units have values, Apache Kafka names none of them."""
        layers = (
            (self.own, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static.given, ConfigSource.STATIC_BROKER_CONFIG),
        )
        keys = [_key(alias) for alias in _BROKER_SYNONYMS.get(name, (name,))]
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
        """The settings as they are with all overrides."""
        if not self.own and not self.default:
            return self.static
        return BrokerConfig({**self.static.given, **self.default, **self.own})


def _key(name: str) -> ConfigKey:
    """A broker setting; one that Kafka does not know may be a plugin's."""
    return BrokerConfig.KEYS.get(name) or ConfigKey(name, ConfigType.UNKNOWN, None)


def _synonym(key: ConfigKey, text: str | None, source: ConfigSource) -> Synonym:
    return Synonym(key.name, None if key.is_sensitive else text, source)


def topic_entries(
    overrides: Mapping[str, str], broker: BrokerConfigView, names: Sequence[str] | None
) -> list[ConfigEntry]:
    """The settings of a topic; only those in `names` unless it is None."""
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
    return entries


def broker_entries(broker: BrokerConfigView, names: Sequence[str] | None) -> list[ConfigEntry]:
    """The settings of a broker; only those in `names` unless it is None."""
    effective = broker.effective()
    entries = []
    for name in dict.fromkeys((*BrokerConfig.KEYS, *effective.given)):
        if names is None or name in names:
            key = _key(name)
            value = None if key.is_sensitive else key.format(effective.raw_value(name))
            entries.append(
                ConfigEntry(key, value, not key.is_dynamic, tuple(broker.synonyms(name)))
            )
    return entries


def default_broker_entries(
    broker: BrokerConfigView, names: Sequence[str] | None
) -> list[ConfigEntry]:
    """What the store overrides for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, text in broker.default.items():
        if names is None or name in names:
            key = _key(name)
            synonym = _synonym(key, text, source)
            entries.append(ConfigEntry(key, synonym.value, not key.is_dynamic, (synonym,)))
    return entries
