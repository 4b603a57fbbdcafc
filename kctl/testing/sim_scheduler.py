"""SimScheduler: virtual time for a whole cluster; one heap, one queue, one event at a time.

Every process of the simulation (a broker, a client, the store) has a `NodeScheduler`, its door to
this one. A process that dies takes its events with it: they are dropped when their turn comes, so
a crash may happen between any two events, and, by `ProcessDied`, in the middle of one. A process
that is paused (as by SIGSTOP, or a machine that does not come round to it) keeps its events, in
their order, until it is resumed.

Time is kept in microseconds, so that deliveries of one millisecond have an order of their own;
clocks show whole milliseconds. It passes only when nothing is left to do at the present instant.

Invariants: events fire in the order (deadline, sequence); nothing an event does can make another
one fire earlier than now; an exception that an event lets out is told to `on_error`, and what
runs next does not depend on it.
"""

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from kctl.runtime.entropy import Entropy
from kctl.runtime.future import Future, Task

T = TypeVar("T")
Callback = Callable[..., object]

# The wall of a simulated world begins here, far from the monotonic clock: mixing them up shows.
WALL_START_MS = 1_600_000_000_000
# How long a background job may take to begin, in microseconds; and how long the few (per thousand)
# that a disk makes wait.
JOB_DELAY_US_MAX = 3_000
SLOW_JOB_DELAY_US_MAX = 150_000
SLOW_JOBS = 20


class ProcessDied(BaseException):
    """The process ends at this very instruction."""


class SimTimer:
    """An event that waits."""

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
        """Forget the callback; harmless once it ran."""
        self.callback = None
        self.arguments = ()


class SimScheduler:
    """The events of all processes; see the module."""

    def __init__(self) -> None:
        self.now_us = 0
        # Events that ran.
        self.events_run = 0
        # Called before each event with its process and its callback.
        self.on_event: Callable[[NodeScheduler, Callback], object] = _nobody_asks
        # Called after each event with its process.
        self.after_event: Callable[[NodeScheduler], object] = _nobody_asks
        # Called with the process and whatever an event let out.
        self.on_error: Callable[[NodeScheduler, BaseException], object] = _raise
        self._ready: deque[tuple[NodeScheduler, Callback, tuple[object, ...]]] = deque()
        self._timers: list[tuple[int, int, NodeScheduler, SimTimer]] = []
        self._sequence = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds since the world began."""
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
        """Run one event, moving time to it; False: there is none."""
        event = self._ready.popleft() if self._ready else self._next_timer()
        if event is None:
            return False
        node, callback, args = event
        if node.is_dead:
            return True
        if node.held is not None:
            node.held.append((node, callback, args))
            return True
        self.events_run += 1
        self.on_event(node, callback)
        try:
            callback(*args)
        except (Exception, ProcessDied) as error:  # noqa: BLE001 - whoever runs the world judges it
            self.on_error(node, error)
        self.after_event(node)
        return True

    def _next_timer(self) -> tuple["NodeScheduler", Callback, tuple[object, ...]] | None:
        while self._timers:
            when_us, _, node, timer = heapq.heappop(self._timers)
            if timer.callback is None or node.is_dead:
                continue
            self.now_us = when_us
            if node.held is not None:
                # Whatever comes before it when the process is resumed may cancel it.
                return node, timer.fire, ()
            callback, timer.callback = timer.callback, None
            return node, callback, timer.arguments
        return None

    def run_until(self, condition: Callable[[], bool], deadline_ms: int) -> bool:
        """Run events until `condition()`; False if `deadline_ms` comes, or nothing is left."""
        deadline_us = deadline_ms * 1000
        while not condition():
            if not self._ready and (not self._timers or self._timers[0][0] > deadline_us):
                self.now_us = max(self.now_us, deadline_us)
                return condition()
            self.step()
        return True

    def run_for(self, delay_ms: int) -> None:
        """Let so much time pass."""
        self.run_until(lambda: False, self.now_ms + delay_ms)


class NodeScheduler:
    """One process's Scheduler; see `kctl.runtime.scheduler`."""

    def __init__(self, world: SimScheduler, name: str, entropy: Entropy) -> None:
        self.world = world
        self.name = name
        # Set once, by a crash: nothing of this process runs any more.
        self.is_dead = False
        # Events that wait for the process to be resumed; None while it runs.
        self.held: deque[tuple[NodeScheduler, Callback, tuple[object, ...]]] | None = None
        # What nobody awaited failed: told with the task's name.
        self.on_unseen_error: Callable[[str, BaseException], object] = _nobody_asks
        self._entropy = entropy
        # When the background thread is done with what it was given, in microseconds.
        self._busy_until_us = 0

    def pause(self) -> None:
        """Run nothing until `resume`."""
        if self.held is None:
            self.held = deque()

    def resume(self) -> None:
        """Run what came in the meantime, in its order, at this instant."""
        held, self.held = self.held or (), None
        for event in held:
            self.world.add_ready(*event)

    def call_soon(self, callback: Callback, *args: object) -> None:
        """Run `callback(*args)` at this instant, after what is ready already."""
        self.world.add_ready(self, callback, args)

    def call_soon_threadsafe(self, callback: Callback, *args: object) -> None:
        """The same: there are no threads."""
        self.world.add_ready(self, callback, args)

    def call_at(self, when_ms: int, callback: Callback, *args: object) -> SimTimer:
        """Run `callback(*args)` once `monotonic_ms()` reaches `when_ms`."""
        return self.world.add_timer(when_ms * 1000, self, callback, args)

    def call_later(self, delay_ms: int, callback: Callback, *args: object) -> SimTimer:
        """Run `callback(*args)` in `delay_ms` milliseconds."""
        return self.world.add_timer(self.world.now_us + delay_ms * 1000, self, callback, args)

    def call_later_us(self, delay_us: int, callback: Callback, *args: object) -> SimTimer:
        """Run `callback(*args)` in so many microseconds (the simulation's own need)."""
        return self.world.add_timer(self.world.now_us + delay_us, self, callback, args)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Task[T]:
        """Start `coroutine` at once, up to its first unfinished await."""
        return Task(self.call_soon, coroutine, name, self._unseen)

    def future(self) -> Future[Any]:
        """A Future whose callbacks run on this scheduler."""
        return Future(self.call_soon)

    def background(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` a little later, after those given before it; its outcome a little after."""
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
        """The same for jobs that threads would run side by side: in any order."""
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
    """A process's view of time: its wall may differ from its neighbours'."""

    def __init__(self, world: SimScheduler, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the world began."""
        return self._world.now_us // 1000

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as this machine has it."""
        return WALL_START_MS + self._world.now_us // 1000 + self.skew_ms


def _nobody_asks(*_: object) -> None:
    """No observer."""


def _raise(_node: NodeScheduler, error: BaseException) -> None:
    raise error
