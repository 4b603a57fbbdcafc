"""Znodes of Kafka 0.7's brokers: who is there, and how many partitions each has of a topic.

    /brokers/ids/B        ephemeral   CREATOR:HOST:PORT
    /brokers/topics/T/B   ephemeral   the number of partitions of T on broker B

CREATOR is `HOST-MILLIS` of the registration. A reader also takes `HOST:PORT`, as the design paper
of 0.7 has it, and Jafka's fourth field; Jafka writes the colons of an IPv6 address as `#`. Pure.

Kafka 0.7: kafka.cluster.Broker, kafka.server.KafkaZooKeeper, kafka.utils.ZkUtils
"""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.store.consumer_znodes import BrokerPartition
from kctl.store.znodes import broker_path, topic_path

_PORT_MAX = 65_535


class BrokerInfo07(NamedTuple):
    """A registered broker."""

    broker_id: int
    host: str
    port: int
    # `HOST-MILLIS`; empty if the znode names none.
    creator: str = ""


def encode_broker(host: str, port: int, timestamp_ms: int) -> bytes:
    """Encode `/brokers/ids/B` of a broker that registers at `timestamp_ms`."""
    host = host.replace(":", "#")
    return f"{host}-{timestamp_ms}:{host}:{port}".encode()


def decode_broker(broker_id: int, data: bytes) -> BrokerInfo07:
    """Decode `/brokers/ids/B`; CorruptDataError for anything but Kafka 0.7's and Jafka's data."""
    fields = data.decode("utf-8", "replace").split(":")
    creator = fields.pop(0) if len(fields) > 2 else ""
    host, port = fields[0].replace("#", ":"), fields[1] if len(fields) > 1 else ""
    if not host or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise CorruptDataError(
            f"znode {broker_path(broker_id)} is not CREATOR:HOST:PORT: {data[:80]!r}"
        )
    return BrokerInfo07(broker_id, host, int(port), creator.replace("#", ":"))


def is_broker07(data: bytes) -> bool:
    """Return whether the data of `/brokers/ids/B` are a broker's of Kafka 0.7, not JSON."""
    return not data.lstrip().startswith(b"{")


def broker_ids(names: Iterable[str]) -> list[int]:
    """Return the ids of brokers among the names of znodes, sorted; later clusters have others."""
    return sorted(int(it) for it in names if it.isascii() and it.isdecimal())


def topic_broker_path(topic: str, broker_id: int) -> str:
    """Return `/brokers/topics/T/B`: broker B has partitions of T."""
    return f"{topic_path(topic)}/{broker_id}"


def read_partitions(
    places: Iterable[tuple[str, int]], answers: Iterable[tuple[bytes, object] | None]
) -> dict[str, list[BrokerPartition]]:
    """Return the partitions of topics, given what was read of `topic_broker_path(*place)` for each
    place, a topic and a broker; CorruptDataError."""
    partitions: dict[str, list[BrokerPartition]] = {}
    for (topic, broker_id), answer in zip(places, answers, strict=True):
        if answer is not None:
            count = decode_partition_count(topic_broker_path(topic, broker_id), answer[0])
            found = [BrokerPartition(broker_id, number) for number in range(count)]
            partitions.setdefault(topic, []).extend(found)
    return partitions


def encode_partition_count(count: int) -> bytes:
    """Encode `/brokers/topics/T/B`."""
    return b"%d" % count


def decode_partition_count(path: str, data: bytes) -> int:
    """Decode `/brokers/topics/T/B`, which is at `path`; CorruptDataError."""
    if not data.isdigit():
        raise CorruptDataError(f"znode {path} is no number of partitions: {data[:40]!r}")
    return int(data)
