"""Coordinators that move: loading, failover, and late notifications of both."""

import pytest

from kctl.broker.coordinator import group_coordinator_service
from kctl.java_hash import abs_java_hash
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.join_group import JoinGroupRequest
from kctl.protocol.messages.sync_group import SyncGroupRequest
from kctl.records.builder import RecordBatchBuilder
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.memory_records import batches
from tests.support.golden import golden_segments
from tests.support.group_invariants import check_groups
from tests.support.group_world import SESSION_MS, GroupWorld, MemoryLog

TP = ("t", 0)
TOPIC = ("__consumer_offsets", 0)


def golden_world():
    """The groups of Apache Kafka 2.7.2's log directory; this broker leads all four partitions."""
    log = MemoryLog()
    for partition in range(4):
        log.batches[("__consumer_offsets", partition)] = [
            bytearray(batch.to_bytes())
            for segment in golden_segments(f"__consumer_offsets-{partition}")
            for batch in batches(segment)
        ]
    world = GroupWorld(log=log, partition_count=4)
    for partition in range(4):
        world.elect(partition)
    return world


def takeover(world, **options):
    """Return another broker that has the same log."""
    return GroupWorld(log=world.log, seed=2, **options).elect()


def test_kafkas_groups_are_read():
    world = golden_world()
    code, groups = world.list_groups()
    assert code == 0
    assert {(g.group_id, g.protocol_type, g.group_state) for g in groups} == {
        ("g-simple", "", "Empty"),
        ("g-static", "consumer", "Stable"),
        ("g-coop", "consumer", "Empty"),
        ("g-live", "consumer", "Empty"),
        ("tx-group", "", "Empty"),
    }
    for host in world.service._shards.active_hosts():
        check_groups(host.shard)


def test_kafkas_offsets_are_read():
    world = golden_world()
    assert world.committed(group_id="g-simple") == {("v2-none", 0): 40}
    assert world.committed(group_id="g-live") == {
        ("tx", 0): 287,
        ("tx", 1): 153,
        ("v2-none", 0): 300,
    }
    # Committed inside transactions; the one for tx-1 was aborted.
    assert world.committed(group_id="tx-group") == {("tx", 0): 11}
    assert world.committed(group_id="g-deleted") == {}


def test_kafkas_static_member_may_come_back():
    world = golden_world()
    (member,) = world.describe("g-static").members
    assert member.group_instance_id == "instance-1"
    assert member.member_assignment
    back = world.join(
        group_id="g-static",
        instance_id="instance-1",
        protocols={"range": member.member_metadata},
    )
    assert back.error is ErrorCode.NONE
    new = back.response.member_id
    synced = world.sync(new, 1, group_id="g-static", instance_id="instance-1")
    assert synced.response.assignment == member.member_assignment


def test_a_stable_group_continues_at_its_next_coordinator():
    first = GroupWorld().elect()
    (one, two), generation_id = first.form_group(2)
    first.commit({TP: 5}, member_id=one, generation_id=generation_id)
    second = takeover(first)
    assert second.state() == "Stable"
    assert second.committed() == {TP: 5}
    assert second.heartbeat(one, generation_id) is ErrorCode.NONE
    assert second.sync(two, generation_id).response.assignment == b"part of 1"
    assert second.join(one).responses == []  # the leader is still the leader
    check_groups(second.shard)


def test_the_leader_of_a_loaded_group_is_the_one_it_had():
    first = GroupWorld().elect()
    first.form_static_group("i1", "i2")
    leader = first.join(instance_id="i1").response.member_id
    second = takeover(first)
    assert next(iter(second.group().members)) != leader
    assert second.group().leader_id == leader


def test_members_have_a_whole_session_to_find_their_new_coordinator():
    first = GroupWorld().elect()
    (one, _), _ = first.form_group(2)
    second = takeover(first)
    second.advance(SESSION_MS - 1)
    assert second.heartbeat(one, 1) is ErrorCode.NONE
    second.advance(1)
    assert list(second.group().members) == [one]


def test_dynamic_members_that_were_loaded_are_dropped_when_they_do_not_rejoin():
    """Apache Kafka 2.7.2 treats loaded members as static ones, and waits for their sessions."""
    first = GroupWorld().elect()
    (one, two), _ = first.form_group(2, session_ms=60_000, rebalance_ms=20_000)
    second = takeover(first)
    answer = second.join(one)
    second.advance(20_000)
    assert [m.member_id for m in answer.response.members] == [one]
    assert second.heartbeat(two, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_now_too_large_rebalances():
    first = GroupWorld().elect()
    (one, two, three), _ = first.form_group(3)
    second = takeover(first, settings={"group.max.size": "2"})
    assert second.state() == "PreparingRebalance"
    answers = [second.join(member_id) for member_id in (one, two, three)]
    assert answers[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {answer.response.generation_id for answer in answers[:2]} == {2}
    check_groups(second.shard)


def test_a_deleted_group_stays_deleted():
    first = GroupWorld().elect()
    (one,), generation_id = first.form_group(1)
    first.commit({TP: 5}, member_id=one, generation_id=generation_id)
    first.leave(one)
    first.delete_groups("g")
    assert takeover(first).list_groups() == (0, [])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(ControlRecordType.COMMIT, {TP: 9}), (ControlRecordType.ABORT, {TP: 5})],
)
def test_a_transaction_that_ended_before_the_failover_is_settled(kind, expected):
    first = GroupWorld().elect()
    first.commit({TP: 5})
    first.commit({TP: 9}, producer_id=3)
    marker = EndTransactionMarker(kind, 0)
    batch = marker_batch(marker, producer_id=3, producer_epoch=0, timestamp=0)
    first.log.append(TOPIC, batch, lambda code, offset: None)
    assert takeover(first).committed(stable=True) == expected


def test_a_transaction_that_was_open_at_the_failover_can_be_ended_after_it():
    first = GroupWorld().elect()
    first.commit({TP: 9}, producer_id=3)
    second = takeover(first)
    assert second.committed(TP) == {TP: -1}
    second.end_transaction(3, is_commit=True)
    assert second.committed(TP, stable=True) == {TP: 9}


def test_requests_get_an_error_while_loading():
    first = GroupWorld().elect()
    (one,), _ = first.form_group(1)
    first.commit({TP: 5}, group_id="simple")
    world = GroupWorld(log=first.log)
    world.service.on_elected(0, 0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    describe, fetch = world.describe, world.service.fetch_offsets
    assert describe("g").error_code == loading
    assert fetch("simple", None)[0] == loading
    assert world.list_groups() == (loading, [])
    # These two errors would confuse clients, or end their membership for no reason.
    assert world.heartbeat(one, 1) is ErrorCode.NONE
    world.scheduler.settle()
    assert describe("g").error_code == 0


def test_joins_and_syncs_while_loading():
    world = GroupWorld()
    world.service.on_elected(0, 0)
    answers = []
    body = JoinGroupRequest(group_id="g", session_timeout_ms=SESSION_MS)
    world.service.join(body, "c", "/h", answers.append, is_member_id_required=True)
    world.service.sync(SyncGroupRequest(group_id="g"), answers.append)
    assert [answer.error_code for answer in answers] == [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]


def test_uncommitted_records_of_the_new_leader_are_not_served():
    # They may be lost with this broker: the next coordinator would return something else.
    first = GroupWorld().elect()
    first.commit({TP: 5}, group_id="simple")
    first.commit({TP: 6}, group_id="simple")
    first.log.committed_end = 1
    world = GroupWorld(log=first.log).elect()
    world.scheduler.advance(1_000)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.service.fetch_offsets("simple", None)[0] == loading
    first.log.committed_end = 2
    world.scheduler.advance(100)
    assert world.committed(group_id="simple") == {TP: 6}


def test_a_large_partition_is_loaded_in_parts():
    first = GroupWorld().elect()
    for number in range(2_000):
        first.commit({("t", number % 50): number}, metadata="x" * 300)
    world = GroupWorld(log=first.log)
    world.service.on_elected(0, 0)
    first.log.reads = 0
    turns = 0
    while world.list_groups()[0]:
        before = first.log.reads
        world.scheduler.turn()
        assert first.log.reads - before <= 1
        turns += 1
    assert turns > 5
    assert world.committed() == first.committed()


def test_a_broker_that_does_not_coordinate_returns_an_error():
    world = GroupWorld()
    assert world.join().error is ErrorCode.NOT_COORDINATOR
    assert world.heartbeat("m", 1) is ErrorCode.NOT_COORDINATOR
    assert world.commit({TP: 1}).response == [ErrorCode.NOT_COORDINATOR]
    assert world.delete_groups("g").response == {"g": ErrorCode.NOT_COORDINATOR}
    assert world.list_groups() == (0, [])


def test_waiting_requests_fail_when_the_coordinator_moves():
    world = GroupWorld().elect()
    (one, _), _ = world.form_group(2)
    joining = world.join(one)
    (three, _), (four, _) = world.enter(group_id="h"), world.enter(group_id="h")
    world.advance(6_000)
    syncing = world.sync(four, 1, group_id="h")
    world.log.is_holding = True
    committing = world.commit({TP: 5}, group_id="simple")
    world.service.on_resigned(0, 1)
    not_coordinator = ErrorCode.NOT_COORDINATOR
    assert joining.error is syncing.error is not_coordinator
    assert committing.response == [not_coordinator]
    assert world.heartbeat(three, 1, group_id="h") is not_coordinator
    world.log.release()  # too late: no request is answered twice
    world.advance(100_000)
    assert world.scheduler.timer_count == 1  # the timer of expiry


def test_waiting_requests_fail_at_shutdown():
    world = GroupWorld().elect()
    _, joining = world.enter()
    world.service.shutdown()
    assert joining.error is ErrorCode.NOT_COORDINATOR
    assert world.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.scheduler.timer_count == 0


def test_notifications_of_older_epochs_are_ignored():
    """KAFKA-10614: an election and a resignation may arrive in the wrong order."""
    world = GroupWorld().elect(epoch=5)
    world.commit({TP: 5})
    world.service.on_resigned(0, 4)
    assert world.committed() == {TP: 5}
    shard = world.shard
    world.elect(epoch=5)  # the controller repeats it
    world.elect(epoch=3)
    assert world.shard is shard
    world.service.on_resigned(0, 6)
    world.elect(epoch=5)
    assert world.commit({TP: 6}).response == [ErrorCode.NOT_COORDINATOR]
    world.elect(epoch=7)
    assert world.committed() == {TP: 5}


def test_a_removed_replica_coordinates_nothing_but_may_return():
    world = GroupWorld().elect(epoch=5)
    world.service.on_resigned(0, None)
    assert world.commit({TP: 6}).response == [ErrorCode.NOT_COORDINATOR]
    world.elect(epoch=6)
    assert world.commit({TP: 6}).response == [0]


def test_a_coordinator_that_cannot_read_its_log_coordinates_nothing():
    log = MemoryLog()
    builder = RecordBatchBuilder()
    builder.append(timestamp=0, key=b"\0", value=b"")
    log.append(TOPIC, builder.build(), lambda code, offset: None)
    world = GroupWorld(log=log).elect()
    assert world.join().error is ErrorCode.NOT_COORDINATOR
    assert "__consumer_offsets-0" in world.trace.warnings[0]


def test_a_coordinator_that_lost_its_partition_while_loading_coordinates_nothing():
    first = GroupWorld().elect()
    first.commit({TP: 5})
    world = GroupWorld(log=first.log)
    world.service.on_elected(0, 0)
    first.log.is_leader = False
    world.scheduler.settle()
    assert world.join().error is ErrorCode.NOT_COORDINATOR


def test_records_of_later_versions_are_skipped():
    log = MemoryLog()
    builder = RecordBatchBuilder()
    builder.append(timestamp=0, key=b"\0\x05future", value=b"\0\0")
    log.append(TOPIC, builder.build(), lambda code, offset: None)
    world = GroupWorld(log=log).elect()
    assert world.commit({TP: 5}).response == [0]
    assert ("group_records_skipped", {"partition": 0, "count": 1}) in world.trace.events


def test_batches_are_compressed_as_the_config_says():
    world = GroupWorld({"offsets.topic.compression.codec": "1"}).elect()
    world.commit({("t", number): number for number in range(100)})
    (batch,) = batches(world.log.batches[TOPIC][0])
    assert batch.compression_type == 1
    assert takeover(world).committed() == world.committed()


@pytest.mark.parametrize(
    ("ibp", "offset_version", "group_version"),
    [("0.10.0", 1, 0), ("0.11.0", 1, 1), ("2.1-IV0", 2, 2), ("2.2", 3, 2), ("2.7", 3, 3)],
)
def test_values_have_the_version_that_all_brokers_can_read(ibp, offset_version, group_version):
    world = GroupWorld({"inter.broker.protocol.version": ibp}).elect()
    (one,), generation_id = world.form_group(1)
    world.commit({TP: 5}, member_id=one, generation_id=generation_id)
    versions = [int.from_bytes(value[:2]) for _, value in world.log.records(TOPIC)]
    assert versions == [group_version, offset_version]


def test_a_group_is_where_kafka_put_it():
    world = golden_world()
    places = {"g-simple": 0, "g-static": 0, "g-coop": 1, "g-live": 2, "tx-group": 2, "g-deleted": 3}
    assert {group_id: world.service.partition_for(group_id) for group_id in places} == places


def test_long_group_ids_are_not_remembered_for_ever(monkeypatch):
    bound, size = 16 * 1024, 1024
    monkeypatch.setattr(group_coordinator_service, "CHARACTERS_CACHED_MAX", bound)
    service = GroupWorld(partition_count=4).service
    for number in range(2 * bound // size):
        group_id = f"{number:0{size}}"
        assert service.partition_for(group_id) == abs_java_hash(group_id) % 4
        assert sum(map(len, service._partitions)) <= bound
    assert group_id in service._partitions
