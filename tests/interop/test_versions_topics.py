"""ApiVersions, Metadata, CreateTopics, CreatePartitions and DeleteTopics in every version, on kctl
and on Apache Kafka 2.7.2."""

import socket
import uuid

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
)
from tests.support.broker_client import assert_same, plain
from tests.support.twin_requests import HIGHEST, wait_for_topic


def comparable_metadata(answer):
    """Without what belongs to the one cluster; in no order where Java's maps have none."""
    answer["cluster_id"] = answer["cluster_id"] and "CLUSTER"
    for broker in answer["brokers"]:
        broker["port"] = 0
    answer["topics"].sort(key=lambda topic: topic["name"])
    answer["topics"] = [t for t in answer["topics"] if not t["name"].startswith("__")]
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


@pytest.mark.parametrize("version", HIGHEST[ApiKey.METADATA])
def test_metadata(twins, new_topic, version):
    names = [new_topic(3), new_topic()]

    def ask(names, but=comparable_metadata, **fields):
        topics = None
        if names is not None:
            topics = [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.MetadataRequest(topics=topics, **fields)
        return twins.ask(request, version, but=but)["topics"]

    def without_topics_of_other_tests(answer):
        answer["topics"] = [topic for topic in answer["topics"] if topic["name"] in names]
        return comparable_metadata(answer)

    everything = ask(None if version else [], but=without_topics_of_other_tests)
    assert {topic["name"] for topic in everything} == set(names)
    assert [len(topic["partitions"]) for topic in sorted(ask(names), key=lambda t: -len(t))]
    if version:
        assert ask([]) == []
    ask([*names, "bad name", "." * 3, "n" * 250, "", ".", names[0]])
    if version >= 4:
        (unknown,) = ask(["no-such-topic"], allow_auto_topic_creation=False)
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 8:
        ask(names, include_topic_authorized_operations=True)
        ask(names, include_cluster_authorized_operations=True)
    made = f"auto-{uuid.uuid4().hex[:8]}"
    try:
        (unknown,) = ask([made])
        assert unknown["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
        wait_for_topic(twins, made)
        assert [len(topic["partitions"]) for topic in ask([made])] == [1]
    finally:
        twins.ask(delete_topics.DeleteTopicsRequest(topic_names=[made], timeout_ms=20_000), 3)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.API_VERSIONS])
def test_api_versions_names_what_is_served_as_apache_kafka_does(twins, version):
    for software in (("kctl", "1"), ("", ""), ("a b", "1"), ("-a", "1"), ("a", "1.")):
        request = api_versions.ApiVersionsRequest()
        if version >= 3:
            request.client_software_name, request.client_software_version = software
        ours, theirs = twins.both(request, version)
        tables = [{key.pop("api_key"): key for key in it.pop("api_keys")} for it in (ours, theirs)]
        assert_same(ours, theirs)
        mine, other = tables
        assert {key: other[key] for key in mine} == mine


def test_api_versions_of_the_future_are_answered_in_version_0(twins):
    answers = []
    for address in twins.addresses:
        frame = bytes.fromhex("00120063 00000007 ffff 00")
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            stream = connection.makefile("rb")
            answers.append(stream.read(int.from_bytes(stream.read(4), "big")))
    for answer in answers:
        assert answer[:6] == bytes.fromhex("00000007 0023")
    found = [decode(api_versions.ApiVersionsResponse, 0, answer, 4) for answer in answers]
    assert plain(found[0]) == plain(found[1])


def comparable_creation(answer):
    for topic in answer["topics"]:
        if topic["configs"]:
            topic["configs"].sort(key=lambda config: config["name"])
    answer["topics"].sort(key=lambda topic: topic["name"])
    return answer


def creations(names):
    """Return topics to create, the first three of them valid; `names` has eleven."""
    new, config, assign = (
        create_topics.CreatableTopic, create_topics.CreateableTopicConfig,
        create_topics.CreatableReplicaAssignment,
    )  # fmt: skip
    return [
        new(name=names[0], num_partitions=2, replication_factor=1),
        new(
            name=names[1], num_partitions=1, replication_factor=1,
            configs=[config(name="retention.ms", value="5"), config(name="segment.ms", value="6")],
        ),
        new(
            name=names[2], num_partitions=-1, replication_factor=-1,
            assignments=[assign(partition_index=n, broker_ids=[0]) for n in (1, 0)],
        ),
        new(name=names[3], num_partitions=-1, replication_factor=-1),
        new(name=names[4], num_partitions=0, replication_factor=1),
        new(name=names[5], num_partitions=1, replication_factor=2),
        new(name=names[6], num_partitions=1, replication_factor=0),
        new(name="bad name", num_partitions=1, replication_factor=1),
        new(name="", num_partitions=1, replication_factor=1),
        new(name=".", num_partitions=1, replication_factor=1),
        new(name="n" * 250, num_partitions=1, replication_factor=1),
        new(
            name=names[7], num_partitions=1, replication_factor=1,
            configs=[config(name="no.such", value="5")],
        ),
        new(
            name=names[8], num_partitions=1, replication_factor=1,
            configs=[config(name="retention.ms", value="x")],
        ),
        new(
            name=names[9], num_partitions=1, replication_factor=1,
            configs=[config(name="retention.ms", value=None)],
        ),
        new(
            name=names[10], num_partitions=2, replication_factor=1,
            assignments=[assign(partition_index=0, broker_ids=[0])],
        ),
    ]  # fmt: skip


def comparable_deletion(answer):
    answer["responses"].sort(key=lambda response: response["name"])
    return answer


def delete(twins, names, version=None):
    request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=20_000)
    twins.ask(request, version, but=comparable_deletion)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.CREATE_TOPICS])
def test_create_topics(twins, version):
    names = [f"c{n}-{uuid.uuid4().hex[:8]}" for n in range(11)]
    request = create_topics.CreateTopicsRequest(topics=creations(names), timeout_ms=20_000)
    if version >= 1:
        request.validate_only = True
        twins.ask(request, version, but=comparable_creation)
        request.validate_only = False
    for outcome in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        answer = twins.ask(request, version, but=comparable_creation)
        codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
        assert [codes[name] for name in names[:3]] == [outcome] * 3
    twice = create_topics.CreateTopicsRequest(topics=request.topics[:1] * 2, timeout_ms=20_000)
    twins.ask(twice, version, but=comparable_creation)
    delete(twins, names)


def test_a_topic_without_leaders_is_not_waited_for_longer_than_asked(twins):
    name = f"c-{uuid.uuid4().hex[:8]}"
    away = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[5])
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[away]
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=100)
    codes = [twins.ask(request, 6)["topics"][0]["error_code"] for _ in range(2)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS]
    delete(twins, [name])


@pytest.mark.parametrize("version", HIGHEST[ApiKey.CREATE_PARTITIONS])
def test_create_partitions(twins, new_topic, version):
    for name, count in ((new_topic(2), 3 + version), (new_topic(2), 1), ("no-such-topic", 3)):
        topic = create_partitions.CreatePartitionsTopic(name=name, count=count)
        for assignments in (None, [[0]], [[7]], [[0, 0]]):
            topic.assignments = assignments and [
                create_partitions.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments
            ]
            request = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=20_000)
            twins.ask(request, version)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.DELETE_TOPICS])
def test_delete_topics(twins, new_topic, version):
    name = new_topic()
    for names in ([name, "no-such-topic"], [name], [""], []):
        delete(twins, names, version)
