"""Quotas on a running broker: set through its API, kept by what its clients get."""

import pytest

from kctl.admin.client_quotas import DEFAULT_ENTITY, QuotaEntity
from kctl.admin.topics import NewTopic
from kctl.broker.client_quotas import quota_entity
from kctl.client.router import Router
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages import create_partitions, create_topics, delete_topics, fetch
from tests.support.broker_cluster import running_brokers
from tests.support.log_world import batch
from tests.support.raw_requests import produce_request


@pytest.mark.parametrize("kind", ["user", "client-id"])
def test_an_entity_has_a_name_or_is_the_default(kind):
    """An empty name was refused by the store, as an unknown error that named a znode."""
    with pytest.raises(ApiError, match=f"^Empty {kind} not supported$"):
        quota_entity([(kind, "")])
    quota_entity([(kind, None)])


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_brokers(tmp_path_factory.mktemp("quotas")) as cluster:
        cluster.start(1)
        (result,) = cluster.run(cluster.admin().topics.create([NewTopic("t", 1, 1)]))
        assert result.error is None
        cluster.until(lambda: cluster.partition(1, "t"), "the replica")
        yield Quotas(cluster)


class Quotas:
    """A broker whose clients have ids of their own."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.admin = cluster.admin()
        self.quotas = cluster.brokers[1].services.client_quotas

    def client(self, client_id):
        addresses = [(it.host, it.port) for it in self.cluster.brokers[1].endpoints]
        router = Router(self.cluster.runtime, addresses, client_id=client_id)
        self.cluster._routers.append(router)
        return lambda message, version=None: self.cluster.run(
            router.send_to_broker(1, message, version)
        )

    def set(self, entity, **values):
        assert self.cluster.run(self.admin.quotas.alter({entity: values})) == {entity: None}
        found = self.cluster.run(self.admin.quotas.describe())
        kept = {name: value for name, value in values.items() if value is not None}
        assert found.get(entity, {}) == kept
        self.cluster.until(lambda: self.quotas.is_enabled is bool(found), "the broker's own quotas")

    def end(self, entity, *names):
        self.set(entity, **dict.fromkeys(names))


def test_a_producer_over_its_quota_pauses_and_others_do_not(broker):
    entity = QuotaEntity(client_id="fast")
    broker.set(entity, producer_byte_rate=10_000.0)
    fast, other = broker.client("fast"), broker.client("other")
    records = batch(b"x" * 60_000)
    answers = [fast(produce_request(records)), fast(produce_request(records))]
    assert answers[0].throttle_time_ms == 0
    # 120,000 bytes are 20,000 more than ten seconds allow.
    assert 1_900 <= answers[1].throttle_time_ms <= 2_200
    assert other(produce_request(records)).throttle_time_ms == 0
    assert answers[1].responses[0].partitions[0].error_code == 0
    broker.end(entity, "producer_byte_rate")
    assert broker.client("fast")(produce_request(records)).throttle_time_ms == 0


def fetch_request(offset=0, **fields):
    wanted = fetch.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    topics = [fetch.FetchTopic(topic="t", partitions=[wanted])]
    body = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1, "session_epoch": -1, **fields}
    return fetch.FetchRequest(topics=topics, **body)


def records_in(answer):
    return sum(
        len(bytes(partition.record_set or b""))
        for topic in answer.responses
        for partition in topic.partition_responses
    )


def test_a_consumer_over_its_quota_gets_nothing_and_pauses(broker):
    start = broker.cluster.end(1, "t")
    for _ in range(4):
        broker.client("writer")(produce_request(batch(b"x" * 30_000)))
    entity = QuotaEntity(user="ANONYMOUS", client_id=DEFAULT_ENTITY)
    broker.set(entity, consumer_byte_rate=3_500.0)
    reader = broker.client("reader")
    first = reader(fetch_request(start))
    assert first.throttle_time_ms == 0
    assert 30_000 < records_in(first) <= 35_000, "no more than ten seconds allow"
    second = reader(fetch_request(start, session_epoch=0))
    assert second.throttle_time_ms > 0
    assert not second.responses
    assert second.session_id == 0, "no session that the client does not use"
    broker.end(entity, "consumer_byte_rate")


def new_topic(name, partitions=1):
    return create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )


def test_mutations_over_a_quota_are_refused_topic_by_topic(broker):
    entity = QuotaEntity(user=DEFAULT_ENTITY)
    broker.set(entity, controller_mutation_rate=0.001)
    client = broker.client("creator")

    def create(*names, version=6, **fields):
        request = create_topics.CreateTopicsRequest(
            topics=[new_topic(name) for name in names], timeout_ms=10_000, **fields
        )
        return client(request, version)

    checked = create("a", "b", "c", validate_only=True)
    assert [it.error_code for it in checked.topics] == [0, 0, 0]
    # The bucket has 0.011 tokens: the first topic overdraws it.
    answer = create("a", "b", "c")
    assert [it.error_code for it in answer.topics] == [
        0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED
    ]  # fmt: skip
    assert answer.topics[1].error_message == "The throttling quota has been exceeded."
    assert answer.throttle_time_ms > 900_000

    client = broker.client("grower")
    grown = client(
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="a", count=2, assignments=None)],
            timeout_ms=10_000,
        )
    )
    assert grown.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    client = broker.client("old")
    old = client(delete_topics.DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 4)
    assert old.responses[0].error_code == 0, "an old client is paused instead"
    assert old.throttle_time_ms > 1_900_000
    broker.end(entity, "controller_mutation_rate")
    client = broker.client("creator")
    assert [it.error_code for it in create("b").topics] == [0]


def test_requests_that_take_too_much_time_pause_their_client(broker):
    entity = QuotaEntity(client_id="busy")
    broker.set(entity, request_percentage=0.02)
    busy = broker.client("busy")
    records = batch(b"x" * 1000)
    pauses = [busy(produce_request(records)).throttle_time_ms]
    while not pauses[-1]:
        pauses.append(busy(produce_request(records)).throttle_time_ms)
    assert pauses[-1] <= 1000
    broker.end(entity, "request_percentage")


def test_quotas_are_read_when_a_broker_starts(broker):
    entity = QuotaEntity(user="ünï co/de", client_id="a b")
    broker.set(entity, producer_byte_rate=5.0)
    cluster = broker.cluster
    cluster.start(2)
    try:
        again = cluster.brokers[2].services.client_quotas
        assert again.is_enabled
        again_limits = again._limits["producer_byte_rate"]
        assert again_limits.share("ünï co/de", "a b").limit == 5.0
    finally:
        cluster.stop(2)
    broker.end(entity, "producer_byte_rate")


def test_clients_without_a_limit_are_answered_on_the_fast_path_beside_others(broker):
    server = broker.cluster.brokers[1].server
    entity = QuotaEntity(client_id="counted")
    broker.set(entity, producer_byte_rate=1e9)
    assert server.client_quotas is broker.quotas
    handled = []
    on_request = server.on_request

    def handle(request):
        if request.api_key is ApiKey.PRODUCE:
            handled.append(request.client_id)
        on_request(request)

    server.on_request = handle
    try:
        # The first request of its form is decoded.
        for name in ("free", "counted", "free", "counted"):
            client = broker.client(name)
            answer = client(produce_request(batch(b"x")))
            assert answer.responses[0].partitions[0].error_code == 0
    finally:
        server.on_request = on_request
    assert handled == ["free", "counted", "counted"]
    broker.end(entity, "producer_byte_rate")
    assert server.client_quotas is None
