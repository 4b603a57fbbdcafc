"""Znodes: what Apache Kafka 2.7.2 wrote is read, and written again byte for byte."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.errors import CorruptDataError
from kctl.model import BrokerInfo, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.protocol.acl import AclPattern, ResourceType
from kctl.store import consumer_znodes, security_znodes, znodes
from kctl.store.map_order import java_properties_order, scala_map_order
from kctl.store.znodes import LeaderIsrAndControllerEpoch, ProducerIdBlock, VersionRange
from kctl.work import at_once

GOLDEN = Path(__file__).parent.parent / "golden" / "znodes"


def golden(name: str) -> list[tuple[str, bytes]]:
    lines = (GOLDEN / name).read_bytes().splitlines()
    return [(path.decode(), data) for path, data in (line.split(b"\t") for line in lines)]


def again_broker(path: str, data: bytes) -> bytes:
    broker_id = int(path.rpartition("/")[2])
    fields = json.loads(data)
    return znodes.encode_broker(
        znodes.decode_broker(broker_id, data),
        timestamp_ms=int(fields["timestamp"]),
        jmx_port=fields["jmx_port"],
        features=znodes.decode_broker_features(broker_id, data),
        version=fields["version"],
    )


def again_topic(path: str, data: bytes) -> bytes:
    topic = path.removeprefix("/brokers/topics/")
    assert znodes.topic_path(topic) == path
    assignment = znodes.decode_topic(topic, data)
    assert list(assignment) == sorted(assignment)
    return znodes.encode_topic(assignment)


def again_state(path: str, data: bytes) -> bytes:
    topic, partition = re.fullmatch(r"/brokers/topics/(.*)/partitions/(\d+)/state", path).groups()
    tp = TopicPartition(topic, int(partition))
    assert znodes.partition_state_path(tp) == path
    return znodes.encode_partition_state(znodes.decode_partition_state(tp, data, 5))


def again_config(path: str, data: bytes) -> bytes:
    config = znodes.decode_config(path.removeprefix("/config/"), data)
    if re.fullmatch(r"/config/topics/c\d+", path):
        # Kafka was given these in the order of their names.
        config = dict(sorted(config.items()))
    return znodes.encode_config(config)


def again_acl_change(path: str, data: bytes) -> bytes:
    pattern = security_znodes.decode_acl_change(data)
    assert path.startswith(security_znodes.acl_change_prefix(pattern))
    return security_znodes.encode_acl_change(pattern)


def sanitize(path: str, data: bytes) -> bytes:
    name = path.removeprefix("sanitize:")
    assert znodes.desanitize(data.decode()) == name
    return znodes.sanitize(name).encode()


def again_token(path: str, data: bytes) -> bytes:
    token = at_once(security_znodes.decoding_delegation_token(path.rpartition("/")[2], data))
    assert security_znodes.delegation_token_path(token.token_id) == path
    return at_once(security_znodes.encoding_delegation_token(token))


AGAIN: list[tuple[str, Callable[[str, bytes], bytes]]] = [
    (r"/brokers/ids/\d+", again_broker),
    (r"/brokers/topics/[^/]+", again_topic),
    (r"/brokers/topics/[^/]+/partitions/\d+/state", again_state),
    (
        r"/controller",
        lambda _path, data: znodes.encode_controller(
            znodes.decode_controller(data), int(json.loads(data)["timestamp"])
        ),
    ),
    (
        r"/controller_epoch",
        lambda _path, data: znodes.encode_controller_epoch(znodes.decode_controller_epoch(data)),
    ),
    (
        r"/config/changes/config_change_\d{10}",
        lambda _path, data: znodes.encode_config_change(znodes.decode_config_change(data)),
    ),
    (r"/config/(topics|brokers|clients|users|ips)/.+", again_config),
    (
        r"/isr_change_notification/isr_change_\d{10}",
        lambda _path, data: znodes.encode_isr_change(znodes.decode_isr_change(data)),
    ),
    (
        r"/log_dir_event_notification/log_dir_event_\d{10}",
        lambda _path, data: znodes.encode_log_dir_event(znodes.decode_log_dir_event(data)),
    ),
    (
        r"/admin/reassign_partitions",
        lambda _path, data: znodes.encode_reassignment(znodes.decode_reassignment(data)),
    ),
    (
        r"/admin/preferred_replica_election",
        lambda _path, data: znodes.encode_preferred_election(
            znodes.decode_preferred_election(data)
        ),
    ),
    (
        r"/cluster/id",
        lambda _path, data: znodes.encode_cluster_id(znodes.decode_cluster_id(data)),
    ),
    (r"/feature", lambda _path, data: znodes.encode_feature(*znodes.decode_feature(data))),
    (
        r"/latest_producer_id_block",
        lambda _path, data: znodes.encode_producer_id_block(znodes.decode_producer_id_block(data)),
    ),
    (
        r"/kafka-acl/[^/]+/[^/]+|/kafka-acl-extended/prefixed/[^/]+/[^/]+",
        lambda path, data: security_znodes.encode_acls(security_znodes.decode_acls(path, data)),
    ),
    (r"/kafka-acl(-extended)?-changes/acl_changes_\d{10}", again_acl_change),
    (r"/delegation_token/tokens/[^/]+", again_token),
    (
        r"/consumers/g/offsets/t/3",
        lambda _path, data: consumer_znodes.encode_consumer_offset(
            consumer_znodes.decode_consumer_offset(data)
        ),
    ),
    (r"sanitize:.*", sanitize),
]


@pytest.mark.parametrize(
    ("path", "data"),
    [pytest.param(*case, id=case[0]) for case in golden("written.tsv") + golden("encoded.tsv")],
)
def test_what_kafka_wrote_is_written_again_byte_for_byte(path, data):
    (again,) = [again for pattern, again in AGAIN if re.fullmatch(pattern, path)]
    assert again(path, data) == data


def test_every_kind_of_znode_has_a_golden_one():
    paths = [path for path, _ in golden("written.tsv") + golden("encoded.tsv")]
    for pattern, _ in AGAIN:
        assert any(re.fullmatch(pattern, path) for path in paths), pattern


def test_broker_of_several_listeners_is_read_whole():
    data = golden("encoded.tsv")[3][1]
    broker = znodes.decode_broker(7, data, epoch=99)
    assert broker == BrokerInfo(
        7,
        (
            Endpoint("h2", 9093, "EXTERNAL", "SASL_SSL"),
            Endpoint("h1", 9092, "PLAINTEXT", "PLAINTEXT"),
        ),
        None,
        99,
    )
    assert znodes.decode_broker_features(7, data) == {"feature_a": VersionRange(1, 3)}


def test_brokers_of_older_kafkas_are_read():
    v1 = b'{"jmx_port":-1,"timestamp":"1","host":"old","version":1,"port":9092}'
    assert znodes.decode_broker(1, v1).endpoints == (Endpoint("old", 9092),)
    v3 = b'{"endpoints":["PLAINTEXT://h:9092","SSL://[::1]:9093"],"rack":"r","version":3}'
    assert znodes.decode_broker(1, v3) == BrokerInfo(
        1, (Endpoint("h", 9092), Endpoint("::1", 9093, "SSL", "SSL")), "r"
    )


def test_topic_of_any_version_is_read_in_order_of_partitions():
    v1 = b'{"version":1,"partitions":{"10":[3],"9":[1,2]}}'
    assert list(znodes.decode_topic("t", v1).items()) == [
        (9, ReplicaAssignment((1, 2))),
        (10, ReplicaAssignment((3,))),
    ]
    v3 = (
        b'{"removing_replicas":{},"partitions":{"0":[1,2]},"topic_id":"x","adding_replicas":'
        b'{"0":[2]},"version":3}'
    )
    assert znodes.decode_topic("t", v3) == {0: ReplicaAssignment((1, 2), (2,))}


def test_partition_state_carries_the_version_of_its_znode():
    data = b'{"controller_epoch":6,"leader":-1,"version":1,"leader_epoch":8,"isr":[3,1]}'
    assert znodes.decode_partition_state(
        TopicPartition("t", 0), data, 12
    ) == LeaderIsrAndControllerEpoch(LeaderAndIsr(-1, 8, (3, 1), 12), 6)


def test_znodes_without_data_are_empty():
    assert znodes.decode_config("users/alice", b"") == {}
    assert security_znodes.decode_acls("/kafka-acl/Topic/t", b"") == []
    assert consumer_znodes.decode_consumer_offset(b"") is None


def test_config_change_of_kafka_0_9_is_read():
    data = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change(data) == "topics/t"


def test_acl_change_of_kafka_1_is_read():
    assert security_znodes.decode_acl_change(b"Topic:a:b") == AclPattern(ResourceType.TOPIC, "a:b")


def test_producer_id_block_is_read():
    data = b'{"version":1,"broker":2,"block_start":"8000","block_end":"8999"}'
    assert znodes.decode_producer_id_block(data) == ProducerIdBlock(2, 8000, 8999)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"17", b"\xff", b"{}", b'{"version":[]}'])
@pytest.mark.parametrize(
    "decode",
    [
        lambda data: znodes.decode_broker(1, data),
        lambda data: znodes.decode_topic("t", data),
        lambda data: znodes.decode_partition_state(TopicPartition("t", 0), data, 0),
        znodes.decode_controller,
        znodes.decode_feature,
        znodes.decode_cluster_id,
        znodes.decode_producer_id_block,
        znodes.decode_isr_change,
        znodes.decode_log_dir_event,
        znodes.decode_reassignment,
        znodes.decode_preferred_election,
        znodes.decode_config_change,
        lambda data: znodes.decode_config("topics/t", data or b"0"),
        lambda data: security_znodes.decode_acls("/kafka-acl/Topic/t", data or b"0"),
        security_znodes.decode_acl_change,
        lambda data: at_once(security_znodes.decoding_delegation_token("id", data)),
    ],
)
def test_nonsense_is_corrupt_data_and_nothing_else(decode, data):
    with pytest.raises(CorruptDataError):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"x", b"{}"])
def test_nonsense_for_a_number_is_corrupt_data(data):
    with pytest.raises(CorruptDataError):
        znodes.decode_controller_epoch(data)


def test_sequence_numbers_are_parsed_from_names():
    path = znodes.sequence_path("/config/changes", "config_change_", 12)
    assert path == "/config/changes/config_change_0000000012"
    assert znodes.sequence_number(path) == 12


def test_orders_of_maps_survive_odd_keys():
    keys = ["", "ü", "日本", "\U0001f600", *map(str, range(100))]
    assert sorted(scala_map_order(keys)) == sorted(java_properties_order(keys)) == sorted(keys)
