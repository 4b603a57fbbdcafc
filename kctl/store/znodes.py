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
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from kctl.errors import CorruptDataError
from kctl.model import BrokerInfo, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.store.map_order import java_properties_order, scala_map_order

NO_DATA = b""
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

# Made by every broker as it starts, in this order, parents first as needed. `/config/ips` came
# with 2.7 but is made only once an IP quota is set.
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


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A partition's state znode: who leads, who is in sync, and which controller said so."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


class ProducerIdBlock(NamedTuple):
    """Producer ids `first` to `last` (inclusive) belong to broker `broker_id`."""

    broker_id: int
    first: int
    last: int


class VersionRange(NamedTuple):
    """Levels of a feature, both inclusive (KIP-584)."""

    min_level: int
    max_level: int


class FeatureStatus(IntEnum):
    """Whether the feature versioning system may be used at all (IBP 2.7-IV0 and up)."""

    DISABLED = 0
    ENABLED = 1


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8, as Jackson writes it: characters beyond 16 bits escaped as two."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if not text.isascii():
        text = _BEYOND_16_BITS.sub(lambda match: _escape(match.group()), text)
    return text.encode()


def _escape(character: str) -> str:
    high, low = memoryview(character.encode("utf-16-le")).cast("H")
    return f"\\u{high:04X}\\u{low:04X}"


def from_json(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in znode `path`."""
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
    """`/brokers/ids/N`."""
    return f"/brokers/ids/{broker_id}"


def encode_broker(
    broker: BrokerInfo,
    *,
    timestamp_ms: int,
    jmx_port: int = -1,
    features: Mapping[str, VersionRange] | None = None,
    version: int = 5,
) -> bytes:
    """`/brokers/ids/N`: version 5 names features (IBP 2.7-IV0 and up), version 4 does not.

    `host` and `port` are those of the first PLAINTEXT listener, for clients before 0.9; null and
    -1 if there is none.
    """
    plaintext = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
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
    """Versions 1 to 5; `epoch` is the znode's czxid."""
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
    return Endpoint(host, int(port), name, protocols[name] if protocols else name)


def decode_broker_features(broker_id: int, data: bytes) -> dict[str, VersionRange]:
    """The features a broker supports; none before version 5."""
    path = broker_path(broker_id)
    try:
        return {
            name: VersionRange(r["min_version"], r["max_version"])
            for name, r in (from_json(data, path).get("features") or {}).items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(path, error) from None


def encode_feature(status: FeatureStatus, features: Mapping[str, VersionRange]) -> bytes:
    """`/feature`: the finalized features of the cluster."""
    levels = {
        name: {"min_version_level": r.min_level, "max_version_level": r.max_level}
        for name, r in features.items()
    }
    return to_json({"features": levels, "version": 1, "status": int(status)})


def decode_feature(data: bytes) -> tuple[FeatureStatus, dict[str, VersionRange]]:
    """`/feature`; any version from 1 up."""
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
    """`/controller`."""
    return to_json({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes) -> int:
    """`/controller`: the controller's broker id."""
    try:
        return int(from_json(data, CONTROLLER)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(CONTROLLER, error) from None


def encode_controller_epoch(epoch: int) -> bytes:
    """`/controller_epoch`: a bare number."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    """`/controller_epoch`."""
    try:
        return int(data)
    except ValueError as error:
        raise _corrupt(CONTROLLER_EPOCH, error) from None


# --- topics and partitions


def topic_path(topic: str) -> str:
    """`/brokers/topics/T`: the assignment."""
    return f"/brokers/topics/{topic}"


def partitions_path(topic: str) -> str:
    """`/brokers/topics/T/partitions`."""
    return f"/brokers/topics/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """`/brokers/topics/T/partitions/P`."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """`/brokers/topics/T/partitions/P/state`."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"


def encode_topic(assignment: Mapping[int, ReplicaAssignment]) -> bytes:
    """`/brokers/topics/T`, version 2: 2.7 knows no topic ids yet (version 3 is 2.8's)."""
    return to_json(
        {
            "version": 2,
            "partitions": _by_partition({p: a.replicas for p, a in assignment.items()}),
            "adding_replicas": _by_partition(
                {p: a.adding for p, a in assignment.items() if a.adding}
            ),
            "removing_replicas": _by_partition(
                {p: a.removing for p, a in assignment.items() if a.removing}
            ),
        }
    )


def _by_partition(replicas: Mapping[int, Sequence[int]]) -> dict[str, Sequence[int]]:
    by_name = {str(partition): ids for partition, ids in replicas.items()}
    return {name: by_name[name] for name in scala_map_order(by_name)}


def decode_topic(topic: str, data: bytes) -> dict[int, ReplicaAssignment]:
    """`/brokers/topics/T`, versions 1 to 3; partitions ascend."""
    path = topic_path(topic)
    fields = from_json(data, path)
    try:
        adding = fields.get("adding_replicas") or {}
        removing = fields.get("removing_replicas") or {}
        return {
            int(p): ReplicaAssignment(
                tuple(replicas), tuple(adding.get(p, ())), tuple(removing.get(p, ()))
            )
            for p, replicas in sorted(fields["partitions"].items(), key=lambda item: int(item[0]))
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(path, error) from None


def encode_partition_state(state: LeaderIsrAndControllerEpoch) -> bytes:
    """`.../state`; its zk_version is the znode's and not in the data."""
    leader_and_isr, controller_epoch = state
    isr = ",".join(map(str, leader_and_isr.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader_and_isr.leader},"version":1,'
        f'"leader_epoch":{leader_and_isr.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_partition_state(
    partition: TopicPartition, data: bytes, zk_version: int
) -> LeaderIsrAndControllerEpoch:
    """`.../state` with the znode's version."""
    path = partition_state_path(partition)
    fields = from_json(data, path)
    try:
        leader_and_isr = LeaderAndIsr(
            int(fields["leader"]), int(fields["leader_epoch"]), tuple(fields["isr"]), zk_version
        )
        return LeaderIsrAndControllerEpoch(leader_and_isr, int(fields["controller_epoch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, error) from None


# --- configs


def config_type_path(entity_type: str) -> str:
    """`/config/topics` and so on."""
    return f"/config/{entity_type}"


def config_path(entity_type: str, entity_name: str) -> str:
    """`/config/TYPE/NAME`; users' and clients' names have to be `sanitize`d before.

    A client of a user is entity type `users` and name `USER/clients/CLIENT`.
    """
    return f"/config/{entity_type}/{entity_name}"


def sanitize(name: str) -> str:
    """A user or client id as a znode name. Not for DEFAULT_ENTITY, which stays as it is."""
    return quote(name, safe="-._").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The name that `sanitize` was given."""
    return unquote(name)


def encode_config(config: Mapping[str, str]) -> bytes:
    """`/config/TYPE/NAME`."""
    ordered = {key: config[key] for key in java_properties_order(config)}
    return to_json({"version": 1, "config": ordered})


def decode_config(entity_path: str, data: bytes) -> dict[str, str]:
    """`/config/...`: empty for a znode without data (a user that has only clients)."""
    if not data:
        return {}
    path = f"/config/{entity_path}"
    fields = from_json(data, path)
    config = fields.get("config")
    if fields.get("version") != 1 or not isinstance(config, dict):
        raise CorruptDataError(f"znode {path} is no config of version 1")
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """`/config/changes/config_change_N`: tells which config to read again (`topics/T`)."""
    return to_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """The entity path of a change; version 1 of Kafka 0.9 named type and entity apart."""
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
    """The counter at the end of a sequential znode's name or path."""
    return int(name[-SEQUENCE_DIGITS:])


def sequence_path(parent: str, prefix: str, number: int) -> str:
    """The path of sequential znode `number`."""
    return f"{parent}/{prefix}{number:010d}"


# --- notifications to the controller


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """`/isr_change_notification/isr_change_N`."""
    return to_json({"version": 1, "partitions": _partition_list(partitions)})


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    """Partitions whose ISR changed."""
    return _partitions_of(data, ISR_CHANGE_NOTIFICATIONS)


def encode_log_dir_event(broker_id: int) -> bytes:
    """`/log_dir_event_notification/log_dir_event_N`: event 1, a log directory failed."""
    return to_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    """The broker whose log directory failed."""
    try:
        return int(from_json(data, LOG_DIR_EVENTS)["broker"])
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(LOG_DIR_EVENTS, error) from None


# --- requests to the controller


def delete_topic_path(topic: str) -> str:
    """`/admin/delete_topics/T`: T is to be deleted."""
    return f"/admin/delete_topics/{topic}"


def encode_reassignment(reassignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """`/admin/reassign_partitions`."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in reassignment.items()
    ]
    return to_json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The target replicas of each partition that is to move."""
    try:
        return {
            TopicPartition(p["topic"], int(p["partition"])): tuple(map(int, p["replicas"]))
            for p in from_json(data, REASSIGN_PARTITIONS)["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(REASSIGN_PARTITIONS, error) from None


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """`/admin/preferred_replica_election`."""
    return to_json({"version": 1, "partitions": _partition_list(partitions)})


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    """Partitions that shall be led by their preferred replica."""
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
    """`/cluster/id`, whose version is a string."""
    return to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """`/cluster/id`."""
    try:
        return str(from_json(data, CLUSTER_ID)["id"])
    except KeyError as error:
        raise _corrupt(CLUSTER_ID, error) from None


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """`/latest_producer_id_block`, whose bounds are strings."""
    return to_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """`/latest_producer_id_block`, once it has data."""
    fields = from_json(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(
            int(fields["broker"]), int(fields["block_start"]), int(fields["block_end"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(PRODUCER_ID_BLOCK, error) from None
