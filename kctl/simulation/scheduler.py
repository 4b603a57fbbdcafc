"""SimScheduler: virtual time for a whole cluster; one heap, one queue, one event at a time.

Every process of the simulation (a broker, a client, the store) has a `NodeScheduler`, its access to
this one. A process that dies takes its events with it: they are dropped when they come up, so a
crash may happen between any two events, and, by `ProcessDied`, in the middle of one. A process that
is paused (by SIGSTOP, or on an overloaded machine) keeps its events, in their order, until it is
resumed. A process whose loop is stalled by one slow callback is similar, but its background jobs
continue.

Time is kept in microseconds, so that deliveries within a millisecond have an order; clocks show
whole milliseconds. Time passes only when no event is left at the present instant.

Invariants: events fire in the order (deadline, sequence); no event can make another one fire
earlier than now; an exception that escapes an event is passed to `on_error` and does not affect
what runs next.
"""

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from kctl.runtime.entropy import Entropy
from kctl.runtime.future import Future, Task
from kctl.runtime.watchdog import LoopWatchdog

T = TypeVar("T")
Callback = Callable[..., object]

# The simulated wall clock begins here, far from the monotonic clock: mixing them up shows.
WALL_START_MS = 1_600_000_000_000
# How long a background job may take to begin, in microseconds; and how long the few (per thousand)
# that a slow disk delays.
JOB_DELAY_US_MAX = 3_000
SLOW_JOB_DELAY_US_MAX = 150_000
SLOW_JOBS = 20
# The turn is spent at every Nth time that a process asks.
TURN_SPENT_EVERY = 7


class ProcessDied(BaseException):
    """The process ends at this very instruction."""


class SimTimer:
    """A pending event."""

    __slots__ = ("arguments", "callback")

    def __init__(self, callback: Callback, arguments: tuple[object, ...]) -> None:
        self.callback: Callback | None = callback
        self.arguments = arguments

    def fire(self) -> None:
        """Run the callback, unless it was cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(*self.arguments)

    def cancel(self) -> None:
        """Drop the callback; harmless after it ran."""
        self.callback = None
        self.arguments = ()


class SimScheduler:
    """The events of all processes; see the module."""

    def __init__(self) -> None:
        self.now_us = 0
        # Number of events that ran.
        self.events_run = 0
        # Called before each event with its process and its callback.
        self.on_event: Callable[[NodeScheduler, Callback], object] = _ignore
        # Called after each event with its process.
        self.after_event: Callable[[NodeScheduler], object] = _ignore
        # Called with the process and the exception that escaped an event.
        self.on_error: Callable[[NodeScheduler, BaseException], object] = _raise
        self._ready: deque[tuple[NodeScheduler, Callback, tuple[object, ...]]] = deque()
        self._timers: list[tuple[int, int, NodeScheduler, SimTimer]] = []
        self._sequence = 0

    @property
    def now_ms(self) -> int:
        """Return milliseconds since the world began."""
        return self.now_us // 1000

    def add_ready(
        self, node: "NodeScheduler", callback: Callback, args: tuple[object, ...]
    ) -> None:
        """Run the callback at this instant, after what is ready already."""
        self._ready.append((node, callback, args))

    def add_timer(
        self, when_us: int, node: "NodeScheduler", callback: Callback, args: tuple[object, ...]
    ) -> SimTimer:
        """Run the callback at `when_us`; at once if that is past."""
        timer = SimTimer(callback, args)
        self._sequence += 1
        heapq.heappush(self._timers, (max(when_us, self.now_us), self._sequence, node, timer))
        return timer

    def step(self) -> bool:
        """Run one event, moving time to it; return False if there is none."""
        event = self._ready.popleft() if self._ready else self._next_timer()
        if event is None:
            return False
        node, callback, args = event
        if node.is_dead:
            return True
        if node.held is not None and not node.runs_while_held(callback):
            node.held.append((node, callback, args))
            return True
        self.events_run += 1
        self.on_event(node, callback)
        try:
            callback(*args)
        except (Exception, ProcessDied) as error:  # noqa: BLE001 - on_error decides
            self.on_error(node, error)
        self.after_event(node)
        return True

    def _next_timer(self) -> tuple["NodeScheduler", Callback, tuple[object, ...]] | None:
        while self._timers:
            when_us, _, node, timer = heapq.heappop(self._timers)
            if timer.callback is None or node.is_dead:
                continue
            self.now_us = when_us
            if node.held is not None and not node.runs_while_held(timer.callback):
                # An event that runs before it when the process is resumed may cancel it.
                return node, timer.fire, ()
            callback, timer.callback = timer.callback, None
            return node, callback, timer.arguments
        return None

    def run_until(self, condition: Callable[[], bool], deadline_ms: int) -> bool:
        """Run events until `condition()`; return False at `deadline_ms`, or if no event is left."""
        deadline_us = deadline_ms * 1000
        while not condition():
            if not self._ready and (not self._timers or self._timers[0][0] > deadline_us):
                self.now_us = max(self.now_us, deadline_us)
                return condition()
            self.step()
        return True

    def run_for(self, delay_ms: int) -> None:
        """Let `delay_ms` milliseconds pass."""
        self.run_until(lambda: False, self.now_ms + delay_ms)


class NodeScheduler:
    """The Scheduler of one process; see `kctl.runtime.scheduler`."""

    def __init__(self, world: SimScheduler, name: str, entropy: Entropy) -> None:
        self.world = world
        self.name = name
        # Set once, by a crash: no event of this process runs afterwards.
        self.is_dead = False
        # Events that wait for the process to be resumed; None while it runs.
        self.held: deque[tuple[NodeScheduler, Callback, tuple[object, ...]]] | None = None
        # Called with the name and the error of a task that failed and that nothing awaited.
        self.on_unseen_error: Callable[[str, BaseException], object] = _ignore
        self._entropy = entropy
        # When the background thread will have finished its jobs, in microseconds.
        self._busy_until_us = 0
        # While the process is held: only its loop is, not its background thread.
        self._is_stalled = False
        self.watchdog = LoopWatchdog(SimClock(world))
        self._turn_asks = 0

    def is_turn_spent(self) -> bool:
        """Return True at every Nth call: time does not pass inside an event."""
        self._turn_asks += 1
        return self._turn_asks % TURN_SPENT_EVERY == 0

    def pause(self) -> None:
        """Run nothing until `resume`."""
        if self.held is None:
            self.held = deque()

    def stall(self) -> None:
        """Run only background jobs until `resume`."""
        self.pause()
        self._is_stalled = True

    def runs_while_held(self, callback: Callback) -> bool:
        """Return whether `callback` runs although the process is held."""
        return self._is_stalled and callback == self._run_job

    def resume(self) -> None:
        """Run the events held meanwhile, in their order, at this instant."""
        self._is_stalled = False
        held, self.held = self.held or (), None
        for event in held:
            self.world.add_ready(*event)

    def call_soon(self, callback: Callback, *args: object) -> None:
        """Run `callback(*args)` at this instant, after what is ready already."""
        self.world.add_ready(self, callback, args)

    def call_soon_threadsafe(self, callback: Callback, *args: object) -> None:
        """Run `callback(*args)` like `call_soon`: there are no threads."""
        self.world.add_ready(self, callback, args)

    def call_at(self, when_ms: int, callback: Callback, *args: object) -> SimTimer:
        """Run `callback(*args)` once `monotonic_ms()` reaches `when_ms`."""
        return self.world.add_timer(when_ms * 1000, self, callback, args)

    def call_later(self, delay_ms: int, callback: Callback, *args: object) -> SimTimer:
        """Run `callback(*args)` in `delay_ms` milliseconds."""
        return self.world.add_timer(self.world.now_us + delay_ms * 1000, self, callback, args)

    def call_later_us(self, delay_us: int, callback: Callback, *args: object) -> SimTimer:
        """Run `callback(*args)` in `delay_us` microseconds; only the simulation uses this."""
        return self.world.add_timer(self.world.now_us + delay_us, self, callback, args)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Task[T]:
        """Start `coroutine` at once, up to its first unfinished await."""
        return Task(self.call_soon, coroutine, name, self._unseen)

    def future(self) -> Future[Any]:
        """Return a Future whose callbacks run on this scheduler."""
        return Future(self.call_soon)

    def background(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` a little later, after earlier jobs; its outcome arrives a little after that."""
        future: Future[T] = Future(self.call_soon)
        start_us = max(self._busy_until_us, self.world.now_us)
        is_slow = self._entropy.random_below(1000) < SLOW_JOBS
        start_us += self._entropy.random_below(
            SLOW_JOB_DELAY_US_MAX if is_slow else JOB_DELAY_US_MAX
        )
        self._busy_until_us = start_us + 1
        self.world.add_timer(start_us, self, self._run_job, (job, future))
        return future

    def background_all(self, jobs: Sequence[Callable[[], object]]) -> Future[None]:
        """Run jobs that threads would run in parallel, in any order."""
        waiting = list(jobs)

        def run() -> None:
            while waiting:
                waiting.pop(self._entropy.random_below(len(waiting)))()

        return self.background(run)

    def _run_job(self, job: Callable[[], Any], future: Future[Any]) -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - the Future carries whatever it was
            settle: Callback = partial(future.set_error, error)
        else:
            settle = partial(future.set_result, result)
        self.call_later_us(self._entropy.random_below(JOB_DELAY_US_MAX), settle)

    def _unseen(self, task: Task[Any], error: BaseException) -> None:
        self.on_unseen_error(task.name, error)


class SimClock:
    """A process's view of time: its wall clock may differ from its neighbours'."""

    def __init__(self, world: SimScheduler, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def monotonic_ms(self) -> int:
        """Return milliseconds since the world began."""
        return self._world.now_us // 1000

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the world began."""
        return self._world.now_us * 1000

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, as this machine has it."""
        return WALL_START_MS + self._world.now_us // 1000 + self.skew_ms


def _ignore(*_: object) -> None:
    """Ignore the call: no observer is set."""


def _raise(_node: NodeScheduler, error: BaseException) -> None:
    raise error
