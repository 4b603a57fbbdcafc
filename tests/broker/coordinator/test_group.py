"""Group: its states, its protocols, its leader."""

import itertools

import pytest

from kctl.broker.coordinator.group.group import LEGAL_MOVES, Group, GroupState
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.timers import Timer

STATES = list(GroupState)
TO_PREPARING = {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}


def timer():
    return Timer(lambda moment, outcome: None)


def make_group(*protocol_lists, state=GroupState.EMPTY):
    """Return a group with a member for each list of protocol names."""
    group = Group("g", timer(), timer(), 0)
    for number, names in enumerate(protocol_lists):
        group.add(make_member(f"m{number}", names), "consumer", None)
    group.state = state
    return group


def make_member(member_id, names=("range",), instance_id=None, rebalance_timeout_ms=60_000):
    protocols = {name: name.encode() for name in names}
    member = Member(
        member_id, instance_id, "client", "/host", rebalance_timeout_ms, 10_000, protocols
    )
    member.session = timer()
    return member


@pytest.mark.parametrize(("old", "new"), list(itertools.product(STATES, STATES)))
def test_a_group_moves_only_where_the_table_allows(old, new):
    group = make_group(state=old)
    if new in LEGAL_MOVES[old]:
        group.transition_to(new, 5)
        assert (group.state, group.state_since_ms) == (new, 5)
    else:
        with pytest.raises(RuntimeError, match="cannot move from"):
            group.transition_to(new, 5)
        assert (group.state, group.state_since_ms) == (old, 0)


def test_the_table_is_the_one_of_kafka():
    into = {new: {old for old in STATES if new in LEGAL_MOVES[old]} for new in STATES}
    assert into == {
        GroupState.PREPARING_REBALANCE: TO_PREPARING,
        GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
        GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
        GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
        GroupState.DEAD: set(STATES),
    }
    assert {state for state in STATES if make_group(state=state).can_rebalance} == TO_PREPARING


def test_the_most_preferred_protocol_is_selected():
    group = make_group(["range", "sticky"], ["sticky", "range"], ["sticky", "range"])
    assert group.select_protocol() == "sticky"


def test_only_protocols_that_all_members_support_get_votes():
    group = make_group(["new", "range"], ["new", "range"], ["range"])
    assert group.select_protocol() == "range"


def test_on_a_tie_the_protocol_of_the_earlier_vote_is_selected():
    assert make_group(["b", "a"], ["a", "b"]).select_protocol() == "b"


@pytest.mark.parametrize(
    ("protocol_type", "names", "fits"),
    [
        ("consumer", ["range"], True),
        ("consumer", ["other", "range"], True),
        ("consumer", ["sticky"], False),  # only one of the two members supports it
        ("connect", ["range"], False),
        ("consumer", [], False),
    ],
)
def test_a_new_member_must_share_a_protocol_with_all_others(protocol_type, names, fits):
    group = make_group(["range", "sticky"], ["range"], state=GroupState.STABLE)
    assert group.supports(protocol_type, dict.fromkeys(names, b"")) is fits


def test_an_empty_group_takes_any_protocol_but_none():
    group = make_group()
    assert group.supports("connect", {"x": b""})
    assert not group.supports("", {"x": b""})
    assert not group.supports("connect", {})


def test_the_first_member_leads_and_the_next_one_after_it():
    group = make_group(["range"], ["range"])
    assert group.leader_id == "m0"
    group.remove(group.members["m0"])
    assert group.leader_id == "m1"
    group.remove(group.members["m1"])
    assert group.leader_id is None
    assert not group.supported


def test_a_leader_that_did_not_join_is_replaced_by_one_that_did():
    group = make_group(["range"], ["range"])
    group.set_join_reply(group.members["m1"], print)
    assert group.elect_joined_leader()
    assert group.leader_id == "m1"


def test_no_leader_is_elected_if_no_member_joined():
    group = make_group(["range"])
    assert not group.elect_joined_leader()
    assert group.leader_id == "m0"


def test_the_longest_rebalance_timeout_counts():
    group = make_group()
    for number, timeout_ms in enumerate((5, 9, 7)):
        member = make_member(f"m{number}", rebalance_timeout_ms=timeout_ms)
        group.add(member, "consumer", None)
    assert group.rebalance_timeout_ms == 9


def test_a_renamed_static_member_keeps_leadership_and_place():
    group = make_group()
    member = make_member("old", instance_id="i")
    group.add(member, "consumer", None)
    group.rename(member, "new")
    assert (group.leader_id, group.static_member("i")) == ("new", member)
    assert group.is_fenced("old", "i")
    assert not group.is_fenced("new", "i")
    assert not group.is_fenced("old", "another")


def test_protocols_are_the_same_only_in_the_same_order():
    member = make_member("m", ("a", "b"))
    assert member.has_same_protocols({"a": b"a", "b": b"b"})
    assert not member.has_same_protocols({"b": b"b", "a": b"a"})
    assert not member.has_same_protocols({"a": b"a", "b": b"changed"})
