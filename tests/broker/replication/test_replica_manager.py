"""A partition's role, its appends and its high watermark, as the controller and followers change
them."""

import pytest

from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.partition import Role
from kctl.broker.replication.replica_manager import FetchIsolation
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kctl.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kctl.runtime.turns import fail_loudly
from kctl.work import at_once
from tests.support.log_world import batch


def fetch(
    world, offset, *, replica_id=-1, max_wait_ms=0, min_bytes=1, leader_epoch=-1, last_epoch=-1,
    rack=None,
):  # fmt: skip
    """Return the results of a fetch of t-0, in a list that fills when it is complete."""
    is_follower = replica_id >= 0
    params = FetchParams(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation=FetchIsolation.LOG_END if is_follower else FetchIsolation.HIGH_WATERMARK,
        client_rack=rack,
    )
    request = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=leader_epoch,
        log_start_offset=0,
        last_fetched_epoch=last_epoch,
    )
    answered = []
    world.manager.fetch(params, [("t", request)], answered.extend, fail_loudly)
    return answered


def pass_time(world, ms):
    world.runtime.scheduler.advance(ms)


def test_an_unassigned_partition_is_unknown(make_world):
    world = make_world()
    (result,) = world.produce(batch(b"a"), acks=1)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (found,) = fetch(world, 0)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_lone_leader_commits_what_it_appends(make_world):
    world = make_world()
    assert world.lead() == 0
    (result,) = world.produce(batch(b"a", b"b"), acks=-1)
    assert (result.error_code, result.info.first_offset) == (0, 0)
    assert world.partition.log.high_watermark == 2
    (found,) = fetch(world, 0)
    assert found.high_watermark == 2
    assert len(found.data.records) == world.partition.log.size


def test_a_follower_rejects_clients(make_world):
    world = make_world()
    assert world.lead(leader=2, isr=(1, 2), replicas=(1, 2)) == 0
    assert world.partition.role is Role.FOLLOWER
    (result,) = world.produce(batch(b"a"), acks=1)
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_returns_out_of_range_only_to_clients_with_its_epoch(make_world):
    """Found by simulation: a client that still took an emptied replica for the leader got
    OFFSET_OUT_OF_RANGE."""
    world = make_world()
    world.lead(leader=2, epoch=3, isr=(2,), replicas=(1, 2))
    for leader_epoch, code in (
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        (result,) = fetch(world, 7, leader_epoch=leader_epoch, rack="")
        assert result.error_code == code
    (result,) = fetch(world, 0, rack="")
    assert result.error_code == 0


def test_acks_all_waits_until_every_in_sync_replica_has_fetched(make_world):
    world = make_world()
    world.lead(isr=(1, 2), replicas=(1, 2))
    answered = world.produce(batch(b"a"), acks=-1)
    assert world.produce(batch(b"b"), acks=1)[0].error_code == 0
    assert answered == []
    fetch(world, 1, replica_id=2)
    assert world.partition.log.high_watermark == 1
    assert [result.error_code for result in answered] == [0]
    with pytest.raises(ApiError) as error:
        world.partition.update_follower(9, 0, 0, 0)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_all_times_out_when_a_replica_does_not_come(make_world):
    world = make_world()
    world.lead(isr=(1, 2), replicas=(1, 2))
    answered = world.produce(batch(b"a"), acks=-1, timeout_ms=500)
    pass_time(world, 499)
    assert answered == []
    pass_time(world, 1)
    assert [result.error_code for result in answered] == [ErrorCode.REQUEST_TIMED_OUT]


def test_progress_reported_in_older_epochs_is_discarded(make_world):
    """
    epoch 1   1 leads {1,2,3} and has a record; 2 fetches behind it, 3 does not
    epoch 2   3 leads, and 2 cuts its log to what 3 has; 1 does not hear of it
    epoch 3   3 is gone, 1 leads with 2 in sync      the record is not committed before 2 has it

    Found by simulation; Apache Kafka 2.7.2 takes it for committed at once.
    """
    world = make_world()
    world.lead(epoch=1, isr=(1, 2, 3), replicas=(1, 2, 3))
    world.produce(batch(b"a"), acks=1)
    fetch(world, 1, replica_id=2)
    assert world.lead(epoch=3, isr=(1, 2), replicas=(1, 2, 3)) == 0
    pass_time(world, 20_000)
    assert world.partition.log.high_watermark == 0
    fetch(world, 1, replica_id=2)
    assert world.partition.log.high_watermark == 1


def test_too_small_an_isr_refuses_acks_all_only(make_world):
    world = make_world(min_insync_replicas=2)
    world.lead()
    (refused,) = world.produce(batch(b"a"), acks=-1)
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.produce(batch(b"a"), acks=1)[0].error_code == 0


def test_a_failed_append_is_logged_once_a_second_with_its_reason(make_world):
    world = make_world(min_insync_replicas=2)
    world.lead()
    for _ in range(3):
        world.produce(batch(b"a"), acks=-1)
    (line,) = world.runtime.trace.warnings
    assert line == (
        "Error processing append operation on partition t-0: NOT_ENOUGH_REPLICAS: The size of the "
        "current ISR [1] is insufficient to satisfy the min.isr requirement of 2 for partition t-0"
    )
    pass_time(world, 1000)
    world.produce(batch(b"a"), acks=-1)
    assert world.runtime.trace.warnings[1].endswith("(2 more like this)")


def test_an_append_to_a_follower_is_not_logged(make_world):
    world = make_world()
    world.lead(leader=2, isr=(1, 2), replicas=(1, 2))
    world.produce(batch(b"a"), acks=1)
    assert world.runtime.trace.warnings == []


def test_a_replica_that_joins_the_isr_counts_for_acks_all_once_it_has_the_records(make_world):
    world = make_world(min_insync_replicas=2)
    world.lead(isr=(1, 2), replicas=(1, 2, 3))
    # Replica 2 falls behind; replica 3 catches up.
    pass_time(world, world.partition.replica_lag_ms_max + 1)
    fetch(world, 0, replica_id=3)
    answered = world.produce(batch(b"a"), acks=-1)
    world.partition.isr_altered((1,), 0, 1, world.runtime.clock.wall_ms())
    world.partition.expand_isr(3)
    assert answered == []
    fetch(world, 1, replica_id=3)
    assert [result.error_code for result in answered] == [0]
    # Appends are rejected until the controller has confirmed.
    (refused,) = world.produce(batch(b"b"), acks=-1)
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_requests_that_wait_for_a_leader_fail_when_it_resigns(make_world):
    world = make_world()
    world.lead(isr=(1, 2), replicas=(1, 2))
    answered = world.produce(batch(b"a"), acks=-1)
    world.lead(leader=2, epoch=1, isr=(1, 2), replicas=(1, 2))
    assert [result.error_code for result in answered] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_fetch_waits_for_records_and_gives_up_in_time(make_world):
    world = make_world()
    world.lead()
    waiting = fetch(world, 0, max_wait_ms=500)
    assert waiting == []
    world.produce(batch(b"a"), acks=1)
    assert len(waiting) == 1
    assert len(waiting[0].data.records) > 0

    idle = fetch(world, 1, max_wait_ms=500)
    pass_time(world, 500)
    assert [result.data.records for result in idle] == [None]


def test_a_fetch_for_many_bytes_waits_for_enough_of_them(make_world):
    world = make_world()
    world.lead()
    size = len(batch(b"a"))
    waiting = fetch(world, 0, max_wait_ms=500, min_bytes=2 * size)
    world.produce(batch(b"a"), acks=1)
    assert waiting == []
    world.produce(batch(b"b"), acks=1)
    assert [len(result.data.records) for result in waiting] == [2 * size]


def test_wrong_leader_epochs_are_distinguished(make_world):
    world = make_world()
    world.lead(epoch=5)
    assert fetch(world, 0, leader_epoch=4)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(world, 0, leader_epoch=6)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(world, 0, leader_epoch=5)[0].error_code == 0


def test_readers_with_a_diverging_log_get_the_divergence_point(make_world):
    """KIP-595."""
    world = make_world()
    world.lead(epoch=5)
    world.produce(batch(b"a"), acks=1)
    (same,) = fetch(world, 1, last_epoch=5)
    assert (same.error_code, same.diverging_epoch) == (0, None)
    (ahead,) = fetch(world, 2, last_epoch=5, max_wait_ms=500, min_bytes=1)
    assert (ahead.error_code, ahead.diverging_epoch, ahead.data) == (0, (5, 1), None)
    assert ahead.high_watermark == 1
    (older,) = fetch(world, 1, last_epoch=4)
    assert (older.error_code, older.diverging_epoch) == (0, (4, 0))
    (unheard_of,) = fetch(world, 0, last_epoch=6)
    assert unheard_of.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_that_does_not_fit_is_given_whole_or_not_at_all(make_world):
    """KIP-74: returned whole if it is the first; only clients before that get a part."""
    world = make_world()
    world.lead()
    world.produce(batch(b"a"), acks=1)
    size = world.partition.log.size
    requests = [
        ("t", FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size - 1))
        for _ in range(2)
    ]

    def sizes(*, is_hard_limit):
        params = FetchParams(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation=FetchIsolation.TXN_COMMITTED,
            is_hard_limit=is_hard_limit,
        )
        results = world.manager.reader.read(params, requests)
        return [result.data.records and len(result.data.records) for result in results]

    assert sizes(is_hard_limit=False) == [size, None]
    assert sizes(is_hard_limit=True) == [size - 1, size - 1]


def test_a_new_leader_does_not_report_an_older_end_than_its_predecessor(make_world):
    world = make_world()
    world.lead(isr=(1, 2), replicas=(1, 2))
    world.produce(batch(b"a"), acks=1)
    world.lead(epoch=1, isr=(1, 2), replicas=(1, 2), leader=2)
    world.lead(epoch=2, isr=(1, 2), replicas=(1, 2))
    with pytest.raises(ApiError) as error:
        at_once(world.partition.fetch_offset_for_timestamp(-1, FetchIsolation.HIGH_WATERMARK, -1))
    assert error.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    fetch(world, 1, replica_id=2)
    found = at_once(
        world.partition.fetch_offset_for_timestamp(-1, FetchIsolation.HIGH_WATERMARK, -1)
    )
    assert found == (-1, 1, 2)


def test_old_controllers_and_old_leader_epochs_are_rejected(make_world):
    world = make_world()
    assert world.lead(epoch=3, controller_epoch=5) == 0
    assert world.lead(epoch=4, controller_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.lead(epoch=3, controller_epoch=5) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.partition.leader_epoch == 3
    assert world.lead(epoch=4, controller_epoch=5) == 0
    assert [change.role for change in world.changes] == [Role.LEADER]


def metadata(leader, leader_epoch, replicas=(1, 2)):
    state = UpdateMetadataPartitionState(
        partition_index=0, leader=leader, leader_epoch=leader_epoch, replicas=list(replicas)
    )
    return [("t", state), ("unknown", state)]


def test_a_leader_resigns_when_the_metadata_has_a_newer_leader(make_world):
    """Found by simulation: the request to stop was lost with the controller that sent it."""
    world = make_world()
    world.lead(isr=(1, 2), replicas=(1, 2))
    waiting = world.produce(batch(b"a"), acks=-1)
    at_once(world.leadership.apply_metadata(metadata(leader=1, leader_epoch=5)))
    at_once(world.leadership.apply_metadata(metadata(leader=3, leader_epoch=0)))
    assert world.partition.role is Role.LEADER
    assert waiting == []
    at_once(world.leadership.apply_metadata(metadata(leader=3, leader_epoch=2)))
    assert [result.error_code for result in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.changes[-1].role is Role.NONE
    assert world.lead(leader=3, epoch=2, isr=(3,), replicas=(1, 3)) == 0
    assert world.partition.role is Role.FOLLOWER


def test_a_follower_resigns_when_the_replicas_are_elsewhere(make_world):
    """Found by simulation: consumers read from it, and never got later records."""
    world = make_world()
    world.lead(leader=2, epoch=3, isr=(1, 2), replicas=(1, 2))
    at_once(world.leadership.apply_metadata(metadata(leader=3, leader_epoch=4, replicas=(1, 3))))
    at_once(world.leadership.apply_metadata(metadata(leader=3, leader_epoch=3, replicas=(3,))))
    assert fetch(world, 0, rack="")[0].error_code == 0
    elsewhere = metadata(leader=3, leader_epoch=4, replicas=(3,))
    at_once(world.leadership.apply_metadata(elsewhere, may_delete=False))
    assert fetch(world, 0, rack="")[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.changes[-1].role is Role.NONE
    assert stop_replica(world, delete=True).partition_errors[0].error_code == 0


def test_the_log_of_a_replica_that_is_now_elsewhere_is_deleted(make_world):
    """Found by simulation: a topic that was deleted and created again began with old records."""
    world = make_world()
    world.lead(epoch=3)
    world.produce(batch(b"a"), acks=1)
    elsewhere = metadata(leader=3, leader_epoch=4, replicas=(3,))
    at_once(world.leadership.apply_metadata(elsewhere, may_delete=False))
    assert world.logs.manager.get_log(("t", 0)).log_end_offset == 1
    at_once(world.leadership.apply_metadata(elsewhere))
    assert world.logs.manager.get_log(("t", 0)) is None
    assert world.lead(epoch=0) == 0
    assert world.partition.log.log_end_offset == 0


def test_an_assigned_log_is_kept_before_its_first_leader_and_isr(make_world):
    world = make_world()
    log = world.logs.manager.get_or_create_log(TopicPartition("t", 0))
    at_once(world.leadership.apply_metadata(metadata(leader=3, leader_epoch=4, replicas=(1, 3))))
    assert world.logs.manager.get_log(("t", 0)) is log
    at_once(world.leadership.apply_metadata(metadata(leader=3, leader_epoch=4, replicas=(2, 3))))
    assert world.logs.manager.get_log(("t", 0)) is None


def stop_replica(world, *, delete, leader_epoch=9, broker_epoch=7):
    state = StopReplicaPartitionState(
        partition_index=0, leader_epoch=leader_epoch, delete_partition=delete
    )
    request = StopReplicaRequest(
        controller_epoch=1,
        broker_epoch=broker_epoch,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )
    return at_once(world.leadership.stop_replicas(request))


def test_the_log_is_deleted_with_its_replica(make_world):
    world = make_world()
    world.lead()
    world.produce(batch(b"a"), acks=1)
    waiting = fetch(world, 1, max_wait_ms=10_000)
    assert stop_replica(world, delete=True).partition_errors[0].error_code == 0
    assert world.changes[-1].role is Role.NONE
    assert world.logs.manager.get_log(("t", 0)) is None
    assert [r.error_code for r in waiting] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.lead(epoch=1) == 0
    assert world.partition.log.log_end_offset == 0


def test_a_stopped_replica_keeps_its_log_and_a_late_request_is_fenced(make_world):
    world = make_world()
    world.lead(epoch=5)
    world.produce(batch(b"a"), acks=1)
    late = stop_replica(world, delete=False, leader_epoch=4)
    assert late.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    old = stop_replica(world, delete=True, broker_epoch=6)
    assert old.error_code == ErrorCode.STALE_BROKER_EPOCH
    stop_replica(world, delete=False, leader_epoch=5)
    assert world.logs.manager.get_log(("t", 0)).log_end_offset == 1


def test_deleting_records_raises_the_low_watermark_within_bounds(make_world):
    world = make_world()
    world.lead()
    world.produce(batch(b"a", b"b", b"c"), acks=1)

    def delete(offset):
        answers = []
        world.manager.delete_records([("t", 0, offset)], 1000, answers.extend)
        ((_, _, low_watermark, code),) = answers
        return low_watermark, code

    assert delete(2) == (2, 0)
    assert delete(9) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(-1) == (3, 0)
    assert fetch(world, 0)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_of_a_compacted_topic_cannot_be_deleted(make_world):
    world = make_world(cleanup_policy=("compact",))
    world.lead()
    answers = []
    world.manager.delete_records([("t", 0, 0)], 1000, answers.extend)
    assert answers[0][3] == ErrorCode.POLICY_VIOLATION


def test_a_failed_directory_takes_its_partitions_offline_and_fails_waiting_requests(make_world):
    world = make_world()
    world.lead()
    waiting = fetch(world, 0, max_wait_ms=10_000)
    world.logs.manager.handle_log_dir_failure(world.logs.log_dirs[0], "I/O error")
    assert world.partition.role is Role.OFFLINE
    assert [result.error_code for result in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR]
    (result,) = world.produce(batch(b"a"), acks=1)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
