"""Every znode of a Kafka 2.7 cluster: its path, and its JSON both ways, byte for byte.

Paths are constants (upper case) and `*_path` functions; data is `encode_*` and `decode_*`. A
decoder takes what any Kafka since 0.8 wrote and raises CorruptDataError for anything else; an
encoder writes what 2.7.2 writes, whose key order comes from Scala's and Java's hash maps.
ACLs and delegation tokens are in `security_znodes`, what old consumers left in `consumer_znodes`.

Kafka 2.7: kafka.zk.ZkData; KIP-455 (adding, removing replicas), KIP-584 (features).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from kctl.errors import CorruptDataError
from kctl.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from kctl.store.map_order import java_properties_order, scala_map_order, scala_number_order
from kctl.work import Work, at_once

NO_DATA = b""
# Decoded states of partitions that are kept for others with the same bytes.
STATES_CACHED_MAX = 1_024
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")

ADMIN = "/admin"
BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
CONSUMERS = "/consumers"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
FEATURE = "/feature"
ISR_CHANGE_NOTIFICATIONS = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
TOPICS = "/brokers/topics"

TOPIC_CONFIGS = "topics"
CLIENT_CONFIGS = "clients"
USER_CONFIGS = "users"
BROKER_CONFIGS = "brokers"
IP_CONFIGS = "ips"
DEFAULT_ENTITY = "<default>"

# Created by every broker as it starts, in this order, parents first as needed. `/config/ips` came
# with 2.7 but is created only once an IP quota is set.
PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATIONS,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
)

# The first epoch is one more; its znode's first version likewise.
INITIAL_CONTROLLER_EPOCH = 0
INITIAL_CONTROLLER_EPOCH_ZK_VERSION = 0
PRODUCER_ID_BLOCK_SIZE = 1000
SEQUENCE_DIGITS = 10
# Partitions of an assignment that are encoded or decoded between two turns of the loop.
PARTITIONS_PER_TURN = 2_000

# The controller epoch before the first controller of a store, whose epoch is 1.
NO_CONTROLLER_EPOCH = 0


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A partition's state znode: the leader, the ISR, and the controller epoch that decided it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


class ProducerIdBlock(NamedTuple):
    """Producer ids `first` to `last` (inclusive), which belong to broker `broker_id`."""

    broker_id: int
    first: int
    last: int


class VersionRange(NamedTuple):
    """Levels of a feature, both inclusive (KIP-584)."""

    min_level: int
    max_level: int


class FeatureStatus(IntEnum):
    """Whether the feature versioning system may be used (IBP 2.7-IV0 and up)."""

    DISABLED = 0
    ENABLED = 1


def to_json(value: object) -> bytes:
    """Encode compact JSON in UTF-8, as Jackson does: characters beyond 16 bits as two escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if not text.isascii():
        text = _BEYOND_16_BITS.sub(lambda match: _escape(match.group()), text)
    return text.encode()


def _escape(character: str) -> str:
    high, low = memoryview(character.encode("utf-16-le")).cast("H")
    return f"\\u{high:04X}\\u{low:04X}"


def from_json(data: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object in znode `path`; raise CorruptDataError."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CorruptDataError(f"znode {path} holds no JSON: {error}") from None
    if not isinstance(value, dict):
        raise CorruptDataError(f"znode {path} holds no JSON object")
    return value


def _corrupt(path: str, error: Exception) -> CorruptDataError:
    return CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}")


# --- brokers


def broker_path(broker_id: int) -> str:
    """Return `/brokers/ids/N`."""
    return f"/brokers/ids/{broker_id}"


def encode_broker(
    broker: BrokerInfo,
    *,
    timestamp_ms: int,
    jmx_port: int = -1,
    features: Mapping[str, VersionRange] | None = None,
    version: int = 5,
) -> bytes:
    """Encode `/brokers/ids/N`: version 5 names features (IBP 2.7-IV0 and up), version 4 does not.

    `host` and `port` are those of the first PLAINTEXT listener, for clients before 0.9; null and -1
    if there is none.
    """
    plaintext = next(
        (e for e in broker.endpoints if e.security_protocol is SecurityProtocol.PLAINTEXT), None
    )
    fields: dict[str, Any] = {}
    if version >= 5:
        fields["features"] = {
            name: {"min_version": r.min_level, "max_version": r.max_level}
            for name, r in (features or {}).items()
        }
    fields["listener_security_protocol_map"] = {
        e.listener_name: e.security_protocol for e in broker.endpoints
    }
    fields["endpoints"] = [_endpoint_text(e) for e in broker.endpoints]
    if broker.rack is not None:
        fields["rack"] = broker.rack
    fields["jmx_port"] = jmx_port
    fields["port"] = plaintext.port if plaintext else -1
    fields["host"] = plaintext.host if plaintext else None
    fields["version"] = version
    fields["timestamp"] = str(timestamp_ms)
    return to_json(fields)


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener_name}://{host}:{endpoint.port}"


def decode_broker(broker_id: int, data: bytes, epoch: int = -1) -> BrokerInfo:
    """Decode `/brokers/ids/N`, versions 1 to 5; `epoch` is the znode's czxid."""
    path = broker_path(broker_id)
    fields = from_json(data, path)
    try:
        if fields["version"] < 1:
            raise CorruptDataError(f"znode {path} has version {fields['version']}")
        if "endpoints" in fields:
            protocols = fields.get("listener_security_protocol_map")
            endpoints = tuple(_parse_endpoint(text, protocols) for text in fields["endpoints"])
        else:
            endpoints = (Endpoint(fields["host"], fields["port"]),)
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, error) from None
    return BrokerInfo(broker_id, endpoints, fields.get("rack"), epoch)


def _parse_endpoint(text: str, protocols: Mapping[str, str] | None) -> Endpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    if host.startswith("["):
        host = host[1:-1]
    protocol = SecurityProtocol(protocols[name] if protocols else name)
    return Endpoint(host, int(port), name, protocol)


def decode_broker_features(broker_id: int, data: bytes) -> dict[str, VersionRange]:
    """Return the features a broker supports; none before version 5."""
    path = broker_path(broker_id)
    try:
        return {
            name: VersionRange(r["min_version"], r["max_version"])
            for name, r in (from_json(data, path).get("features") or {}).items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(path, error) from None


def encode_feature(status: FeatureStatus, features: Mapping[str, VersionRange]) -> bytes:
    """Encode `/feature`: the finalized features of the cluster."""
    levels = {
        name: {"min_version_level": r.min_level, "max_version_level": r.max_level}
        for name, r in features.items()
    }
    return to_json({"features": levels, "version": 1, "status": int(status)})


def decode_feature(data: bytes) -> tuple[FeatureStatus, dict[str, VersionRange]]:
    """Decode `/feature`, any version from 1 up."""
    fields = from_json(data, FEATURE)
    try:
        status = FeatureStatus(fields["status"])
        features = {
            name: VersionRange(r["min_version_level"], r["max_version_level"])
            for name, r in fields["features"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(FEATURE, error) from None
    return status, features


# --- controller


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode `/controller`."""
    return to_json({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes) -> int:
    """Decode `/controller`: return the controller's broker id."""
    try:
        return int(from_json(data, CONTROLLER)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(CONTROLLER, error) from None


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode `/controller_epoch`: a bare number."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    """Decode `/controller_epoch`."""
    try:
        return int(data)
    except ValueError as error:
        raise _corrupt(CONTROLLER_EPOCH, error) from None


# --- topics and partitions


def topic_path(topic: str) -> str:
    """Return `/brokers/topics/T`: the assignment; in Kafka 0.7 its children are the brokers."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return `/brokers/topics/T/partitions`."""
    return f"/brokers/topics/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """Return `/brokers/topics/T/partitions/P`."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """Return `/brokers/topics/T/partitions/P/state`."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"


def encode_topic(assignment: Mapping[int, ReplicaAssignment]) -> bytes:
    """Encode `/brokers/topics/T`, version 2: 2.7 has no topic ids yet (version 3 is 2.8's)."""
    return at_once(topic_encoding(assignment))


def topic_encoding(assignment: Mapping[int, ReplicaAssignment]) -> Work[bytes]:
    """Encode as `encode_topic` does, with a `yield` after every PARTITIONS_PER_TURN."""
    items = list(assignment.items())
    replicas = yield from _by_partition({p: a.replicas for p, a in items})
    adding = yield from _by_partition({p: a.adding for p, a in items if a.adding})
    removing = yield from _by_partition({p: a.removing for p, a in items if a.removing})
    return (
        f'{{"version":2,"partitions":{replicas},"adding_replicas":{adding},'
        f'"removing_replicas":{removing}}}'
    ).encode()


def _by_partition(replicas: Mapping[int, Sequence[int]]) -> Work[str]:
    """Return a JSON object of arrays by partition, in the order in which Kafka writes them."""
    by_name = {str(partition): ids for partition, ids in replicas.items()}
    count = len(by_name)
    is_gapless = count and max(replicas) == count - 1 and min(replicas) == 0
    order = scala_number_order(count) if is_gapless else scala_map_order(by_name)
    texts: list[str] = []
    for number, name in enumerate(order, 1):
        texts.append(f'"{name}":[{",".join(map(str, by_name[name]))}]')
        if number % PARTITIONS_PER_TURN == 0:
            yield
    return f"{{{','.join(texts)}}}"


def decode_topic(topic: str, data: bytes) -> dict[int, ReplicaAssignment]:
    """Decode `/brokers/topics/T`, versions 1 to 3, with partitions in ascending order."""
    return at_once(topic_decoding(topic, data))


def topic_decoding(topic: str, data: bytes) -> Work[dict[int, ReplicaAssignment]]:
    """Decode as `decode_topic` does, with a `yield` after every PARTITIONS_PER_TURN."""
    path = topic_path(topic)
    fields = from_json(data, path)
    assignment: dict[int, ReplicaAssignment] = {}
    # One object for equal ones: a topic of many partitions has few.
    made: dict[ReplicaAssignment, ReplicaAssignment] = {}
    try:
        adding = fields.get("adding_replicas") or {}
        removing = fields.get("removing_replicas") or {}
        replicas = fields["partitions"]
        for number, p in enumerate(sorted(replicas, key=int), 1):
            of_partition = ReplicaAssignment(
                tuple(replicas[p]), tuple(adding.get(p, ())), tuple(removing.get(p, ()))
            )
            assignment[int(p)] = made.setdefault(of_partition, of_partition)
            if number % PARTITIONS_PER_TURN == 0:
                yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(path, error) from None
    return assignment


def encode_partition_state(state: LeaderIsrAndControllerEpoch) -> bytes:
    """Encode `.../state`; its zk_version is the znode's and not in the data."""
    leader_and_isr, controller_epoch = state
    isr = ",".join(map(str, leader_and_isr.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader_and_isr.leader},"version":1,'
        f'"leader_epoch":{leader_and_isr.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_partition_state(
    partition: TopicPartition, data: bytes, zk_version: int
) -> LeaderIsrAndControllerEpoch:
    """Decode `.../state`, adding the znode's version."""
    try:
        return _decode_state(data, zk_version)
    except (KeyError, TypeError, ValueError) as error:
        path = partition_state_path(partition)
        from_json(data, path)
        raise _corrupt(path, error) from None


# The states of most partitions are equal to others': brokers, epochs and versions are few.
@lru_cache(maxsize=STATES_CACHED_MAX)
def _decode_state(data: bytes, zk_version: int) -> LeaderIsrAndControllerEpoch:
    fields = json.loads(data)
    leader_and_isr = LeaderAndIsr(
        int(fields["leader"]), int(fields["leader_epoch"]), tuple(fields["isr"]), zk_version
    )
    return LeaderIsrAndControllerEpoch(leader_and_isr, int(fields["controller_epoch"]))


# --- configs


def config_type_path(entity_type: str) -> str:
    """Return `/config/TYPE`."""
    return f"/config/{entity_type}"


def config_path(entity_type: str, entity_name: str) -> str:
    """Return `/config/TYPE/NAME`; the caller applies `sanitize` to names of users and clients.

    A client of a user is entity type `users` and name `USER/clients/CLIENT`.
    """
    return f"/config/{entity_type}/{entity_name}"


def sanitize(name: str) -> str:
    """Return a user or client id as a znode name. Not for DEFAULT_ENTITY, which stays as it is."""
    return quote(name, safe="-._").replace("~", "%7E")


def desanitize(name: str) -> str:
    """Return the name that `sanitize` was given."""
    return unquote(name)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode `/config/TYPE/NAME`."""
    ordered = {key: config[key] for key in java_properties_order(config)}
    return to_json({"version": 1, "config": ordered})


def decode_config(entity_path: str, data: bytes) -> dict[str, str]:
    """Decode `/config/...`; empty for a znode without data (a user that has only clients)."""
    if not data:
        return {}
    path = f"/config/{entity_path}"
    fields = from_json(data, path)
    config = fields.get("config")
    if fields.get("version") != 1 or not isinstance(config, dict):
        raise CorruptDataError(f"znode {path} is no config of version 1")
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Encode `/config/changes/config_change_N`: names the config to read again (`topics/T`)."""
    return to_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Return the entity path of a change; version 1 of Kafka 0.9 has type and entity
    in two fields."""
    path = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
    fields = from_json(data, path)
    try:
        if fields["version"] == 1:
            return f"{fields['entity_type']}/{fields['entity_name']}"
        return str(fields["entity_path"])
    except KeyError as error:
        raise _corrupt(path, error) from None


# --- sequences


def sequence_number(name: str) -> int:
    """Return the counter at the end of a sequential znode's name or path."""
    return int(name[-SEQUENCE_DIGITS:])


def sequence_path(parent: str, prefix: str, number: int) -> str:
    """Return the path of sequential znode `number`."""
    return f"{parent}/{prefix}{number:010d}"


# --- notifications to the controller


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/isr_change_notification/isr_change_N`."""
    return to_json({"version": 1, "partitions": _partition_list(partitions)})


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    """Return the partitions whose ISR changed."""
    return _partitions_of(data, ISR_CHANGE_NOTIFICATIONS)


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encode `/log_dir_event_notification/log_dir_event_N`: event 1, a log directory failed."""
    return to_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    """Return the broker whose log directory failed."""
    try:
        return int(from_json(data, LOG_DIR_EVENTS)["broker"])
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(LOG_DIR_EVENTS, error) from None


# --- requests to the controller


def delete_topic_path(topic: str) -> str:
    """Return `/admin/delete_topics/T`, which requests the deletion of T."""
    return f"/admin/delete_topics/{topic}"


def encode_reassignment(reassignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Encode `/admin/reassign_partitions`."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in reassignment.items()
    ]
    return to_json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the target replicas of each partition that must move."""
    try:
        return {
            TopicPartition(p["topic"], int(p["partition"])): tuple(map(int, p["replicas"]))
            for p in from_json(data, REASSIGN_PARTITIONS)["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(REASSIGN_PARTITIONS, error) from None


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/admin/preferred_replica_election`."""
    return to_json({"version": 1, "partitions": _partition_list(partitions)})


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    """Return the partitions whose preferred replica must become leader."""
    return _partitions_of(data, PREFERRED_REPLICA_ELECTION)


def _partition_list(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _partitions_of(data: bytes, path: str) -> list[TopicPartition]:
    try:
        return [
            TopicPartition(p["topic"], int(p["partition"]))
            for p in from_json(data, path)["partitions"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, error) from None


# --- the cluster


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode `/cluster/id`, whose version is a string."""
    return to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Decode `/cluster/id`."""
    try:
        return str(from_json(data, CLUSTER_ID)["id"])
    except KeyError as error:
        raise _corrupt(CLUSTER_ID, error) from None


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Encode `/latest_producer_id_block`, whose bounds are strings."""
    return to_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """Decode `/latest_producer_id_block`, once it has data."""
    fields = from_json(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(
            int(fields["broker"]), int(fields["block_start"]), int(fields["block_end"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(PRODUCER_ID_BLOCK, error) from None
