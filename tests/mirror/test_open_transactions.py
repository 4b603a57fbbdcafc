"""Transactions that are open in the target hide nothing from a mirror.

One is that of a worker that died, in the map that all workers share; another is that of some
producer in a mirrored topic.
"""

from contextlib import contextmanager

import pytest

from kctl.client.producer import NewRecord, Producer
from kctl.client.producer_transaction import ProducerTransaction
from kctl.mirror import map_topic
from kctl.mirror.formats import MappedRun, encode_run, map_topic_of, transactional_id_of
from kctl.mirror.map_topic import HiddenRunsError, read_map
from kctl.mirror.translation import translate_offsets
from kctl.model import TopicPartition
from tests.mirror.test_kinds_of_loss import values, verified


def open_transaction(clusters, transaction, topic, key, value):
    """Write a record to the target in a transaction that stays open."""

    async def work(_source, target):
        txn = ProducerTransaction(target.router, transaction)
        await txn.begin()
        producer = Producer(target.router, topic, transaction=txn)
        [result] = await producer.send([NewRecord(key, value, (), 0)])
        assert result.error is None

    clusters.do(work)


def end_transaction(clusters, transaction):
    """Abort what the last producer of a transactional id left open."""
    clusters.do(lambda _, target: ProducerTransaction(target.router, transaction).begin())


def kill_worker(clusters, name):
    """Leave the map as a second worker does that is killed in its transaction."""
    other = MappedRun(TopicPartition("other", 0), "other", 0, 0, 5)
    open_transaction(
        clusters, transactional_id_of(name, "2"), map_topic_of(name), *encode_run(other)
    )


@contextmanager
def ended_while_waited_for(clusters, monkeypatch, name):
    """Let the transaction of the killed worker end once a reader of the map waits for it."""
    waited = []

    async def sleep(_scheduler, _delay_ms):
        if not waited:
            end_transaction(clusters, transactional_id_of(name, "2"))
        waited.append(1)

    with monkeypatch.context() as patched:
        patched.setattr(map_topic, "sleep", sleep)
        yield
    assert waited


def test_runs_behind_the_transaction_of_a_worker_that_died_are_read(clusters, monkeypatch):
    topic, at = "hidden-runs", TopicPartition("hidden-runs", 0)
    how = {"name": topic, "exactly_once": False}
    clusters.source.create_topic(topic)
    clusters.produce(topic, values(0, 10))
    assert not clusters.mirror(topic, **how).has_failed
    clusters.target.produce(topic, b"local", partition=0)
    clusters.produce(topic, values(10, 20))
    kill_worker(clusters, topic)
    with ended_while_waited_for(clusters, monkeypatch, topic):
        # The worker that goes on examines what was copied last.
        assert not clusters.mirror(topic, **how).has_failed
    kill_worker(clusters, topic)
    clusters.produce(topic, values(20, 25))
    there = {it.value: it.offset for it in clusters.target.records(topic, 0)}

    with ended_while_waited_for(clusters, monkeypatch, topic):
        found = clusters.do(lambda _, target: translate_offsets(target, topic, [(at, 15)]))
    assert [it.to_offset for it in found] == [there[b"v15"]]

    clusters.do(lambda source, _: source.offsets.commit(topic, {at: 15}))
    kill_worker(clusters, topic)
    with ended_while_waited_for(clusters, monkeypatch, topic):
        assert not clusters.mirror(topic, groups=(topic,), **how).has_failed
    carried = clusters.do(lambda _, target: target.offsets.committed(topic))
    assert carried[at].offset == there[b"v15"]

    kill_worker(clusters, topic)
    with ended_while_waited_for(clusters, monkeypatch, topic):
        assert verified(clusters, topic, topic) == {"extra": 1}


def test_a_transaction_in_the_map_that_does_not_end_is_named(clusters, monkeypatch):
    clusters.source.create_topic("hanging")
    clusters.produce("hanging", values(0, 3))
    assert not clusters.mirror("hanging", name="hanging").has_failed
    kill_worker(clusters, "hanging")
    with monkeypatch.context() as patched:
        patched.setattr(map_topic, "HIDDEN_MS_MAX", 0)
        with pytest.raises(HiddenRunsError, match="a transaction is open there") as found:
            clusters.do(lambda _, target: read_map(target.router, "hanging"))
        assert "kctl txn abort" in found.value.hint
        with pytest.raises(HiddenRunsError):
            clusters.mirror("hanging", name="hanging")
    end_transaction(clusters, transactional_id_of("hanging", "2"))
    assert not clusters.mirror("hanging", name="hanging").has_failed


@pytest.mark.parametrize("is_rewritten", [True, False])
def test_a_producer_in_a_mirrored_topic_does_not_stop_the_mirror(clusters, is_rewritten):
    topic = f"local-{is_rewritten}".lower()
    clusters.source.create_topic(topic)
    clusters.produce(topic, values(0, 10))
    assert not clusters.mirror(topic, name=topic).has_failed
    open_transaction(clusters, f"app-{topic}", topic, b"k", b"local")
    clusters.produce(topic, values(10, 12))
    assert not clusters.mirror(topic, name=topic).has_failed
    if is_rewritten:
        clusters.do(lambda source, _: source.topics.delete([topic]))
        clusters.source.create_topic(topic)
        clusters.produce(topic, values(0, 15, b"new"))
    report = clusters.mirror(topic, name=topic)
    # What was copied last is still compared.
    assert report.has_failed == is_rewritten
    end_transaction(clusters, f"app-{topic}")
