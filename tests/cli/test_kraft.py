"""Commands on Apache Kafka 3.9 and 4.1 without ZooKeeper, and their errors on clusters of 2.7."""

import json
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from tests.support import apache_kafka
from tests.support.kraft import NODE_ID, kraft_broker

WAIT_S = 60
# The commands are a super user, and every other client may do what it likes without ACLs.
AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
    "allow_everyone_if_no_acl_found": "true",
}
# Kafka 4.1 has the APIs of groups of Kafka Streams only with these.
UNSTABLE = {"unstable_api_versions_enable": "true", "unstable_feature_versions_enable": "true"}
STREAMS_MEMBER = "01234567-89ab-cdef-0123-456789abcdef"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Brokers of both versions, started at the same time: version -> address."""
    versions = ("3.9.1", "4.1.0")
    with ExitStack() as stack, ThreadPoolExecutor(len(versions)) as pool:

        def start(version):
            directory = tmp_path_factory.mktemp("kraft")
            is_4 = version.startswith("4")
            settings = {**AUTHORIZER, **(UNSTABLE if is_4 else {})}
            # Unstable features would begin with their latest levels.
            levels = ("--feature", "share.version=0") if is_4 else ()
            broker = kraft_broker(version, directory, *levels, **settings)
            return stack.enter_context(broker).address

        yield dict(zip(versions, pool.map(start, versions), strict=True))


@pytest.fixture(params=["3.9.1", "4.1.0"])
def both(clusters, request):
    return clusters[request.param]


@pytest.fixture
def kafka4(clusters):
    return clusters["4.1.0"]


@pytest.fixture
def new_topic(kctl, request, tmp_path):
    """Create a topic of two partitions with ten records; return its name."""

    def make(address):
        name = request.node.originalname.removeprefix("test_")[:60]
        assert kctl("topic", "create", name, "-p", 2, "-r", 1, "-b", address).status == 0
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{key}:{key}\n" for key in range(10)))
        sent = kctl("produce", name, "--file", lines, "-k", ":", "-b", address)
        assert sent.status == 0, sent.err
        return name

    return make


def wait_for(look, is_there):
    """Repeat `look` until `is_there` accepts its result; return that."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = look()
        if is_there(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


@contextmanager
def member(address, topic, group):
    """Read `topic` as a member of `group` by the consumer protocol, and commit the offsets."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        read = 0
        while read < 10:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            read += 1
        consumer.commit(asynchronous=False)
        yield
    finally:
        consumer.close()


@contextmanager
def share_member(address, topic, group):
    """Read `topic` as a member of a share group."""
    command = apache_kafka.java_command("4.1.0", SHARE_CONSUMER)
    arguments = ("--bootstrap-server", address, "--topic", topic, "--group", group)
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        apache_kafka.stop(process)


def join_streams_group(address, group, topic, timeout_ms):
    """Send one StreamsGroupHeartbeat (API 88, v0) and return the error code.

    The only subtopology of the member reads `topic`. The coordinator keeps the member for its
    session timeout, 45 s. Another rebalance timeout makes it write a record: descriptions show the
    group as it was at the last one.
    """
    null, none, no_tags, null_struct = b"\0", b"\1", b"\0", b"\xff"
    subtopology = (
        compact("0"), b"\2" + compact(topic), none, none, none, none, none, no_tags,
    )  # fmt: skip
    body = b"".join(
        [
            compact(group), compact(STREAMS_MEMBER), struct.pack(">ii", 0, 0), null, null,
            struct.pack(">i", timeout_ms),
            b"\1", struct.pack(">i", 0), b"\2", *subtopology, no_tags,  # the topology
            none, none, none, compact("process-1"), null_struct, none, null, null, b"\0", no_tags,
        ]
    )  # fmt: skip
    head = struct.pack(">hhi", 88, 0, 1) + struct.pack(">h", 1) + b"t" + no_tags
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(struct.pack(">i", len(head + body)) + head + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            # After the correlation id and its tags, and the throttle time.
            return struct.unpack_from(">h", stream.read(size), 9)[0]


def compact(text):
    """A short text with its length in front."""
    data = text.encode()
    assert len(data) < 127
    return bytes([len(data) + 1]) + data


@pytest.mark.kafka
def test_a_group_of_the_consumer_protocol_is_listed_described_and_deleted(kctl, kafka4, new_topic):
    topic = new_topic(kafka4)
    to = ("-b", kafka4)
    with member(kafka4, topic, "modern"):
        (listed,) = kctl("group", "list", "--type", "consumer", "-o", "json", *to).documents
        assert (listed["group"], listed["type"]) == ("modern", "consumer")
        assert "modern" not in kctl("group", "list", "--type", "classic", "-o", "name", *to).lines
        # Another test may have left a group of its own.
        assert "modern" in kctl("group", "list", "--state", "stable", "-o", "name", *to).lines

        (group,) = kctl("group", "describe", "modern", "-o", "json", *to).documents
        assert (group["type"], group["state"], group["total_lag"]) == ("consumer", "Stable", 0)
        assert group["group_epoch"] == group["assignment_epoch"] > 0
        (only,) = group["members"]
        everything = [{"topic": topic, "partition": number} for number in (0, 1)]
        assert only["assignment"] == only["target_assignment"] == everything
        assert (only["topics"], only["epoch"]) == ([topic], group["assignment_epoch"])
        assert {it["member"] for it in group["partitions"]} == {only["member"]}
        # A glob describes what is listed, with the API of its type.
        (same,) = kctl("group", "describe", "mod*", "-o", "json", *to).documents
        assert same["members"] == group["members"]
        heading = kctl("group", "describe", "modern", *to).lines[0]
        assert heading.startswith("modern (consumer group): Stable, 1 member,")
    assert kctl("group", "delete", "modern", "--yes", *to).status == 0
    assert "No group modern" in kctl("group", "describe", "modern", *to).err


@pytest.mark.kafka
def test_a_share_group_is_described_with_the_start_offsets_of_its_partitions(
    kctl, kafka4, new_topic
):
    topic = new_topic(kafka4)
    to = ("-b", kafka4)
    checked = kctl("cluster", "upgrade-features", "share.version=1", "--dry-run", "-o", "json", *to)
    assert [it["status"] for it in checked.documents] == ["would upgrade"]
    levels = {it["feature"]: it for it in kctl("cluster", "features", "-o", "json", *to).documents}
    assert (levels["share.version"]["level"], levels["share.version"]["max_level"]) == (0, 1)
    assert kctl("cluster", "upgrade-features", "share.version=1", "--yes", *to).status == 0
    levels = {it["feature"]: it for it in kctl("cluster", "features", "-o", "json", *to).documents}
    assert levels["share.version"]["level"] == 1

    with share_member(kafka4, topic, "shared"):

        def members():
            described = kctl("group", "describe", "shared", "-o", "json", *to)
            return described.documents[0]["members"] if described.status == 0 else []

        (only,) = wait_for(members, lambda found: found and len(found[0]["assignment"]) == 2)
        assert (only["topics"], "target_assignment" in only) == ([topic], False)
        (listed,) = kctl("group", "list", "--type", "share", "-o", "json", *to).documents
        assert (listed["group"], listed["type"]) == ("shared", "share")
        (group,) = kctl("group", "describe", "shared", "-o", "json", *to).documents
        assert (group["type"], group["protocol_type"]) == ("share", "share")
        assert [it["partition"] for it in group["partitions"]] == [0, 1]
        assert sum(it["end_offset"] for it in group["partitions"]) == 10


@pytest.mark.kafka
def test_a_group_of_kafka_streams_is_described_with_its_tasks(kctl, kafka4, new_topic):
    topic = new_topic(kafka4)
    to = ("-b", kafka4)
    upgraded = kctl("cluster", "upgrade-features", "streams.version=1", "--yes", *to)
    assert upgraded.status == 0, upgraded.err + upgraded.out

    # Looking for the coordinator creates it.
    assert kctl("group", "describe", "application", *to).status == 1
    errors, everything = [], [{"topic": topic, "partition": number} for number in (0, 1)]

    def members():
        timeout_ms = 300_000 + len(errors)
        errors.append(join_streams_group(kafka4, "application", topic, timeout_ms))
        described = kctl("group", "describe", "application", "-o", "json", *to)
        return described.documents[0]["members"] if described.status == 0 else []

    # The coordinator loads, then waits for more members, and then assigns tasks.
    (only,) = wait_for(members, lambda found: found and found[0]["target_assignment"])
    assert errors[-1] == 0
    assert only["target_assignment"] == everything
    assert (only["member"], only["process"]) == (STREAMS_MEMBER, "process-1")
    assert only["topics"] == [topic]
    assert only["tasks"] == {"active": ["0_0", "0_1"], "standby": [], "warmup": []}
    assert only["assignment"] == everything
    (listed,) = kctl("group", "list", "--type", "streams", "-o", "json", *to).documents
    assert (listed["group"], listed["type"]) == ("application", "streams")
    # A glob describes what is listed, with the API of its type.
    (same,) = kctl("group", "describe", "applic*", "-o", "json", *to).documents
    assert (same["type"], same["members"]) == ("streams", [only])
    heading = kctl("group", "describe", "application", "--members", *to).lines[0]
    assert heading.startswith("application (streams group): ")


@pytest.mark.kafka
def test_the_quorum_is_shown_and_its_leader_is_the_controller(kctl, both):
    quorum = kctl("cluster", "quorum", "-o", "json", "-b", both).documents
    (quorum,) = quorum if isinstance(quorum, list) else [quorum]
    assert quorum["leader"] == NODE_ID
    assert quorum["high_watermark"] > 0
    (replica,) = quorum["replicas"]
    assert (replica["node"], replica["role"], replica["lag"]) == (NODE_ID, "leader", 0)
    assert replica["listeners"][0].startswith("CONTROLLER://127.0.0.1:")
    assert "leader 1, epoch" in kctl("cluster", "quorum", "-b", both).lines[0]
    cluster = kctl("cluster", "describe", "-o", "json", "-b", both).documents
    (cluster,) = cluster if isinstance(cluster, list) else [cluster]
    assert cluster["controller"] == NODE_ID


@pytest.mark.kafka
def test_topics_have_ids_and_eligible_leaders(kctl, both, new_topic):
    topic = new_topic(both)
    (described,) = kctl("topic", "describe", topic, "-o", "json", "-b", both).documents
    assert len(described["topic_id"]) == 22
    assert [it["eligible_leaders"] for it in described["partitions"]] == [[], []]
    shown = kctl("topic", "describe", topic, "-b", both)
    assert f"id {described['topic_id']}" in shown.lines[0]
    assert "ELIGIBLE" not in shown.out


@pytest.mark.kafka
def test_records_are_read_from_positions_that_only_later_brokers_find(kctl, both, new_topic):
    topic = new_topic(both)
    (described,) = kctl("topic", "describe", topic, "--offsets", "-o", "json", "-b", both).documents
    end = described["partitions"][0]["end_offset"]
    assert end > 1

    def count(offset):
        found = kctl("consume", topic, "-p", 0, "--offset", offset, "-e", "-b", both)
        assert found.status == 0, found.err
        return len(found.lines)

    # Nothing is in tiered storage.
    assert count("earliest-local") == count("latest-tiered") == end
    assert 1 <= count("max-timestamp") <= end


@pytest.mark.kafka
def test_unknown_features_and_levels_are_rejected(kctl, both):
    unknown = kctl("cluster", "upgrade-features", "metadata.versoin=7", "-y", "-b", both)
    assert (unknown.status, unknown.err) == (
        1,
        "error: No feature metadata.versoin\nhint: did you mean metadata.version?\n",
    )
    too_high = kctl(
        "cluster", "upgrade-features", "metadata.version=999", "--dry-run", "-o", "json", "-b", both
    )
    assert too_high.status == 1
    assert "999" in too_high.documents[0]["error"]


@pytest.mark.kafka
def test_elections_and_reassignments_are_carried_out_by_the_quorum(kctl, both, new_topic):
    topic = new_topic(both)
    elected = kctl("elect", "preferred", topic, "-o", "json", "-b", both)
    assert [it["status"] for it in elected.documents] == ["not needed"] * 2
    away = kctl("reassign", "plan", "replicas", 2, "-t", topic, "-b", both)
    assert away.status != 0
    assert "broker" in away.err
    assert kctl("reassign", "list", "-b", both).status == 0


@pytest.mark.kafka
def test_acls_become_what_a_file_declares(kctl, both, tmp_path):
    path = tmp_path / "cluster.yaml"
    rules = """acls:
  - {principal: alice, producer: true, idempotent: true, resources: ["topic:shop-*"]}
  - {principal: "*", deny: true, operations: write, resources: "topic:audit", host: 10.0.0.7}
"""
    path.write_text(rules)
    to = ("-o", "json", "-b", both)

    done = kctl("apply", path, "-y", *to)
    assert [it["status"] for it in done.documents] == ["created"] * 5, done.err
    assert kctl("apply", path, "--check", "--prune-acls", *to).documents == []
    path.write_text(rules.replace("write", "read"))
    pruned = kctl("apply", path, "-y", "--prune-acls", *to)
    assert [it["status"] for it in pruned.documents] == ["created", "deleted"], pruned.err
    (audit,) = kctl("acl", "list", "topic:audit", *to).documents
    assert (audit["operation"], audit["permission"]) == ("Read", "Deny")


@pytest.mark.kafka
def test_acls_have_the_operations_and_types_of_kafka_4(kctl, kafka4):
    to = ("-o", "json", "-b", kafka4)
    rules = [
        ("two-phase-commit", "transactional-id:shop", "TwoPhaseCommit"),
        ("create-tokens", "user:User:bob", "CreateTokens"),
    ]

    for operation, resource, name in rules:
        assert kctl("acl", "add", "alice", operation, resource, *to).status == 0
        (listed,) = kctl("acl", "list", resource, *to).documents
        assert (listed["resource"], listed["operation"]) == (resource, name)
        (checked,) = kctl("acl", "check", "alice", operation, resource, *to).documents
        assert checked["allowed"]
    assert len(kctl("acl", "list", "--principal", "alice", *to).documents) >= 2
    for operation, resource, _ in rules:
        assert kctl("acl", "remove", "alice", operation, resource, "--yes", *to).status == 0
        assert kctl("acl", "list", resource, *to).documents == []


@pytest.mark.kafka
def test_raw_requests_of_later_versions_are_answered(kctl, both, new_topic):
    topic = new_topic(both)

    def api(*words, status=0):
        ran = kctl("api", *words, "-o", "json", "-b", both)
        assert ran.status == status, ran.err + ran.out
        return ran.documents

    found = {it["name"]: it for it in api("--list")}
    assert found["DescribeTopicPartitions"]["both"] == "0"
    assert found["Metadata"]["both"].endswith("-12")
    (described,) = api("Metadata", json.dumps({"topics": [{"name": topic}]}))["topics"]
    assert len(described["topicId"]) == 22
    (later,) = api("DescribeTopicPartitions", json.dumps({"topics": [{"name": topic}]}))["topics"]
    assert later["topicId"] == described["topicId"]
    assert [it["partitionIndex"] for it in later["partitions"]] == [0, 1]
    assert api("ListGroups", "{}")["errorCode"] == 0
    metadata = {"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}
    (quorum,) = api("DescribeQuorum", json.dumps({"topics": [metadata]}))["topics"]
    assert quorum["partitions"][0]["leaderId"] == NODE_ID
    new = {"name": topic, "numPartitions": 1, "replicationFactor": 1}
    request = json.dumps({"topics": [new], "timeoutMs": 5000})
    (refused,) = api("CreateTopics", request, "-y", status=1)["topics"]
    assert refused["errorCode"] == 36
    # An API that brokers of Kafka 3.9 and 4.1 lack, and versions that 4 dropped.
    missing = kctl("api", "UpdateMetadata", "{}", "-y", "-b", both)
    assert missing.status == 1
    assert "error: " in missing.err


def test_older_clusters_get_an_error_with_the_release_that_has_what_they_lack(on):
    quorum = on("cluster", "quorum")
    assert quorum.status == 1
    assert "does not know DescribeQuorum, which came with Kafka 3.3 in KRaft mode" in quorum.err
    shares = on("group", "list", "--type", "share")
    assert shares.status == 1
    assert "speaks ListGroups 0 to 4; version 5 came with Kafka 3.8" in shares.err
    assert on("group", "list", "--type", "classic").status == 0
    kinds = on("group", "list", "--type", "shared")
    assert (kinds.status, kinds.err.splitlines()[0]) == (2, "error: No group type shared")
    on("topic", "create", "for-max-timestamp")
    largest = on("consume", "for-max-timestamp", "--offset", "max-timestamp", "-e")
    assert largest.status == 1
    assert "it came with Kafka 3.0" in largest.err
    (described,) = on("topic", "describe", "for-max-timestamp", "-o", "json").documents
    assert "topic_id" not in described
    features = on("cluster", "features")
    assert (features.status, features.err) == (0, "The cluster has no features.\n")


def test_positions_that_only_brokers_find_are_rejected_for_files(kctl, tmp_path):
    found = kctl("dump-log", tmp_path, "--offset", "max-timestamp")
    assert found.status == 2
    assert found.err.startswith("error: Only a broker can find max-timestamp\n")
