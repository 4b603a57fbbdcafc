"""First batches of producers that a leader does not know: rejected until their predecessors had
their chance, whatever rejected those."""

import pytest

from kctl.broker.log.unified_log import AppendOrigin
from kctl.broker.log.unknown_producers import PRODUCERS_MAX, REFUSALS_MAX, RESENDS_AWAITED
from kctl.broker.replication.isr_state import IsrState
from kctl.protocol.error_codes import ErrorCode
from tests.broker.replication.test_alter_log_dirs import Mover
from tests.support.log_world import batch, values_of

ACCEPTED = ErrorCode.NONE
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS


def records(sequence, producer_epoch=0, producer_id=7):
    return batch(
        b"%d" % sequence, producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=sequence,
    )  # fmt: skip


@pytest.fixture
def world(make_world):
    world = make_world(min_insync_replicas=2)
    world.lead(isr=(1, 2), replicas=(1, 2))
    return world


def send(world, *sequences, acks=1, **options):
    """Return the error codes of batches that are sent one after the other."""
    found = [world.produce(records(it, **options), acks=acks) for it in sequences]
    return [results[0].error_code if results else ACCEPTED for results in found]


def test_the_second_batch_waits_for_the_first(world):
    """Found by simulation: the first batch of a producer was rejected, and the second one accepted.
    The first could never be stored; librdkafka reports it as delivered."""
    assert send(world, 1, 2, 3, 4) == [REFUSED] * 4
    assert send(world, 0, 1, 2) == [ACCEPTED] * 3


def test_no_later_batch_is_accepted_while_the_first_lacks_replicas(make_world):
    """Found by simulation (seed 50126): batches after the rejected ones were counted until one was
    accepted, and those before it could never be stored."""
    world = make_world(min_insync_replicas=2)
    world.lead(isr=(1,), replicas=(1, 2))
    assert send(world, 0, 1, 2, acks=-1) == [TOO_FEW] * 3
    world.partition.isr_state = IsrState.committed((1, 2))
    for _ in range(3):
        assert send(world, 3, 4, acks=-1) == [REFUSED] * 2
    assert send(world, 1, 2, 3, 4, acks=-1) == [REFUSED] * 4
    assert send(world, 0, 1, 2, 3, 4, acks=-1) == [ACCEPTED] * 5


def test_a_producer_whose_records_are_gone_goes_on_where_it_was(world):
    """KIP-360: with five batches in flight, none of which is accepted before the first one."""
    for _ in range(RESENDS_AWAITED):
        assert send(world, *range(500, 505)) == [REFUSED] * 5
    assert send(world, *range(500, 505)) == [ACCEPTED] * 5


def test_a_producer_that_gave_up_its_first_batch_goes_on(world):
    assert send(world, *range(5, 6 + REFUSALS_MAX)) == [REFUSED] * (1 + REFUSALS_MAX)
    assert send(world, 100) == [ACCEPTED]


def test_a_new_epoch_of_the_producer_starts_over(world):
    send(world, 1, 1)
    assert send(world, 1, producer_epoch=1) == [REFUSED]
    assert send(world, 0, 1, producer_epoch=1) == [ACCEPTED, ACCEPTED]


def test_a_new_leader_epoch_starts_over(world):
    send(world, *[3] * RESENDS_AWAITED)
    world.lead(isr=(1, 2), replicas=(1, 2), epoch=1)
    assert send(world, 3) == [REFUSED]


def test_the_fast_path_rejects_as_the_regular_path_does(make_world):
    """It tried first, and the regular path took the batch for one that was resent."""
    world = make_world()
    world.lead()
    for _ in range(RESENDS_AWAITED):
        assert world.manager.append_plain(("t", 0), records(1), 1) is None
        assert send(world, 1) == [REFUSED]
    assert world.manager.append_plain(("t", 0), records(1), 1).first_offset == 0


def test_a_replica_that_moved_to_another_directory_still_rejects(make_world):
    """Found by simulation (seed 51559)."""
    mover = Mover(make_world, min_insync_replicas=1).lead()
    assert send(mover.world, 3) == [REFUSED]
    mover.alter(mover.second)
    mover.settle()
    assert mover.is_at(mover.second)
    assert send(mover.world, 3, 3) == [REFUSED, ACCEPTED]


def test_what_is_no_batch_of_a_producer_is_not_remembered(world):
    state = world.partition.log.producer_state
    for garbage in (b"", bytes(60), bytes(100), bytes(batch(b"plain"))):
        state.note_rejected(garbage)
    for producer_id in range(PRODUCERS_MAX + 1):
        state.note_rejected(records(1, producer_id=producer_id))
    assert [state.unknown.accepts(it, 0, 1) for it in (0, PRODUCERS_MAX)] == [False, False]


def test_followers_and_coordinators_are_not_asked(world):
    log = world.partition.log
    log.append_as_leader(records(9), 0, origin=AppendOrigin.REPLICATION, now_ms=0)
    assert [value for _, value in values_of(log)] == [b"9"]
