"""Deletion and expiry of groups and offsets."""

import pytest

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.consumer_protocol import ConsumerProtocolSubscription, encode_blob
from kctl.work import at_once
from tests.support.group_invariants import check_groups
from tests.support.group_world import GroupWorld

TP = ("t", 0)
OTHER = ("u", 0)
TOPIC = ("__consumer_offsets", 0)
MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


def subscription(*topics):
    return encode_blob(ConsumerProtocolSubscription(topics=list(topics)))


def tombstones(world):
    return [key for key, value in world.log.records(TOPIC) if value is None]


def live_records(world):
    """Return the records that compaction would leave in the log."""
    last = dict(world.log.records(TOPIC))
    return {key for key, value in last.items() if value is not None}


def groups(world):
    return [group.group_id for group in world.list_groups()[1]]


def test_an_empty_group_is_deleted_with_its_offsets(world):
    (one,), generation_id = world.form_group(1)
    world.commit({TP: 5}, member_id=one, generation_id=generation_id)
    world.leave(one)
    assert world.delete_groups("g").response == {"g": 0}
    assert groups(world) == []
    assert live_records(world) == set()
    assert world.committed(TP) == {TP: -1}


def test_a_group_is_deleted_when_its_tombstone_is_in_the_log(world):
    world.commit({TP: 5})
    world.log.is_holding = True
    answer = world.delete_groups("g")
    assert not answer.is_there
    assert world.committed() == {TP: 5}
    world.log.release()
    assert answer.response == {"g": 0}
    assert groups(world) == []


def test_a_group_that_only_keeps_offsets_has_no_record_to_delete(world):
    world.commit({TP: 5})
    world.delete_groups("g")
    assert len(tombstones(world)) == 1


def test_groups_with_members_and_unknown_ones_are_not_deleted(world):
    world.form_group(1)
    world.commit({TP: 5}, group_id="empty")
    assert world.delete_groups("g", "nobody", "empty", "empty").response == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        "empty": ErrorCode.NONE,
    }
    assert world.delete_groups().response == {}


def test_a_deletion_that_fails_deletes_nothing(world):
    world.commit({TP: 5})
    world.log.failures.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.delete_groups("g").response == {"g": ErrorCode.NOT_COORDINATOR}
    assert world.committed() == {TP: 5}


def test_an_offset_committed_during_a_deletion_is_kept(world):
    world.commit({TP: 5})
    world.log.is_holding = True
    world.delete_groups("g")
    world.commit({OTHER: 6})
    world.log.release()
    assert world.committed() == {OTHER: 6}


def test_a_member_that_joins_during_a_deletion_is_kept(world):
    world.commit({TP: 5})
    world.log.is_holding = True
    deleted = world.delete_groups("g")
    _, joined = world.enter()
    world.log.release()
    assert deleted.response == {"g": 0}
    world.advance(5_000)
    assert joined.response.generation_id == 1


def test_offsets_of_topics_without_subscribers_are_deleted(world):
    protocols = {"range": subscription("t")}
    (one,), generation_id = world.form_group(1, protocols=protocols)
    world.commit({TP: 5, OTHER: 6}, member_id=one, generation_id=generation_id)
    code, codes = world.delete_offsets(TP, OTHER).response
    assert (code, codes) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])
    assert world.committed() == {TP: 5}
    assert len(tombstones(world)) == 1


def test_a_member_whose_subscription_cannot_be_read_may_subscribe_to_all(world):
    (one,), generation_id = world.form_group(1, protocols={"range": b"\0"})
    world.commit({TP: 5}, member_id=one, generation_id=generation_id)
    assert world.delete_offsets(TP).response == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])


@pytest.mark.parametrize("version", [-1, 7])
def test_a_subscription_of_any_version_is_read_as_the_first_one(world, version):
    metadata = version.to_bytes(2, "big", signed=True) + subscription("t")[2:-4] + b"new"
    (one,), generation_id = world.form_group(1, protocols={"range": metadata})
    world.commit({TP: 5, OTHER: 6}, member_id=one, generation_id=generation_id)
    code, codes = world.delete_offsets(TP, OTHER).response
    assert (code, codes) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])


def test_offsets_of_an_empty_group_are_deleted_and_the_group_with_the_last(world):
    world.commit({TP: 5, OTHER: 6})
    assert world.delete_offsets(TP, ("t", 9)).response == (0, [0, 0])
    assert world.committed() == {OTHER: 6}
    assert world.delete_offsets(OTHER).response == (0, [0])
    assert groups(world) == []


@pytest.mark.parametrize("request_name", ["offsets", "group"])
def test_a_member_id_that_has_not_joined_keeps_no_group(world, request_name):
    """As in Kafka 2.7: the client joins again, without an id."""
    world.commit({TP: 5})
    member_id = world.new_member_id()
    if request_name == "offsets":
        assert world.delete_offsets(TP).response == (0, [0])
    else:
        assert world.delete_groups("g").response == {"g": 0}
    assert groups(world) == []
    assert live_records(world) == set()
    joined = world.join(member_id=member_id)
    assert joined.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    _, entered = world.enter()
    world.advance(5_000)
    assert entered.response.generation_id == 1


def test_a_formed_group_with_a_member_id_that_has_not_joined_is_deleted_with_its_record(world):
    (one,), _ = world.form_group(1)
    world.leave(one)
    world.new_member_id()
    assert world.delete_groups("g").response == {"g": 0}
    assert groups(world) == []
    assert live_records(world) == set()


def test_a_group_whose_offsets_are_not_all_deleted_keeps_its_record(world):
    (one,), generation_id = world.form_group(1)
    world.commit({TP: 5, OTHER: 6}, member_id=one, generation_id=generation_id)
    world.leave(one)
    world.delete_offsets(TP)
    assert tombstones(world) == [key for key, _ in world.log.records(TOPIC) if b"t" in key][-1:]
    assert GroupWorld(log=world.log).elect().group().generation_id == 2


def test_a_group_that_is_committed_to_while_it_is_deleted_keeps_its_record(world):
    (one,), _ = world.form_group(1)
    world.leave(one)
    world.log.is_holding = True
    world.commit({TP: 5})
    world.delete_groups("g")
    world.log.release()
    world.scheduler.settle()
    assert tombstones(world) == []
    assert groups(world) == ["g"]


def test_offsets_of_other_groups_of_workers_are_not_deleted(world):
    world.form_group(1, protocol_type="connect")
    assert world.delete_offsets(TP).response == (ErrorCode.NON_EMPTY_GROUP, [])
    assert world.delete_offsets(TP, group_id="x").response == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_offsets_of_deleted_topics_are_forgotten(world):
    world.commit({TP: 5, OTHER: 6})
    world.commit({TP: 7}, group_id="h")
    world.commit({TP: 8}, group_id="h", producer_id=1)
    deleted = list(world.group().offsets.committed)[:1]
    at_once(world.service.on_partitions_deleted(deleted))
    world.scheduler.settle()
    world.end_transaction(1, is_commit=True)
    assert world.committed() == {OTHER: 6}
    assert groups(world) == ["g"]
    assert len(live_records(world)) == 1


def test_offsets_of_a_simple_consumer_expire_after_its_last_commit(world):
    world.commit({TP: 5})
    world.advance(WEEK_MS // 2)
    world.commit({OTHER: 6})
    world.advance(WEEK_MS // 2 + CHECK_MS)
    assert world.committed() == {OTHER: 6}
    world.advance(WEEK_MS // 2)
    assert groups(world) == []
    assert live_records(world) == set()


def test_offsets_of_a_group_expire_after_it_became_empty(world):
    (one,), generation_id = world.form_group(1, session_ms=30 * MINUTE_MS)
    world.commit({TP: 5}, member_id=one, generation_id=generation_id)
    world.advance(20 * MINUTE_MS)
    world.leave(one)
    world.advance(WEEK_MS - CHECK_MS)
    assert world.committed() == {TP: 5}
    world.advance(2 * CHECK_MS)
    assert groups(world) == []
    assert live_records(world) == set()


def test_offsets_that_a_group_still_subscribes_to_do_not_expire():
    world = GroupWorld({"offsets.retention.minutes": "1"}).elect()
    protocols = {"range": subscription("t")}
    (one,), generation_id = world.form_group(1, protocols=protocols, session_ms=30 * MINUTE_MS)
    world.commit({TP: 5, OTHER: 6}, member_id=one, generation_id=generation_id)
    for _ in range(3):
        world.advance(CHECK_MS)
        world.heartbeat(one, generation_id)
    assert world.committed() == {TP: 5}


def test_an_offset_with_its_own_expiry_time_expires_then(world):
    expire_ms = world.clock.wall_ms() + MINUTE_MS
    world.commit({TP: 5}, expire_ms=expire_ms)
    world.commit({OTHER: 6})
    assert (
        world.log.records(TOPIC)[0][1][:2] == b"\0\1"
    )  # the version of the value that has the field
    world.advance(CHECK_MS)
    assert world.committed() == {OTHER: 6}


def test_a_failed_tombstone_is_written_again(world):
    world.commit({TP: 5})
    world.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.advance(WEEK_MS + CHECK_MS - 1)
    assert world.committed() == {TP: 5}
    world.advance(CHECK_MS)
    assert groups(world) == []


def test_offsets_pending_in_a_transaction_keep_a_group(world):
    world.commit({TP: 5}, producer_id=3)
    world.advance(2 * WEEK_MS)
    world.end_transaction(3, is_commit=True)
    assert world.committed() == {TP: 5}
