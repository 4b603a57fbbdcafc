"""How a link appends what it has fetched, and what it reports to its manager."""

from types import SimpleNamespace

from kctl.broker.links.link_loop import LinkLoop
from kctl.broker.replication.fetched_parts import BATCHES_PER_PART, BYTES_PER_PART, parts_of
from kctl.broker.replication.partition import Role
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from kctl.records.builder import RecordBatchBuilder
from tests.support.virtual_runtime import virtual_runtime

TP = TopicPartition("orders", 0)


def batch(offset, size):
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(timestamp=0, key=None, value=b"x" * size)
    return bytes(builder.build())


def test_a_response_is_appended_in_parts_of_whole_batches():
    small = [batch(n, 5) for n in range(BATCHES_PER_PART + 1)]
    big = [batch(1000 + n, BYTES_PER_PART // 2) for n in range(3)]
    everything = b"".join([*small, *big])
    parts = [bytes(part) for part in parts_of(everything + batch(9, 50)[:-1])]
    assert b"".join(parts) == everything
    assert parts[0] == b"".join(small[:BATCHES_PER_PART])
    assert all(len(part) <= BYTES_PER_PART for part in parts)


def test_a_batch_above_the_limit_is_a_part_of_its_own():
    large = batch(0, 2 * BYTES_PER_PART)
    assert [bytes(part) for part in parts_of(large + batch(1, 5))] == [large, batch(1, 5)]


def test_without_a_whole_batch_there_is_nothing_to_append():
    assert list(parts_of(None)) == [None]
    assert list(parts_of(batch(0, 50)[:-1])) == [None]


class Source:
    """A leader of the source that answers each fetch with an error, and the loop that asks it."""

    is_usable = True

    def __init__(self, error_code):
        self.error_code = error_code
        self.runtime = virtual_runtime()
        self.looked_for = []
        self.failures = []
        log = SimpleNamespace(
            log_start_offset=0, log_end_offset=0, high_watermark=0, latest_epoch=-1,
            is_closed=False, config=SimpleNamespace(is_compacted=False),
        )  # fmt: skip
        partition = SimpleNamespace(
            topic_partition=TP, role=Role.LEADER, read_only="it is a link", log=log
        )
        self.loop = LinkLoop(
            self.runtime, SimpleNamespace(partitions={TP: partition}), self.connect, self
        )
        self.loop.add(partition, 3)

    async def connect(self):
        return self

    async def send(self, _request):
        answer = FetchablePartitionResponse(partition=0, error_code=self.error_code)
        topic = FetchableTopicResponse(topic=TP.topic, partition_responses=[answer])
        return FetchResponse(responses=[topic])

    def find_leader(self, tp, why):
        self.looked_for.append((tp, why))

    def failed(self, tp, why):
        self.failures.append((tp, why))

    def close(self):
        pass


def test_a_source_with_another_leader_is_reported_at_once():
    source = Source(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    source.runtime.scheduler.advance(0)
    assert source.looked_for == [(TP, "NOT_LEADER_OR_FOLLOWER")]
    assert TP not in source.loop.fetcher
    source.loop.close()


def test_a_source_with_another_error_is_asked_again():
    source = Source(ErrorCode.KAFKA_STORAGE_ERROR)
    source.runtime.scheduler.advance(0)
    assert source.looked_for == []
    assert source.failures == [(TP, "the source reports KAFKA_STORAGE_ERROR")]
    assert TP in source.loop.fetcher
    source.loop.close()
