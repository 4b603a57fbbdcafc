"""The metrics of a broker under a load that is known: each value follows from what clients did.

The names that dashboards need come from Strimzi's repository, strimzi/strimzi-kafka-operator at
commit 8541da1e (22 August 2026), packaging/examples/metrics/grafana-dashboards: strimzi-kafka.json
and strimzi-kafka-exporter.json; all names in their `expr` and `query` fields but those of the JVM
(jvm_*) and of Kubernetes (container_*, kubelet_*). Their labels `namespace`, `strimzi_io_cluster`
and `kubernetes_pod_name` come from Prometheus' configuration, not from the broker.
"""

import json

import pytest

from kctl.cli import app
from kctl.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.records.builder import build_batch
from kctl.records.record import Record
from tests.support.broker_client import BrokerClient
from tests.support.measured_broker import MeasuredBroker
from tests.support.waiting import wait_for

# What the panels of the dashboards "Strimzi Kafka" and "Strimzi Kafka Exporter" draw.
STRIMZI_KAFKA = (
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_socket_server_metrics_connection_count",
    "kafka_log_log_size",
    "process_open_fds",
)
KAFKA_EXPORTER = (
    "kafka_topic_partitions",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_lag",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
)
# What their lists of brokers, topics and clusters to choose from are made of besides.
VARIABLES = ("kafka_cluster_partition_replicascount", "kafka_broker_info")
# Labels that the panels and lists of the dashboards select or group by.
SELECTED = {
    "kafka_cluster_partition_replicascount": {"topic"},
    "kafka_log_log_size": {"topic", "partition"},
    "kafka_server_socket_server_metrics_connection_count": {"listener"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
}
BATCHES, RECORDS = 7, 5
TOPICS = "kafka_server_brokertopicmetrics_"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with MeasuredBroker(tmp_path_factory.mktemp("measured"), "-t", "gone:1") as broker:
        broker.wait_for_line("metrics on")
        yield broker


def batch():
    return build_batch([Record(n, 1_600_000_000_000, b"key", b"value") for n in range(RECORDS)])


def produce(client, topic, *, acks=1, version=8, records=None):
    data = PartitionProduceData(partition_index=0, records=records or batch())
    request = ProduceRequest(
        acks=acks, timeout_ms=9_000, topics=[TopicProduceData(name=topic, partitions=[data])]
    )
    return client.ask(request, version)


def fetch_request(topic, offset=0, *, max_wait_ms=0):
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min(max_wait_ms, 1),
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def fetch(client, topic, offset=0):
    return client.ask(fetch_request(topic, offset), 11)


def make_topic(client, name):
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))


def commit(client, group, topic, offset):
    def is_found():
        return not client.ask(FindCoordinatorRequest(key=group)).error_code

    wait_for(is_found, lambda: "no coordinator")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]

    def is_committed():
        response = client.ask(OffsetCommitRequest(group_id=group, topics=topics))
        return not response.topics[0].partitions[0].error_code

    # A new coordinator may still be loading.
    wait_for(is_committed, lambda: "not committed")


def totals_growth(name, before, after):
    """Return by how much the total of `name` has grown, and the sum of its topics. (The series of
    deleted topics are gone, so that the values themselves may differ.)"""
    grown = [0, 0]
    for sign, scrape in ((1, after), (-1, before)):
        for sample in scrape.of(name):
            grown[bool(sample.labels)] += sign * sample.value
    return grown


def test_each_value_is_what_the_clients_did(broker):
    with BrokerClient(broker.address) as client:
        make_topic(client, "orders")
        before = broker.scrape()
        for number in range(BATCHES):
            # The first decodes, the others take the fast path; one version does not have it.
            produce(client, "orders", version=8 if number else 3)
        produce(client, "orders", acks=-1)
        read = fetch(client, "orders").responses[0].partition_responses[0]
        fetch(client, "orders", read.high_watermark)
        fetch(client, "orders", 10**9)
        produce(client, "orders", acks=5)
        produce(client, "nowhere")
        commit(client, "readers", "orders", 12)
        after = broker.scrape()

    def grown(name, **labels):
        return (after.value(name, **labels) or 0) - (before.value(name, **labels) or 0)

    records = (BATCHES + 1) * RECORDS
    topics, orders = TOPICS, {"topic": "orders"}
    assert grown(f"{topics}messagesin_total", **orders) == records
    assert grown(f"{topics}bytesin_total", **orders) == (BATCHES + 1) * len(batch())
    assert grown(f"{topics}bytesout_total", **orders) == (BATCHES + 1) * len(batch())
    assert grown(f"{topics}totalproducerequests_total", **orders) == BATCHES + 1
    assert grown(f"{topics}totalfetchrequests_total", **orders) == 3
    assert grown(f"{topics}failedproducerequests_total", **orders) == 0
    # A topic that no one has does not get counters.
    assert not after.of(f"{topics}totalproducerequests_total", topic="nowhere")
    for family in ("messagesin", "bytesin", "totalproducerequests", "totalfetchrequests"):
        total, of_topics = totals_growth(f"{topics}{family}_total", before, after)
        assert total == of_topics > 0

    requests = "kafka_network_requestmetrics_requests_total"
    assert grown(requests, request="Produce", version="3") == 1
    assert grown(requests, request="Produce", version="8") == BATCHES + 2
    assert grown(requests, request="Fetch", version="11") == 3
    assert grown("kctl_request_seconds_count", api="Produce") == BATCHES + 3
    assert grown("kafka_network_requestmetrics_totaltimems_count", request="Fetch") == 3
    errors = "kafka_network_requestmetrics_errors_total"
    assert grown(errors, request="Produce", error="INVALID_REQUIRED_ACKS") == 1
    assert grown(errors, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert grown(errors, request="Produce", error="NONE") == BATCHES + 1
    assert grown(errors, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1

    partition = {"topic": "orders", "partition": "0"}
    assert after.value("kafka_log_log_logendoffset", **partition) == records
    assert after.value("kafka_log_log_size", **partition) == (BATCHES + 1) * len(batch())
    assert after.value("kafka_topic_partition_current_offset", **partition) == records
    group = {"consumergroup": "readers", **partition}
    assert after.value("kafka_consumergroup_current_offset", **group) == 12
    assert after.value("kafka_consumergroup_lag", **group) == records - 12
    connections = "kafka_server_socket_server_metrics_connection_"
    # The broker may still have that of the test before.
    assert after.of(f"{connections}count", listener="PLAINTEXT")[0].value >= 1
    assert after.value("kafka_server_replicamanager_partitioncount") >= 2
    assert after.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert 0 <= after.value("kctl_loop_busy_ratio") <= 1
    sockets = "kafka_server_socket_server_metrics_"
    for name in ("successful_authentication_total", "failed_authentication_total"):
        assert [it.value for it in after.of(f"{sockets}{name}", listener="PLAINTEXT")] == [0]
    assert after.value("kctl_tls_failures_total", listener="PLAINTEXT") == 0
    assert after.value("kafka_log_logcleaner_deadthreadcount") == 0
    assert after.of("kafka_log_logcleanermanager_uncleanable_partitions_count")
    assert after.value("kctl_loop_turn_seconds_count") > before.value(
        "kctl_loop_turn_seconds_count"
    )


def test_a_fetch_that_waits_is_counted_once_with_what_it_returns(broker):
    with BrokerClient(broker.address) as reader, BrokerClient(broker.address) as writer:
        make_topic(writer, "awaited")
        reader.send(fetch_request("awaited", max_wait_ms=60_000), 11)
        delayed = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
        waiting = {"delayedOperation": "Fetch"}
        wait_for(lambda: broker.scrape().value(delayed, **waiting) == 1, lambda: "no fetch waits")
        assert not broker.scrape().of(f"{TOPICS}bytesout_total", topic="awaited")
        produce(writer, "awaited")
        reader.receive()
        scrape = broker.scrape()
    assert scrape.value(f"{TOPICS}totalfetchrequests_total", topic="awaited") == 1
    assert scrape.value(f"{TOPICS}bytesout_total", topic="awaited") == len(batch())


def test_each_part_of_the_time_counts_every_request(broker):
    with BrokerClient(broker.address) as client:
        make_topic(client, "parts")
        produce(client, "parts")
        fetch(client, "parts")
        scrape = broker.scrape()

    metrics = "kafka_network_requestmetrics_"
    for name in ("Produce", "Fetch", "FetchConsumer"):
        count = scrape.value(f"{metrics}totaltimems_count", request=name)
        assert count >= 1
        assert sum(it.value for it in scrape.of(f"{metrics}requests_total", request=name)) == count
        for part in ("requestqueue", "local", "remote", "throttle", "responsequeue"):
            assert scrape.value(f"{metrics}{part}timems_count", request=name) == count, part
        assert scrape.value(f"{metrics}responsesendtimems_count", request=name) == count


def test_the_cleaner_has_its_figures_before_it_cleans(broker):
    scrape = broker.scrape()
    assert scrape.of("kafka_log_logcleanermanager_uncleanable_bytes")
    for name in ("max_compaction_delay_secs", "max_buffer_utilization_percent"):
        assert scrape.value(f"kafka_log_logcleaner_{name}") == 0


@pytest.mark.slow
def test_a_throttled_client_is_seen_in_the_metrics_and_by_quota_top(broker, capfdbinary):
    def alter(rate):
        entity = EntityData(entity_type="client-id", entity_name=None)
        ops = [OpData(key="producer_byte_rate", value=rate, remove=not rate)]
        request = AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=ops)])
        assert client.ask(request).entries[0].error_code == 0

    with BrokerClient(broker.address) as client:
        make_topic(client, "slow")
        alter(10.0)
        wait_for(lambda: produce(client, "slow").throttle_time_ms, lambda: "not throttled")
        now = broker.scrape()
        [limit] = now.of("kctl_quota_limit")
        [pauses] = now.of("kctl_quota_throttled_total")
        [rate] = now.of("kafka_server_produce_byte_rate")
        url = broker.errors.partition("metrics on ")[2].split()[0]
        status = app.run(
            ["quota", "top", "--once", "--every", "10ms", "-o", "json", "--metrics", url,
             "-b", broker.address]
        )  # fmt: skip
        [row] = json.loads(capfdbinary.readouterr().out)
        alter(0.0)
    assert (limit.value, pauses.value > 0, rate.value > 10) == (10, True, True)
    assert (status, row["throttled"], row["limit"], row["broker"]) == (0, True, 10, 0)
    assert row["share"] > 1
    assert "kctl_quota_limit" not in broker.scrape("/metrics?quotas=0").samples


def test_dashboards_for_apache_kafka_find_what_they_draw(broker):
    with BrokerClient(broker.address) as client:
        make_topic(client, "drawn")
        produce(client, "drawn")
        commit(client, "drawn", "drawn", 1)
    now = broker.scrape()
    drawn = (*STRIMZI_KAFKA, *KAFKA_EXPORTER, *VARIABLES)
    assert [name for name in drawn if name not in now.samples] == []
    assert len(STRIMZI_KAFKA) == 22
    assert len(KAFKA_EXPORTER) == 11
    for name, labels in SELECTED.items():
        assert all(labels <= it.labels.keys() for it in now.of(name)), name
    [info] = now.of("kafka_broker_info")
    assert (info.value, info.labels["address"]) == (1, broker.address)


def test_series_of_partitions_are_left_out_on_demand(broker):
    with BrokerClient(broker.address) as client:
        make_topic(client, "left-out")
    names = broker.scrape("/metrics?partitions=0").samples
    assert "kafka_log_log_size" not in names
    assert "kafka_topic_partition_current_offset" not in names
    assert names["kctl_metrics_partitions_omitted"][0].value > 0


def test_the_counters_of_a_deleted_topic_go_and_the_totals_stay(broker):
    with BrokerClient(broker.address) as client:
        produce(client, "gone")
        before = broker.scrape()
        client.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=60_000))
        after = broker.scrape()
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert before.value(name, topic="gone") == RECORDS
    assert after.value(name, topic="gone") is None
    assert after.value(name) >= before.value(name)


def test_a_ready_broker_is_alive_and_ready_in_both_formats(broker):
    assert json.loads(broker.get("/healthz")) == {"status": "ok"}
    assert json.loads(broker.get("/readyz")) == {"status": "ok"}
    text = broker.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    families = list(parser.text_string_to_metric_families(text))
    assert len(families) > 60
