"""What a source says of its leader epochs decides whether a partition is read on: where it does not
answer, it is asked again before anything is copied. A topic that stays unknown is gone."""

from types import SimpleNamespace

from kctl.client.cluster_view import ClusterView
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.loss import LossKind
from kctl.mirror.source_reader import UNKNOWN_MS_MAX, SourceReader
from kctl.mirror.sources import ReadBatches
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from tests.mirror.test_kinds_of_loss import on, values
from tests.support.virtual_runtime import virtual_runtime

# One that the source has not come to.
UNKNOWN_EPOCH = 7
API = "OffsetForLeaderEpoch"


def polled(clusters, topic, polls, leader_epoch=UNKNOWN_EPOCH):
    """Return what polls return of a partition of which five records were copied."""
    at = TopicPartition(topic, 0)

    async def work(source):
        reader = SourceReader(source.router, max_wait_ms=1)
        reader.assign({at: MirrorPosition(5, None, at, leader_epoch=leader_epoch)}, {})
        found = [await reader.poll() for _ in range(polls)]
        reader.close()
        return found

    clusters.source.create_topic(topic)
    clusters.produce(topic, values(0, 10))
    return clusters.do(on("source", work))


def test_a_question_that_fails_is_asked_again_before_anything_is_copied(clusters):
    clusters.source.inject_error(API, ErrorCode.UNKNOWN_SERVER_ERROR, times=2)
    *failed, found = polled(clusters, "asked-again", 3)
    assert [(it.ranges, it.stopped) for it in failed] == [({}, {})] * 2
    assert not found.ranges
    [loss] = found.stopped.values()
    assert loss.kind is LossKind.RECREATED


def test_a_source_that_refuses_to_say_it_is_read_on(clusters):
    clusters.source.inject_error(API, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    [found] = polled(clusters, "forbidden", 1)
    assert not found.stopped
    assert [it.next_offset for it in found.ranges.values()] == [10]


def test_an_answer_is_of_the_epoch_in_which_it_was_asked_for(clusters, monkeypatch):
    """A leader that is elected meanwhile is asked as well."""
    at, epochs = TopicPartition("elected", 0), [3]
    clusters.source.create_topic("elected")
    monkeypatch.setattr(ClusterView, "leader_epoch", lambda _view, _partition: epochs[-1])

    async def work(source):
        send = source.router.send_to_leaders

        async def sent(*arguments):
            epochs.append(epochs[-1] + 1)
            return await send(*arguments)

        monkeypatch.setattr(source.router, "send_to_leaders", sent)
        reader = SourceReader(source.router)
        reader.assign({at: MirrorPosition(0, None, at)}, {})
        await reader._examine([at], ReadBatches())
        return reader._partitions[at].examined_in

    assert clusters.do(on("source", work)) == 3
    assert epochs[-1] > 3


def test_a_topic_that_stays_unknown_is_gone_however_often_it_is_assigned_again():
    """A worker assigns its partitions again and again while another one of them has no leader."""
    runtime, at = virtual_runtime(), TopicPartition("deleted", 0)
    reader = SourceReader(SimpleNamespace(runtime=runtime))
    for _ in range(2):
        reader.assign({at: MirrorPosition(5, None, at)}, {})
        found = ReadBatches()
        reader._note_unknown(
            at, reader._partitions[at], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, found
        )
        runtime.scheduler.advance(UNKNOWN_MS_MAX)
    assert [loss.kind for loss in found.stopped.values()] == [LossKind.GONE]
