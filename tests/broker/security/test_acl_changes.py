"""Changes of ACLs: through the APIs of a real broker, and by others in the store."""

from functools import partial

import pytest

from kctl.admin.topics import NewTopic
from kctl.broker.security import acl_cache
from kctl.protocol.acl import (
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
)
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.store import acl_registry, security_znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import SessionExpiredError
from kctl.work import Pace
from tests.support.acl_world import AclWorld, codes_in, message
from tests.support.broker_cluster import running_brokers
from tests.support.log_world import batch

TOPIC = ResourceType.TOPIC
ORDERS = AclPattern(TOPIC, "orders")
PREFIX = AclPattern(TOPIC, "ord", PatternType.PREFIXED)
ALICE_WRITES = AclEntry("User:alice", "*", AclOperation.WRITE, PermissionType.ALLOW)
ALICE_READS = AclEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)


@pytest.fixture
def world(tmp_path):
    with running_brokers(tmp_path) as cluster:
        world = AclWorld(cluster)
        admin = cluster.admin()
        cluster.run(admin.topics.create([NewTopic("orders", 1, 1)]))
        yield world


def creation(pattern=ORDERS, entry=ALICE_WRITES, **changes):
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "resource_pattern_type": pattern.pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
        **changes,
    }


def create(world, *creations):
    request = message(ApiKey.CREATE_ACLS.request_class, creations=list(creations))
    return world.ask("super", request).results


def a_filter(**values):
    return {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
        **values,
    }  # fmt: skip


def described(world, **values):
    answer = world.ask("super", message(ApiKey.DESCRIBE_ACLS.request_class, **a_filter(**values)))
    assert not answer.error_code
    return {
        (it.resource_name, it.pattern_type, acl.principal, acl.operation)
        for it in answer.resources
        for acl in it.acls
    }


def delete(world, *filters):
    request = message(ApiKey.DELETE_ACLS.request_class, filters=list(filters))
    return world.ask("super", request).filter_results


def may_produce(world):
    partition = {"partition_index": 0, "records": batch(b"v")}
    topics = [{"name": "orders", "partitions": [partition]}]
    request = message(ApiKey.PRODUCE.request_class, acks=1, topics=topics)
    return not codes_in(world.ask("alice", request))


def store_of(world):
    """Another client of the same store, such as another broker."""
    return ClusterStore(EmbeddedStore(world.cluster.runtime, world.cluster.database))


def test_an_entry_is_in_force_when_its_creation_is_answered_and_no_longer_after_its_deletion(world):
    assert not may_produce(world)
    for pattern in (ORDERS, PREFIX):
        (result,) = create(world, creation(pattern))
        assert result.error_code == 0
        assert may_produce(world)
        (result,) = delete(world, a_filter(resource_name_filter=pattern.name))
        assert [it.resource_name for it in result.matching_acls] == [pattern.name]
        assert not may_produce(world)


def test_creations_stand_alone(world):
    wrong = [
        creation(resource_type=ResourceType.CLUSTER, resource_name="other"),
        creation(resource_name=""),
        creation(resource_name="a/b"),
        creation(principal="alice"),
        creation(operation=1),
        creation(resource_pattern_type=2),
        creation(permission_type=0),
        creation(resource_type=9),
    ]
    results = create(world, *wrong, creation(), creation())
    assert [it.error_code for it in results] == [42] * len(wrong) + [0, 0]
    assert all(it.error_message for it in results[: len(wrong)])
    assert described(world) == {("orders", 3, "User:alice", 4)}


def test_a_success_has_an_empty_message_as_apache_kafkas(world):
    (result,) = create(world, creation())
    assert (result.error_code, result.error_message) == (0, "")
    request = message(ApiKey.DESCRIBE_ACLS.request_class, **a_filter())
    response = world.ask("super", request)
    assert (response.error_code, response.error_message) == (0, "")


def test_a_deleted_entry_is_reported_for_the_first_filter_that_matches(world):
    create(world, creation(), creation(entry=ALICE_READS), creation(PREFIX))
    filters = [
        a_filter(resource_name_filter="none"),
        a_filter(operation=AclOperation.READ),
        a_filter(operation=77),
        a_filter(principal_filter="User:alice"),
    ]
    results = delete(world, *filters)
    assert [len(it.matching_acls) for it in results] == [0, 1, 0, 2]
    assert [it.error_code for it in results] == [0, 0, 42, 0]
    assert described(world) == set()
    assert len(world.authorizer.index) == 0


def test_filters_of_version_0_find_literal_patterns_only(world):
    create(world, creation(), creation(PREFIX))
    values = a_filter()
    del values["pattern_type_filter"]
    request = message(ApiKey.DESCRIBE_ACLS.request_class, **values)
    answer = world.ask("super", request, 0)
    assert [it.resource_name for it in answer.resources] == ["orders"]


def test_t26_changes_of_other_writers_are_applied(world):
    """Two writers change the same two patterns at once, 20 times each."""
    stores = [store_of(world), store_of(world)]
    scheduler = world.cluster.runtime.scheduler

    async def write(store, number):
        async def extended(mine, before):
            return (*before, mine)

        for round_ in range(20):
            mine = AclEntry(f"User:{number}-{round_}", "*", AclOperation.READ, PermissionType.ALLOW)
            for pattern in (ORDERS, PREFIX):
                await store.update_acls(pattern, partial(extended, mine))

    tasks = [scheduler.spawn(write(store, n)) for n, store in enumerate(stores)]
    for task in tasks:
        world.cluster.run(task)
    stored = world.cluster.run(stores[0].get_acls([ORDERS, PREFIX]))
    assert [len(entries) for entries in stored.values()] == [40, 40]
    index = world.authorizer.index
    world.cluster.until(
        lambda: all(index.entries(it) == stored[it] for it in stored), "the same entries"
    )


def test_a_znode_that_cannot_be_read_denies_everything_until_it_can(world):
    create(world, creation(PREFIX))
    assert may_produce(world)
    store = store_of(world)

    def put(data):
        path = security_znodes.acl_path(ORDERS)
        world.cluster.run(store.set_or_create(path, data))
        prefix = security_znodes.acl_change_prefix(ORDERS)
        world.cluster.run(
            store.create_sequential(prefix, security_znodes.encode_acl_change(ORDERS))
        )

    put(b'{"version":2,"acls":[]}')
    world.cluster.until(lambda: not may_produce(world), "a denial")
    put(security_znodes.encode_acls([ALICE_WRITES]))
    world.cluster.until(lambda: may_produce(world), "the entries")


def test_an_announcement_that_cannot_be_read_makes_the_broker_read_everything(world):
    store = store_of(world)
    path = security_znodes.acl_path(ORDERS)
    world.cluster.run(store.set_or_create(path, security_znodes.encode_acls([ALICE_WRITES])))
    prefix = security_znodes.acl_change_prefix(PREFIX)
    world.cluster.run(store.create_sequential(prefix, b"{}"))
    world.cluster.until(lambda: may_produce(world), "the entries")


def test_entries_are_loaded_before_the_broker_serves_and_survive_a_restart(tmp_path):
    with running_brokers(tmp_path) as cluster:
        world = AclWorld(cluster)
        create(world, creation(), creation(PREFIX))
        cluster.stop(1)
        again = AclWorld(cluster)
        assert len(again.authorizer.index) == 2


def test_a_crowded_pattern_is_compared_over_many_turns(world, monkeypatch):
    monkeypatch.setattr(acl_registry, "ENTRIES_PER_TURN", 10)
    store = store_of(world)
    turns, turn = [], type(store.store).turn
    monkeypatch.setattr(type(store.store), "turn", lambda self: (turns.append(1), turn(self))[1])
    entries = [
        creation(entry=AclEntry(f"User:{number}", "*", AclOperation.READ, PermissionType.ALLOW))
        for number in range(20)
    ]
    create(world, *entries)
    created = len(turns)
    assert created >= 1
    create(world, creation())
    # After the entries were decoded, encoded and loaded.
    assert len(turns) >= created + 3


def test_a_pattern_has_a_limited_number_of_entries(world, monkeypatch):
    monkeypatch.setattr(acl_cache, "ENTRIES_PER_PATTERN_MAX", 1)
    create(world, creation())
    (result,) = create(world, creation(entry=ALICE_READS))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert world.authorizer.index.entries(ORDERS) == (ALICE_WRITES,)


def test_entries_and_filters_that_are_compared_count_as_work(world, monkeypatch):
    entries = [
        creation(entry=AclEntry(f"User:{number}", "*", AclOperation.READ, PermissionType.ALLOW))
        for number in range(20)
    ]
    create(world, *entries)
    spent, spend = [], Pace.spend

    async def counted(self, units=1):
        spent.append(units)
        await spend(self, units)

    monkeypatch.setattr(Pace, "spend", counted)
    filters = [a_filter(principal_filter="User:none")] * 50
    world.ask("super", message(ApiKey.DELETE_ACLS.request_class, filters=filters))
    # At most 20 comparisons in a unit.
    assert sum(spent) >= 20 * 50 / 20


def test_a_deletion_that_cannot_read_the_entries_fails(world, monkeypatch):
    """It was answered like one that no entry matches: a denial, or a permission, seemed gone."""
    assert create(world, creation())[0].error_code == 0

    async def get(*_args, **_options):
        raise SessionExpiredError(security_znodes.acl_path(ORDERS))

    monkeypatch.setattr(ClusterStore, "get", get)
    (result,) = delete(world, a_filter(principal_filter="User:alice"))
    assert result.error_code == -1
    assert "session" in result.error_message
    assert may_produce(world)


def test_a_change_that_cannot_be_announced_is_not_made(world):
    """A writer that died between change and announcement left the other brokers with old entries,
    for good."""
    (broker,) = world.cluster.brokers.values()
    database = broker.services.cluster_store.store.database
    database.tree.nodes.pop(security_znodes.ACL_CHANGES)
    (result,) = create(world, creation())
    assert result.error_code == -1
    assert security_znodes.acl_path(ORDERS) not in database.tree.nodes
