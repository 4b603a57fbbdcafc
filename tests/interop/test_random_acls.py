"""T22: with random ACLs, every API gives a client the same error codes, entries and authorized
operations on kctl and on Apache Kafka 2.7.2.

KCTL_ACL_SETS=1000 tries more sets of ACLs; KCTL_SEED picks others.
"""

import os
import time
from random import Random

import pytest

from kctl.protocol.acl import AclOperation
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.sasl.plain import plain_message
from tests.broker.test_authorization_table import ROWS, C, on
from tests.support import apache_kafka
from tests.support.acl_world import message
from tests.support.broker_client import Twins, assert_same, short
from tests.support.secured_brokers import USERS, SaslApache, SaslKctl
from tests.support.zookeeper import running_zookeeper

SETS = int(os.environ.get("KCTL_ACL_SETS", "25"))
SEED = int(os.environ.get("KCTL_SEED", "1"))
TIMEOUT_S = 30
SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:admin",
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}
ANY, LITERAL, PREFIXED, DENY, ALLOW = 1, 3, 4, 2, 3
EVERYTHING = {
    "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
    "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip
# What the rows of the table need: (operation, (resource type, name)).
NEEDS = sorted({it for row in ROWS for it in (*row.needs, *row.instead)})
WITH_OPERATIONS = {
    ApiKey.METADATA: (
        "include_topic_authorized_operations",
        "include_cluster_authorized_operations",
    ),
    ApiKey.DESCRIBE_GROUPS: ("include_authorized_operations",),
}
COMPARED = ("error_code", "name", "topic_name", "topic", "group_id", "resource_name", "topics")

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """(addresses of SASL listeners, addresses of PLAINTEXT listeners): kctl's, Apache's."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        SaslKctl(tmp_path_factory.mktemp("kctl"), **SETTINGS) as kctl,
    ):
        apache = SaslApache(tmp_path_factory.mktemp("apache"), zookeeper.address, **SETTINGS)
        apache.launch()
        try:
            apache.wait_until_ready()
            yield (kctl.address, apache.sasl_address), (kctl.plain_address, apache.address)
        finally:
            apache.stop()


@pytest.fixture(scope="module")
def admin(brokers):
    """Logged in as a super user."""
    twins = Twins(*brokers[0])
    for client in twins.clients:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = plain_message("admin", USERS["admin"])
        assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == 0
    yield twins
    twins.close()


@pytest.fixture(scope="module")
def client(brokers, admin):
    """Not logged in: User:ANONYMOUS, to whom the ACLs apply; topic t and group g are there."""
    # The records that the requests produce are old.
    forever = [{"name": "retention.ms", "value": "-1"}]
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": forever}
    admin.ask(message(ApiKey.CREATE_TOPICS.request_class, topics=[topic], timeout_ms=20_000), 4)
    offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    commit = message(ApiKey.OFFSET_COMMIT.request_class, group_id="g", topics=on(offset))
    find = ApiKey.FIND_COORDINATOR.request_class
    until(
        lambda: all(set(codes(it)) == {0} for it in admin.both(message(find, key="x", key_type=1)))
    )
    until(lambda: all(set(codes(it)) == {0} for it in admin.both(message(find, key="g"))))
    until(lambda: all(set(codes(it)) == {0} for it in admin.both(commit)))
    twins = Twins(*brokers[1])
    yield twins
    twins.close()


def until(condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def compared(answer, path=""):
    """Every value of an answer that must be equal, with its path, in order."""
    found = []
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key in COMPARED or key.endswith("authorized_operations"):
                found.append((f"{path}.{key}", value if isinstance(value, int | str) else None))
            found += compared(value, f"{path}.{key}")
    elif isinstance(answer, list):
        for item in answer:
            found += compared(item, path)
    return sorted(found, key=repr)


def codes(answer):
    return [value for path, value in compared(answer) if path.endswith("error_code")]


def random_acls(random):
    """Some of what the table needs, allowed or denied, to the client or to others."""
    creations = []
    for operation, (kind, name) in random.sample(NEEDS, random.randrange(len(NEEDS))):
        is_prefixed = (kind, name) != C and random.random() < 0.2
        chosen = random.choice([name, name, "*"]) if (kind, name) != C else name
        creations.append({
            "resource_type": int(kind),
            "resource_name": name[:1] if is_prefixed else chosen,
            "resource_pattern_type": PREFIXED if is_prefixed else LITERAL,
            "principal": random.choice(["User:ANONYMOUS"] * 3 + ["User:*", "User:bob"]),
            "host": random.choice(["*", "*", "127.0.0.1", "10.0.0.1"]),
            "operation": int(random.choice([operation, operation, operation, AclOperation.ALL])),
            "permission_type": DENY if random.random() < 0.15 else ALLOW,
        })  # fmt: skip
    return creations


def request_of(row):
    changes = dict.fromkeys(WITH_OPERATIONS.get(row.api, ()), True)
    if row.api is ApiKey.JOIN_GROUP:
        # A new member would be one of group g for a while, which has an effect on later requests.
        changes["member_id"] = "nobody"
    return message(row.api.request_class, **{**row.body, **changes})


def without_strangers(found):
    """Kafka 2.7 has no error for the fetch of a broker that is no replica, only no records."""
    code = ".responses.partition_responses.error_code"
    return [(path, 0 if (path, it) == (code, 6) else it) for path, it in found]


def test_every_api_answers_as_apache_kafka_does(admin, client):
    random = Random(SEED)
    refused = 0
    for number in range(SETS):
        admin.both(message(ApiKey.DELETE_ACLS.request_class, filters=[EVERYTHING]))
        acls = random_acls(random)
        made = message(ApiKey.CREATE_ACLS.request_class, creations=acls)
        for answer in admin.both(made):
            assert set(codes(answer)) <= {0}, answer
        for row in random.sample(ROWS, len(ROWS)):
            ours, theirs = client.both(request_of(row), row.version)
            what = f"set {number} of seed {SEED}: {row.name}; {short(acls)}"
            but = without_strangers if row.note == "follower" else list
            assert_same(but(compared(ours)), compared(theirs), what)
            refused += bool({29, 30, 31, 53} & set(codes(ours)))
    assert refused > SETS
