"""D1, D5: a consumer that commits to ZooKeeper, to Kafka or to both, while either fails or the
coordinator moves. What was reported as committed is what a restarted consumer begins at."""

from itertools import product

import pytest

from kctl.client.retry import RetryPolicy
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.kafka.offset_stores import OffsetStores
from kctl.kafka.offsets import OffsetsPolicy, OffsetsStorage
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.find_coordinator import FindCoordinatorResponse
from kctl.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kctl.store.consumer_registry import ConsumerRegistry, LostClaimError
from kctl.store.consumer_znodes import ConsumedPartition
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import AuthFailedError
from kctl.testing.scripted_broker import HANG_UP
from tests.support.real_loop import real_loop
from tests.support.scripted_brokers import scripted_brokers

GROUP, CONSUMER = "g", "g_h-1-0a"
ZOOKEEPER, KAFKA = OffsetsStorage.ZOOKEEPER, OffsetsStorage.KAFKA
T0, T1 = (ConsumedPartition("t", number) for number in range(2))
REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
LOADING, MOVED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


class FailingStore(EmbeddedStore):
    """A session whose calls fail while `is_down`."""

    is_down = False

    def get(self, path, watch=None):
        return self._down(path) if self.is_down else super().get(path, watch)

    def multi(self, operations):
        return self._down(operations[0].path) if self.is_down else super().multi(operations)

    def get_each(self, paths, watch=None):
        return self._down("znodes") if self.is_down else super().get_each(paths, watch)

    def write_each(self, operations, fence=None):
        return self._down("znodes") if self.is_down else super().write_each(operations, fence)

    def _down(self, path):
        failed = self._scheduler.future()
        failed.set_error(AuthFailedError(path))
        return failed


class World:
    """A session in ZooKeeper that owns t-0 and t-1, two brokers, and the offsets in Kafka."""

    def __init__(self, loop, make_broker):
        self.loop = loop
        database = ZnodeDatabase.in_memory(loop.runtime)
        self.store = FailingStore(loop.runtime, database)
        self.registry = ConsumerRegistry(self.store)
        self.kafka = {}
        self.refuses = ()
        self.brokers = [make_broker({"t": 2}, broker_id=number) for number in range(2)]
        self.coordinator = 0
        # What the coordinator answers next instead of doing what it is asked for.
        self.instead = []
        for broker in self.brokers:
            broker.answer(ApiKey.FIND_COORDINATOR, self._find)
            broker.answer(
                ApiKey.OFFSET_COMMIT, lambda request, it=broker: self._commit(it, request)
            )
            broker.answer(ApiKey.OFFSET_FETCH, lambda request, it=broker: self._fetch(it, request))
        self.run(self._own())

    def run(self, coroutine):
        return self.loop.run(coroutine)

    async def _own(self):
        await self.registry.prepare(GROUP)
        await self.registry.register(GROUP, CONSUMER, b"")
        await self.registry.claim(GROUP, CONSUMER, {T0: 0, T1: 0})

    def _find(self, _request):
        broker = self.brokers[self.coordinator]
        return FindCoordinatorResponse(
            error_code=0, node_id=broker.broker_id, host=broker.host, port=broker.port
        )

    def _code(self, broker):
        """The error that every partition of an answer has."""
        if self.instead:
            return self.instead.pop(0)
        return 0 if broker is self.brokers[self.coordinator] else MOVED

    def _commit(self, broker, request):
        code = self._code(broker)
        if code is HANG_UP:
            return code
        topics = []
        for topic in request.body.topics:
            parts = []
            for part in topic.partitions:
                place = ConsumedPartition(topic.name, part.partition_index)
                error = REFUSED if place in self.refuses else code
                if not error:
                    self.kafka[place] = part.committed_offset
                parts.append(
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=error
                    )
                )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, broker, request):
        code = self._code(broker)
        if code is HANG_UP:
            return code
        topics = []
        for topic in request.body.topics:
            parts = []
            for number in topic.partition_indexes:
                place = ConsumedPartition(topic.name, number)
                error = REFUSED if place in self.refuses else 0
                parts.append(
                    OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=-1 if error else self.kafka.get(place, -1),
                        metadata="",
                        error_code=error,
                    )
                )
            topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=parts))
        return OffsetFetchResponse(error_code=code, topics=topics)

    def fail(self, stores):
        self.store.is_down = ZOOKEEPER in stores
        self.refuses = (T0, T1) if KAFKA in stores else ()

    def consumer(self, policy):
        """A consumer that has just started."""
        servers = [it.address for it in self.brokers]
        router = Router(self.loop.runtime, servers, retry=RetryPolicy(backoff_ms=1))
        return OffsetStores(self.registry, router, GROUP, policy)

    def in_zookeeper(self):
        found = self.run(self.registry.stored_offsets(GROUP, [T0, T1]))
        return {it: offset for it, (offset, _) in found.items()}

    def stored(self):
        """The offset of t-0 in each store."""
        return {ZOOKEEPER: self.in_zookeeper().get(T0), KAFKA: self.kafka.get(T0)}

    def commits(self, consumer, offset):
        """Whether a commit was reported as done."""
        try:
            self.run(consumer.commit(CONSUMER, {T0: offset}))
        except KctlError:
            return False
        return True

    def start(self, consumer):
        """The offset at which a consumer begins, or the class of what it raises."""
        try:
            return self.run(consumer.fetch([T0])).get(T0)
        except KctlError as error:
            return type(error)


@pytest.fixture
def world():
    with real_loop() as loop, scripted_brokers(loop) as make_broker:
        yield World(loop, make_broker)


@pytest.mark.parametrize(("storage", "is_dual"), list(product(OffsetsStorage, (False, True))))
def test_either_store_may_fail_before_and_after_a_restart(world, storage, is_dual):
    """48 cases: which stores fail, and whether the consumer goes on, restarts when they are back,
    or while they still fail."""
    policy = OffsetsPolicy(storage, is_dual)
    failures = [(), (ZOOKEEPER,), (KAFKA,), (ZOOKEEPER, KAFKA)]
    for failing, restart in product(failures, ("none", "after", "during")):
        world.fail(())
        first = world.consumer(OffsetsPolicy(ZOOKEEPER, is_dual=True))
        assert world.commits(first, 3)
        consumer = world.consumer(policy)
        assert world.start(consumer) == 3
        world.fail(failing)
        is_reported = world.commits(consumer, 7)
        assert is_reported == failing_none(policy, failing)
        # The main store goes first, so the other is never ahead of it.
        expected = dict.fromkeys(OffsetsStorage, 3)
        if storage not in failing:
            expected[storage] = 7
            if is_dual and storage.other not in failing:
                expected[storage.other] = 7
        if restart == "during" and not failing_none(policy, failing):
            # A store that does not answer is not one without an offset.
            assert world.start(world.consumer(policy)) in (AuthFailedError, ApiError)
        world.fail(())
        assert world.stored() == expected
        if restart != "none":
            consumer = world.consumer(policy)
            assert world.start(consumer) == expected[storage]
        # Whatever was missed is made up for by the next commit.
        assert world.commits(consumer, 8)
        assert [world.stored()[it] for it in policy.stores] == [8] * len(policy.stores)


def failing_none(policy, failing):
    return not set(policy.stores) & set(failing)


@pytest.mark.parametrize("storage", OffsetsStorage)
def test_what_kafka_accepts_is_followed_although_it_refuses_the_rest(world, storage):
    consumer = world.consumer(OffsetsPolicy(storage, is_dual=True))
    world.refuses = (T1,)
    with pytest.raises(ApiError) as refused:
        world.run(consumer.commit(CONSUMER, {T0: 5, T1: 6}))
    assert refused.value.code == REFUSED
    assert world.kafka == {T0: 5}
    assert world.in_zookeeper() == ({T0: 5} if storage is KAFKA else {T0: 5, T1: 6})
    world.refuses = ()
    world.run(consumer.commit(CONSUMER, {T0: 5, T1: 6}))
    assert world.kafka == world.in_zookeeper() == {T0: 5, T1: 6}


@pytest.mark.parametrize("storage", OffsetsStorage)
@pytest.mark.parametrize(
    "trouble",
    [[LOADING], [MOVED], [HANG_UP], [LOADING, MOVED, LOADING], [MOVED, HANG_UP, LOADING]],
    ids=lambda it: "+".join(getattr(each, "name", str(each)) for each in it),
)
def test_a_reported_commit_outlives_a_coordinator_that_moves_or_loads(world, storage, trouble):
    """D5: in both stores, and the start waits for the coordinator, too."""
    policy = OffsetsPolicy(storage, is_dual=True)
    consumer = world.consumer(policy)
    assert world.commits(consumer, 3)
    world.coordinator = 1
    world.instead += trouble
    assert world.commits(consumer, 4)
    assert world.stored() == {ZOOKEEPER: 4, KAFKA: 4}
    world.coordinator = 0
    world.instead += trouble
    assert world.start(world.consumer(policy)) == 4
    assert world.instead == []


def test_a_commit_that_a_lost_claim_refuses_reaches_neither_store(world):
    for storage in OffsetsStorage:
        consumer = world.consumer(OffsetsPolicy(storage, is_dual=True))
        with pytest.raises(LostClaimError):
            world.run(consumer.commit("g_h-1-0b", {T0: 9}))
    assert world.stored() == {ZOOKEEPER: None, KAFKA: None}
