"""What a consumer reads and writes as znodes, and the watches that it leaves."""

import pytest

from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition, Layout
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import ConnectionLossError
from tests.support.virtual_runtime import virtual_runtime


def test_a_topic_of_kafka_07_is_watched_from_before_its_creation_to_its_last_broker():
    runtime = virtual_runtime()
    store = EmbeddedStore(runtime, ZnodeDatabase.in_memory(runtime))
    registry = ConsumerRegistry(store, Layout.KAFKA_0_7)
    events = []

    def result(coroutine):
        task = runtime.scheduler.spawn(coroutine)
        runtime.scheduler.settle()
        return task.result()

    def topics():
        return result(registry.topics(lambda _: events.append("topics")))

    def partitions():
        return result(registry.partitions(["t"], lambda _: events.append("t")))["t"]

    def seen():
        runtime.scheduler.settle()
        found = set(events)
        events.clear()
        return found

    assert (topics(), list(partitions())) == ([], [])
    result(registry.make_path("/brokers/topics/t"))
    assert seen() == {"topics", "t"}
    assert (topics(), list(partitions())) == (["t"], [])
    result(registry.create_recursive("/brokers/topics/t/2", b"2"))
    assert seen() == {"t"}
    assert list(partitions()) == [BrokerPartition(2, 0), BrokerPartition(2, 1)]
    result(registry.create_recursive("/brokers/topics/t/11", b"1"))
    assert seen() == {"t"}
    assert set(partitions()) == {(2, 0), (2, 1), (11, 0)}
    result(registry.delete_if_exists("/brokers/topics/t/2"))
    assert seen() == {"t"}
    assert list(partitions()) == [BrokerPartition(11, 0)]


def test_a_first_commit_of_many_partitions_takes_two_transactions():
    runtime = virtual_runtime()
    store = EmbeddedStore(runtime, ZnodeDatabase.in_memory(runtime))
    registry = ConsumerRegistry(store)
    transactions = []
    multi = store.multi
    partitions = [ConsumedPartition("t", number) for number in range(100)]

    def counted(operations):
        transactions.append(operations)
        return multi(operations)

    async def story():
        await registry.prepare("g")
        await registry.register("g", "c", b"{}")
        await registry.claim("g", "c", dict.fromkeys(partitions, 0))
        # One offset exists already.
        await registry.create_recursive("/consumers/g/offsets/t/7", b"3")
        store.multi = counted
        await registry.commit("g", "c", dict.fromkeys(partitions, 5))
        return await registry.stored_offsets("g", partitions)

    task = runtime.scheduler.spawn(story())
    runtime.scheduler.settle()
    assert {it: offset for it, (offset, _) in task.result().items()} == dict.fromkeys(partitions, 5)
    assert len(transactions) == 2


def test_a_member_that_registers_its_topics_after_its_id_is_seen_then():
    """As kafka-node does: the first members may read its id while it has no data."""
    runtime = virtual_runtime()
    store = EmbeddedStore(runtime, ZnodeDatabase.in_memory(runtime))
    registry = ConsumerRegistry(store)
    events = []
    name = "g_0b9cd3f6-1f59-4f3c-8d0e-2f6c1c0b7a11"
    path = f"/consumers/g/ids/{name}"

    async def members():
        return await registry.members("g", events.append)

    async def story():
        await registry.create_recursive(path, b"")
        assert await members() == {name: None}
        assert events == []
        await store.set(path, b'{"version":1,"subscription":{"t": 1},"pattern":"white_list"}')
        return (await members())[name]

    task = runtime.scheduler.spawn(story())
    runtime.scheduler.settle()
    assert task.result().streams == {"t": 1}
    assert [it.path for it in events] == [path]


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_release_that_is_repeated_leaves_a_partition_that_is_anothers_by_now(is_carried_out):
    runtime = virtual_runtime()
    database = ZnodeDatabase.in_memory(runtime)
    store, other = EmbeddedStore(runtime, database), EmbeddedStore(runtime, database)
    registry = ConsumerRegistry(store)
    partition = ConsumedPartition("t", 0)
    multi = store.multi

    def answer_is_lost(operations):
        store.multi = multi
        if is_carried_out:
            multi(operations)
            other.create("/consumers/g/owners/t/0", b"d-0", ephemeral=True)
        lost = runtime.scheduler.future()
        lost.set_error(ConnectionLossError("/"))
        return lost

    async def story():
        await registry.prepare("g")
        await registry.register("g", "c", b"{}")
        await registry.claim("g", "c", {partition: 0})
        store.multi = answer_is_lost
        await registry.release("g", "c", [partition])
        return await registry.owners("g", [partition], lambda _: None)

    task = runtime.scheduler.spawn(story())
    runtime.scheduler.settle()
    assert {it.thread_id for it in task.result().values()} == ({"d-0"} if is_carried_out else set())
