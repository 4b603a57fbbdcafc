"""A probe writes records to a topic and reads them back; each failure is counted once."""

import pytest

from kctl.admin import latency_probe
from kctl.admin.admin_client import AdminClient
from kctl.admin.latency_probe import KEY_PREFIX, LatencyProbe
from kctl.admin.metrics_collector import MetricsCollector
from kctl.errors import ImpossibleError, NotFoundError
from kctl.metrics.http_server import PageRequest
from kctl.metrics.parse import parse_metrics
from kctl.runtime.real.process_facts import process_facts
from kctl.testing.kafka_broker import KafkaBroker
from kctl.work import at_once


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker(topics=["orders:1", "probes:2"]) as broker:
        yield broker


class Probes:
    """Probes on one loop, each with its topic."""

    def __init__(self, loop, broker):
        self.loop, self.broker = loop, broker
        self.admin = AdminClient.connect(loop.runtime, [(broker.host, broker.port)], 5_000)
        self.said, self.failures, self._probes = [], [], []

    def make(self, topic):
        probe = LatencyProbe(self.admin, topic, interval_ms=100, on_failure=self.failures.append)
        self._probes.append(probe)
        return probe

    def open(self, topic, *, creates=False):
        probe = self.make(topic)
        self.loop.run(probe.open(creates=creates, say=self.said.append))
        return probe

    def close(self):
        for probe in self._probes:
            probe.close()
        self.admin.close()


@pytest.fixture
def probes(loop, broker):
    probes = Probes(loop, broker)
    yield probes
    probes.close()
    broker.clear_faults()


def scrape(probes, probe, accept=""):
    collector = MetricsCollector(probes.admin, process_facts, probe=probe)
    page = at_once(collector._metrics(PageRequest("/metrics", {}, accept)))
    return parse_metrics(b"".join(page.body).decode())


def test_each_record_is_acknowledged_and_read_back(loop, broker, probes):
    before = {it.key for it in broker.records("probes")}
    probe, other = probes.open("probes"), probes.open("probes")
    probe.start()
    other.start()
    loop.until(lambda: all(it.read.count >= 2 for it in probe.partitions + other.partitions))
    probe.close()
    found = scrape(probes, probe)
    for it in probe.partitions:
        labels = {"partition": str(it.partition.partition)}
        sent = found.value("kctl_probe_sent_total", **labels)
        written = found.value("kctl_probe_produce_seconds_count", **labels)
        assert 0 <= sent - written <= 1
        # Those of the other probe are not taken for its own.
        assert 2 <= found.value("kctl_probe_end_to_end_seconds_count", **labels) <= sent
        assert found.value("kctl_probe_end_to_end_seconds_sum", **labels) > 0
        for direction in ("produce", "consume"):
            failures = found.value("kctl_probe_failures_total", direction=direction, **labels)
            assert failures == 0
    records = broker.records("probes")
    assert all(it.key.startswith(KEY_PREFIX) and len(it.value) < 20 for it in records)
    assert len({it.key for it in records} - before) == 2


def test_a_record_that_is_refused_has_failed_to_be_written(loop, broker, probes):
    probe = probes.open("probes")
    broker.inject_error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    probe.start()
    loop.until(lambda: all(it.failed_writes >= 2 for it in probe.partitions))
    assert all(it.written.count == it.read.count == 0 for it in probe.partitions)
    broker.clear_faults()
    loop.until(lambda: all(it.read.count for it in probe.partitions))
    assert all(it.failed_reads == 0 for it in probe.partitions)


def test_a_record_that_does_not_come_back_has_failed_to_be_read(loop, broker, probes, monkeypatch):
    monkeypatch.setattr(latency_probe, "READ_MS_MAX", 150)
    monkeypatch.setattr(latency_probe, "_RETRY_MS", 10)
    probe = probes.open("probes")
    broker.inject_error("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=None)
    probe.start()
    loop.until(lambda: all(it.failed_reads >= 2 for it in probe.partitions))
    assert all(it.failed_writes == 0 for it in probe.partitions)
    assert all(len(it.pending) < 10 for it in probe.partitions)
    assert probes.failures
    assert "cannot read the probes in probes" in probes.failures[0]
    broker.clear_faults()
    loop.until(lambda: all(it.read.count for it in probe.partitions))


def test_a_topic_is_created_only_on_request_and_the_plan_is_shown(broker, probes):
    with pytest.raises(NotFoundError, match="Topic new does not exist") as caught:
        probes.open("new")
    plan = "partitions=1, replication factor=1, cleanup.policy=delete, retention.ms=600000"
    assert plan in caught.value.hint
    assert "new" not in broker.topics
    probe = probes.open("new", creates=True)
    [line] = probes.said
    assert plan in line
    assert broker.topics["new"] == len(probe.partitions) == 1


def test_a_topic_with_records_of_others_is_not_written_to(broker, probes):
    broker.produce("orders", "an order")
    with pytest.raises(ImpossibleError, match="records that are not those of a probe"):
        probes.open("orders", creates=True)
    assert broker.end_offsets("orders") == {0: 1}
