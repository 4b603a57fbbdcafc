"""Partitions of the source without a leader hold up no other: they are copied once they have one,
and a mirror that runs until the end ends then."""

import pytest

from kctl.client.offsets import ListedOffset
from kctl.mirror import worker
from kctl.mirror.cluster_source import ClusterSource
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from tests.mirror.test_kinds_of_loss import on, values


class View:
    """A view of the cluster in which partition 0 has no leader."""

    def leader(self, partition):
        return partition.partition or None

    def error_of(self, partition):
        return ErrorCode.NONE if partition.partition else ErrorCode.LEADER_NOT_AVAILABLE


@pytest.fixture
def leaderless(clusters, monkeypatch):
    """Let a question about partition 0 of a topic fail until partition 1 is copied."""

    def begin(topic, question, code):
        ask = getattr(ClusterSource, question)
        failed = []

        async def asked(self, partitions):
            found = await ask(self, partitions)
            at = TopicPartition(topic, 0)
            is_copied = topic in clusters.target.topics and clusters.target.records(topic, 1)
            if at in found and not (failed and is_copied):
                failed.append(at)
                found[at] = ListedOffset(-1, error=ApiError(code))
            return found

        monkeypatch.setattr(worker, "WAIT_MS", 0)
        monkeypatch.setattr(ClusterSource, question, asked)
        return failed

    return begin


@pytest.mark.parametrize(
    ("question", "code", "is_begun"),
    [
        ("starts", ErrorCode.LEADER_NOT_AVAILABLE, False),
        ("ends", ErrorCode.LEADER_NOT_AVAILABLE, False),
        ("ends", ErrorCode.LEADER_NOT_AVAILABLE, True),
        ("ends", ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        # It may be one that was deleted, which the reader finds out.
        ("ends", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
    ],
)
def test_a_partition_that_cannot_be_read_at_first_is_copied_to_its_end(
    clusters, leaderless, question, code, is_begun
):
    topic = f"away-{question}-{code}-{is_begun}".lower()
    clusters.source.create_topic(topic, partitions=2)
    if is_begun:
        assert not clusters.mirror(topic, name=topic).has_failed
    clusters.produce(topic, values(0, 10))
    clusters.source.produce(topic, b"other", partition=1)
    failed = leaderless(topic, question, code)
    said = []

    report = clusters.mirror(topic, name=topic, said=said)

    assert failed
    assert not report.has_failed
    assert [(it.position, it.end) for it in report.partitions] == [(10, 10), (1, 1)]
    assert [it.value for it in clusters.target.records(topic, 0)] == values(0, 10)
    waits = f"warning: {topic}-0 waits until it can be read: "
    is_unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [it.startswith(waits) for it in said] == [True] * (not is_unknown)


def test_offsets_of_a_partition_without_a_leader_are_not_waited_for(clusters, monkeypatch):
    clusters.source.create_topic("unled", partitions=2)
    clusters.source.produce("unled", b"v", partition=1)

    async def listed(admin):
        async def refresh(_topics):
            return View()

        monkeypatch.setattr(admin.router, "refresh", refresh)
        source = ClusterSource(admin)
        partitions = [TopicPartition("unled", number) for number in range(2)]
        return [await source.starts(partitions), await source.ends(partitions)]

    for found, offset in zip(clusters.do(on("source", listed)), (0, 1), strict=True):
        unled, led = (found[TopicPartition("unled", number)] for number in range(2))
        assert (led.offset, led.error) == (offset, None)
        assert unled.error.code == ErrorCode.LEADER_NOT_AVAILABLE
