import weakref

from kctl.broker.coordinator.outcome import Moment, Outcome
from kctl.broker.coordinator.timers import (
    DEAD_ENTRIES_MAX,
    NEVER,
    RETRY_MS,
    Timer,
    TimerQueue,
)


class Bell:
    """A queue that records the names of the timers that fired."""

    def __init__(self):
        self.queue = TimerQueue()
        self.fired = []

    def timer(self, name):
        return Timer(lambda moment, outcome: self.fired.append(name))

    def at(self, now_ms):
        self.fired.clear()
        self.queue.fire_due(Moment(now_ms, 0), Outcome())
        return list(self.fired)


def test_a_timer_fires_once_at_its_deadline():
    bell = Bell()
    bell.queue.set(bell.timer("a"), 10)
    assert [bell.at(9), bell.at(10), bell.at(11)] == [[], ["a"], []]


def test_equal_deadlines_fire_in_the_order_they_were_set():
    bell = Bell()
    for name in "cab":
        bell.queue.set(bell.timer(name), 10)
    assert bell.at(10) == ["c", "a", "b"]


def test_a_postponed_timer_does_not_change_the_heap_until_its_old_time():
    bell = Bell()
    timer = bell.timer("session")
    bell.queue.set(timer, 10)
    for deadline_ms in range(11, 100):
        bell.queue.set(timer, deadline_ms)
    assert bell.queue.next_ms() == 10
    assert bell.at(10) == []
    assert bell.queue.next_ms() == 99
    assert [bell.at(98), bell.at(99)] == [[], ["session"]]


def test_a_timer_that_is_set_earlier_fires_earlier_and_only_then():
    bell = Bell()
    timer = bell.timer("a")
    bell.queue.set(timer, 100)
    bell.queue.set(timer, 10)
    assert bell.queue.next_ms() == 10
    assert [bell.at(10), bell.at(100)] == [["a"], []]


def test_a_cancelled_timer_does_not_fire_and_may_be_set_again():
    bell = Bell()
    timer = bell.timer("a")
    bell.queue.set(timer, 10)
    bell.queue.cancel(timer)
    assert not timer.is_set
    assert bell.at(10) == []
    bell.queue.set(timer, 20)
    assert bell.at(20) == ["a"]


def test_a_timer_may_cancel_another_that_is_due_with_it():
    bell = Bell()
    second = bell.timer("second")
    first = Timer(lambda moment, outcome: bell.queue.cancel(second))
    bell.queue.set(first, 10)
    bell.queue.set(second, 10)
    assert bell.at(10) == []


def test_a_timer_that_sets_itself_again_waits_for_the_next_call():
    bell = Bell()
    seen = []

    def again(moment, outcome):
        seen.append(moment.monotonic_ms)
        bell.queue.set(timer, moment.monotonic_ms)

    timer = Timer(again)
    bell.queue.set(timer, 10)
    bell.at(10)
    assert seen == [10]
    assert bell.queue.next_ms() == 10
    bell.at(11)
    assert seen == [10, 11]


def test_a_timer_that_raises_does_not_take_others_with_it():
    bell = Bell()
    error = LookupError("a bug")

    def failing(_moment, _outcome):
        bell.fired.append("failing")
        if bell.fired == ["first", "failing"]:
            raise error

    for timer in (bell.timer("first"), Timer(failing), bell.timer("last")):
        bell.queue.set(timer, 10)
    outcome = Outcome()
    bell.queue.fire_due(Moment(10, 0), outcome)
    assert bell.fired == ["first", "failing", "last"]
    assert outcome.errors == [error]
    # It is tried again, so that what it ends does not stay for ever.
    assert [bell.at(9 + RETRY_MS), bell.at(10 + RETRY_MS)] == [[], ["failing"]]
    assert bell.queue.next_ms() == NEVER


def test_cancelled_timers_do_not_pile_up():
    bell = Bell()
    for _ in range(20 * DEAD_ENTRIES_MAX):
        timer = bell.timer("gone")
        bell.queue.set(timer, 1_000_000)
        bell.queue.cancel(timer)
    bell.queue.set(bell.timer("kept"), 1_000_000)
    assert len(bell.queue._heap) <= 2 * DEAD_ENTRIES_MAX
    assert bell.at(1_000_000) == ["kept"]
    assert bell.queue.next_ms() == NEVER


def test_a_cancelled_timer_drops_its_references():
    class Held:
        """An object that a callback refers to."""

    def timer_of(held):
        return Timer(lambda *_: str(held))

    held = Held()
    seen = weakref.ref(held)
    queue = TimerQueue()
    timer = timer_of(held)
    queue.set(timer, 10)
    queue.set(timer, 5)
    queue.cancel(timer)
    del timer, held
    assert seen() is None
