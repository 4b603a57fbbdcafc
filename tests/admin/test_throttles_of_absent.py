"""Throttles whose topics are deleted, or whose brokers are down, on three brokers."""

import pytest

from kctl.admin.configs import ConfigResource, ResourceType
from kctl.admin.reassignment_cluster import cluster_by_requests
from kctl.admin.reassignment_job import change_rate
from kctl.admin.replication_throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    REPLICAS,
    Copying,
    Throttle,
)
from kctl.admin.throttle_records import ThrottleRecords
from kctl.admin.throttle_sweep import sweep_throttles
from kctl.admin.topics import NewTopic
from kctl.errors import NotFoundError, UnreachableError
from kctl.model import TopicPartition
from kctl.store import znodes
from tests.support.broker_cluster import running_brokers

RATES = (LEADER_RATE, FOLLOWER_RATE)


@pytest.fixture
def brokers(tmp_path):
    """Three brokers and topics `a` and `b`."""
    with running_brokers(tmp_path / "brokers") as brokers:
        brokers.start(1, 2, 3)
        made = brokers.run(brokers.admin().topics.create([NewTopic(it, 1, 1) for it in "ab"]))
        assert [it.error for it in made] == [None, None]
        brokers.until(
            lambda: all(
                it.services.metadata_cache.contains(name)
                for it in brokers.brokers.values()
                for name in "ab"
            ),
            "known to all brokers",
        )
        yield brokers


@pytest.fixture
def cluster(brokers, tmp_path):
    """Return the cluster as clients see it now."""
    records = ThrottleRecords(brokers.runtime.disk, str(tmp_path / "state"))
    scheduler = brokers.runtime.scheduler
    return lambda: brokers.run(cluster_by_requests(brokers.admin(), scheduler, records))


@pytest.fixture
def throttle(brokers, cluster):
    """Throttle copies of these topics from brokers 1 and 3 to 2, and return the record."""

    def begin(*topics):
        now = cluster()
        copies = {TopicPartition(it, 0): Copying((1, 3), (2,)) for it in topics}
        record = brokers.run(now.throttle.prepare(now.cluster_id, Throttle(copies, 1000)))
        now.records.save(record)
        brokers.run(now.throttle.apply(record))
        return record

    return begin


@pytest.fixture
def settings(brokers):
    """Return the throttle settings in the store: (broker or topic, name) -> value."""

    def read():
        store = next(iter(brokers.brokers.values())).services.cluster_store
        entities = [(znodes.BROKER_CONFIGS, it) for it in "123"]
        entities += [(znodes.TOPIC_CONFIGS, it) for it in "ab"]
        return {
            (name, key): value
            for entity, name in entities
            for key, value in brokers.run(store.get_entity_config(entity, name)).items()
            if key in (*RATES, *REPLICAS)
        }

    return read


def delete(brokers, topic):
    [deleted] = brokers.run(brokers.admin().topics.delete([topic]))
    assert deleted.error is None
    brokers.until(
        lambda: (
            not any(it.services.metadata_cache.contains(topic) for it in brokers.brokers.values())
        ),
        "deleted",
    )


def agree(brokers):
    """Wait until all brokers know which of them are alive."""
    alive = set(brokers.brokers)
    brokers.until(
        lambda: all(
            {known.broker_id for known in it.services.metadata_cache.alive_brokers()} == alive
            for it in brokers.brokers.values()
        ),
        "known to be alive",
    )


def stop(brokers, broker_id):
    brokers.stop(broker_id)
    agree(brokers)


def start(brokers, broker_id):
    brokers.start(broker_id)
    agree(brokers)


def sweep(brokers, cluster, **options):
    now = cluster()
    return now, brokers.run(sweep_throttles(now, **options)).restored


def test_a_throttle_ends_although_a_topic_was_deleted(brokers, cluster, throttle, settings):
    throttle("a", "b")
    delete(brokers, "a")
    assert settings()
    now, restored = sweep(brokers, cluster)
    assert [it.error for it in restored] == [None] * len(restored)
    gone = {it.change.resource for it in restored if it.is_gone}
    assert gone == {ConfigResource(ResourceType.TOPIC, "a")}
    assert settings() == {}
    assert now.records.load(now.cluster_id) is None


def test_no_topic_is_throttled_that_does_not_exist(brokers, throttle, settings):
    delete(brokers, "a")
    with pytest.raises(NotFoundError, match="No topic a"):
        throttle("a", "b")
    assert settings() == {}


def test_a_broker_that_is_down_gets_no_throttle(brokers, cluster, throttle, settings):
    stop(brokers, 3)
    record = throttle("a")
    assert record.absent == (3,)
    assert {name for name, _ in settings()} == {"1", "2", "a"}
    _, restored = sweep(brokers, cluster)
    assert [it.error for it in restored] == [None] * len(restored)
    assert settings() == {}


def test_the_throttle_of_a_broker_that_is_down_is_remembered(brokers, cluster, throttle, settings):
    throttle("a")
    stop(brokers, 3)
    now, restored = sweep(brokers, cluster)
    left = [it for it in restored if it.error is not None]
    assert [(it.change.resource.name, it.change.name) for it in left] == [("3", it) for it in RATES]
    assert "broker 3 is not alive and keeps 1000; before: not set" in str(left[0].error)
    assert settings() == {("3", name): "1000" for name in RATES}
    assert now.records.load(now.cluster_id) is not None

    start(brokers, 3)
    now, restored = sweep(brokers, cluster)
    assert [it.error for it in restored] == [None] * len(restored)
    assert settings() == {}
    assert now.records.load(now.cluster_id) is None


def test_a_forced_sweep_names_what_it_forgets(brokers, cluster, throttle, settings):
    throttle("a")
    stop(brokers, 3)
    now, restored = sweep(brokers, cluster, force=True)
    assert [it.change.resource.name for it in restored if it.error is not None] == ["3", "3"]
    assert now.records.load(now.cluster_id) is None

    start(brokers, 3)
    sweep(brokers, cluster, confirm_others=lambda _: True)
    assert settings() == {}


def test_a_new_rate_reaches_the_brokers_that_are_alive(brokers, cluster, throttle, settings):
    throttle("a")
    stop(brokers, 1)
    with pytest.raises(UnreachableError, match="Not alive, and unchanged: broker 1"):
        brokers.run(change_rate(cluster(), 5000))
    rates = {name: value for (name, key), value in settings().items() if key == LEADER_RATE}
    assert rates == {"1": "1000", "2": "5000", "3": "5000"}
