"""kctl acl: entries are listed, added, removed and checked."""

import json

import pytest

from kctl.testing.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def locked():
    settings = {"super.users": "User:ANONYMOUS"}
    with KafkaBroker(topics=["orders"], acls=[], settings=settings) as broker:
        yield broker


@pytest.fixture
def acl(kctl, locked):
    """Run `kctl acl ...`; afterwards there are no entries."""

    def run(*arguments, **options):
        return kctl("acl", *arguments, "-b", locked.bootstrap_servers, **options)

    async def no_entries(_):
        return ()

    yield run
    cache = locked._broker.services.acl_cache
    for pattern in cache.index.patterns():
        locked._call(cache.change, pattern, no_entries)


def rows(ran):
    return json.loads(ran.out)


def entries(acl, *arguments):
    return [
        (it["resource"], it["principal"], it["permission"], it["operation"], it["host"])
        for it in rows(acl("list", *arguments, "-o", "json"))
    ]


def test_entries_come_and_go(acl):
    assert acl("add", "alice", "read,describe-configs", "topic:orders", "group:shop-*").status == 0
    acl("add", "Group:ops", "all", "cluster", "--deny", "--host", "::1")
    assert entries(acl) == [
        ("topic:orders", "User:alice", "Allow", "Read", "*"),
        ("topic:orders", "User:alice", "Allow", "DescribeConfigs", "*"),
        ("group:shop-*", "User:alice", "Allow", "Read", "*"),
        ("group:shop-*", "User:alice", "Allow", "DescribeConfigs", "*"),
        ("cluster", "Group:ops", "Deny", "All", "0:0:0:0:0:0:0:1"),
    ]
    assert entries(acl, "group:shop-1", "--principal", "alice")[0][0] == "group:shop-*"
    assert acl("remove", "alice", "read", "topic:orders", "--yes").status == 0
    assert len(entries(acl)) == 4


def test_a_dry_run_shows_the_entries_and_adds_none(acl):
    shown = acl("add", "alice", "--producer", "topic:orders", "transactional-id:x", "--idempotent",
                "-n", "-o", "json")  # fmt: skip
    assert [(it["resource"], it["operation"]) for it in rows(shown)] == [
        ("topic:orders", "Write"),
        ("topic:orders", "Describe"),
        ("topic:orders", "Create"),
        ("transactional-id:x", "Write"),
        ("transactional-id:x", "Describe"),
        ("cluster", "IdempotentWrite"),
    ]
    assert entries(acl) == []


def test_what_a_consumer_needs_is_removed_as_it_was_added(acl):
    consumer = ("alice", "--consumer", "topic:orders", "group:shop")
    acl("add", *consumer)
    assert len(entries(acl)) == 3
    removed = acl("remove", *consumer, "-n", "-o", "json")
    assert {it["status"] for it in rows(removed)} == {"would remove"}
    assert acl("remove", *consumer, "-y").status == 0
    assert entries(acl) == []
    assert acl("remove", *consumer, "-y").status == 1


def test_check_shows_the_entry_that_decides(acl):
    acl("add", "*", "read", "topic:ord*")
    acl("add", "alice", "read", "topic:orders", "--deny", "--host", "10.0.0.7")

    def decided(*arguments):
        (row,) = rows(acl("check", "alice", *arguments, "-o", "json"))
        return row["allowed"], row["acl"]

    everyone = "Allow Read for User:* from host * on Topic:PREFIXED:ord"
    assert decided("read", "topic:orders") == (True, everyone)
    assert decided("describe", "topic:orders", "--from", "10.0.0.7") == (True, everyone)
    denial = "Deny Read for User:alice from host 10.0.0.7 on Topic:LITERAL:orders"
    assert decided("read", "topic:orders", "--from", "10.0.0.7") == (False, denial)
    assert decided("write", "topic:orders") == (False, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("alice", "read"),
        ("alice", "fly", "topic:t"),
        ("alice", "read", "queue:t"),
        ("alice", "read", "topic:"),
        ("alice", "read", "cluster:mine"),
        ("alice", "read", "topic:t", "--host", "localhost"),
        ("alice", "--producer", "group:g"),
        ("alice", "--consumer", "topic:t", "--deny"),
        ("alice", "read", "topic:t", "--idempotent"),
    ],
)
def test_mistakes_are_found_before_the_cluster_is_asked(acl, arguments):
    assert acl("add", *arguments).status == 2


def test_a_broker_without_an_authorizer_says_so(kctl, address):
    ran = kctl("acl", "list", "-b", address)
    assert ran.status == 1
    assert "No Authorizer is configured" in ran.err
