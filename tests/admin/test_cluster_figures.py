"""The figures of a cluster for monitoring: kafka_exporter's rules, rounds, failures."""

import re

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.admin.cluster_figures import (
    GroupFigures,
    PartitionFigures,
    TopicFigures,
    group_samples,
    topic_samples,
)
from kctl.admin.metrics_collector import GROUPS, LOG_DIRS, TOPICS, MetricsCollector
from kctl.metrics.http_server import PageRequest
from kctl.metrics.parse import parse_metrics
from kctl.metrics.text import render
from kctl.model import TopicPartition
from kctl.runtime.real.process_facts import process_facts
from kctl.testing.kafka_broker import KafkaBroker
from kctl.work import at_once

ORDERS = [TopicPartition("orders", number) for number in range(3)]


def parsed(samples):
    return parse_metrics(b"".join(at_once(render(samples))).decode())


def topics(**changes):
    figures = {
        tp: PartitionFigures(1, (1, 2), (1, 2), end_offset=100 * (tp.partition + 1), start_offset=5)
        for tp in ORDERS
    }
    return TopicFigures({1: "a:9092", 2: "b:9092"}, figures | changes)


def test_lag_is_what_lies_between_the_committed_offset_and_the_end():
    group = GroupFigures(2, {ORDERS[0]: 40, ORDERS[1]: 200, ORDERS[2]: -1})
    found = parsed(group_samples({"billing": group}, topics()))
    lags = {it.labels["partition"]: it.value for it in found.of("kafka_consumergroup_lag")}
    # -1: the topic is consumed, and nothing is committed for this partition.
    assert lags == {"0": 60, "1": 0, "2": -1}
    assert found.value("kafka_consumergroup_lag_sum", consumergroup="billing", topic="orders") == 60
    sums = found.of("kafka_consumergroup_current_offset_sum")
    assert [it.value for it in sums] == [240]
    assert found.value("kafka_consumergroup_members", consumergroup="billing") == 2


def test_a_partition_without_a_known_end_has_an_offset_and_no_lag():
    known = topics()
    known.partitions[ORDERS[0]].end_offset = None
    gone = TopicPartition("deleted", 0)
    group = GroupFigures(0, {ORDERS[0]: 40, gone: 7})
    found = parsed(group_samples({"billing": group}, known))
    assert len(found.of("kafka_consumergroup_current_offset")) == 2
    assert found.of("kafka_consumergroup_lag") == []


def test_partitions_show_their_leader_and_what_their_replicas_lack():
    known = topics()
    known.partitions[ORDERS[0]] = PartitionFigures(2, (1, 2), (2,), 9, 3)
    known.partitions[ORDERS[1]] = PartitionFigures(-1, (1, 2), (2,))
    found = parsed(topic_samples(known))

    def values(name):
        return [it.value for it in found.of(f"kafka_topic_partition_{name}")]

    assert values("leader") == [2, -1, 1]
    assert values("leader_is_preferred") == [0, 0, 1]
    assert values("under_replicated_partition") == [1, 1, 0]
    assert values("in_sync_replica") == [1, 1, 2]
    # A partition without a leader has no offsets.
    assert values("current_offset") == [9, 300]
    assert found.value("kafka_topic_partitions", topic="orders") == 3
    assert found.value("kafka_brokers") == 2


@pytest.fixture
def collector(loop):
    with KafkaBroker(topics=["orders:2", "empty:1"]) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        admin = AdminClient.connect(loop.runtime, [(host, int(port))], 5_000)
        failures = []
        collector = MetricsCollector(admin, process_facts, on_failure=failures.append)
        collector.broker, collector.failures = broker, failures
        yield collector
        admin.close()


def scrape(collector, accept=""):
    page = at_once(collector._metrics(PageRequest("/metrics", {}, accept)))
    return b"".join(page.body).decode()


def test_a_round_collects_what_clients_left(loop, collector):
    admin, broker = collector._admin, collector.broker
    assert collector.reasons() == [
        f"{kind}: not collected yet" for kind in (TOPICS, GROUPS, LOG_DIRS)
    ]
    for number in range(7):
        broker.produce("orders", f"v{number}", partition=1)
    loop.run(admin.offsets.commit("billing", {TopicPartition("orders", 1): 3}))
    loop.run(collector.collect())
    assert collector.reasons() == []
    assert collector.failures == []
    found = parse_metrics(scrape(collector))
    partition = {"topic": "orders", "partition": "1"}
    assert found.value("kafka_topic_partition_current_offset", **partition) == 7
    assert found.value("kafka_consumergroup_lag", consumergroup="billing", **partition) == 4
    assert found.value("kafka_consumergroup_members", consumergroup="billing") == 0
    assert found.value("kctl_topic_size_bytes", topic="orders") > 0
    assert found.value("kctl_topic_size_bytes", topic="empty") == 0
    assert found.value("kctl_collector_errors", kind="groups") == 0
    assert scrape(collector, "application/openmetrics-text").endswith("# EOF\n")


def test_figures_are_old_while_their_next_round_lasts(loop, collector):
    loop.run(collector.collect())
    collector.kinds[TOPICS].collected_ms -= 100_000
    [reason] = collector.reasons()
    assert re.fullmatch(r"topics: collected \d{3} s ago", reason)


def test_figures_grow_old_while_the_cluster_does_not_answer(loop, collector):
    loop.run(collector.collect())
    before = parse_metrics(scrape(collector))
    collector.broker.stop()
    collector._admin.router.timeout_ms = 300
    loop.run(collector.collect())
    after = parse_metrics(scrape(collector))
    assert after.samples["kafka_topic_partitions"] == before.samples["kafka_topic_partitions"]
    for kind in (TOPICS, GROUPS, LOG_DIRS):
        age = [it.value("kctl_collector_age_seconds", kind=kind) for it in (before, after)]
        assert age[1] > age[0]
        assert after.value("kctl_collector_errors", kind=kind) == 1
    assert len(collector.failures) == 3


def test_a_deleted_topic_is_gone_in_the_next_round(loop, collector):
    loop.run(collector.collect())
    loop.run(collector._admin.topics.delete(["empty"]))
    loop.run(collector.collect())
    found = parse_metrics(scrape(collector))
    assert found.of("kafka_topic_partitions", topic="empty") == []
    assert found.value("kctl_collector_errors", kind="topics") == 0
