"""kctl apply, on kctl and on Apache Kafka 2.7.2."""

import pytest
import yaml

from kctl.testing.kafka_broker import KafkaBroker
from tests.support import apache_kafka
from tests.support.zookeeper import running_zookeeper


@pytest.fixture
def apply(on, tmp_path):
    """Apply a document: `apply({"topics": ...}, "-y")`."""

    def run(document, *words):
        path = tmp_path / "cluster.yaml"
        path.write_text(
            document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
        )
        return on("apply", path, "-o", "json", *words)

    return run


def topic_file(name, partitions=2, **configs):
    return {
        "topics": {name: {"partitions": partitions, "replication_factor": 1, "configs": configs}}
    }


def changes(ran):
    return [(it["action"], it["name"], it["old"], it["new"], it["status"]) for it in ran.documents]


def overrides(on, name):
    ran = on("config", "describe", "topic", name, "-o", "json")
    return {
        it["name"]: it["value"] for it in ran.documents if it["source"] == "DYNAMIC_TOPIC_CONFIG"
    }


def partition_count(on, name):
    [document] = on("topic", "describe", name, "-o", "json").documents
    return len(document["partitions"])


def test_a_second_run_has_nothing_to_do(on, apply, name):
    document = topic_file(
        name, **{"retention.ms": 7200000, "cleanup.policy": ["compact", "delete"]}
    )
    document["brokers"] = {"default": {"log.cleaner.io.buffer.load.factor": 0.8}}
    document["quotas"] = [{"user": name, "client_id": "a", "limits": {"producer_byte_rate": 1024}}]

    first = apply(document, "-y")
    second = apply(document)

    assert first.status == 0, first.err + first.out
    assert {it["status"] for it in first.documents} <= {"created", "altered"}
    assert partition_count(on, name) == 2
    assert overrides(on, name) == {"retention.ms": "7200000", "cleanup.policy": "compact,delete"}
    assert (second.status, second.documents) == (0, [])
    assert "Nothing to do" in second.err
    assert apply(document, "--check").status == 0


def test_differences_are_shown_and_then_removed(on, apply, name):
    apply(topic_file(name, **{"retention.ms": 7200000}), "-y")
    document = topic_file(name, 3, **{"retention.ms": 3600000, "max.message.bytes": 2000000})

    plan = apply(document, "-n")
    refused = apply(document)
    done = apply(document, "-y")

    assert changes(plan)[:2] == [
        ("enlarge", "partitions", "2", "3", "would enlarge"),
        ("set", "retention.ms", "7200000", "3600000", "would set"),
    ]
    assert refused.status == 2
    assert f"Records of {name} may be deleted" in refused.err
    assert done.status == 0, done.err + done.out
    assert partition_count(on, name) == 3
    assert overrides(on, name) == {"retention.ms": "3600000", "max.message.bytes": "2000000"}


def test_check_changes_nothing_and_reports_a_difference_with_status_1(on, apply, name):
    ran = apply(topic_file(name), "--check", "-y")

    assert ran.status == 1
    assert changes(ran)[0][0] == "create"
    assert on("topic", "describe", name).status == 1


@pytest.mark.parametrize(
    ("topic", "way_out"),
    [
        ({"partitions": 1}, "a topic cannot lose partitions"),
        ({"replication_factor": 2}, "run kctl reassign plan set-rf"),
        ({"configs": {"retention.ms": "soon"}}, "retention.ms"),
        ({"configs": {"no.such.config": 1}}, "no.such.config"),
    ],
)
def test_what_cannot_be_done_stops_the_whole_file(on, apply, name, topic, way_out):
    apply(topic_file(name), "-y")
    other = f"{name}-new"

    ran = apply({"topics": {other: {"partitions": 1}, name: topic}}, "-y")

    assert ran.status == 1
    assert [it["status"] for it in ran.documents][-1] == "failed"
    assert way_out in ran.documents[-1]["error"]
    assert ran.err == "error: 1 conflict, 1 to create: nothing is done.\n"
    assert on("topic", "describe", other).status == 1
    assert overrides(on, name) == {}


def test_a_broker_that_does_not_exist_is_a_conflict(apply):
    ran = apply({"brokers": {99: {"log.cleaner.threads": 2}}}, "-y")

    assert ran.status == 1
    assert ran.documents[0]["error"] == "No broker 99"


def test_nothing_is_removed_without_a_flag(on, apply, name):
    apply(topic_file(name, **{"retention.ms": 7200000}), "-y")
    on("topic", "create", f"{name}-other", "-p", 1, "-r", 1)

    assert apply(topic_file(name)).documents == []

    pruned = apply(topic_file(name), "--prune-configs", "--prune-topics", f"{name}*", "-y")

    assert changes(pruned) == [
        ("reset", "retention.ms", "7200000", None, "reset"),
        ("delete", None, "partitions=1", None, "deleted"),
    ]
    assert overrides(on, name) == {}
    assert on("topic", "list", f"{name}*", "-o", "name").lines == [name]


def test_quotas_are_set_and_pruned(apply, name):
    def quotas(**limits):
        return {"quotas": [{"user": name, "limits": limits}]}

    both = apply(quotas(producer_byte_rate=1000, consumer_byte_rate=2000), "-y")
    less = apply(quotas(producer_byte_rate=1500), "-y", "--prune-configs")

    assert both.status == 0, both.out
    assert changes(less) == [
        ("set", "producer_byte_rate", "1000", "1500", "altered"),
        ("reset", "consumer_byte_rate", "2000", None, "reset"),
    ]
    assert apply(quotas(producer_byte_rate=1500), "--prune-configs").documents == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topics: {t: {partitons: 3}}", "topics.t: unknown key partitons"),
        ("topic: {t: {}}", "unknown key topic"),
        ("topics: [t]", "topics: expected names"),
        ("topics: {t: {partitions: 0}}", "topics.t.partitions must be a whole number"),
        ("topics: {t: {partitions: many}}", "topics.t.partitions must be a whole number"),
        ("topics: {t: {configs: {retention.ms: }}}", "topics.t.configs.retention.ms must be"),
        ("topics: {t: {}, t: {}}", "t appears twice"),
        ("topics: {on: {}}", "put it in quotes"),
        ("brokers: {one: {a: 1}}", "one is not the id of a broker"),
        ("quotas: [{limits: {producer_byte_rate: 1}}]", "quotas[0]: user or client_id"),
        ("quotas: [{user: u, limits: {producer_byte_rate: 0}}]", "must be a number greater"),
        ("topics: {", "is not valid YAML"),
        ("", "declares nothing"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_sent(kctl, tmp_path, text, message):
    (tmp_path / "f.yaml").write_text(text)

    ran = kctl("apply", tmp_path / "f.yaml", "-y", "-b", "127.0.0.1:1")

    assert ran.status == 2, ran.err
    assert message in ran.err + ran.out
    assert "hint: " in ran.err


@pytest.fixture(scope="module", params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)])
def guarded(request, tmp_path_factory):
    """Return the address of a broker with an authorizer, whose super user the commands are."""
    super_users = {"super.users": "User:ANONYMOUS"}
    if request.param == "kctl":
        with KafkaBroker(acls=[], settings=super_users) as broker:
            yield broker.bootstrap_servers
        return
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", **super_users}
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(
            tmp_path_factory.mktemp("apache"), zookeeper.address, settings=authorizer
        ) as address,
    ):
        yield address


def test_acls_are_created_shown_and_removed_only_on_request(kctl, guarded, tmp_path, name):
    path = tmp_path / "cluster.yaml"

    def apply(rules, *words):
        document = {"topics": {name: {"partitions": 1, "replication_factor": 1}}, "acls": rules}
        path.write_text(yaml.safe_dump(document))
        return kctl("apply", path, "-o", "json", "-b", guarded, *words)

    def principals():
        listed = kctl("acl", "list", f"topic:{name}", "-o", "json", "-b", guarded).documents
        return sorted({it["principal"] for it in listed})

    reader = {"principal": "alice", "operations": ["read"], "resources": [f"topic:{name}"]}
    writer = {"principal": "Group:shop", "producer": True, "resources": f"topic:{name}"}
    denied = {**reader, "principal": "*", "deny": True, "host": "::1"}

    planned = apply([reader, writer, denied], "-n")
    assert ("create", "User:alice Read", None, "Allow from *", "would create") in changes(planned)
    assert principals() == []
    assert apply([reader, writer, denied], "--check").status == 1

    done = apply([reader, writer, denied], "-y")
    assert done.status == 0, done.out + done.err
    denial = ("create", "User:* Read", None, "Deny from 0:0:0:0:0:0:0:1", "created")
    assert denial in changes(done)
    assert principals() == ["Group:shop", "User:*", "User:alice"]
    again = apply([reader, writer, denied], "--prune-acls", "--check")
    assert (again.status, again.documents) == (0, [])

    assert apply([reader], "-y").documents == []
    assert kctl("apply", path, "--prune-acls", "-b", guarded).status == 2
    assert principals() == ["Group:shop", "User:*", "User:alice"]
    pruned = apply([reader], "--prune-acls", "-y")
    assert {it["status"] for it in pruned.documents} == {"deleted"}
    assert len(pruned.documents) == 4
    assert principals() == ["User:alice"]
    # A topic of the file without any rule has no entries.
    apply([], "--prune-acls", "-y")
    assert principals() == []


def test_acls_need_an_authorizer_and_pruning_needs_the_section(on, apply, name):
    rules = [{"principal": "a", "operations": "read", "resources": f"topic:{name}"}]

    refused = apply({**topic_file(name), "acls": rules}, "-y")
    unpruned = apply(topic_file(name), "--prune-acls", "-y")

    assert refused.status == 1
    assert "No Authorizer is configured" in refused.err
    assert (unpruned.status, on("topic", "describe", name).status) == (2, 1)
    assert "has no section acls" in unpruned.err
