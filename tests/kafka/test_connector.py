"""ConsumerConnector without a cluster: its settings, its streams, and what it fetches."""

import asyncio

import pytest

from kctl.client.router import Router
from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.kafka import ConsumerConnector, aio
from kctl.kafka.claims import Claims, OffsetMoves
from kctl.kafka.connector import ConnectorCore
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.errors import ConsumerTimeoutError
from kctl.kafka.offsets import OffsetsStorage
from kctl.kafka.rebalance import Lease
from kctl.kafka.stream_fetcher import StreamFetcher
from kctl.kafka.streams import Chunk, ChunkReader, StreamQueue
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record import Record
from kctl.runtime.future import CancelledError, sleep
from kctl.runtime.real import make_runtime
from kctl.store.consumer_znodes import ConsumedPartition
from tests.support.real_loop import real_loop
from tests.support.scripted_brokers import scripted_brokers

T0 = ConsumedPartition("t", 0)
MINIMUM = {"zookeeper.connect": "zk:2181", "group.id": "g"}


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


def run(runtime, coroutine):
    return runtime.scheduler.run_until(runtime.scheduler.spawn(coroutine))


def lease_of(runtime, timeout_ms=60_000):
    lease = Lease(timeout_ms)
    lease.answered(runtime.clock.monotonic_ms())
    return lease


def chunk(claim, *offsets, next_offset=None):
    records = [Record(it, -1, None, b"%d" % it) for it in offsets]
    return Chunk(claim, records, next_offset or offsets[-1] + 1, 100)


# --- settings


def test_defaults_are_those_of_the_age_of_the_names():
    old = ConnectorConfig({"zk.connect": "zk:2181", "groupid": "g"})
    later = ConnectorConfig(MINIMUM | {"auto.commit.enable": "true"})
    assert (old["reset"], old["auto_commit_ms"], old["queued_chunks"]) == ("smallest", 10_000, 10)
    assert (later["reset"], later["auto_commit_ms"]) == ("largest", 60_000)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"group.id": "g"}, "zookeeper.connect is missing"),
        ({"zookeeper.connect": "zk:2181"}, "group.id is missing"),
        (MINIMUM | {"groupid": "h"}, "the same setting"),
        (MINIMUM | {"group.id": "a/b"}, "cannot be kept in ZooKeeper"),
        (MINIMUM | {"auto.offset.reset": "middle"}, "not supported"),
        (MINIMUM | {"zookeeper.session.timeout.ms": "6 s"}, "not an integer"),
        (MINIMUM | {"fetch.wait.max.ms": 500, "socket.timeout.ms": 400}, "is above"),
    ],
)
def test_settings_that_are_not_valid_are_refused_by_name(given, why):
    with pytest.raises(UsageError, match=why):
        ConnectorConfig(given)


def test_dual_commit_is_on_where_offsets_are_in_kafka():
    stores = [
        ConnectorConfig(MINIMUM | given).offsets.stores
        for given in (
            {},
            {"offsets.storage": "kafka"},
            {"offsets.storage": "kafka", "dual.commit.enabled": False},
            {"dual.commit.enabled": "true"},
        )
    ]
    zookeeper, kafka = OffsetsStorage.ZOOKEEPER, OffsetsStorage.KAFKA
    assert stores == [(zookeeper,), (kafka, zookeeper), (kafka,), (zookeeper, kafka)]


NOWHERE = {"zk.connect": "127.0.0.1:1", "groupid": "g", "zk.connectiontimeout.ms": 50}


def test_a_store_that_is_not_there_is_reported():
    pytest.importorskip("kazoo")
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        ConsumerConnector(NOWHERE)


def test_both_connectors_log_settings_that_have_no_effect(caplog):
    pytest.importorskip("kazoo")
    with pytest.raises(UnreachableError):
        ConsumerConnector(NOWHERE | {"blocking.setting": "1"})
    with pytest.raises(UnreachableError):
        asyncio.run(aio.ConsumerConnector(NOWHERE | {"asyncio.setting": "1"}).start())
    assert "blocking.setting" in caplog.text
    assert "asyncio.setting" in caplog.text


# --- commits


class SlowMembership:
    """A membership whose commits wait until ZooKeeper is back."""

    def __init__(self, scheduler):
        self.is_back = scheduler.future()
        self.committed, self.given_up = [], 0

    async def commit(self, offsets):
        try:
            await self.is_back
        except CancelledError:
            self.given_up += 1
            raise
        self.committed.append(dict(offsets))


def test_a_commit_while_zookeeper_is_down_ends_and_the_next_one_covers_it(runtime):
    core = ConnectorCore(runtime, ConnectorConfig(MINIMUM | {"commit.timeout.ms": 20}))
    membership = core.membership = SlowMembership(runtime.scheduler)
    core._claims.open(T0, 0, lease_of(runtime), 5).position = 8

    async def story():
        for _ in range(2):
            with pytest.raises(TimedOutError, match="group g were not committed within 20 ms"):
                await core.commit()
        await sleep(runtime.scheduler, 0)
        assert (membership.given_up, membership.committed) == (2, [])
        membership.is_back.set_result(None)
        await core.commit()
        assert membership.committed == [{T0: 8}]

    run(runtime, story())


# --- streams


def test_a_stream_hands_out_chunks_in_order_and_moves_the_position_late(runtime):
    queue, reader = StreamQueue(runtime, 0), ChunkReader(runtime, OffsetMoves.LATE)
    claims = Claims()
    claim = claims.open(T0, 0, lease_of(runtime), None)
    queue.put(chunk(claim, 5, 7, next_offset=9))

    async def story():
        reader.begin(await queue.next_chunk())

    run(runtime, story())
    assert reader.next().offset == 5
    assert claims.uncommitted() == {}
    reader.asked_for_next()
    assert claims.uncommitted() == {T0: 6}
    assert reader.next().value == b"7"
    assert reader.next() is None
    reader.asked_for_next()
    # What follows the last record, such as the marker of a transaction, is passed too.
    assert claims.uncommitted() == {T0: 9}


def test_what_is_queued_of_a_partition_that_went_is_dropped(runtime):
    queue, claims = StreamQueue(runtime, 0), Claims()
    old = claims.open(T0, 0, lease_of(runtime), None)
    queue.put(chunk(old, 1))
    claims.close([T0])
    new = claims.open(T0, 0, lease_of(runtime), None)
    queue.put(chunk(new, 0))

    async def story():
        assert (queue.chunks_of(old), queue.chunks_of(new)) == (1, 1)
        assert (await queue.next_chunk()).claim is new
        assert (queue.chunks_of(old), queue.chunks_of(new)) == (0, 0)

    run(runtime, story())


def test_the_rest_of_a_chunk_waits_for_the_lease_and_is_then_delivered(runtime):
    queue, reader = StreamQueue(runtime, 60_000), ChunkReader(runtime, OffsetMoves.LATE)
    lease = lease_of(runtime)
    claim = Claims().open(T0, 0, lease, None)
    queue.put(chunk(claim, 1, 2))

    async def story():
        reader.begin(await queue.next_chunk())
        assert reader.next().offset == 1
        lease.end()
        assert reader.next() is None
        queue.put_back(reader.rest())
        assert queue.chunks_of(claim) == 1
        waiting = runtime.scheduler.spawn(queue.next_chunk())
        await sleep(runtime.scheduler, 1)
        assert not waiting.done
        lease.answered(runtime.clock.monotonic_ms())
        reader.begin(await waiting)
        assert reader.next().offset == 2

    run(runtime, story())


def test_a_stream_times_out_raises_what_failed_once_and_ends(runtime):
    queue = StreamQueue(runtime, 1)

    async def story():
        with pytest.raises(ConsumerTimeoutError):
            await queue.next_chunk()
        queue.fail(KctlError("no broker"))
        with pytest.raises(KctlError, match="no broker"):
            await queue.next_chunk()
        with pytest.raises(ConsumerTimeoutError):
            await queue.next_chunk()
        queue.end()
        assert await queue.next_chunk() is None

    run(runtime, story())


# --- fetches


class OldLog:
    """A partition of a broker before 0.10.1, which cuts even the first message of a fetch."""

    def __init__(self, *values):
        self.sizes = []
        self._batches = []
        for offset, value in enumerate(values):
            builder = RecordBatchBuilder(base_offset=offset)
            builder.append(timestamp=1, key=None, value=value)
            self._batches.append(bytes(builder.build()))

    def answer(self, request):
        [asked] = request.body.topics[0].partitions
        data = b"".join(self._batches[asked.fetch_offset :])[: asked.partition_max_bytes]
        if data:
            self.sizes.append(asked.partition_max_bytes)
        item = FetchablePartitionResponse(partition=0, error_code=0, record_set=data)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic="t", partition_responses=[item])]
        )


def chunks_of(log, count, **settings):
    """Fetch partition 0 of t from offset 0; return `count` chunks, or raise the stream's error."""
    given = MINIMUM | {name.replace("_", "."): value for name, value in settings.items()}
    config = ConnectorConfig(given | {"fetch.wait.max.ms": 1})
    with real_loop() as loop, scripted_brokers(loop) as make_broker:
        broker = make_broker({"t": 1})
        broker.answer(ApiKey.FETCH, log.answer)
        router = Router(loop.runtime, [broker.address])
        fetcher, queue = StreamFetcher(router, config), StreamQueue(loop.runtime, 60_000)
        fetcher.add(Claims().open(T0, 0, lease_of(loop.runtime), 0), queue)

        async def read():
            running = loop.scheduler.spawn(fetcher.run(), "fetches")
            try:
                return [await queue.next_chunk() for _ in range(count)]
            finally:
                running.cancel()
                fetcher.close()

        try:
            return loop.run(read())
        finally:
            router.close()


def test_the_fetch_size_doubles_until_a_message_is_whole():
    log = OldLog(b"small", b"x" * 3_000, b"last")
    found = chunks_of(log, 2, fetch_message_max_bytes=500)
    assert [[it.offset for it in chunk.records] for chunk in found] == [[0], [1, 2]]
    assert log.sizes[:5] == [500, 500, 1_000, 2_000, 4_000]


def test_a_message_above_the_largest_fetch_size_fails_its_stream():
    log = OldLog(b"x" * 3_000)
    with pytest.raises(KctlError, match=r"t-0 has a message of 30\d\d bytes at offset 0.*=1500"):
        chunks_of(log, 1, fetch_message_max_bytes=500, fetch_size_max=1_500)
    assert log.sizes == [500, 1_000, 1_500]
