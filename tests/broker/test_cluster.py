"""Several brokers: replication, and elections when a leader stops."""

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.topics import NewTopic
from kctl.client.cluster_view import BrokerAddress
from kctl.client.producer import NewRecord, Producer
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker_cluster import running_brokers


@pytest.fixture
def cluster(tmp_path):
    with running_brokers(tmp_path) as cluster:
        yield cluster


# A follower that does not fetch for so long leaves the ISR.
HANGS_AFTER_MS = 1000


def create(cluster, topic, **assignment):
    replicas = {int(name[1:]): ids for name, ids in assignment.items()}
    (result,) = cluster.run(cluster.admin().topics.create([NewTopic(topic, assignment=replicas)]))
    assert result.error is None
    for number, ids in replicas.items():
        cluster.until(
            lambda number=number, ids=ids: all(
                cluster.partition(broker_id, topic, number) for broker_id in ids
            ),
            "every replica",
        )


def produce(cluster, topic, count, tag=b"value", *, is_idempotent=True):
    producer = Producer(cluster.router(), topic, is_idempotent=is_idempotent)
    records = [NewRecord(key=b"%d" % n, value=tag) for n in range(count)]
    results = cluster.run(producer.send(records))
    assert [result.error for result in results] == [None] * count


def log_bytes(cluster, broker_id, topic, number=0):
    directory = cluster.directory / f"broker-{broker_id}" / f"{topic}-{number}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def test_acks_all_means_that_every_replica_in_sync_has_it(cluster):
    cluster.start(1, 2, 3)
    create(cluster, "t", p0=[2, 3, 1])
    produce(cluster, "t", 100)
    assert [cluster.end(broker_id, "t") for broker_id in (1, 2, 3)] == [100] * 3
    assert log_bytes(cluster, 1, "t") == log_bytes(cluster, 2, "t") == log_bytes(cluster, 3, "t")
    # Followers learn of the high watermark with their next fetch.
    cluster.until(lambda: cluster.partition(1, "t").log.high_watermark == 100, "high watermark")


def test_broker_that_is_ready_knows_the_topics(cluster, monkeypatch):
    # Check in every turn, so that no metadata arrives by chance while the broker sleeps.
    monkeypatch.setattr("kctl.broker.broker.READY_POLL_MS", 0)
    cluster.start(1)
    topics = [f"t-{number}" for number in range(30)]
    for topic in topics:
        create(cluster, topic, p0=[1])
    cluster.stop(1)
    cluster.start(1)
    known = cluster.brokers[1].services.metadata_cache.topics()
    assert set(topics) <= set(known)


def test_a_replica_that_comes_back_catches_up_and_joins_the_isr(cluster):
    """
    1 leads, ISR 1,2      2 stops            ISR 1
                          1 writes           2 lacks it
                          2 starts           2 fetches, joins: ISR 1,2
    """
    cluster.start(1, 2)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 10)
    cluster.stop(2)
    cluster.until(lambda: cluster.state("t").isr == (1,), "2 leaves the ISR")
    produce(cluster, "t", 10)
    cluster.start(2)
    cluster.until(lambda: cluster.state("t").isr == (1, 2), "2 joins the ISR")
    assert cluster.end(2, "t") == 20
    assert log_bytes(cluster, 1, "t") == log_bytes(cluster, 2, "t")


@pytest.mark.parametrize("is_restarted", [False, True], ids=["while it runs", "while it is away"])
def test_a_follower_continues_when_the_message_format_is_lowered(cluster, is_restarted):
    """
    leader 1    0..9 epoch 0    10.. format v1, which has no epochs    its log has no epochs now
    follower 2  0..9 epoch 0    names epoch 0 no longer, and continues at 10
    """
    cluster.start(1, 2)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 10)
    if is_restarted:
        cluster.stop(2)
    admin, topic = cluster.admin(), ConfigResource(ResourceType.TOPIC, "t")
    for value in ("0.10.2", "2.7", "0.10.2"):
        changes = {topic: ConfigChanges(set={"message.format.version": value})}
        (result,) = cluster.run(admin.configs.alter(changes))
        assert result.error is None
        for broker in cluster.brokers.values():
            configs = broker.services.dynamic_configs
            cluster.until(
                lambda configs=configs, value=value: (
                    configs.topic("t").get("message.format.version") == value
                ),
                "the new format",
            )
        produce(cluster, "t", 10, is_idempotent=False)
    if is_restarted:
        cluster.start(2)
    cluster.until(lambda: cluster.end(2, "t") == 40, "2 has all records")
    cluster.until(lambda: cluster.state("t").isr == (1, 2), "2 is in the ISR")
    assert log_bytes(cluster, 1, "t") == log_bytes(cluster, 2, "t")


def test_when_the_leader_stops_an_in_sync_replica_leads_and_nothing_is_lost(cluster):
    cluster.start(1, 2, 3)
    create(cluster, "t", p0=[1, 2, 3])
    produce(cluster, "t", 10)
    cluster.stop(1)
    cluster.until(lambda: cluster.leader("t") == 2, "2 leads")
    produce(cluster, "t", 10)
    assert cluster.end(2, "t") == cluster.end(3, "t") == 20
    cluster.start(1)
    cluster.until(lambda: set(cluster.state("t").isr) == {1, 2, 3}, "all in sync")
    assert log_bytes(cluster, 1, "t") == log_bytes(cluster, 2, "t")


def test_a_hanging_follower_is_removed_and_acks_all_continues(cluster):
    cluster.start(1, 2, replica_lag_time_max_ms=HANGS_AFTER_MS)
    create(cluster, "t", p0=[1, 2])
    # 2 no longer receives data from its leader, but its session is alive.
    fetching = cluster.partition(2, "t")
    cluster.brokers[2].member.fetchers.shutdown()
    assert fetching.role.value == "follower"
    produce(cluster, "t", 5)
    assert cluster.state("t").isr == (1,)
    assert (cluster.end(1, "t"), cluster.end(2, "t")) == (5, 0)


def test_too_few_in_sync_replicas_reject_acks_all(cluster):
    cluster.start(1, 2, min_insync_replicas=2)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 1)
    cluster.stop(2)
    # The store has it first, and then the leader.
    cluster.until(lambda: cluster.partition(1, "t").isr == (1,), "2 leaves the ISR")
    append = cluster.brokers[1].services.replica_manager.append_records
    answers = []
    append([("t", 0, memoryview(b"whatever"))], -1, 1000, answers.extend)
    # An append waits for another turn if the present one was long.
    cluster.until(lambda: answers, "an answer")
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert cluster.end(1, "t") == 1


def test_records_that_only_the_old_leader_had_are_truncated_when_it_returns(cluster):
    """
    1 leads alone in the ISR of 1,2; both stop; only 2 starts, unclean election allowed
    2 leads and writes others; 1 returns, cuts its tail and takes what 2 wrote
    """
    cluster.start(1, 2, unclean_leader_election_enable="true")
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 10, b"both")
    cluster.stop(2)
    cluster.until(lambda: cluster.state("t").isr == (1,), "2 leaves the ISR")
    produce(cluster, "t", 5, b"only on 1")
    cluster.start(3, unclean_leader_election_enable="true")
    cluster.stop(1)
    cluster.start(2, unclean_leader_election_enable="true")
    cluster.until(lambda: cluster.leader("t") == 2, "2 leads, unclean")
    produce(cluster, "t", 3, b"only on 2")
    cluster.start(1)
    cluster.until(lambda: set(cluster.state("t").isr) == {1, 2}, "1 is in sync again")
    assert cluster.end(1, "t") == 13
    assert log_bytes(cluster, 1, "t") == log_bytes(cluster, 2, "t")
    assert b"only on 1" not in log_bytes(cluster, 1, "t")


def test_isr_changes_are_written_by_leaders_before_protocol_2_7(cluster):
    cluster.start(1, 2, inter_broker_protocol_version="2.6", replica_lag_time_max_ms=HANGS_AFTER_MS)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 10)
    cluster.brokers[2].member.fetchers.shutdown()
    produce(cluster, "t", 10)
    assert cluster.state("t").isr == (1,)
    controller = cluster.brokers[1].services.controller
    cluster.until(
        lambda: controller.context.leadership["t", 0].leader_and_isr.isr == (1,), "controller hears"
    )


def test_a_clean_shutdown_transfers_leadership_before_the_broker_stops(cluster):
    cluster.start(1, 2, 3)
    create(cluster, "t", p0=[2, 3])
    produce(cluster, "t", 10)
    cluster.stop(2)
    # There was no wait: the controller was informed before the session ended.
    assert (cluster.leader("t"), cluster.state("t").isr) == (3, (3,))
    produce(cluster, "t", 10)
    assert cluster.end(3, "t") == 20


def test_a_request_waits_for_a_replica_only_while_it_is_in_the_isr(cluster):
    """The leader stays; the controller removes the other replica."""
    cluster.start(1, 2, replica_lag_time_max_ms=600_000)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 10)
    cluster.brokers[2].member.fetchers.shutdown()
    producer = Producer(cluster.router(), "t")
    sent = cluster.runtime.scheduler.spawn(producer.send([NewRecord(key=b"k", value=b"waits")]))
    cluster.until(lambda: cluster.end(1, "t") == 11, "it is appended")
    cluster.stop(2)
    assert [result.error for result in cluster.run(sent)] == [None]
    # Once: no record had to be sent again.
    assert cluster.end(1, "t") == 11


def move(cluster, topic, replicas):
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[ReassignablePartition(partition_index=0, replicas=replicas)],
            )
        ]
    )
    response = cluster.run(cluster.router().send_to_controller(request))
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_a_partition_moves_with_its_records(cluster):
    cluster.start(1, 2, 3)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 50)
    before = log_bytes(cluster, 1, "t")
    move(cluster, "t", [3])
    cluster.until(lambda: cluster.state("t").isr == (3,), "only 3 is left")
    cluster.until(lambda: cluster.partition(1, "t") is None, "1 let go of it")
    assert log_bytes(cluster, 3, "t") == before
    produce(cluster, "t", 1)
    assert cluster.end(3, "t") == 51


def test_offsets_outlive_a_move_away_from_their_coordinator_but_not_their_topic(cluster):
    cluster.start(1, 2, offsets_topic_num_partitions=1)
    create(cluster, "__consumer_offsets", p0=[1])
    create(cluster, "t", p0=[1])
    admin, tp = cluster.admin(), TopicPartition("t", 0)
    (result,) = cluster.run(admin.offsets.commit("g", {tp: 5}))
    assert result.error is None
    move(cluster, "t", [2])
    cluster.until(lambda: cluster.partition(1, "t") is None, "1 let go of it")
    assert cluster.run(admin.offsets.committed("g"))[tp].offset == 5
    cluster.run(admin.topics.delete(["t"]))
    cluster.until(lambda: not cluster.run(admin.offsets.committed("g")), "it is forgotten")


def fetch_from(cluster, broker_id, rack, version=11):
    """Return the response to a consumer's fetch of t-0 from its start."""
    broker = cluster.brokers[broker_id]
    address = BrokerAddress(broker_id, broker.endpoints[0].host, broker.endpoints[0].port)
    channel = cluster.run(cluster.router().channel_to(address))
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        rack_id=rack,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=9999)],
            )
        ],
    )
    response = cluster.run(channel.request(request, version))
    return response.responses[0].partition_responses[0]


def test_a_consumer_is_directed_to_a_replica_in_its_rack_and_served_there(cluster):
    """KIP-392: leader in rack a, follower in rack b."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster.start(1, broker_rack="a", replica_selector_class=selector)
    cluster.start(2, broker_rack="b", replica_selector_class=selector)
    create(cluster, "t", p0=[1, 2])
    produce(cluster, "t", 10)
    cluster.until(lambda: cluster.partition(2, "t").log.high_watermark == 10, "2 knows of it")
    at_leader = fetch_from(cluster, 1, "b")
    assert (at_leader.error_code, at_leader.preferred_read_replica) == (0, 2)
    assert not at_leader.record_set
    near = fetch_from(cluster, 2, "b")
    assert (near.error_code, near.preferred_read_replica, near.high_watermark) == (0, -1, 10)
    assert near.record_set
    # A consumer in the leader's rack, in none, or in one without a replica, stays with the leader.
    for rack in ("a", "", "c"):
        assert fetch_from(cluster, 1, rack).record_set
    # An old client is not served by a follower.
    assert fetch_from(cluster, 2, "", version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.slow
def test_a_throttled_replica_catches_up_slowly_and_at_once_without_the_throttle(cluster):
    """KIP-73: 2 lacks 400 kB of t-0, and may be sent 10 kB a second."""
    cluster.start(1, 2)
    create(cluster, "t", p0=[1, 2])
    cluster.stop(2)
    cluster.until(lambda: cluster.state("t").isr == (1,), "2 leaves the ISR")
    for _ in range(40):
        produce(cluster, "t", 10, b"x" * 1000)
    store = cluster.brokers[1].services.cluster_store
    throttled = {"leader.replication.throttled.replicas": "0:1"}
    cluster.run(store.change_entity_config("topics", "t", throttled))
    rate = {"leader.replication.throttled.rate": "10000"}
    cluster.run(store.change_entity_config("brokers", "1", rate))
    quota = cluster.brokers[1].services.replica_manager.leader_quota
    cluster.until(lambda: quota.rate == 10_000, "the broker knows its rate")
    cluster.start(2, replica_fetch_max_bytes=11_000)
    cluster.until(lambda: cluster.end(2, "t") > 50, "some of it")
    cluster.until(lambda: quota.is_exceeded(cluster.runtime.clock.monotonic_ms()), "the bound")
    assert cluster.end(2, "t") < 400
    assert cluster.state("t").isr == (1,)
    cluster.run(store.change_entity_config("brokers", "1", {}))
    cluster.until(lambda: set(cluster.state("t").isr) == {1, 2}, "2 is in sync")
