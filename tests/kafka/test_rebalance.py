"""What a member of a group on ZooKeeper does next, and what it may never do."""

import pytest

from kctl.kafka.claims import Claims, Consumption, OffsetMoves
from kctl.kafka.rebalance import Lease, Rebalance, RebalanceState
from kctl.store.consumer_znodes import ConsumedPartition, OwnerZnode

P0, P1, P2 = (ConsumedPartition("t", number) for number in range(3))
MINE, OTHERS = 7, 8


@pytest.fixture
def member():
    """A member that is about to claim."""
    member = Rebalance()
    member.join("c", MINE)
    for state in (RebalanceState.READING, RebalanceState.RELEASING, RebalanceState.CLAIMING):
        member.move(state)
    return member


def test_an_illegal_move_raises_and_changes_nothing():
    member = Rebalance()
    with pytest.raises(RuntimeError, match="ABSENT to OWNING"):
        member.move(RebalanceState.OWNING)
    assert member.state is RebalanceState.ABSENT


def test_claims_are_made_in_a_round_only(member):
    member.claimed({P0: 0})
    member.move(RebalanceState.OWNING)
    with pytest.raises(RuntimeError, match="claims in OWNING"):
        member.claimed({P1: 0})


def test_what_stays_is_not_touched_and_the_rest_moves(member):
    member.claimed({P0: 0, P1: 0})
    owners = {P0: OwnerZnode("c-0", MINE), P1: OwnerZnode("c-0", MINE)}
    moves = member.plan({P0: 0, P2: 1}, owners)
    assert (moves.lost, moves.release, moves.claim) == ((), (P1,), {P2: 1})


def test_what_another_owns_is_waited_for(member):
    moves = member.plan({P0: 0, P1: 0}, {P0: OwnerZnode("d-0", OTHERS)})
    assert (moves.claim, moves.blocked) == ({P1: 0}, (P0,))


def test_a_claim_whose_answer_was_lost_is_adopted_or_given_back(member):
    member.asks_for([P0, P1])
    owners = {P0: OwnerZnode("c-0", MINE), P1: OwnerZnode("c-0", MINE)}
    moves = member.plan({P0: 0}, owners)
    assert (moves.adopt, moves.release, moves.claim) == ({P0: 0}, (P1,), {})


def test_a_partition_that_moves_to_another_thread_is_released_and_claimed(member):
    member.claimed({P0: 0})
    moves = member.plan({P0: 1}, {P0: OwnerZnode("c-0", MINE)})
    assert (moves.release, moves.claim) == ((P0,), {P0: 1})


def test_a_claim_that_the_znodes_do_not_show_is_lost(member):
    member.claimed({P0: 0, P1: 0})
    moves = member.plan({P0: 0, P1: 0}, {P1: OwnerZnode("d-0", OTHERS)})
    assert (moves.lost, moves.claim, moves.blocked) == ((P0, P1), {P0: 0}, (P1,))


def test_a_session_that_ends_takes_all_claims(member):
    member.claimed({P0: 0})
    member.session_ended()
    assert (member.claims, member.to_look_at({})) == ({}, [])


def test_the_thread_of_a_consumer_is_distinguished_from_one_whose_id_begins_alike():
    member = Rebalance()
    member.join("c", MINE)
    assert member.wanted({P0: "c-0", P1: "c-x-0", P2: "cc-0"}) == {P0: 0}


def test_a_lease_is_counted_from_the_question():
    lease = Lease(6_000)
    lease.answered(1_000)
    assert (lease.is_held(4_999), lease.is_held(5_000)) == (True, False)
    # An older answer that comes late does not shorten it.
    lease.answered(500)
    assert lease.is_held(4_999)
    lease.end()
    assert not lease.is_held(1_000)


@pytest.mark.parametrize(("moves", "after_one"), [(OffsetMoves.LATE, 5), (OffsetMoves.EARLY, 6)])
def test_the_position_passes_a_message_when_the_setting_says(moves, after_one):
    claims, lease = Claims(), Lease(6_000)
    lease.answered(0)
    claim = claims.open(P0, 0, lease, 5)
    consumption = Consumption(moves)
    assert consumption.hand_out(claim, 6, now_ms=1)
    assert claim.position == after_one
    consumption.asked_for_next()
    assert claims.uncommitted() == {P0: 6}
    claims.committed({P0: 6})
    assert claims.uncommitted() == {}


def test_nothing_is_handed_out_under_a_closed_claim_or_without_a_lease():
    claims, lease = Claims(), Lease(6_000)
    lease.answered(0)
    claim = claims.open(P0, 0, lease, None)
    assert not Consumption().hand_out(claim, 1, now_ms=4_000)
    assert claims.close([P0, P1]) == {}
    assert not Consumption().hand_out(claim, 1, now_ms=1)


def test_a_partition_has_one_claim():
    claims = Claims()
    claims.open(P0, 0, Lease(1), None)
    with pytest.raises(RuntimeError, match="delivered twice"):
        claims.open(P0, 0, Lease(1), None)
