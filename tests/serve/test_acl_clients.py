"""Clients of a broker with ACLs: what they may do, what they see, and what is logged."""

import pytest
from confluent_kafka import Consumer, Producer

from kctl.protocol.api_keys import ApiKey
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.acl_world import AclWorld, allow, codes_in, message
from tests.support.broker_cluster import running_brokers

TIMEOUT_S = 120
USERS = {"alice": "secret", "mallory": "secret2"}
ACLS = ["alice: Read,Write,Describe topic:orders, Read group:shop, IdempotentWrite cluster"]


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker(topics=["orders", "hidden-topic"], users=USERS, acls=ACLS) as broker:
        yield broker


def produced(broker, user, topic, **settings):
    """The error of a record that `user` produces."""
    outcomes = []
    producer = Producer({**broker.client_config(user), **settings})
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    return outcomes[0] and outcomes[0].name()


def test_a_client_may_do_what_is_allowed(broker):
    assert produced(broker, "alice", "orders") is None
    assert produced(broker, "alice", "orders", **{"enable.idempotence": True}) is None
    settings = {"group.id": "shop", "auto.offset.reset": "earliest"}
    consumer = Consumer({**broker.client_config("alice"), **settings})
    consumer.subscribe(["orders"])
    found = consumer.consume(1, TIMEOUT_S)
    assert found[0].value() == b"v"
    consumer.commit(asynchronous=False)
    consumer.close()


def test_and_nothing_else(broker):
    assert produced(broker, "alice", "hidden-topic") == "TOPIC_AUTHORIZATION_FAILED"
    assert produced(broker, "mallory", "orders") == "TOPIC_AUTHORIZATION_FAILED"
    consumer = Consumer({**broker.client_config("mallory"), "group.id": "shop"})
    described = consumer.list_topics("orders", TIMEOUT_S).topics["orders"]
    assert described.error.name() == "TOPIC_AUTHORIZATION_FAILED"
    consumer.close()
    line = "Principal = User:mallory is Denied Operation = Describe from host = 127.0.0.1"
    assert any(f"{line} on resource = Topic:LITERAL:orders" in it for it in broker.log_lines)


@pytest.fixture
def world(tmp_path):
    with running_brokers(tmp_path) as cluster:
        world = AclWorld(cluster, auto_create_topics_enable="true")
        yield world


def test_t24_the_names_of_hidden_topics_and_groups_are_in_no_response(world):
    """A client that may do everything with topic `seen` scans what it gets about the rest."""
    from kctl.admin.topics import NewTopic
    from kctl.protocol.acl import AclOperation, ResourceType

    admin = world.cluster.admin()
    world.cluster.run(admin.topics.create([NewTopic("seen", 1, 1), NewTopic("secret-name", 1, 1)]))
    world.ask("super", message(ApiKey.FIND_COORDINATOR.request_class, key="g", key_type=0))
    offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [offset]} for name in ("seen", "secret-name")]
    for group in ("g", "secret-group"):
        commit = message(ApiKey.OFFSET_COMMIT.request_class, group_id=group, topics=topics)
        world.cluster.until(
            lambda it=commit: not codes_in(world.ask("super", it)), "a committed offset"
        )
    all_operations = AclOperation.ALL
    world.set_acls(
        allow(all_operations, ResourceType.TOPIC, "seen", "p"),
        allow(all_operations, ResourceType.GROUP, "g", "p"),
    )
    requests = [
        message(ApiKey.METADATA.request_class, topics=None),
        message(ApiKey.LIST_GROUPS.request_class),
        message(ApiKey.OFFSET_FETCH.request_class, group_id="g", topics=None),
        message(ApiKey.DESCRIBE_LOG_DIRS.request_class, topics=None),
        message(ApiKey.DESCRIBE_ACLS.request_class, resource_name_filter=None,
                principal_filter=None, host_filter=None, operation=1, permission_type=1,
                resource_type_filter=1),
    ]  # fmt: skip
    answers = [repr(world.ask("p", request)) for request in requests]
    assert "seen" in answers[0]
    assert "'g'" in answers[1]
    assert not any("secret" in answer for answer in answers)
    # A hidden topic and one that does not exist are reported alike.
    named = [{"name": name} for name in ("secret-name", "nowhere")]
    both = world.ask("p", message(ApiKey.METADATA.request_class, topics=named)).topics
    assert [(it.error_code, it.is_internal, it.partitions) for it in both] == [(29, False, [])] * 2


def test_a_fetch_session_is_judged_again_at_every_fetch(world):
    from kctl.admin.topics import NewTopic
    from kctl.protocol.acl import AclOperation, ResourceType

    admin = world.cluster.admin()
    world.cluster.run(admin.topics.create([NewTopic("t", 1, 1)]))
    world.set_acls(allow(AclOperation.READ, ResourceType.TOPIC, "t", "p"))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 99}
    topics = [{"topic": "t", "partitions": [partition]}]
    values = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0}
    first = world.ask(
        "p", message(ApiKey.FETCH.request_class, **values, session_epoch=0, topics=topics)
    )
    assert codes_in(first) == set()
    assert first.session_id

    def fetch(epoch):
        request = message(
            ApiKey.FETCH.request_class, **values, session_id=first.session_id, session_epoch=epoch
        )
        return codes_in(world.ask("p", request))

    assert fetch(1) == set()
    world.set_acls()
    assert fetch(2) == {29}
    world.set_acls(allow(AclOperation.READ, ResourceType.TOPIC, "t", "p"))
    assert fetch(3) == set()
