"""Reads the option files of MirrorMaker 1: consumer.properties, producer.properties, and a white
list. Pure.

The consumer's file names the source and the producer's the target. The settings that say how to
reach them have their meaning; every other setting is reported, so that nothing is ignored silently.
A mirror is no consumer group at the source: `group.id` has no effect, and nothing is continued
where MirrorMaker stopped.

Kafka 2.7: kafka.tools.MirrorMaker; KIP-3
"""

from collections.abc import Mapping
from dataclasses import field

from kctl.configs.client_configs import is_client_config, without_effect
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.name_filter import NameFilter
from kctl.store.topic_filter import Whitelist

# What MirrorMaker forces, or what a mirror does anyway: all replicas confirm, nothing is skipped.
_ALWAYS_SO = {
    "acks": ("all", "-1"),
    "enable.auto.commit": ("false",),
    "auto.offset.reset": ("earliest", "smallest"),
    "max.in.flight.requests.per.connection": ("1",),
    "enable.idempotence": ("true",),
    "delivery.timeout.ms": ("2147483647",),
    "max.block.ms": ("9223372036854775807",),
}
_ZOOKEEPER = "zookeeper.connect"
_BROKERS = "bootstrap.servers"
# Of the producers before 0.8.2.
_OLD_BROKERS = "metadata.broker.list"


@dataclass(frozen=True, slots=True)
class MirrorMakerFiles:
    """What the files describe."""

    # Client settings, with bootstrap.servers; they may contain secrets.
    source: Mapping[str, str] = field(repr=False)
    target: Mapping[str, str] = field(repr=False)
    topics: NameFilter
    # Names in the files that have no effect, those of the consumer's file first.
    without_effect: tuple[list[str], list[str]]


def parse_files(
    consumer: Mapping[str, str], producer: Mapping[str, str], whitelist: str
) -> MirrorMakerFiles:
    """Return what both files and the white list, a regular expression of Java, describe; raise
    UsageError if one of them names no cluster."""
    if _ZOOKEEPER in consumer and _BROKERS not in consumer:
        raise UsageError(
            f"The consumer's file names ZooKeeper ({_ZOOKEEPER}), not brokers",
            hint=f"{_BROKERS} = kafka.example.org:9092",
        )
    producer = dict(producer)
    if _BROKERS not in producer and _OLD_BROKERS in producer:
        producer[_BROKERS] = producer.pop(_OLD_BROKERS)
    for role, settings in (("consumer", consumer), ("producer", producer)):
        if not settings.get(_BROKERS, "").strip():
            raise UsageError(f"The {role}'s file does not name brokers: {_BROKERS} is missing")
    return MirrorMakerFiles(
        _client(consumer), _client(producer), NameFilter(Whitelist(whitelist)),
        (_idle(consumer), _idle(producer)),
    )  # fmt: skip


def _client(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if _has_effect(name)}


def _idle(settings: Mapping[str, str]) -> list[str]:
    return [
        name
        for name, value in settings.items()
        if not _has_effect(name) and value.strip().lower() not in _ALWAYS_SO.get(name, ())
    ]


def _has_effect(name: str) -> bool:
    return name == _BROKERS or (is_client_config(name) and without_effect(name) is None)
