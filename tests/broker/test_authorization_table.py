"""T20: what each API requires, on a real broker: nothing allowed, everything allowed, only what is
needed, everything but that."""

from dataclasses import dataclass, field

import pytest

from kctl.admin.topics import NewTopic
from kctl.broker.authorization import (
    GUARDS,
    OF_CLIENT_ALONE,
    REFUSED_BY_NAME_BYTES_MAX,
    authorized,
)
from kctl.broker.handlers import HANDLERS
from kctl.broker.request import Request, RequestContext
from kctl.protocol.acl import CLUSTER_NAME, AclOperation, ResourceType
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode, RefusedCode
from kctl.protocol.permissions import PERMISSIONS, explain_refusals
from kctl.protocol.schema import Struct
from kctl.store.errors import StoppingError
from tests.support.acl_world import (
    AUTHORIZATION_ERRORS,
    CLOSED,
    HOST,
    AclWorld,
    allow,
    codes_in,
    deny,
    everything,
    message,
)
from tests.support.broker_cluster import running_brokers
from tests.support.log_world import batch

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE,
    AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE,
)  # fmt: skip
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
T = (ResourceType.TOPIC, "t")
G = (ResourceType.GROUP, "g")
X = (ResourceType.TRANSACTIONAL_ID, "x")
C = (ResourceType.CLUSTER, CLUSTER_NAME)
# Refusals that hide instead of reporting.
NOTHING = "no entries and no error"
NEVER = "never refused"


@dataclass
class Row:
    """One request, what it needs (each alone is missed), and what clients without it get."""

    api: ApiKey
    needs: tuple = ()
    refusals: tuple = ()
    body: dict = field(default_factory=dict)
    version: int | None = None
    # Permissions of which one is enough.
    instead: tuple = ()
    note: str = ""

    @property
    def name(self):
        return "-".join(filter(None, (self.api.name.lower(), self.note)))


def on(*partitions, name="name", numbers="partitions"):
    return [{name: "t", numbers: list(partitions)}]


def produce(**producer):
    records = batch(b"v", **producer)
    return on({"partition_index": 0, "records": records})


P0 = {"partition_index": 0}
FETCH = {"replica_id": -1, "max_wait_ms": 0, "topics": [
    {"topic": "t", "partitions": [
        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 99}]}]}  # fmt: skip
OFFSET = {**P0, "committed_offset": 0, "committed_metadata": ""}
TXN = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
MARKER = {"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [0]}]}
TOPIC_CONFIG, BROKER_CONFIG = (
    {"resource_type": number, "resource_name": name} for number, name in ((2, "t"), (4, "1"))
)
DESCRIBED_TOPIC = [{**TOPIC_CONFIG, "configuration_keys": None}]
DESCRIBED_BROKER = [{**BROKER_CONFIG, "configuration_keys": None}]
NO_FILTER = {
    "resource_type_filter": 2, "resource_name_filter": "none", "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
ACL = {
    "resource_type": 2, "resource_name": "other", "principal": "User:nobody", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
QUOTAS = {"validate_only": True, "entries": [
    {"entity": [{"entity_type": "user", "entity_name": "u"}],
     "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}]}  # fmt: skip

ROWS = [
    Row(ApiKey.PRODUCE, ((WRITE, T),), ({29},), {"acks": 1, "topics": produce()}),
    Row(ApiKey.PRODUCE, ((IDEMPOTENT_WRITE, C), (WRITE, T)), ({31}, {29}),
        {"acks": 1, "topics": produce(producer_id=5, producer_epoch=0, base_sequence=0)},
        note="idempotent"),
    Row(ApiKey.PRODUCE, ((WRITE, X), (WRITE, T)), ({53}, {29}),
        {"acks": 1, "transactional_id": "x", "topics": produce(
            producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)},
        note="transactional"),
    Row(ApiKey.FETCH, ((READ, T),), ({29},), FETCH),
    Row(ApiKey.FETCH, ((CLUSTER_ACTION, C),), ({29},), {**FETCH, "replica_id": 7}, note="follower"),
    Row(ApiKey.LIST_OFFSETS, ((DESCRIBE, T),), ({29},),
        {"replica_id": -1, "topics": on({**P0, "timestamp": -1})}),
    Row(ApiKey.METADATA, ((DESCRIBE, T),), ({29},), {"topics": [{"name": "t"}]}),
    Row(ApiKey.METADATA, ((DESCRIBE, T),), (NOTHING,), {"topics": None}, note="all"),
    Row(ApiKey.METADATA, ((CREATE, C),), ({29},),
        {"topics": [{"name": "not a name"}], "allow_auto_topic_creation": True},
        instead=((CREATE, (ResourceType.TOPIC, "not a name")),), note="creation"),
    Row(ApiKey.LEADER_AND_ISR, ((CLUSTER_ACTION, C),), ({31},)),
    Row(ApiKey.STOP_REPLICA, ((CLUSTER_ACTION, C),), ({31},)),
    Row(ApiKey.UPDATE_METADATA, ((CLUSTER_ACTION, C),), ({31},)),
    Row(ApiKey.CONTROLLED_SHUTDOWN, ((CLUSTER_ACTION, C),), ({31},), {"broker_id": 99}),
    Row(ApiKey.OFFSET_COMMIT, ((READ, G), (READ, T)), ({30}, {29}),
        {"group_id": "g", "topics": on(OFFSET)}),
    Row(ApiKey.OFFSET_FETCH, ((DESCRIBE, G), (DESCRIBE, T)), ({30}, {29}),
        {"group_id": "g", "topics": on(0, numbers="partition_indexes")}),
    Row(ApiKey.OFFSET_FETCH, ((DESCRIBE, G),), ({30},), {"group_id": "g", "topics": None},
        note="all"),
    Row(ApiKey.FIND_COORDINATOR, ((DESCRIBE, G),), ({30},), {"key": "g", "key_type": 0}),
    Row(ApiKey.FIND_COORDINATOR, ((DESCRIBE, X),), ({53},), {"key": "x", "key_type": 1},
        note="transaction"),
    Row(ApiKey.JOIN_GROUP, ((READ, G),), ({30},), {
        "group_id": "g", "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
    Row(ApiKey.HEARTBEAT, ((READ, G),), ({30},), {"group_id": "g"}),
    Row(ApiKey.LEAVE_GROUP, ((READ, G),), ({30},), {"group_id": "g"}),
    Row(ApiKey.SYNC_GROUP, ((READ, G),), ({30},), {
        "group_id": "g", "protocol_type": "consumer", "protocol_name": "range"}),
    Row(ApiKey.DESCRIBE_GROUPS, ((DESCRIBE, G),), ({30},), {"groups": ["g"]}),
    Row(ApiKey.LIST_GROUPS, ((DESCRIBE, C),), (NOTHING,), instead=((DESCRIBE, G),)),
    Row(ApiKey.SASL_HANDSHAKE, (), (), {"mechanism": "PLAIN"}),
    Row(ApiKey.API_VERSIONS),
    Row(ApiKey.CREATE_TOPICS, ((CREATE, C),), ({29},), {"validate_only": True, "topics": [
        {"name": "new", "num_partitions": 1, "replication_factor": 1}]},
        instead=((CREATE, (ResourceType.TOPIC, "new")),)),
    Row(ApiKey.DELETE_TOPICS, ((DELETE, (ResourceType.TOPIC, "gone")),), ({29},),
        {"topic_names": ["gone"]}),
    Row(ApiKey.DELETE_RECORDS, ((DELETE, T),), ({29},), {"topics": on({**P0, "offset": 0})}),
    Row(ApiKey.INIT_PRODUCER_ID, ((WRITE, X),), ({53},),
        {"transactional_id": "x", "transaction_timeout_ms": 1000}),
    Row(ApiKey.INIT_PRODUCER_ID, ((IDEMPOTENT_WRITE, C),), ({31},), {"transactional_id": None},
        note="idempotent"),
    Row(ApiKey.OFFSET_FOR_LEADER_EPOCH, ((DESCRIBE, T),), ({29},), {"topics": on(P0)},
        instead=((CLUSTER_ACTION, C),)),
    Row(ApiKey.ADD_PARTITIONS_TO_TXN, ((WRITE, X), (WRITE, T)), ({53}, {29}),
        {**TXN, "topics": on(0)}),
    Row(ApiKey.ADD_OFFSETS_TO_TXN, ((WRITE, X), (READ, G)), ({53}, {30}), {**TXN, "group_id": "g"}),
    Row(ApiKey.END_TXN, ((WRITE, X),), ({53},), TXN),
    Row(ApiKey.WRITE_TXN_MARKERS, ((CLUSTER_ACTION, C),), ({31},), {"markers": [MARKER]}),
    Row(ApiKey.TXN_OFFSET_COMMIT, ((WRITE, X), (READ, G), (READ, T)), ({53}, {30}, {29}),
        {**TXN, "group_id": "g", "topics": on(OFFSET)}),
    Row(ApiKey.DESCRIBE_ACLS, ((DESCRIBE, C),), ({31},), NO_FILTER),
    Row(ApiKey.CREATE_ACLS, ((ALTER, C),), ({31},), {"creations": [ACL]}),
    Row(ApiKey.DELETE_ACLS, ((ALTER, C),), ({31},), {"filters": [NO_FILTER]}),
    Row(ApiKey.DESCRIBE_CONFIGS, ((DESCRIBE_CONFIGS, T),), ({29},), {"resources": DESCRIBED_TOPIC}),
    Row(ApiKey.DESCRIBE_CONFIGS, ((DESCRIBE_CONFIGS, C),), ({31},),
        {"resources": DESCRIBED_BROKER}, note="broker"),
    Row(ApiKey.ALTER_CONFIGS, ((ALTER_CONFIGS, T),), ({29},),
        {"resources": [TOPIC_CONFIG], "validate_only": True}),
    Row(ApiKey.ALTER_CONFIGS, ((ALTER_CONFIGS, C),), ({31},),
        {"resources": [BROKER_CONFIG], "validate_only": True}, note="broker"),
    Row(ApiKey.ALTER_REPLICA_LOG_DIRS, ((ALTER, C),), ({31},),
        {"dirs": [{"path": "/none", "topics": on(0)}]}),
    Row(ApiKey.DESCRIBE_LOG_DIRS, ((DESCRIBE, C),), (NOTHING,), {"topics": None}),
    Row(ApiKey.SASL_AUTHENTICATE, (), (), {"auth_bytes": b""}),
    Row(ApiKey.CREATE_PARTITIONS, ((ALTER, T),), ({29},),
        {"topics": [{"name": "t", "count": 9, "assignments": None}], "validate_only": True}),
    Row(ApiKey.CREATE_DELEGATION_TOKEN),
    Row(ApiKey.RENEW_DELEGATION_TOKEN, (), (), {"hmac": b""}),
    Row(ApiKey.EXPIRE_DELEGATION_TOKEN, (), (), {"hmac": b""}),
    Row(ApiKey.DESCRIBE_DELEGATION_TOKEN, (), (), {"owners": None}),
    Row(ApiKey.DELETE_GROUPS, ((DELETE, (ResourceType.GROUP, "none")),), ({30},),
        {"groups_names": ["none"]}),
    Row(ApiKey.ELECT_LEADERS, ((ALTER, C),), ({31},), {"topic_partitions": on(
        0, name="topic", numbers="partition_id"), "timeout_ms": 100}),
    Row(ApiKey.INCREMENTAL_ALTER_CONFIGS, ((ALTER_CONFIGS, T),), ({29},),
        {"resources": [TOPIC_CONFIG], "validate_only": True}),
    Row(ApiKey.INCREMENTAL_ALTER_CONFIGS, ((ALTER_CONFIGS, C),), ({31},),
        {"resources": [BROKER_CONFIG], "validate_only": True}, note="broker"),
    Row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ((ALTER, C),), ({31},),
        {"topics": on({**P0, "replicas": None})}),
    Row(ApiKey.LIST_PARTITION_REASSIGNMENTS, ((DESCRIBE, C),), ({31},), {"topics": None}),
    Row(ApiKey.OFFSET_DELETE, ((DELETE, G), (READ, T)), ({30}, {29}),
        {"group_id": "g", "topics": on(P0)}),
    Row(ApiKey.DESCRIBE_CLIENT_QUOTAS, ((DESCRIBE_CONFIGS, C),), ({31},)),
    Row(ApiKey.ALTER_CLIENT_QUOTAS, ((ALTER_CONFIGS, C),), ({31},), QUOTAS),
    Row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ((DESCRIBE, C),), ({31},), {"users": None}),
    Row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ((ALTER, C),), ({31},),
        {"deletions": [{"name": "u", "mechanism": 1}]}),
    Row(ApiKey.ALTER_ISR, ((CLUSTER_ACTION, C),), ({31},), {"broker_id": 1}),
    Row(ApiKey.UPDATE_FEATURES, ((ALTER, C),), ({31},)),
]  # fmt: skip
# Permissions that a request may need besides those that its row is about.
DESCRIBED = {"creation": ((DESCRIBE, (ResourceType.TOPIC, "not a name")),), "all": ((DESCRIBE, T),)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with running_brokers(tmp_path_factory.mktemp("acls")) as cluster:
        world = AclWorld(cluster)
        admin = cluster.admin()
        (result,) = cluster.run(admin.topics.create([NewTopic("t", 1, 1)]))
        assert result.error is None
        for kind in (0, 1):
            world.ask(
                "super", message(ApiKey.FIND_COORDINATOR.request_class, key="g", key_type=kind)
            )
        cluster.until(lambda: not codes_in(commit_offset(world)), "a coordinator")
        yield world


def commit_offset(world):
    commit = message(ApiKey.OFFSET_COMMIT.request_class, group_id="g", topics=on(OFFSET))
    return world.ask("super", commit)


def asked(world, row, principal="p"):
    if row.api is ApiKey.OFFSET_DELETE:
        # An earlier test may have deleted the group's last offset, and the group with it.
        commit_offset(world)
    return world.ask(principal, message(row.api.request_class, **row.body), row.version)


def visible_in(response):
    """The entries of a response about topic t, group g, or anything that has no name."""
    names = ("topics", "groups", "results")
    entries = next(getattr(response, name) for name in names if hasattr(response, name))
    return [
        entry
        for entry in entries
        if getattr(entry, "name", getattr(entry, "group_id", "t")) in ("t", "g")
    ]


def assert_refused(row, number, answer):
    wanted = row.refusals[number]
    assert answer != CLOSED
    if wanted == NOTHING:
        assert visible_in(answer) == []
        assert codes_in(answer) == set()
    else:
        assert codes_in(answer) - {55} == wanted


def assert_allowed(answer):
    assert answer == CLOSED or codes_in(answer) & AUTHORIZATION_ERRORS == set()


def test_every_api_has_a_guard_and_a_row():
    assert set(GUARDS) == set(HANDLERS) == {row.api for row in ROWS}


OF_BROKERS = {api for api, operation in OF_CLIENT_ALONE.items() if operation is CLUSTER_ACTION}


def asked_before_it_is_decoded(world, api, size):
    """A request of `size` bytes whose body is not decoded, its answers, and whether it will be."""
    answers = []
    context = RequestContext("c", HOST, "PLAINTEXT", principal="User:p")
    request = Request(api, api.max_version, 1, "app", None, context, 0, answers.append, pytest.fail)
    return request, answers, world.broker.server.may_be_decoded(request, size)


def test_what_only_the_client_decides_is_known():
    assert {
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_ISR,
    } == OF_BROKERS  # fmt: skip
    of_the_cluster_only = {
        row.api for row in ROWS
        if row.refusals and not row.instead
        and [resource for _, resource in row.needs] == [C]
    }  # fmt: skip
    of_some_requests = {
        ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_TOPICS, ApiKey.LIST_GROUPS,
    }  # fmt: skip
    assert of_the_cluster_only - of_some_requests <= OF_CLIENT_ALONE.keys()
    assert not OF_CLIENT_ALONE.keys() & of_some_requests


@pytest.mark.parametrize("api", list(OF_CLIENT_ALONE), ids=lambda api: api.name)
def test_large_requests_are_refused_before_they_are_decoded(world, api):
    size = 200_000 if api in OF_BROKERS else REFUSED_BY_NAME_BYTES_MAX + 1
    world.set_acls()
    _, (answer,), is_wanted = asked_before_it_is_decoded(world, api, size)
    assert not is_wanted
    assert getattr(answer, "error_code", 31) == 31
    # What a request for topics needs is in its body.
    assert asked_before_it_is_decoded(world, ApiKey.OFFSET_COMMIT, size)[1:] == ([], True)
    world.set_acls(allow(OF_CLIENT_ALONE[api], *C, "p"))
    request, answers, is_wanted = asked_before_it_is_decoded(world, api, size)
    assert (request.body, answers, is_wanted) == (None, [], True)


def test_clients_find_the_elements_of_a_refused_request_of_a_megabyte(world):
    world.set_acls()
    for api in OF_CLIENT_ALONE.keys() - OF_BROKERS:
        size = REFUSED_BY_NAME_BYTES_MAX
        assert asked_before_it_is_decoded(world, api, size)[1:] == ([], True)


def refusals_in(struct):
    """The errors anywhere in a response that know which permission is missing."""
    found = [struct.error_code] if isinstance(getattr(struct, "error_code", 0), RefusedCode) else []
    values = [getattr(struct, it.name) for it in struct.fields]
    parts = [it for value in values if isinstance(value, list) for it in value]
    return found + [code for it in parts if isinstance(it, Struct) for code in refusals_in(it)]


# Requests of brokers and of old clients, which get an error about another resource than they lack.
OF_ANOTHER_RESOURCE = {"fetch-follower", "metadata-creation", "create_topics"}
REFUSED_ROWS = [row for row in ROWS if row.refusals and row.name not in OF_ANOTHER_RESOURCE]


@pytest.mark.parametrize("row", REFUSED_ROWS, ids=lambda row: row.name)
def test_clients_find_the_missing_permission(world, row):
    for number, (operation, (kind, name)) in enumerate(row.needs):
        if row.refusals[number] == NOTHING:
            continue
        missed = ((operation, (kind, name)), *row.instead)
        world.set_acls(*everything("p"), *(deny(op, *denied, "p") for op, denied in missed))
        answer = asked(world, row)

        explain_refusals(message(row.api.request_class, **row.body), answer)

        resource = "Cluster" if kind is ResourceType.CLUSTER else f"{kind.text} {name}"
        assert {it.needs for it in refusals_in(answer)} == {f"{operation.text} on {resource}"}


def test_apis_that_brokers_protect_have_a_row_for_clients():
    reported = {it.api.name for it in REFUSED_ROWS if it.refusals != (NOTHING,)}
    assert reported <= PERMISSIONS.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
class TestTable:
    def test_nothing_is_allowed(self, world, row):
        world.set_acls()
        answer = asked(world, row)
        if row.refusals:
            assert_refused(row, 0, answer)
        else:
            assert_allowed(answer)

    def test_everything_is_allowed(self, world, row):
        world.set_acls(*everything("p"))
        assert_allowed(asked(world, row))

    def test_only_what_is_needed_is_allowed(self, world, row):
        also = DESCRIBED.get(row.note, ())
        for needed in (row.needs, *((it,) for it in row.instead)):
            world.set_acls(*(allow(op, *resource, "p") for op, resource in (*needed, *also)))
            assert_allowed(asked(world, row))

    def test_everything_but_that_is_allowed(self, world, row):
        for number, (operation, resource) in enumerate(row.needs):
            missed = ((operation, resource), *row.instead)
            world.set_acls(*everything("p"), *(deny(op, *denied, "p") for op, denied in missed))
            answer = asked(world, row)
            assert_refused(row, number, answer)


def test_request_that_names_no_protocol_is_rejected_for_that_first(world):
    world.set_acls()
    request = message(ApiKey.SYNC_GROUP.request_class, group_id="g")
    assert codes_in(world.ask("p", request)) == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    assert codes_in(world.ask("p", request, 4)) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_a_refusal_to_leave_names_no_members(world):
    """As in Apache Kafka 2.7.2."""
    world.set_acls()
    members = [{"member_id": "m", "group_instance_id": None}]
    answer = world.ask(
        "alice", message(ApiKey.LEAVE_GROUP.request_class, group_id="g", members=members)
    )
    assert (answer.error_code, answer.members) == (30, [])


def test_a_topic_that_is_named_twice_is_invalid_whether_allowed_or_not(world):
    """As in Apache Kafka 2.7.2."""
    world.set_acls()
    names = ("once", "twice", "twice")
    topics = [{"name": it, "num_partitions": 1, "replication_factor": 1} for it in names]
    answer = world.ask("alice", message(ApiKey.CREATE_TOPICS.request_class, topics=topics))
    assert [(it.name, it.error_code) for it in answer.topics] == [
        ("once", 29), ("twice", 42), ("twice", 42)
    ]  # fmt: skip
    assert answer.topics[0].error_message == "Authorization failed."
    # Nor may it see what the configs would be.
    assert [it.topic_config_error_code for it in answer.topics] == [29, 29, 29]
    assert answer.topics[1].error_message == "Found multiple entries for this topic."


@pytest.mark.parametrize("others", [[], [{"name": "refused"}]])
def test_a_creation_that_fails_in_a_later_turn_fails_the_request_of_its_client(world, others):
    """Otherwise its connection would wait for a response that never arrives."""
    world.set_acls(allow(CREATE, ResourceType.TOPIC, "mine", "p"))
    failures = []
    body = message(ApiKey.CREATE_TOPICS.request_class, topics=[{"name": "mine"}, *others])
    request = Request(
        ApiKey.CREATE_TOPICS, 5, 1, "app", body,
        RequestContext("c", HOST, "PLAINTEXT", principal="User:p"), 0,
        failures.append, failures.append,
        failed=lambda failed, error: failures.append((failed, error)),
    )  # fmt: skip
    part = authorized(world.broker.services, request)
    assert [topic.name for topic in part.body.topics] == ["mine"]
    error = StoppingError("stopped")
    part.fail(error)
    assert failures == [(request, error)]


@pytest.mark.parametrize(
    ("api", "version", "names_topics"),
    [
        (ApiKey.OFFSET_FETCH, 1, True),
        (ApiKey.OFFSET_FETCH, 2, False),
        (ApiKey.OFFSET_FETCH, 7, False),
        (ApiKey.OFFSET_DELETE, 0, False),
    ],
)
def test_offsets_of_a_group_that_is_not_allowed_are_one_error(world, api, version, names_topics):
    world.set_acls()
    (row,) = [it for it in ROWS if it.api is api and it.name == api.name.lower()]
    response = world.ask("p", message(api.request_class, **row.body), version)
    assert codes_in(response) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert bool(response.topics) == names_topics
