"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

import pytest

from kctl.broker.handlers.offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
)
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.handler_world import HandlerWorld

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def world():
    return HandlerWorld()


def commit(world, version, partitions=(0, 1), topic="t", **options):
    """Commit offsets 10, 11, ... for these partitions; return the error codes."""
    body_options = {k: options.pop(k) for k in ("retention_time_ms",) if k in options}
    asked = [
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=10 + partition,
            committed_leader_epoch=3,
            committed_metadata=options.get("metadata"),
            commit_timestamp=options.get("commit_timestamp", -1),
        )
        for partition in partitions
    ]
    body = OffsetCommitRequest(
        group_id=options.get("group_id", "g"),
        topics=[OffsetCommitRequestTopic(name=topic, partitions=asked)],
        **body_options,
    )
    (answer,) = world.answer(handle_offset_commit, body, version).topics
    assert answer.name == topic
    return [(part.partition_index, part.error_code) for part in answer.partitions]


def fetch(world, version, partitions=(0, 1), **options):
    topics = None
    if partitions is not None:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))]
    return world.answer(
        handle_offset_fetch, OffsetFetchRequest(group_id="g", topics=topics, **options), version
    )


def fetched(response):
    return [
        (topic.name, part.partition_index, part.committed_offset, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(9))
def test_offsets_are_committed_in_every_version(world, version):
    assert commit(world, version) == [(0, 0), (1, 0)]
    response = fetch(world, 0 if version == 0 else 7)
    assert fetched(response) == [("t", 0, 10, 0), ("t", 1, 11, 0)]
    epochs = {part.committed_leader_epoch for part in response.topics[0].partitions}
    assert epochs == {3 if version >= 6 else -1}


@pytest.mark.parametrize("version", range(9))
def test_only_offsets_of_unknown_partitions_are_rejected(world, version):
    assert commit(world, version, partitions=[0, 7]) == [(0, 0), (7, UNKNOWN)]
    assert commit(world, version, topic="nowhere") == [(0, UNKNOWN), (1, UNKNOWN)]


@pytest.mark.parametrize("version", range(8))
def test_offsets_are_fetched_in_every_version(world, version):
    commit(world, 0 if version == 0 else 8, metadata="note")
    assert fetched(fetch(world, version)) == [("t", 0, 10, 0), ("t", 1, 11, 0)]
    metadata = fetch(world, version).topics[0].partitions[0].metadata
    # The old consumers' store has no field for metadata.
    assert metadata == ("note" if version else "")


@pytest.mark.parametrize("version", range(2, 8))
def test_all_offsets_are_fetched_without_naming_them(world, version):
    commit(world, 8)
    assert fetched(fetch(world, version, partitions=None)) == [("t", 0, 10, 0), ("t", 1, 11, 0)]


@pytest.mark.parametrize("version", range(1, 8))
def test_partitions_without_an_offset_are_minus_one_even_if_they_do_not_exist(world, version):
    assert fetched(fetch(world, version, [0, 99])) == [("t", 0, -1, 0), ("t", 99, -1, 0)]


@pytest.mark.parametrize("version", range(1, 8))
def test_the_wrong_coordinator_reports_it_where_the_version_has_a_field(world, version):
    world.service.on_resigned(0, 9)
    response = fetch(world, version, [0])
    code = ErrorCode.NOT_COORDINATOR
    if version < 2:
        assert fetched(response) == [("t", 0, -1, code)]
    else:
        assert (response.error_code, response.topics) == (code, [])


def test_from_version_7_on_stable_offsets_may_be_required(world):
    commit(world, 8)
    world.log.is_holding = True
    world.commit({("t", 0): 20})
    assert fetched(fetch(world, 6, [0])) == [("t", 0, 10, 0)]
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetched(fetch(world, 7, [0], require_stable=True)) == [("t", 0, -1, unstable)]


def test_version_0_stores_offsets_where_the_old_consumers_did(world):
    commit(world, 0)
    assert world.log.batches == {}
    task = world.scheduler.spawn(world.store.get("/consumers/g/offsets/t/1"))
    world.scheduler.settle()
    assert task.result()[0] == b"11"
    assert fetched(fetch(world, 0, [0, 7])) == [("t", 0, 10, 0), ("t", 7, -1, UNKNOWN)]


def test_version_0_rejects_a_group_that_is_not_a_valid_znode_name(world):
    codes = commit(world, 0, group_id="../../brokers")
    assert [code for _, code in codes] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


def test_version_0_refuses_metadata_that_is_too_long(world):
    codes = commit(world, 0, [0], metadata="x" * 5_000)
    assert codes == [(0, ErrorCode.OFFSET_METADATA_TOO_LARGE)]


def stored_offset(world):
    return world.group().offsets.committed[TopicPartition("t", 0)].committed


def test_a_retention_time_becomes_an_expiry(world):
    commit(world, 2, [0], retention_time_ms=5_000)
    assert stored_offset(world).expire_timestamp_ms == world.clock.wall_ms() + 5_000
    commit(world, 5, [0])
    assert stored_offset(world).expire_timestamp_ms == -1


def test_a_retention_time_that_is_too_large_wraps(world):
    # As in Apache Kafka 2.7.2: the offset has expired already.
    longest_ms = 2**63 - 1
    assert commit(world, 2, [0], retention_time_ms=longest_ms) == [(0, 0)]
    wrapped_ms = world.clock.wall_ms() + longest_ms - 2**64
    assert stored_offset(world).expire_timestamp_ms == wrapped_ms
    assert fetched(fetch(world, 7, [0], require_stable=True)) == [("t", 0, 10, 0)]
    world.advance(world.config.offsets_retention_check_interval_ms)
    assert fetched(fetch(world, 7, [0])) == [("t", 0, -1, 0)]


def test_version_1_may_have_a_commit_timestamp(world):
    commit(world, 1, [0], commit_timestamp=77)
    assert stored_offset(world).commit_timestamp_ms == 77
    commit(world, 1, [0])
    assert stored_offset(world).commit_timestamp_ms == world.clock.wall_ms()


def test_a_commit_without_offsets_gets_a_response(world):
    body = OffsetCommitRequest(group_id="g")
    assert world.answer(handle_offset_commit, body, 8).topics == []


def delete(world, partitions, group_id="g"):
    asked = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    body = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name="t", partitions=asked)]
    )
    return world.answer(handle_offset_delete, body, 0)


def test_offsets_are_deleted(world):
    commit(world, 8)
    response = delete(world, [0, 7])
    assert response.error_code == 0
    codes = [(p.partition_index, p.error_code) for p in response.topics[0].partitions]
    assert codes == [(0, 0), (7, UNKNOWN)]
    assert fetched(fetch(world, 7, None)) == [("t", 1, 11, 0)]


def test_offsets_of_an_unknown_group_are_not_deleted(world):
    response = delete(world, [0], group_id="nobody")
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
