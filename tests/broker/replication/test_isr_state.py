"""The replicas that a leader counts while a change of the ISR awaits the controller's response."""

import pytest

from kctl.broker.replication.isr_state import IsrState


def test_a_follower_about_to_join_is_waited_for_but_not_counted():
    state = IsrState.committed((1, 2)).expand(3)
    assert (state.isr, state.maximal, state.wanted) == ((1, 2), (1, 2, 3), (1, 2, 3))


def test_a_follower_about_to_leave_is_waited_for_until_the_controller_agrees():
    state = IsrState.committed((1, 2, 3)).shrink([2, 3])
    assert (state.isr, state.maximal, state.wanted) == ((1, 2, 3), (1, 2, 3), (1,))
    assert IsrState.committed((1,)).maximal == (1,)


def test_only_one_change_at_a_time():
    state = IsrState.committed((1, 2)).expand(3)
    with pytest.raises(RuntimeError):
        state.shrink([2])
    with pytest.raises(RuntimeError):
        state.expand(4)
    assert state.is_in_flight
    assert not IsrState.committed((1, 2, 3)).is_in_flight
