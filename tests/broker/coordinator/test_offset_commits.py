"""OffsetCommit and OffsetFetch, with and without a group, inside transactions and not."""

from struct import error as struct_error

import pytest

from kctl.broker.coordinator import shard_host
from kctl.broker.coordinator.group.offset_commits import OffsetCommit
from kctl.broker.coordinator.group.offsets import CommittedOffset
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.records.memory_records import batches
from tests.support.group_invariants import check_groups
from tests.support.group_world import DELAY_MS, Answer, GroupWorld

TP = ("t", 0)
OTHER = ("t", 1)
PRODUCER = 7
TOPIC = ("__consumer_offsets", 0)


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


def test_a_simple_consumer_commits_without_a_group(world):
    assert world.commit({TP: 5, OTHER: 6}).response == [0, 0]
    assert world.committed() == {TP: 5, OTHER: 6}
    assert world.state() == "Empty"


def test_old_simple_consumers_may_even_have_no_group_id(world):
    assert world.commit({TP: 5}, group_id="").response == [0]
    assert world.committed(group_id="") == {TP: 5}


def test_what_was_never_committed_is_minus_one(world):
    assert world.committed(TP) == {TP: -1}
    world.commit({TP: 5})
    assert world.committed(TP, OTHER) == {TP: 5, OTHER: -1}


def test_a_commit_takes_effect_and_is_acknowledged_when_it_is_in_the_log(world):
    world.commit({TP: 5})
    world.log.is_holding = True
    answer = world.commit({TP: 9})
    assert not answer.is_there
    assert world.committed(TP) == {TP: 5}
    world.log.release()
    assert answer.response == [0]
    assert world.committed(TP) == {TP: 9}


def test_an_offset_is_unstable_while_a_commit_is_in_flight(world):
    world.log.is_holding = True
    world.commit({TP: 9})
    _, (fetched,) = world.service.fetch_offsets(
        "g", list(world.group().offsets.in_flight), require_stable=True
    )
    assert (fetched.offset, fetched.error_code) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    world.log.release()
    assert world.committed(TP, stable=True) == {TP: 9}


def test_only_the_offset_with_too_long_metadata_is_rejected(world):
    at_limit, too_long = "x" * 4096, "x" * 4097
    assert world.commit({TP: 1}, metadata=at_limit).response == [0]
    assert world.commit({TP: 2}, metadata=too_long).response == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert world.committed() == {TP: 1}
    _, (fetched,) = world.service.fetch_offsets("g", None)
    assert fetched.metadata == at_limit


@pytest.mark.parametrize(
    ("log_error", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_the_errors_when_the_log_rejects_offsets(world, log_error, expected):
    world.commit({TP: 1})
    world.log.failures.append(log_error)
    assert world.commit({TP: 2, OTHER: 3}).response == [expected, expected]
    assert world.committed(stable=True) == {TP: 1}


def test_members_commit_in_their_generation(world):
    (one,), generation_id = world.form_group(1)
    commit = {"member_id": one, "generation_id": generation_id}
    assert world.commit({TP: 5}, **commit).response == [0]
    assert world.committed() == {TP: 5}


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, ErrorCode.ILLEGAL_GENERATION),
        (None, 2, ErrorCode.ILLEGAL_GENERATION),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),  # a simple consumer in a group with members
    ],
)
def test_commits_of_members_are_checked(world, member, generation, error):
    (one,), _ = world.form_group(1)
    answer = world.commit(
        {TP: 5}, member_id=one if member is None else member, generation_id=generation
    )
    assert answer.response == [error]
    assert world.committed() == {}


def test_a_commit_for_a_generation_of_an_unknown_group_is_rejected(world):
    answer = world.commit({TP: 5}, member_id="m", generation_id=3)
    assert answer.response == [ErrorCode.ILLEGAL_GENERATION]
    assert world.list_groups() == (0, [])


def test_members_may_still_commit_when_a_rebalance_begins(world):
    (one,), generation_id = world.form_group(1)
    world.enter()
    assert world.state() == "PreparingRebalance"
    assert world.commit({TP: 5}, member_id=one, generation_id=generation_id).response == [0]


def test_members_may_not_commit_before_they_know_their_assignment(world):
    one, _ = world.enter()
    world.advance(DELAY_MS)
    answer = world.commit({TP: 5}, member_id=one, generation_id=1)
    assert answer.response == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_commits_of_one_turn_of_the_loop_are_one_batch(world):

    replies = []
    for number in range(100):
        offsets = [(TopicPartition("t", number), CommittedOffset(number, -1, "", 0))]
        commit = OffsetCommit(f"g{number}", "", None, -1, offsets, replies.append)
        world.service.commit_offsets(commit)
    world.scheduler.settle()
    assert replies == [[0]] * 100
    assert len(world.log.batches[TOPIC]) == 1
    assert world.committed(group_id="g99") == {("t", 99): 99}


def test_a_commit_that_is_too_large_fails_alone(world):
    """A Write that would make a batch too large goes into another batch."""

    small, large = [], []

    def commit(group_id, count, reply):
        offsets = [
            (TopicPartition("t", n), CommittedOffset(n, -1, "x" * 1000, 0)) for n in range(count)
        ]
        world.service.commit_offsets(OffsetCommit(group_id, "", None, -1, offsets, reply))

    commit("small", 1, small.append)
    commit("large", 200, large.append)
    commit("small", 1, small.append)
    world.scheduler.settle()
    assert [len(records) < 70_000 for records in world.log.batches[TOPIC]] == [True, False, True]
    assert (small, large) == ([[0], [0]], [[0] * 200])


def test_offsets_in_a_transaction_count_when_it_commits(world):
    assert world.commit({TP: 5}, producer_id=PRODUCER).response == [0]
    assert world.committed(TP) == {TP: -1}
    _, (fetched,) = world.service.fetch_offsets(
        "g", [next(iter(world.group().offsets.pending_by_producer[PRODUCER]))], require_stable=True
    )
    assert fetched.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end_transaction(PRODUCER, is_commit=True)
    assert world.committed(TP, stable=True) == {TP: 5}


def test_offsets_in_a_transaction_are_dropped_when_it_aborts(world):
    world.commit({TP: 5})
    world.commit({TP: 9}, producer_id=PRODUCER)
    world.end_transaction(PRODUCER, is_commit=False)
    assert world.committed(stable=True) == {TP: 5}


def test_the_end_of_a_transaction_concerns_only_its_producer(world):
    world.commit({TP: 5}, producer_id=PRODUCER)
    world.end_transaction(PRODUCER + 1, is_commit=True)
    world.end_transaction(PRODUCER, 3, is_commit=True)
    assert world.committed(TP) == {TP: -1}


def test_offsets_in_a_transaction_go_into_a_transactional_batch_of_their_own(world):

    world.commit({TP: 5}, producer_id=PRODUCER)
    (batch,) = batches(world.log.batches[TOPIC][0])
    assert (batch.is_transactional, batch.producer_id, batch.base_sequence) == (True, PRODUCER, 0)


def test_offsets_in_a_transaction_follow_earlier_writes(world):
    replies = []
    for number, producer_id in enumerate((-1, PRODUCER, -1)):
        offsets = [(TopicPartition("t", number), CommittedOffset(number, -1, "", 0))]
        commit = OffsetCommit("g", "", None, -1, offsets, replies.append, producer_id, 0)
        if producer_id == PRODUCER:
            world.service.commit_offsets_in_transaction(commit, 1)
        else:
            world.service.commit_offsets(commit)
    world.scheduler.settle()
    order = [key[-1] for key, _ in world.log.records(TOPIC)]
    assert order == [0, 1, 2]
    assert replies == [[0]] * 3


def test_a_transaction_may_name_the_member_it_commits_for(world):
    """KIP-447: a zombie of an older generation must not commit."""
    (one,), generation_id = world.form_group(1)

    def commit(member_id, generation_id):
        return world.commit(
            {TP: 5}, member_id=member_id, generation_id=generation_id, producer_id=PRODUCER
        ).response[0]

    assert commit(one, generation_id) == 0
    assert commit("nobody", generation_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(one, generation_id - 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit("", -1) == 0  # producers before KIP-447 send none


def test_a_failed_commit_in_a_transaction_leaves_nothing_pending(world):
    world.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = world.commit({TP: 5}, producer_id=PRODUCER)
    assert answer.response == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.committed(TP, stable=True) == {TP: -1}


@pytest.mark.parametrize("producer_id", [-1, PRODUCER])
def test_a_commit_that_cannot_be_encoded_leaves_nothing_pending(world, producer_id):
    world.commit({TP: 5})
    with pytest.raises(struct_error):
        world.commit({TP: 2**63}, producer_id=producer_id)
    assert world.committed(TP, stable=True) == {TP: 5}
    assert world.commit({TP: 6}, producer_id=producer_id).response == [0]


def test_a_response_that_fails_does_not_take_others_of_its_batch_with_it(world):
    def failing(_codes):
        raise LookupError("a bug")

    answers = [Answer(), failing, Answer()]
    for number, answer in enumerate(answers):
        committed = CommittedOffset(number, -1, "", 0)
        asked = [(TopicPartition("t", number), committed)]
        world.service.commit_offsets(OffsetCommit("g", "", None, -1, asked, answer))
    with pytest.raises(LookupError):
        world.scheduler.settle()
    world.scheduler.settle()
    assert [answers[0].response, answers[2].response] == [[0], [0]]
    assert world.committed() == {("t", number): number for number in range(3)}


@pytest.mark.parametrize("producer_id", [-1, PRODUCER])
def test_commits_whose_batch_cannot_be_made_are_answered(world, monkeypatch, producer_id):
    def failing(*_arguments):
        raise LookupError("a bug")

    answer = Answer()
    asked = [(TopicPartition(*TP), CommittedOffset(5, -1, "", 0))]
    commit = OffsetCommit("g", "", None, -1, asked, answer, producer_id, 0)
    monkeypatch.setattr(shard_host, "assemble", failing)
    if producer_id < 0:
        world.service.commit_offsets(commit)
    else:
        world.service.commit_offsets_in_transaction(commit, 1)
    with pytest.raises(LookupError):
        world.scheduler.settle()
    world.scheduler.settle()
    assert answer.response == [ErrorCode.UNKNOWN_SERVER_ERROR]
    monkeypatch.undo()
    assert world.committed(TP, stable=True) == {TP: -1}
    assert world.commit({TP: 6}, producer_id=producer_id).response == [0]
