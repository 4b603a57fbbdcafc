"""A short search for what holds the loop: no sequence of 64 KiB takes a turn out of all proportion.

By hand for longer, with the figures: python -m tests.serve.costliest_turn --minutes 60
"""

import os

import pytest

from tests.serve.costliest_turn import CostSearch

BYTES_MAX = 64 * 1024
ROUNDS = int(os.environ.get("KCTL_COST_ROUNDS", "60"))
# CPU of the loop's thread, not wall time, and 25 times the bound that is aimed at: what the test
# finds is work without a bound, on any machine.
GROSS_SECONDS = 0.5


@pytest.mark.slow
def test_no_turn_is_out_of_all_proportion():
    search = CostSearch(27, BYTES_MAX)
    costliest = search.run(rounds=ROUNDS)
    assert search.tried == ROUNDS
    # The search measures something.
    assert costliest[0].worst_seconds > 0
    found = [str(each) for each in costliest if each.worst_seconds > GROSS_SECONDS]
    assert not found, "\n".join(found)
