"""A ListOffsets search by time takes many turns; its log may be deleted, moved or truncated
meanwhile."""

from types import SimpleNamespace

import pytest

from kctl.broker.handlers.list_offsets import handle_list_offsets
from kctl.broker.log import log_reader
from kctl.broker.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from kctl.broker.replication.leadership import StopReplica
from kctl.broker.request import Request, RequestContext
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetTopic,
)
from tests.broker.replication.conftest import ME
from tests.support.builds import needs_sources
from tests.support.log_world import BASE_MS, TP, batch

pytestmark = needs_sources

RECORDS = 60
LATER_MS = BASE_MS + 1_000_000


@pytest.fixture
def world(make_world, monkeypatch):
    """A leader that has just started: no index is in memory, and no segment open."""
    monkeypatch.setattr(log_reader, "SEGMENTS_PER_STEP", 5)
    world = make_world(log_dirs=2, segment_bytes=600)
    world.lead()
    for _ in range(RECORDS):
        world.produce(batch(bytes(400)), acks=1)
    world.logs.close()
    world = make_world(log_dirs=2, segment_bytes=600)
    world.lead()
    assert len(world.partition.log.segments) == RECORDS
    return world


def begin_search(world):
    """Begin a search for the first record of LATER_MS, and return the list that its answer is
    added to."""
    asked = ListOffsetPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=LATER_MS, max_num_offsets=1
    )
    answers = []
    topic = ListOffsetTopic(name="t", partitions=[asked])
    request = Request(
        api_key=ListOffsetRequest.api, api_version=5, correlation_id=1, client_id=None,
        body=ListOffsetRequest(replica_id=-1, isolation_level=0, topics=[topic]),
        context=RequestContext("c", "10.0.0.7", "PLAINTEXT"), received_ms=0,
        send=answers.append, close=lambda: answers.append("closed"),
    )  # fmt: skip
    handle_list_offsets(SimpleNamespace(replica_manager=world.manager), request)
    assert not answers
    return answers


def finished(world, answers):
    """Return the error code and the offset of the answer."""
    world.runtime.scheduler.settle()
    (answer,) = answers
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.offset


def move(world):
    source = world.partition.log.log_directory
    (target,) = [path for path in world.logs.log_dirs if path != source]
    moves = ReplicaAlterLogDirsManager(world.runtime, world.manager, lambda _: None)
    assert moves.alter(TP, target) == ErrorCode.NONE
    while world.partition.log.log_directory == source:
        assert world.runtime.scheduler.turn()


def follow_and_start_over(world):
    world.lead(leader=2, epoch=1, isr=(2,), replicas=(ME, 2))
    world.partition.log.truncate_fully_and_start_at(1_000)


CHANGES = {
    "deleted": lambda world: world.leadership._stop(StopReplica(TP, -1, delete=True)),
    "moved": move,
    "started over": follow_and_start_over,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_log_that_changes_during_a_search_takes_no_directory_offline(world, change):
    answers = begin_search(world)
    CHANGES[change](world)
    assert not answers
    assert finished(world, answers) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert world.logs.manager.offline_log_dirs == []


def test_a_directory_that_fails_during_a_search_is_a_storage_error(world):
    answers = begin_search(world)
    world.logs.manager.handle_log_dir_failure(world.partition.log.log_directory)
    assert finished(world, answers) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_segments_that_are_deleted_during_a_search_do_not_end_it(world):
    world.produce(batch(b"later", first_ms=LATER_MS), acks=1)
    answers = begin_search(world)
    log = world.partition.log
    log.maybe_increment_log_start_offset(RECORDS // 2)
    assert log.delete_old_segments(BASE_MS)
    assert finished(world, answers) == (ErrorCode.NONE, RECORDS)
