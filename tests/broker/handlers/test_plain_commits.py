"""The fast path of OffsetCommit returns and writes the same as the regular path."""

from random import Random  # noqa: TID251 - only ever seeded

import pytest

from kctl.broker.handlers.offsets import handle_offset_commit
from kctl.broker.handlers.plain_commits import HEADS_BYTES_MAX, HEADS_MAX, PlainCommits
from kctl.broker.request import Request, RequestContext
from kctl.model import TopicPartition
from kctl.protocol.codec import encode
from kctl.protocol.connection import ClientConnection, read_request, response_frame
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.group_world import DELAY_MS
from tests.support.handler_world import HandlerWorld

REQUESTS = 1_500
CONTEXT = RequestContext("c", "127.0.0.1", "PLAINTEXT")
OFFSETS_TOPIC = TopicPartition("__consumer_offsets", 0)
SETTINGS = [{}, {"inter.broker.protocol.version": "2.2"}, {"offsets.topic.compression.codec": "1"}]


class Broker:
    """Coordinates all groups, one of them with two members; handles frames of OffsetCommit."""

    def __init__(self, *, has_fast_path=True, settings=None):
        self.world = HandlerWorld(settings)
        self.road = PlainCommits(self.world.services, 8) if has_fast_path else None
        self.short_answers = 0
        first, _ = self.world.enter()
        static = self.world.join(instance_id="static")
        self.world.advance(2 * DELAY_MS)
        self.member_ids = [first, static.response.member_id]
        leader_id = static.response.leader
        self.world.sync(leader_id, 1, dict.fromkeys(self.member_ids, b"a"))

    def ask(self, frame):
        """Return the response frame."""
        sent = []
        if self.road is not None and self.road.answer(frame, sent.append, CONTEXT):
            self.short_answers += 1
        else:
            assert not sent
            self._take_regular_path(frame, sent)
        self.world.scheduler.settle()
        self.world.advance(3)
        return sent

    def _take_regular_path(self, frame, sent):
        asked = read_request(frame)

        def send(response):
            body = encode(response, asked.api_version)
            header_version = asked.api_key.response_header_version(asked.api_version)
            sent.append(b"".join(response_frame(asked.correlation_id, header_version, body)))

        request = Request(
            asked.api_key, asked.api_version, asked.correlation_id, asked.client_id, asked.body,
            RequestContext("connection", "host", "PLAINTEXT"), 0, send, lambda: None,
        )  # fmt: skip
        handle_offset_commit(self.world.services, request)

    def batches(self):
        return self.world.log.batches[OFFSETS_TOPIC]

    def committed(self, group_id, partition=0):
        return self.world.service.fetch_offsets(group_id, [TopicPartition("t", partition)])[1][0]


def frame_of(body, version, number=0, client_id="client"):
    """Return the request as a connection passes it on."""
    frame = bytearray(b"".join(ClientConnection(client_id).send_request(body, version)[1])[4:])
    frame[4:8] = number.to_bytes(4, "big")
    return bytes(frame)


def plain_frame(offset=1, *, version=8, number=0, client_id="client", group="simple", **fields):
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    body = OffsetCommitRequest(group_id=group, topics=topics, **fields)
    return frame_of(body, version, number, client_id)


def random_frame(rng, member_ids, number):
    """Return a commit as members and others send it, mostly valid."""
    topics = [
        OffsetCommitRequestTopic(
            name=rng.choice(("t", "t", "t", "t", "none")),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=rng.choice((0, 0, 0, 1, 9)),
                    committed_offset=rng.randrange(1 << rng.choice((3, 60))),
                    committed_leader_epoch=rng.choice((-1, 0, 7)),
                    committed_metadata=rng.choice(("", "", "", "", None, "words", "w" * 5_000)),
                )
                for _ in range(rng.choice((1, 1, 1, 1, 0, 2)))
            ],
        )
        for _ in range(rng.choice((1, 1, 1, 1, 0, 2)))
    ]
    version = rng.choice((1, 2, 3, 4, 5, 6, 7, 7, 8, 8))
    is_member = rng.random() < 0.5
    member_id = rng.choice(member_ids) if is_member else rng.choice(("", "", "nobody"))
    body = OffsetCommitRequest(
        group_id="g" if is_member else rng.choice(("simple", "other", "", "g")),
        generation_id=rng.choice((1, 1, 1, 1, 0)) if is_member else -1,
        member_id=member_id,
        topics=topics,
    )
    if version >= 7:
        body.group_instance_id = rng.choice((None, None, None, "static"))
    if 2 <= version <= 4:
        body.retention_time_ms = rng.choice((-1, -1, 1_000))
    return frame_of(body, version, number, rng.choice(("", "client")))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_both_paths_return_and_write_the_same(settings):
    rng = Random(str(settings))
    short = Broker(settings=settings)
    long = Broker(settings=settings, has_fast_path=False)
    assert short.member_ids == long.member_ids
    for number in range(REQUESTS):
        frame = random_frame(rng, short.member_ids, number)
        # The first request with a head adds it to the cache.
        for _ in range(rng.choice((1, 2))):
            assert short.ask(frame) == long.ask(frame), frame
    assert short.batches() == long.batches()
    assert short.short_answers > REQUESTS / 20, "the fast path was hardly ever taken"
    assert not long.short_answers


@pytest.fixture
def broker():
    broker = Broker()
    broker.ask(plain_frame(1))
    assert broker.short_answers == 0
    return broker


def test_a_head_is_cached_by_its_first_request(broker):
    broker.ask(plain_frame(2))
    assert broker.short_answers == 1
    assert broker.committed("simple").offset == 2


def test_unused_heads_are_removed(broker):
    for number in range(HEADS_MAX + 10):
        broker.road.answer(plain_frame(client_id=str(number)), lambda _: None, CONTEXT)
    assert len(broker.road._heads) < 20


def test_long_heads_are_removed_before_they_take_much_memory(broker):
    size = 16 * 1024
    for number in range(HEADS_BYTES_MAX // size + 10):
        frame = plain_frame(client_id=f"{number:0{size}}")
        broker.road.answer(frame, lambda _: None, CONTEXT)
        assert sum(len(head) for _, head in broker.road._heads) <= HEADS_BYTES_MAX
    # The newest ones are known.
    assert broker.road.answer(frame, lambda _: None, CONTEXT)


def test_commits_of_several_partitions_are_not_cached(broker):
    partitions = [
        OffsetCommitRequestPartition(partition_index=n, committed_metadata="") for n in (0, 1)
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    known = len(broker.road._heads)
    for version in range(2, 9):
        for topics in ([topic], [topic, topic]):
            body = OffsetCommitRequest(group_id="simple", topics=topics)
            broker.ask(frame_of(body, version))
    assert len(broker.road._heads) == known


def test_a_known_head_does_not_outlive_its_generation(broker):
    first, _ = broker.member_ids
    frame = plain_frame(5, group="g", generation_id=1, member_id=first)
    broker.ask(frame)
    broker.ask(frame)
    assert broker.short_answers == 1
    broker.world.leave(first)
    broker.ask(frame)
    assert broker.short_answers == 1


def test_a_commit_on_the_fast_path_renews_the_session(broker):
    frame = plain_frame(5, group="g", generation_id=1, member_id=broker.member_ids[0])
    for _ in range(10):
        broker.ask(frame)
        broker.world.advance(5_000)
    assert broker.short_answers == 9
    members = [it.member_id for it in broker.world.describe("g").members]
    assert members == broker.member_ids[:1], "who was silent is out, who committed is not"


def test_while_a_commit_waits_for_replicas_the_next_one_waits_after_it(broker):
    broker.world.log.is_holding = True
    assert broker.ask(plain_frame(2)) == []
    broker.world.log.is_holding = False
    broker.ask(plain_frame(3))
    assert broker.short_answers == 0
    broker.world.log.release()
    assert broker.committed("simple").offset == 3


def test_errors_of_the_log_are_reported_as_on_the_regular_path(broker):
    broker.world.log.failures = [int(ErrorCode.NOT_ENOUGH_REPLICAS)]
    (answer,) = broker.ask(plain_frame(2, version=7))
    assert int.from_bytes(answer[-2:], "big") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.committed("simple").offset == 1


def test_a_partition_that_was_deleted_is_unknown(broker):
    broker.world.metadata_cache.snapshot.topics.pop("t")
    (answer,) = broker.ask(plain_frame(2, version=7))
    assert broker.short_answers == 0
    assert answer.endswith(
        b"\0\0\0\0" + int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).to_bytes(2, "big")
    )


@pytest.mark.parametrize("version", [2, 5, 7, 8])
def test_the_fast_path_leaves_truncated_frames(broker, version):
    frame = plain_frame(3, version=version)
    broker.ask(frame)
    broker.ask(frame)
    assert broker.short_answers >= 1
    for cut in range(len(frame)):
        assert not broker.road.answer(frame[:cut], lambda _: None, CONTEXT)


def test_the_fast_path_leaves_frames_that_are_shorter_than_the_end_they_have(broker):
    # Version 2, and a correlation id that ends like a request without metadata.
    assert not broker.road.answer(b"\0\x08\0\2\0\0\0\0", lambda _: None, CONTEXT)
