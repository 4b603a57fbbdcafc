"""Counts calls in each turn of a virtual loop: how tests see that long work takes turns."""

from collections import Counter

# What the tests let a turn do, and how much there is to do.
BOUND = 5
COUNT = 4 * BOUND


class TurnCounter:
    """Counts calls in each turn of a world's loop."""

    def __init__(self, world, monkeypatch):
        self._monkeypatch = monkeypatch
        self.turn = 0
        self._calls = Counter()
        turn = world.scheduler.turn

        def counted_turn():
            self.turn += 1
            return turn()

        world.scheduler.turn = counted_turn

    def watch(self, owner, name):
        """Count the calls of `owner.name` from now on."""
        original = getattr(owner, name)
        self._calls.clear()

        def counted(*arguments, **options):
            self._calls[self.turn] += 1
            return original(*arguments, **options)

        self._monkeypatch.setattr(owner, name, counted)

    @property
    def total(self):
        """The calls since `watch`."""
        return self._calls.total()

    def check(self, *, total, bound=BOUND):
        """Check for `total` calls since `watch`, over several turns, at most `bound` in each."""
        assert self._calls.total() == total
        assert max(self._calls.values()) <= bound
