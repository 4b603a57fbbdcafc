"""CreateTopics, CreatePartitions, DeleteTopics and Metadata: responses equal to those of Apache
Kafka 2.7.2 to the same requests in the same order (one broker, num.partitions=2)."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kctl.broker import topic_creation
from kctl.broker.auto_topic_creation import AutoTopicCreator
from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.handlers.metadata import handle_metadata
from kctl.broker.handlers.topics import (
    handle_create_partitions,
    handle_create_topics,
    handle_delete_topics,
)
from kctl.broker.request import Request, RequestContext
from kctl.broker.topic_creation import TopicCreator
from kctl.broker.topic_waits import TopicWaits
from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import create_partitions, create_topics, delete_topics, metadata
from tests.support.controller_cluster import running_cluster

GOLDEN = Path(__file__).parents[2] / "golden" / "topic_requests" / "answers.jsonl"
SETTINGS = {
    "num_partitions": 2,
    "offsets_topic_num_partitions": 4,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_num_partitions": 3,
}
HANDLERS = {
    "create_topics": (handle_create_topics, create_topics, "CreateTopics"),
    "create_partitions": (handle_create_partitions, create_partitions, "CreatePartitions"),
    "delete_topics": (handle_delete_topics, delete_topics, "DeleteTopics"),
    "metadata": (handle_metadata, metadata, "Metadata"),
}
ELEMENTS = {
    ("create_topics", "topics"): create_topics.CreatableTopic,
    ("create_topics", "assignments"): create_topics.CreatableReplicaAssignment,
    ("create_topics", "configs"): create_topics.CreateableTopicConfig,
    ("create_partitions", "topics"): create_partitions.CreatePartitionsTopic,
    ("create_partitions", "assignments"): create_partitions.CreatePartitionsAssignment,
    ("metadata", "topics"): metadata.MetadataRequestTopic,
}


class TopicServer:
    """The topic handlers of one broker of a cluster."""

    def __init__(self, cluster, broker_id):
        broker = cluster.brokers[broker_id]
        self.cluster = cluster
        config = broker.controller._config
        creator = TopicCreator(broker.store, broker.cache, config, cluster.runtime)
        self.services = SimpleNamespace(
            runtime=cluster.runtime,
            config=config,
            broker_id=broker_id,
            cluster_id="CLUSTER",
            metadata_cache=broker.cache,
            cluster_store=broker.store,
            controller=broker.controller,
            topic_creator=creator,
            topic_waits=TopicWaits(cluster.runtime, broker.cache),
            auto_topics=AutoTopicCreator(cluster.runtime, creator, broker.cache, config),
            dynamic_configs=SimpleNamespace(overrides=lambda *_: {}),
            client_quotas=ClientQuotas(),
        )

    def ask(self, api, version, **fields):
        """Return the response to a request, both encoded and decoded."""
        response = self.cluster.run(self.send(api, version, **fields))
        wire = b"".join(bytes(part) for part in encode(response, version))
        return decode(type(response), version, memoryview(wire))

    def send(self, api, version, **fields):
        """Send a request; its response completes the Future."""
        handler, module, name = HANDLERS[api]
        body = build(api, getattr(module, name + "Request"), fields)
        wire = b"".join(bytes(part) for part in encode(body, version))
        answered = self.cluster.runtime.scheduler.future()
        request = Request(
            api_key=0,
            api_version=version,
            correlation_id=1,
            client_id="test",
            body=decode(type(body), version, memoryview(wire)),
            context=RequestContext("1", "localhost", "PLAINTEXT"),
            received_ms=0,
            send=answered.set_result,
            close=lambda: None,
        )
        handler(self.services, request)
        return answered


def build(api, cls, fields):
    return cls(
        **{
            name: [build(api, ELEMENTS[api, name], item) for item in value]
            if isinstance(value, list) and value and isinstance(value[0], dict)
            else value
            for name, value in fields.items()
        }
    )


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    if type(value).__module__.startswith("kctl.protocol.messages"):
        return {
            name: plain(getattr(value, name))
            for name in value.__slots__
            if not name.startswith("_") and name != "unknown_tags"
        }
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def comparable(api, answer, *, all_configs):
    """Remove details that depend on the machine or on Java's hash maps."""
    if api == "create_topics":
        for topic in answer["topics"]:
            topic["configs"] = sorted(topic["configs"] or [], key=lambda config: config["name"])
            if not all_configs:
                topic["configs"] = [c for c in topic["configs"] if c["config_source"] != 5]
    if api == "metadata":
        for broker in answer["brokers"]:
            broker["host"], broker["port"] = "127.0.0.1", 0
        answer["topics"].sort(key=lambda topic: topic["name"])
    return answer


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        yield cluster


# A test's story would be 98 stories; each step of the recording is one line of the file.
def test_topic_requests_are_answered_as_apache_kafka_answers_them(cluster):
    cluster.start(0, **SETTINGS)
    server = TopicServer(cluster, 0)
    different = []
    for line in GOLDEN.read_text().splitlines():
        step = json.loads(line)
        api, asked = step["api"], step["request"]
        got = plain(server.ask(api, step["version"], **asked))
        all_configs = api == "create_topics" and asked["topics"][0]["name"] in ("v1", "plain")
        got = comparable(api, got, all_configs=all_configs)
        want = comparable(api, step["answer"], all_configs=all_configs)
        if got != want:
            different.append(f"asked {asked}\n got {got}\nwant {want}")
        cluster.settle()
    assert not different, "\n".join(different)


def test_only_the_controller_creates_and_deletes_topics(cluster):
    cluster.start(0, 1)
    server = TopicServer(cluster, 1)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    answer = server.ask("create_topics", 6, topics=[topic], timeout_ms=1000)
    assert [t.error_code for t in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    answer = server.ask("delete_topics", 5, topic_names=["t"], timeout_ms=1000)
    assert [t.error_code for t in answer.responses] == [ErrorCode.NOT_CONTROLLER]
    answer = server.ask("create_partitions", 3, topics=[{"name": "t", "count": 2}], timeout_ms=9)
    assert [t.error_code for t in answer.results] == [ErrorCode.NOT_CONTROLLER]


def test_the_error_of_a_forbidden_deletion_depends_on_the_version(cluster):
    cluster.start(0, delete_topic_enable="false")
    cluster.create_topic("t", [0])
    server = TopicServer(cluster, 0)
    codes = [
        server.ask("delete_topics", version, topic_names=["t"], timeout_ms=9).responses[0]
        for version in (2, 3)
    ]
    assert [c.error_code for c in codes] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TOPIC_DELETION_DISABLED,
    ]


def test_partitions_of_a_topic_being_deleted_are_refused(cluster):
    cluster.start(0, 1)
    cluster.create_topic("t", [0, 1])
    cluster.brokers[1].kill()
    cluster.settle()
    cluster.delete_topic("t")
    answer = TopicServer(cluster, 0).ask(
        "create_partitions", 3, topics=[{"name": "t", "count": 2}], timeout_ms=9
    )
    assert answer.results[0].error_message == "The topic is queued for deletion."


@pytest.mark.parametrize("replicas", [[], [-1]])
def test_an_assignment_that_can_never_have_a_leader_is_rejected(cluster, replicas):
    cluster.start(0)
    topic = {
        "name": "t",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": replicas}],
    }
    answer = TopicServer(cluster, 0).ask("create_topics", 6, topics=[topic], timeout_ms=9)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not cluster.exists("/brokers/topics/t")


def test_internal_topics_wait_for_enough_brokers(cluster):
    cluster.start(0)
    answer = TopicServer(cluster, 0).ask("metadata", 9, topics=[{"name": "__consumer_offsets"}])
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert answer.topics[0].is_internal


def test_two_requests_for_the_same_unknown_topic_create_one_topic(cluster):
    cluster.start(0, num_partitions=3)
    server = TopicServer(cluster, 0)
    answers = [server.send("metadata", 9, topics=[{"name": "t"}]) for _ in range(2)]
    for answer in map(cluster.run, answers):
        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    cluster.settle()
    answer = server.ask("metadata", 9, topics=[{"name": "t"}])
    assert [p.leader_id for p in answer.topics[0].partitions] == [0, 0, 0]


def test_a_dead_leader_is_not_available(cluster):
    cluster.start(0, 1)
    cluster.create_topic("t", [1])
    cluster.brokers[1].kill()
    cluster.settle()
    answer = TopicServer(cluster, 0).ask("metadata", 9, topics=[{"name": "t"}])
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.replica_nodes) == (-1, [1])
    assert partition.offline_replicas == [1]


def test_a_leader_without_the_clients_listener_is_not_found_by_new_clients(cluster):
    cluster.start(0)
    cluster.create_topic("t", [0])
    server = TopicServer(cluster, 0)
    server.services.metadata_cache.snapshot.endpoints[0].clear()
    errors = [
        server.ask("metadata", version, topics=[{"name": "t"}]).topics[0].partitions[0].error_code
        for version in (5, 6)
    ]
    assert errors == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND]


def recreation():
    return [
        {
            "name": "t",
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": "77"}],
        }
    ]


@pytest.fixture
def late_deletion(cluster, monkeypatch):
    """The controller's deletion of topic t at the step before its configs, where it stays until the
    creation of another t finds it under way."""
    monkeypatch.setattr(topic_creation, "DELETION_LOOKS_MAX", 3_000)
    store = cluster.start(0).store
    future = cluster.runtime.scheduler.future
    deletion = SimpleNamespace(reached=future(), released=future(), was_found=False)
    delete_configs, is_marked = store.delete_topic_configs, store.is_marked_for_deletion

    async def delete_configs_late(*arguments):
        deletion.reached.set_result(None)
        await deletion.released
        await delete_configs(*arguments)

    async def is_marked_for_deletion(topic):
        found = await is_marked(topic)
        if found and not deletion.was_found:
            deletion.was_found = True
            deletion.released.set_result(None)
        return found

    monkeypatch.setattr(store, "delete_topic_configs", delete_configs_late)
    monkeypatch.setattr(store, "is_marked_for_deletion", is_marked_for_deletion)
    return deletion


def test_a_topic_created_right_after_its_deletion_keeps_its_configs(cluster, late_deletion):
    """The controller deletes configs last: those of a topic that is there already would go, too."""
    cluster.create_topic("t", *[[0]] * 50)
    server = TopicServer(cluster, 0)
    answer = server.ask("delete_topics", 5, topic_names=["t"], timeout_ms=60_000)
    assert answer.responses[0].error_code == ErrorCode.NONE
    cluster.run(late_deletion.reached)
    answer = server.ask("create_topics", 5, topics=recreation(), timeout_ms=60_000)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert late_deletion.was_found
    cluster.settle()
    assert len(cluster.brokers[0].cache.partitions_of("t")) == 1
    configs = cluster.run(cluster.store.get_entity_configs("topics", ["t"]))
    assert configs == {"t": {"retention.ms": "77"}}


def test_a_topic_whose_deletion_does_not_end_exists_already(cluster, monkeypatch):
    monkeypatch.setattr(topic_creation, "DELETION_LOOKS_MAX", 3)
    cluster.start(0, 1)
    cluster.create_topic("t", [1])
    cluster.brokers[1].kill()
    cluster.settle()
    server = TopicServer(cluster, 0)
    cluster.delete_topic("t")
    # The leader is gone, so its replica cannot be deleted; caches have forgotten the topic.
    assert not cluster.brokers[0].cache.contains("t")
    answer = server.ask("create_topics", 5, topics=recreation(), timeout_ms=9_999)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "/config/topics/t" not in cluster.run(cluster.store.children("/config/topics"))
    cluster.start(1)
    answer = server.ask("create_topics", 5, topics=recreation(), timeout_ms=9_999)
    assert answer.topics[0].error_code == ErrorCode.NONE


def test_a_request_for_many_topics_reads_the_deletions_once(cluster, monkeypatch):
    cluster.start(1)
    server = TopicServer(cluster, 1)
    store = server.services.cluster_store
    reads = []
    children, exists = store.children, store.exists
    monkeypatch.setattr(
        store, "children", lambda path, *a: reads.append(path) or children(path, *a)
    )
    monkeypatch.setattr(store, "exists", lambda path, *a: reads.append(path) or exists(path, *a))
    topics = [
        {"name": f"t{number}", "num_partitions": 1, "replication_factor": 1,
         "assignments": [], "configs": []}
        for number in range(20)
    ]  # fmt: skip
    response = server.ask("create_topics", 4, topics=topics, timeout_ms=10_000)
    assert {result.error_code for result in response.topics} == {ErrorCode.NONE}
    assert [path for path in reads if path.startswith("/admin/delete_topics")] == [
        "/admin/delete_topics"
    ]
