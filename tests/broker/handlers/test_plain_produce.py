"""The fast path of Produce returns and appends the same as the regular path."""

from dataclasses import replace
from random import Random  # noqa: TID251 - only ever seeded
from types import SimpleNamespace

import pytest

from kctl.broker.handlers.plain_produce import HEADS_BYTES_MAX, HEADS_MAX, PlainProduce
from kctl.broker.handlers.produce import handle_produce
from kctl.broker.log.unified_log import FetchIsolation
from kctl.broker.replication.delayed import FetchParams
from kctl.broker.request import Request, RequestContext
from kctl.protocol.codec import encode
from kctl.protocol.connection import ClientConnection, read_request, response_frame
from kctl.protocol.constants import CONSUMER_REPLICA_ID
from kctl.protocol.messages.fetch import FetchPartition
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.records.compression import LZ4, ZSTD
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.turns import fail_loudly
from tests.broker.replication.conftest import ReplicationWorld
from tests.support.log_world import BASE_MS, batch, bytes_of
from tests.support.virtual_runtime import virtual_runtime

REQUESTS = 400
CONTEXT = RequestContext("c", "127.0.0.1", "PLAINTEXT")
SETTINGS = [
    {},
    {"cleanup_policy": ("compact",)},
    {"message_timestamp_type": "LogAppendTime"},
    {"compression_type": "lz4"},
    {"segment_bytes": 2_000},
    {"min_insync_replicas": 2},
]


class Broker:
    """Leads t-0; handles the frames of Produce requests."""

    def __init__(self, directory, *, has_fast_path, isr=(1,), **settings):
        runtime = replace(virtual_runtime(), disk=RealDisk())
        self.world = ReplicationWorld(runtime, directory, **settings)
        self.world.lead(isr=isr, replicas=isr)
        self.services = SimpleNamespace(replica_manager=self.world.manager)
        self.road = PlainProduce(self.world.manager, 8) if has_fast_path else None
        self.short_answers = 0
        self.is_large = False

    def ask(self, frame):
        """Return the response frame; "closed", or "nothing" for acks=0 and for requests that still
        wait."""
        sent = []
        if self.is_large:
            # Like a large frame: in the connection's own buffer, which the log writes into.
            frame = memoryview(bytearray(frame))
        if self.road is not None and self.road.answer(frame, sent.append, CONTEXT):
            self.short_answers += 1
        else:
            assert not sent
            self._take_regular_path(frame, sent)
        self.world.runtime.scheduler.advance(5)
        return sent[0] if sent else "nothing"

    def _take_regular_path(self, frame, sent):
        asked = read_request(frame)

        def send(response):
            if response is not None:
                body = encode(response, asked.api_version)
                sent.append(b"".join(response_frame(asked.correlation_id, 0, body)))

        context = RequestContext("connection", "host", "PLAINTEXT")
        handle_produce(
            self.services,
            Request(
                asked.api_key, asked.api_version, asked.correlation_id, asked.client_id, asked.body,
                context, 0, send, lambda: sent.append("closed"),
            ),
        )  # fmt: skip

    def log_bytes(self):
        """Return the bytes of the log."""
        segments = self.world.partition.log.segments
        return [bytes_of(segment) for segment in map(_whole, segments) if segment is not None]


def _whole(segment):
    return segment.read(segment.base_offset, 1 << 20, segment.size, min_one_message=True)


def random_records(rng):
    """Return a batch, mostly as producers send it."""
    count = rng.choice((1, 1, 1, 2, 30))
    values = [bytes(rng.choice((0, 1, 60, 200))) for _ in range(count)]
    options = {"key": rng.choice((None, None, b"key", b""))}
    if rng.random() < 0.2:
        options |= {"producer_id": 9, "producer_epoch": 0, "base_sequence": rng.randrange(3)}
    if rng.random() < 0.25:
        options["compression_type"] = rng.choice((LZ4, ZSTD))
    data = bytearray(batch(*values, first_ms=rng.choice((BASE_MS, -1)), **options))
    match rng.randrange(14):
        case 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            del data[rng.randrange(len(data)) :]
        case 2:
            data *= 2
        case 3:
            data += bytes(rng.randrange(1, 70))
        case 4:
            return None
    return data


def random_frame(rng, number):
    """Return a Produce request as a connection passes it on."""
    partitions = [
        PartitionProduceData(
            partition_index=rng.choice((0, 0, 0, 0, 1)), records=random_records(rng)
        )
        for _ in range(rng.choice((1, 1, 1, 1, 1, 0, 2)))
    ]
    topic = TopicProduceData(
        name=rng.choice(("t", "t", "t", "t", "none", "__consumer_offsets")), partitions=partitions
    )
    body = ProduceRequest(
        transactional_id=rng.choice((None, None, None, None, "", "id")),
        acks=rng.choice((1, 1, 1, -1, -1, 0, 2)),
        timeout_ms=rng.choice((1000, 2)),
        topics=[topic] * rng.choice((1, 1, 1, 1, 1, 1, 2)),
    )
    return frame_of(body, rng.choice((3, 4, 5, 6, 7, 8, 8)), rng.choice(("", "client")), number)


def frame_of(body, version, client_id="client", number=0):
    connection = ClientConnection(client_id)
    frame = bytearray(b"".join(connection.send_request(body, version)[1])[4:])
    frame[4:8] = number.to_bytes(4, "big")
    return bytes(frame)


def plain_frame(number=0, acks=1, topic="t", client_id="client"):
    partition = PartitionProduceData(partition_index=0, records=batch(b"value"))
    topics = [TopicProduceData(name=topic, partitions=[partition])]
    body = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topics=topics)
    return frame_of(body, 8, client_id, number)


def outcome(broker, frame):
    """Return the result that a connection would see."""
    try:
        return broker.ask(frame)
    except Exception as error:  # noqa: BLE001 - both paths must fail in the same way
        return type(error), str(error)


@pytest.mark.parametrize("isr", [(1,), (1, 2)], ids=["alone", "two in sync"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_both_paths_return_and_append_the_same(tmp_path, settings, isr):
    rng = Random(f"{settings}{isr}")
    short = Broker(tmp_path / "short", has_fast_path=True, isr=isr, **settings)
    long = Broker(tmp_path / "long", has_fast_path=False, isr=isr, **settings)
    for number in range(REQUESTS):
        frame = random_frame(rng, number)
        # The first request with a head adds it to the cache.
        short.is_large = long.is_large = rng.random() < 0.5
        for _ in range(rng.choice((1, 2))):
            assert outcome(short, frame) == outcome(long, frame), frame
    assert short.log_bytes() == long.log_bytes()
    assert short.short_answers, "the fast path was never taken"
    assert not long.short_answers


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path, has_fast_path=True)


def test_a_head_is_cached_by_its_first_request(broker):
    broker.ask(plain_frame())
    assert broker.short_answers == 0
    broker.ask(plain_frame())
    assert broker.short_answers == 1


def test_unused_heads_are_removed(broker):
    for number in range(2 * HEADS_MAX + 1):
        broker.road.answer(
            plain_frame(topic="none", client_id=str(number)), lambda _: None, CONTEXT
        )
    assert len(broker.road._heads) <= HEADS_MAX


def test_long_heads_are_removed_before_they_take_much_memory(broker):
    size = 16 * 1024
    for number in range(HEADS_BYTES_MAX // size + 10):
        frame = plain_frame(topic="none", client_id=f"{number:0{size}}")
        broker.road.answer(frame, lambda _: None, CONTEXT)
        assert sum(len(head) for _, head in broker.road._heads) <= HEADS_BYTES_MAX
    assert broker.road._heads


def test_a_consumer_that_waits_is_woken_by_the_fast_path(broker):
    broker.ask(plain_frame())
    params = FetchParams(CONSUMER_REPLICA_ID, 1000, 1, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    asked = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    answered = []
    broker.world.manager.fetch(params, [("t", asked)], answered.extend, fail_loudly)
    assert not answered
    broker.ask(plain_frame())
    assert broker.short_answers == 1
    assert len(answered[0].data.records) > 0


@pytest.mark.parametrize("cut", range(0, 200, 3))
def test_the_fast_path_leaves_truncated_frames(broker, cut):
    frame = plain_frame()
    broker.ask(frame)
    assert not broker.road.answer(frame[: min(cut, len(frame) - 1)], lambda _: None, CONTEXT)
