"""Before it sleeps the loop looks for input for a moment, where that has been of use."""

from itertools import pairwise

import pytest

from kctl.runtime.real.loop import LOOKS_BEFORE_SLEEP, LOOKS_IN_VAIN_MAX, RealScheduler

SLEEPS = 4 * LOOKS_IN_VAIN_MAX


class Peer:
    """A clock and a poller: after so many looks there is input, never without `looks`."""

    def __init__(self, looks=None):
        self.looks = looks
        self.now_ms = 0
        self.seen = []
        self.fd = None

    def monotonic_ms(self):
        return self.now_ms

    def register(self, fd, _mask):
        self.fd = fd

    def unregister(self, _fd):
        pass

    def poll(self, seconds, _events_max):
        self.seen.append(seconds)
        if seconds:
            self.now_ms += round(1000 * seconds)
        return [(self.fd, 1)] if len(self.seen) == self.looks else []

    def close(self):
        pass


@pytest.fixture
def run():
    """Run a loop for so many milliseconds, a timer in each."""
    loops = []

    def start(peer, timers):
        loop = RealScheduler(peer, poller=peer)
        loops.append(loop)
        for number in range(1, timers + 1):
            loop.call_at(number, lambda: None)
        loop.call_at(timers, loop.stop)
        loop.run_forever()
        return peer.seen

    yield start
    for loop in loops:
        loop.close()


def test_input_that_comes_soon_is_served_without_sleep(run):
    seen = run(Peer(looks=LOOKS_BEFORE_SLEEP), 1)
    assert seen[:LOOKS_BEFORE_SLEEP] == [0] * LOOKS_BEFORE_SLEEP
    # Found, served, and looked again.
    assert seen[LOOKS_BEFORE_SLEEP:] == [0] * LOOKS_BEFORE_SLEEP + [0.001]


def test_a_loop_polls_less_often_after_polls_without_result(run):
    seen = run(Peer(), SLEEPS)
    sleeps = [position for position, seconds in enumerate(seen) if seconds]
    assert len(sleeps) == SLEEPS
    gaps = [after - before for before, after in pairwise([-1, *sleeps])]
    looked = [number for number, gap in enumerate(gaps) if gap > LOOKS_BEFORE_SLEEP]
    skipped = [after - before - 1 for before, after in pairwise(looked)]
    assert skipped == [2, 4, 8, 16, 32, 64, 128, LOOKS_IN_VAIN_MAX, LOOKS_IN_VAIN_MAX]
