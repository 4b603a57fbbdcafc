"""kctl's metrics beside those of Prometheus' JMX exporter in Apache Kafka 2.7.2.

Both brokers get the same requests.
Every metric that kctl has under a name of Apache Kafka is compared: name, type, labels and value.
What differs on purpose is named in the tables below, with the reason. With KCTL_JMX_RULES=FILE the
exporter has the rules of a file: those of Strimzi are the value of `kafka-metrics-config.yml` in
packaging/examples/metrics/kafka-metrics.yaml of strimzi/strimzi-kafka-operator.
"""

import contextlib
import math

import pytest

from kctl.metrics import broker_families as f
from kctl.metrics.family import Kind
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages import (
    alter_client_quotas,
    create_topics,
    fetch,
    join_group,
    metadata,
    offset_commit,
    sync_group,
)
from tests.support import jmx_exporter
from tests.support.broker_client import BrokerClient
from tests.support.filled_requests import array_paths, filled
from tests.support.measured_broker import MeasuredBroker
from tests.support.twin_requests import fetch_request, produce_request, records
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.kafka

SETTINGS = {
    "num.network.threads": 1,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
# Requests of brokers, which kctl's controller does not send to itself by a socket, and those that
# a listener without SASL and delegation tokens does not serve.
NOT_SENT = {
    api for api in ApiKey
    if api.is_cluster_action or api.title.startswith("Sasl") or "DelegationToken" in api.title
} | {ApiKey.CONTROLLED_SHUTDOWN}  # fmt: skip

# Arrays that lead to other answers: CreateAcls of an unknown type, a Fetch by a replica that leads;
# and tombstones of deleted offsets, which Apache Kafka appends past its counters.
OTHER_ANSWERS = {
    (ApiKey.CREATE_ACLS, "creations"), (ApiKey.FETCH, "topics"), (ApiKey.OFFSET_DELETE, "topics"),
}  # fmt: skip

# --- what differs on purpose ------------------------------------------------------------------

# Numbers of the machine or the process, of other threads, or of the moment.
OF_THE_MOMENT = {
    f.NETWORK_IDLE: (0, 1),
    f.HANDLER_IDLE: (0, 1),
    f.DISK_READ: (0, 1 << 40),
    f.DISK_WRITE: (1, 1 << 40),
    f.CLEANER_LOOKED: (0, 120_000),
    # Apache Kafka's controller has a connection to its own broker.
    f.CONNECTIONS: (0, 1),
    f.PRODUCE_RATE: (1, 1 << 40),
    f.FETCH_RATE: (1, 1 << 40),
    f.REQUEST_TIME: (0, 1 << 40),
    f.MUTATION_TOKENS: (1, 1 << 40),
}
# What Strimzi's rules leave out: the group coordinator has a domain of two names, and the exporter
# names quotas by itself if there is no rule for anything else.
NOT_IN_STRIMZI = {f.GROUPS, *f.GROUPS_BY_STATE.values(), f.GROUP_OFFSETS, *f.QUOTAS}
# kctl has these without quotes, which Apache Kafka puts around a path in the name of an MBean.
OF_DIRECTORIES = {f.DIRECTORY_OFFLINE, f.UNCLEANABLE}
# Purgatories that kctl does not have: its timers and state machines do their work.
NO_PURGATORIES = {"AlterAcls", "ElectLeader", "Heartbeat", "Rebalance", "topic"}


def batch(count=5, **options):
    return records(2, count, **options)


def one_topic(name, partitions=1, **configs):
    return create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1,
        configs=[create_topics.CreateableTopicConfig(name=key.replace("_", "."), value=value)
                 for key, value in configs.items()],
    )  # fmt: skip


def commit_request(group, offset, *partitions):
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=it, committed_offset=offset
                    )
                    for it in partitions
                ],
            )
        ],
    )


def prepare(address):
    """Create topics and the coordinator of groups, and wait until both serve."""
    topics = [
        one_topic("orders", 2), one_topic("small", max_message_bytes="200"),
        one_topic("keyed", cleanup_policy="compact"), one_topic("flushed", flush_messages="1"),
    ]  # fmt: skip
    with BrokerClient(address) as client:
        client.ask(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        for topic in ("orders", "small", "keyed", "flushed"):
            wait_for(lambda t=topic: not error_of(client.ask(fetch_request(t, 0), 11)), str)
        find = filled(ApiKey.FIND_COORDINATOR.request_class, 3, (), 0, "readers")
        wait_for(lambda: not client.ask(find).error_code, lambda: "no coordinator")
        commit = commit_request("readers", 0, 0)
        wait_for(lambda: not error_of(client.ask(commit), "topics", "partitions"), str)
        entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name="test")
        ops = [
            alter_client_quotas.OpData(key=key, value=1e8, remove=False)
            for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage",
                        "controller_mutation_rate")
        ]  # fmt: skip
        entry = alter_client_quotas.EntryData(entity=[entity], ops=ops)
        client.ask(alter_client_quotas.AlterClientQuotasRequest(entries=[entry]))


def error_of(answer, topics="responses", partitions="partition_responses"):
    return getattr(getattr(answer, topics)[0], partitions)[0].error_code


def load(address):
    """What clients do: each request in the same order on both brokers."""
    with BrokerClient(address) as client:
        produces(client)
        fetches(client)
        client.ask(metadata.MetadataRequest(topics=None), 9)
        # Two partitions take the handler, one the fast path.
        client.ask(commit_request("readers", 2, 0, 1))
        for offset in (3, 4):
            client.ask(commit_request("readers", offset, 0))
        joins(client)
        more = [one_topic("more", 3)]
        client.ask(create_topics.CreateTopicsRequest(topics=more, timeout_ms=60_000))
    for api in ApiKey:
        if api not in NOT_SENT:
            with_two_of_each(address, api)


def produces(client):
    for version in (3, 8, 8, 8):
        client.ask(produce_request("orders", batch()), version)
    for acks in (-1, 5):
        client.ask(produce_request("orders", batch(), acks=acks), 8)
    client.ask(produce_request("orders", batch(), batch(2)), 8)
    client.send(produce_request("orders", batch(), acks=0), 8, is_answered=False)
    client.ask(produce_request("nowhere", batch()), 8)
    client.ask(produce_request("small", batch(size=300)), 8)
    client.ask(produce_request("keyed", batch()), 8)
    client.ask(produce_request("flushed", batch()), 8)
    client.ask(produce_request("flushed", batch()), 8)
    damaged = bytearray(batch())
    damaged[-3] ^= 1
    client.ask(produce_request("orders", bytes(damaged)), 8)
    unexpected = batch(producer_id=4_000, producer_epoch=0, base_sequence=0)
    gap = batch(producer_id=4_000, producer_epoch=0, base_sequence=50)
    for each in (unexpected, unexpected, gap):
        client.ask(produce_request("orders", each), 8)


def fetches(client):
    client.ask(fetch_request("orders", 0, 0), 11)
    client.ask(fetch_request("orders", 10**6), 11)
    client.ask(fetch_request("nowhere", 0), 11)
    session = fetch_request("orders", 0, 0)
    session.session_epoch = 0
    answer = client.ask(session, 11)
    client.ask(
        fetch.FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            session_id=answer.session_id, session_epoch=1, topics=[],
        ),
        11,
    )  # fmt: skip


def joins(client):
    """A group with one member, which stays."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id="members", session_timeout_ms=300_000, rebalance_timeout_ms=300_000, member_id="",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    request.member_id = client.ask(request, 5).member_id
    answer = client.ask(request, 5)
    client.ask(
        sync_group.SyncGroupRequest(
            group_id="members", generation_id=answer.generation_id, member_id=answer.member_id,
            assignments=[],
        ),
        4,
    )  # fmt: skip


def with_two_of_each(address, api):
    """Send requests with two elements in one of their arrays: each error is counted."""
    version = api.max_version
    for path in ((), *array_paths(api.request_class, version)):
        if (api, path[0] if path else "") in OTHER_ANSWERS:
            continue
        # Some close the connection.
        with BrokerClient(address) as client, contextlib.suppress(ConnectionError):
            client.ask(filled(api.request_class, version, path, 2, "orders"), version)


# --- the comparison ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory):
    """kctl's and the exporter's metrics, each before and after the load."""
    if jmx_exporter.apache_kafka.libs() is None or jmx_exporter.agent() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2 and the JMX exporter, and no Maven")
    path = tmp_path_factory.mktemp("exporter")
    (path / "zookeeper").mkdir()
    arguments = [it for key, value in SETTINGS.items() for it in ("-c", f"{key}={value}")]
    with (
        running_zookeeper(path / "zookeeper") as zookeeper,
        jmx_exporter.exported_broker(path / "apache", zookeeper.address, SETTINGS) as apache,
        MeasuredBroker(path / "kctl", *arguments) as kctl,
    ):
        kctl.wait_for_line("metrics on")
        found = []
        for broker in (kctl, apache):
            prepare(broker.address)
            before = broker.scrape()
            load(broker.address)
            wait_for(lambda it=broker: connections(it.scrape()) <= 1, lambda: "open connections")
            found.append((before, broker.scrape()))
        yield found


def connections(scrape):
    return sum(it.value for it in scrape.of(f.CONNECTIONS.name))


def series(scrape, name):
    """Labels -> value; the labels of paths are alike."""
    found = {}
    for sample in scrape.of(name):
        # A label without text is none.
        labels = {key: text for key, text in sample.labels.items() if text}
        if "logDirectory" in labels:
            labels["logDirectory"] = "a path"
        found[tuple(sorted(labels.items()))] = sample.value
    return found


def growth(before, after, name):
    """Labels -> by how much the value has grown, without those that have not."""
    then = series(before, name)
    grown = {key: value - then.get(key, 0) for key, value in series(after, name).items()}
    return {key: value for key, value in grown.items() if value}


def is_compared(labels):
    """Whether the series is one that both brokers can have."""
    labels = dict(labels)
    is_internal = any(labels.get("request") == api.title for api in NOT_SENT)
    return not is_internal and labels.get("delayedOperation") not in NO_PURGATORIES


def same(mine, its):
    """Whether values are the same; Apache Kafka has no average of no pauses."""
    return {key: 0 if math.isnan(it) else it for key, it in its.items()} == mine


FAMILIES = [it for it in f.BROKER if it.jmx]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda it: it.name)
def test_a_metric_is_that_of_apache_kafka(family, scrapes):
    (before, ours), (their_before, theirs) = scrapes
    if jmx_exporter.OTHER_RULES and family in NOT_IN_STRIMZI:
        assert not theirs.of(family.name)
        return
    if family.kind is Kind.SUMMARY:
        assert quantiles(ours, family.name) == quantiles(theirs, family.name)
        compare_kinds(ours, theirs, family.name)
    name = family.name + "_count" * (family.kind is Kind.SUMMARY)
    compare_kinds(ours, theirs, name)
    if family.kind is Kind.GAUGE:
        values = [series(scrape, name) for scrape in (ours, theirs)]
    else:
        values = [growth(before, ours, name), growth(their_before, theirs, name)]
    mine, its = ({key: value for key, value in it.items() if is_compared(key)} for it in values)
    assert mine.keys() == its.keys()
    if family in OF_THE_MOMENT:
        low, high = OF_THE_MOMENT[family]
        assert all(low <= value <= high for value in (*mine.values(), *its.values()))
    else:
        assert same(mine, its)


def quantiles(scrape, name):
    return {it.labels["quantile"] for it in scrape.of(name)}


def compare_kinds(ours, theirs, name):
    # The exporter gives quotas, for which there is no rule, and `_count` no type.
    assert theirs.kinds.get(name, "untyped") in (ours.kinds[name], "untyped")
