"""ClusterStore writes what Kafka 2.7.2 writes, in its order, and fenced."""

import json
from pathlib import Path
from typing import Any

import pytest

from kctl.model import BrokerInfo, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import (
    ControllerMovedError,
    NodeExistsError,
    NoNodeError,
)
from kctl.store.interface import Create, Delete, Set
from kctl.store.journal_format import decode_transactions
from kctl.store.znodes import FeatureStatus, LeaderIsrAndControllerEpoch

GOLDEN = Path(__file__).parent.parent / "golden" / "znodes" / "transactions.jsonl"
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def run(runtime, coroutine) -> Any:
    return runtime.scheduler.run_until(runtime.scheduler.spawn(coroutine))


# --- the same transactions as Kafka's


Written = tuple[str, str, bytes | None]


def golden(first: int, last: int) -> list[list[Written]]:
    """Kafka's transactions of these zxids: per transaction its writes."""
    transactions = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [
        [
            (kind(write), write["path"], None if write["op"] == "delete" else data_of(write))
            for write in transaction.get("ops", [transaction])
            if write["op"] != "check"
        ]
        for transaction in transactions
        if first <= transaction["zxid"] <= last
    ]


def kind(write: dict[str, Any]) -> str:
    return "ephemeral" if write.get("ephemeral") else write["op"]


def data_of(write: dict[str, Any]) -> bytes:
    return (write["data"] or "").encode()


class Recorded:
    """A ClusterStore whose journal shows its writes."""

    def __init__(self, runtime: Any, directory: Path) -> None:
        self._runtime = runtime
        self._directory = directory
        self.store = EmbeddedStore.open(runtime, str(directory))
        self.cluster = ClusterStore(self.store)
        self._seen = len(self._all())

    def run(self, coroutine: Any) -> list[list[Written]]:
        """What the coroutine wrote, transaction by transaction."""
        run(self._runtime, coroutine)
        transactions = self._all()
        new, self._seen = transactions[self._seen :], len(transactions)
        return new

    def _all(self) -> list[list[Written]]:
        (path,) = self._directory.glob("journal-*")
        return [
            [written(change) for change in transaction.changes]
            for transaction in decode_transactions(path.read_bytes(), str(path), 1)
        ]


def written(change: object) -> Written:
    match change:
        case Create(path, data, ephemeral):
            return "ephemeral" if ephemeral else "create", path, data
        case Set(path, data):
            return "setData", path, data
        case Delete(path):
            return "delete", path, None
    return type(change).__name__, "", None


@pytest.fixture
def recorded(runtime, tmp_path):
    recorded = Recorded(runtime, tmp_path)
    yield recorded
    runtime.scheduler.run_until(recorded.store.close())


def broker(broker_id: int, port: int, rack: str | None = None) -> BrokerInfo:
    return BrokerInfo(broker_id, (Endpoint("127.0.0.1", port),), rack)


async def begin(cluster: ClusterStore) -> tuple[int, int]:
    await cluster.ensure_persistent_paths()
    return await cluster.register_controller_and_increment_epoch(1, timestamp_ms=0)


def test_first_broker_starts_with_kafkas_transactions(recorded):
    cluster = recorded.cluster

    async def start():
        await cluster.ensure_persistent_paths()
        assert await cluster.create_or_get_cluster_id("JzQLOi4JQkytO-cNup0VUQ")
        await cluster.register_broker(broker(1, 19111, "rack1"), timestamp_ms=1795248041404)
        assert await cluster.register_controller_and_increment_epoch(
            1, timestamp_ms=1795248041754
        ) == (1, 1)
        await cluster.set_or_create_feature(FeatureStatus.ENABLED, {})
        await cluster.allocate_producer_id_block(1)

    ours, kafkas = recorded.run(start()), golden(2, 28)
    # The wall clock of that morning is in the broker's znode.
    kafkas[18][1] = (*kafkas[18][1][:2], ours[18][1][2])
    assert ours == kafkas
    # The second start finds everything there.
    assert recorded.run(cluster.ensure_persistent_paths()) == []


def test_topic_comes_with_kafkas_transactions(recorded):
    cluster = recorded.cluster
    epoch, fence = run(recorded._runtime, begin(cluster))
    recorded.run(cluster.topic_exists("none"))

    async def create():
        config = {"segment.bytes": "4096", "retention.ms": "-1", "min.insync.replicas": "1"}
        await cluster.set_entity_config("topics", "ep3", config)
        await cluster.create_topic_assignment("ep3", {0: ReplicaAssignment((1, 2, 3))})
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2, 3)), epoch)
        outcome = await cluster.create_partition_states({TopicPartition("ep3", 0): state}, fence)
        assert outcome == {TopicPartition("ep3", 0): None}

    assert recorded.run(create()) == golden(112, 116)


def test_config_change_is_announced_as_kafka_does_in_the_same_transaction(recorded):
    """Apache Kafka needs two: a broker that dies in between leaves a change that no other applies,
    such as a changed SCRAM password."""
    cluster = recorded.cluster
    run(recorded._runtime, begin(cluster))

    async def prepare():
        await cluster.set_entity_config("topics", "multi", {})

    async def change():
        config = {"max.message.bytes": "500000", "retention.ms": "86400000"}
        await cluster.change_entity_config("topics", "multi", config)

    recorded.run(prepare())
    (announced,) = recorded.run(change())
    assert [[it] for it in announced] == golden(185, 187)


def test_the_first_config_of_a_user_and_its_announcement_are_one_transaction(recorded):
    def update(config):
        return {**config, "SCRAM-SHA-256": "secret"}

    changing = recorded.cluster.update_entity_config("users", "alice", update)
    *parents, announced = recorded.run(changing)
    assert [kind for it in parents for kind, _, _ in it] == ["create"] * len(parents)
    assert [path for _, path, _ in announced] == [
        "/config/users/alice", "/config/changes/config_change_0000000000",
    ]  # fmt: skip
    again = recorded.run(recorded.cluster.update_entity_config("users", "alice", update))
    assert [[path for _, path, _ in it] for it in again] == [
        ["/config/users/alice", "/config/changes/config_change_0000000001"]
    ]


def test_topic_goes_with_kafkas_transactions(recorded):
    cluster = recorded.cluster
    epoch, fence = run(recorded._runtime, begin(cluster))
    mover = TopicPartition("mover", 0)

    async def prepare():
        await cluster.set_entity_config("topics", "mover", {})
        await cluster.create_topic_assignment("mover", {0: ReplicaAssignment((3, 1, 2))})
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(3, 5, (3,)), epoch)
        await cluster.create_partition_states({mover: state}, fence)

    async def delete():
        await cluster.create_delete_topic_path("mover")
        offline = LeaderAndIsr(-1, 6, (3,), 0)
        for _ in range(2):
            result = await cluster.update_leader_and_isr({mover: offline}, 6, fence)
            offline = LeaderAndIsr(-1, 7, (3,), result.finished[mover].zk_version)
        await cluster.delete_topic_znode("mover", fence)
        await cluster.delete_topic_configs(["mover"], fence)
        await cluster.delete_topic_deletions(["mover"], fence)

    recorded.run(prepare())
    assert recorded.run(delete()) == golden(907, 915)
    assert run(recorded._runtime, cluster.get_topic_deletions()) == []


def test_reassignment_step_is_written_as_kafka_does(recorded):
    cluster = recorded.cluster
    _, fence = run(recorded._runtime, begin(cluster))

    async def prepare():
        await cluster.create_topic_assignment("mover", {0: ReplicaAssignment((1, 2))})

    async def reassign():
        assignment = {0: ReplicaAssignment((3, 1, 2), (3,), (2,))}
        await cluster.set_topic_assignment("mover", assignment, fence)

    recorded.run(prepare())
    assert recorded.run(reassign()) == golden(826, 826)


def test_generated_broker_id_counts_as_kafka_does(recorded):
    cluster = recorded.cluster
    run(recorded._runtime, begin(cluster))

    async def generate():
        assert await cluster.generate_broker_sequence_id() == 1

    recorded.run(cluster.topic_exists("none"))
    assert recorded.run(generate()) == golden(1088, 1088)
    assert run(recorded._runtime, cluster.generate_broker_sequence_id()) == 2


# --- brokers and the controller


def test_broker_is_found_with_its_epoch_until_its_session_ends(runtime):
    database = ZnodeDatabase.in_memory(runtime)
    ours = ClusterStore(EmbeddedStore(runtime, database))
    theirs = ClusterStore(EmbeddedStore(runtime, database))

    async def story():
        await ours.ensure_persistent_paths()
        first = await ours.register_broker(broker(10, 9092), timestamp_ms=1)
        second = await theirs.register_broker(broker(9, 9093), timestamp_ms=2)
        assert first < second
        brokers = await ours.get_all_brokers()
        assert [(b.broker_id, b.epoch) for b in brokers.values()] == [(9, second), (10, first)]
        with pytest.raises(NodeExistsError):
            await theirs.register_broker(broker(10, 1), timestamp_ms=3)
        await ours.update_broker(broker(10, 9999), timestamp_ms=4)
        moved = await theirs.get_broker(10)
        assert (moved.endpoints[0].port, moved.epoch) == (9999, first)
        await ours.store.close()
        assert await theirs.get_broker_ids() == [9]
        assert await theirs.get_broker(10) is None

    run(runtime, story())


def test_one_controller_at_a_time_and_each_with_a_higher_epoch(runtime):
    database = ZnodeDatabase.in_memory(runtime)
    first = ClusterStore(EmbeddedStore(runtime, database))
    second = ClusterStore(EmbeddedStore(runtime, database))

    async def story():
        assert await second.get_controller_id() is None
        assert await second.get_controller_epoch() is None
        assert await first.register_controller_and_increment_epoch(1, timestamp_ms=1) == (1, 1)
        with pytest.raises(ControllerMovedError):
            await second.register_controller_and_increment_epoch(2, timestamp_ms=2)
        assert await second.get_controller_id() == 1
        database.expire_session(first.store.session_id)
        assert await second.register_controller_and_increment_epoch(2, timestamp_ms=3) == (2, 2)
        assert await second.get_controller_epoch() == (2, 2)

    run(runtime, story())


def test_controller_that_was_replaced_can_change_nothing(runtime, cluster):
    async def story():
        _, old_fence = await begin(cluster)
        await cluster.create_topic_assignment("t", {0: ReplicaAssignment((1,))})
        await cluster.create_delete_topic_path("t")
        await cluster.delete_controller(old_fence)
        epoch, fence = await cluster.register_controller_and_increment_epoch(2, timestamp_ms=1)
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1,)), epoch)
        await cluster.create_partition_states({T0: state}, fence)
        for write in (
            cluster.create_partition_states({T1: state}, old_fence),
            cluster.set_partition_states({T0: state}, old_fence),
            cluster.update_leader_and_isr({T0: state.leader_and_isr}, 1, old_fence),
            cluster.set_topic_assignment("t", {}, old_fence),
            cluster.delete_topic_znode("t", old_fence),
            cluster.delete_topic_deletions(["t"], old_fence),
            cluster.delete_controller(old_fence),
        ):
            with pytest.raises(ControllerMovedError):
                await write
        assert await cluster.get_partition_states([T0, T1]) == {T0: state}
        assert await cluster.get_topic_deletions() == ["t"]
        assert await cluster.get_controller_id() == 2

    run(runtime, story())


# --- partitions


def test_update_distinguishes_written_outdated_and_missing(runtime, cluster):
    async def story():
        epoch, fence = await begin(cluster)
        await cluster.create_topic_assignment("t", {n: ReplicaAssignment((1, 2)) for n in (0, 1)})
        new = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), epoch)
        outcome = await cluster.create_partition_states({T0: new, T1: new}, fence)
        assert outcome == {T0: None, T1: None}
        again = await cluster.create_partition_states({T0: new}, fence)
        assert isinstance(again[T0], NodeExistsError)
        assert await cluster.update_isr(T1, LeaderAndIsr(1, 0, (1,), 0), epoch) == 1

        missing = TopicPartition("t", 9)
        wanted = LeaderAndIsr(2, 1, (2,), 0)
        result = await cluster.update_leader_and_isr(
            {missing: wanted, T1: wanted, T0: wanted}, epoch, fence
        )
        assert result.to_retry == [T1]
        assert isinstance(result.finished.pop(missing), NoNodeError)
        assert result.finished == {T0: LeaderAndIsr(2, 1, (2,), 1)}
        states = await cluster.get_partition_states([missing, T0, T1])
        assert {tp: state.leader_and_isr for tp, state in states.items()} == {
            T0: LeaderAndIsr(2, 1, (2,), 1),
            T1: LeaderAndIsr(1, 0, (1,), 1),
        }
        assert await cluster.is_leader(T0, 2, 1)
        assert not await cluster.is_leader(T0, 2, 0)
        assert not await cluster.is_leader(T0, 1, 1)
        assert not await cluster.is_leader(missing, 2, 1)

    run(runtime, story())


def test_leader_whose_state_moved_on_learns_it(runtime, cluster):
    async def story():
        epoch, fence = await begin(cluster)
        await cluster.create_topic_assignment("t", {0: ReplicaAssignment((1, 2))})
        new = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), epoch)
        await cluster.create_partition_states({T0: new}, fence)
        assert await cluster.update_isr(T0, LeaderAndIsr(1, 0, (1,), 0), epoch) == 1
        assert await cluster.update_isr(T0, LeaderAndIsr(1, 0, (2,), 0), epoch) is None
        assert await cluster.update_isr(T1, LeaderAndIsr(1, 0, (2,), 0), epoch) is None

    run(runtime, story())


def test_bulk_reads_go_beyond_one_flight_and_keep_order(runtime, cluster, monkeypatch):
    monkeypatch.setattr("kctl.store.znode_client.MAX_IN_FLIGHT_CALLS", 7)

    async def story():
        await cluster.ensure_persistent_paths()
        topics = [f"t{n}" for n in range(30)]
        for n, topic in enumerate(topics):
            await cluster.create_topic_assignment(topic, {0: ReplicaAssignment((n,))})
        wanted = [*reversed(topics), "missing"]
        found = await cluster.get_topic_assignments(wanted)
        assert list(found) == wanted[:-1]
        assert [a[0].replicas for a in found.values()] == [(n,) for n in reversed(range(30))]
        assert await cluster.get_all_topics() == sorted(topics)

    run(runtime, story())


def test_legacy_requests_to_the_controller_are_written_read_and_removed(runtime, cluster):
    async def story():
        _, fence = await begin(cluster)
        events: list[object] = []
        assert await cluster.get_partition_reassignment(events.append) == {}
        await cluster.create_partition_reassignment({T0: (1, 2), T1: (2,)})
        with pytest.raises(NodeExistsError):
            await cluster.create_partition_reassignment({T0: (3,)})
        assert await cluster.get_partition_reassignment() == {T0: (1, 2), T1: (2,)}
        await cluster.set_or_delete_partition_reassignment({T1: (2,)}, fence)
        assert await cluster.get_partition_reassignment() == {T1: (2,)}
        await cluster.set_or_delete_partition_reassignment({}, fence)
        assert await cluster.get_partition_reassignment() == {}
        assert len(events) == 1

        await cluster.create_preferred_replica_election([T1, T0])
        assert await cluster.get_preferred_replica_election() == [T1, T0]
        await cluster.delete_preferred_replica_election(fence)
        assert await cluster.get_preferred_replica_election() == []

    run(runtime, story())


# --- notifications and configs


def test_notifications_are_seen_read_and_deleted(runtime, cluster):
    async def story():
        await cluster.ensure_persistent_paths()
        events: list[object] = []
        assert await cluster.get_isr_change_names(events.append) == []
        await cluster.propagate_isr_changes([T0, T1])
        await cluster.propagate_isr_changes([T1])
        names = await cluster.get_isr_change_names()
        assert names == ["isr_change_0000000000", "isr_change_0000000001"]
        assert await cluster.get_isr_changes(names, events.append) == [T0, T1, T1]
        await cluster.delete_isr_changes([*names, "isr_change_0000000009"])
        assert await cluster.get_isr_change_names() == []
        assert len(events) == 1

        await cluster.propagate_log_dir_event(7)
        names = await cluster.get_log_dir_event_names()
        assert await cluster.get_log_dir_event_brokers([*names, "gone"], events.append) == [7]
        await cluster.delete_log_dir_events(names)
        assert await cluster.get_log_dir_event_names() == []

    run(runtime, story())


def test_configs_are_announced_and_old_announcements_purged(runtime, cluster):
    async def story():
        assert await cluster.get_entity_config("topics", "t") == {}
        await cluster.change_entity_config("topics", "t", {"retention.ms": "1"})
        name = f"{znodes.sanitize('alice@x')}/clients/{znodes.DEFAULT_ENTITY}"
        await cluster.change_entity_config("users", name, {"producer_byte_rate": "1.0"})
        assert await cluster.get_entity_configs("topics", ["u", "t"]) == {
            "u": {},
            "t": {"retention.ms": "1"},
        }
        assert await cluster.get_entities_with_config("users") == ["alice%40x"]
        assert await cluster.get_entity_config("users", "alice%40x") == {}

        names = await cluster.get_announcement_names(znodes.CONFIG_CHANGES)
        assert list((await cluster.get_config_changes(names)).values()) == [
            "topics/t",
            "users/alice%40x/clients/<default>",
        ]
        await cluster.purge_announcements(znodes.CONFIG_CHANGES, names, older_than_ms=0)
        assert await cluster.get_announcement_names(znodes.CONFIG_CHANGES) == names
        await cluster.purge_announcements(znodes.CONFIG_CHANGES, names, older_than_ms=1 << 60)
        assert await cluster.get_announcement_names(znodes.CONFIG_CHANGES) == []

    run(runtime, story())


def test_features_are_created_then_replaced(runtime, cluster):
    async def story():
        assert await cluster.get_feature() is None
        assert await cluster.set_or_create_feature(FeatureStatus.DISABLED, {}) == 0
        levels = {"f": znodes.VersionRange(1, 2)}
        assert await cluster.set_or_create_feature(FeatureStatus.ENABLED, levels) == 1
        assert await cluster.get_feature() == (FeatureStatus.ENABLED, levels, 1)

    run(runtime, story())
