"""RealScheduler: the event loop of a process, on epoll.

One turn: wait for input (not at all if something is due), serve every ready descriptor, send the
small responses that result, move one quantum of one bulk transfer, run the timers that are due, run
the callbacks that were scheduled before this point. Bulk transfers (large frames, large FileSlices)
queue up and share one quantum per turn, so a small request waits for at most one quantum.

Descriptors and callbacks each get PHASE_MS of a turn. The rest is served in the next turn, before
anything that arrived later; so a turn takes little longer than two phases, unless a single callback
does. LoopWatchdog counts the turns that take too long, and names the callback.

Falling asleep and waking up costs more than a small request, on virtual machines twice as much. So
before the loop sleeps it polls LOOKS_BEFORE_SLEEP times, for about 50 microseconds: the next
request of a peer that sends one request at a time arrives in that time. After polls without a
result the loop polls less often, so that they cost next to nothing where they are useless.

Invariants: callbacks run one at a time on the thread that runs the loop; an exception in one is
logged and ends nothing else; an unwatched descriptor is not served, and a stale event for a reused
descriptor number is harmless because all sockets are non-blocking.
"""

import contextlib
import heapq
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kctl.runtime.clock import Clock
from kctl.runtime.future import Future, Task
from kctl.runtime.real.poller import READABLE, Poller, make_poller
from kctl.runtime.trace import NullTrace, Trace
from kctl.runtime.watchdog import NOTED_MS, LoopWatchdog, Noted, describe_work

if TYPE_CHECKING:
    from kctl.runtime.real.background import BackgroundThread, ComputeThreads

T = TypeVar("T")
Callback = Callable[..., object]

# Descriptors served in one turn before timers and callbacks run.
EVENTS_PER_TURN: Final = 256
# How long one turn serves descriptors, and how long it then runs callbacks.
PHASE_MS: Final = 5
# Polls before the loop sleeps.
LOOKS_BEFORE_SLEEP: Final = 128
# After at most this many polls without a result the loop sleeps at once.
LOOKS_IN_VAIN_MAX: Final = 256
# Small responses that are sent together.
SENDS_TOGETHER: Final = 16
# Callbacks run in one turn before descriptors are served.
CALLBACKS_PER_TURN: Final = 1_000
# Cancelled timers kept in the heap before it is rebuilt without them.
CANCELLED_TIMERS_MAX: Final = 512
_PHASE_SECONDS: Final = PHASE_MS / 1000
_NOTED_SECONDS: Final = NOTED_MS / 1000
# epoll does not handle longer timeouts well; waking up once a day is harmless.
WAIT_MS_MAX: Final = 86_400_000


class LoopStoppedError(Exception):
    """The loop was stopped before what it ran for was done."""


class RealTimer:
    """A callback in the timer heap."""

    __slots__ = ("_scheduler", "arguments", "callback")

    def __init__(
        self, scheduler: "RealScheduler", callback: Callback, arguments: tuple[object, ...]
    ) -> None:
        self._scheduler = scheduler
        self.callback: Callback | None = callback
        self.arguments = arguments

    def fire(self, _callback: Callback) -> None:
        """Run the callback, unless it was cancelled after it became due. The parameter lets the
        watchdog name it after it ran."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(*self.arguments)

    def describe_work(self, callback: Callback) -> str:
        """Name the callback that the timer ran."""
        return f"timer {describe_work(callback, self.arguments)}"

    def cancel(self) -> None:
        """Drop the callback; harmless after it ran."""
        if self.callback is not None:
            self.callback = None
            self.arguments = ()
            self._scheduler.timer_cancelled()


class RealScheduler:
    """An epoll loop; see the module."""

    def __init__(
        self, clock: Clock, trace: Trace | None = None, poller: Poller | None = None
    ) -> None:
        self._clock = clock
        self._trace = trace or NullTrace()
        self._poller = poller or make_poller()
        self._handlers: dict[int, Callable[[int], object]] = {}
        # Descriptors that are served before the others of a turn.
        self._urgent: set[int] = set()
        self._ready: deque[tuple[Callback, tuple[object, ...]]] = deque()
        self._from_threads: deque[tuple[Callback, tuple[object, ...]]] = deque()
        self._bulk: deque[Callable[[], object]] = deque()
        self._sends: list[Callable[[], object]] = []
        # (deadline in monotonic ms, sequence, timer)
        self._timers: list[tuple[int, int, RealTimer]] = []
        self._timer_sequence = 0
        self._cancelled_timers = 0
        self._background: BackgroundThread | None = None
        self._compute: ComputeThreads | None = None
        self._jobs_pending = 0
        self._signal_handlers: dict[int, Any] = {}
        # How often to sleep at once before the next try to poll, and its value after that.
        self._looks_to_skip = 0
        self._looks_in_vain = 1
        self._is_stopping = False
        self._is_running = False
        # Counts turns and their durations.
        self.watchdog = LoopWatchdog(clock, self._trace)
        # Monotonic seconds, for measuring turns.
        self._now = time.monotonic
        # Called after each part of work that is done in parts: its next part is a timer of 0 ms.
        self.on_part: Callable[[], object] = _nothing_left
        self._turn_began = 0.0
        # Callbacks of this turn that took long.
        self._noted: list[Noted] = []
        # Ready descriptors that the last turn had no time for.
        self._unserved: list[tuple[int, int]] = []
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_read, False)
        os.set_blocking(self._wakeup_write, False)
        self.watch(self._wakeup_read, READABLE, self._drain_wakeups)

    # Callbacks and timers

    def call_soon(self, callback: Callback, *args: object) -> None:
        """Run `callback(*args)` after the current callback, before waiting for input."""
        self._ready.append((callback, args))

    def call_soon_threadsafe(self, callback: Callback, *args: object) -> None:
        """Run `callback(*args)` from another thread's call; wakes the loop. Does nothing once the
        loop is closed."""
        self._from_threads.append((callback, args))
        # The pipe is full of wake-ups, so the loop will wake; or it is closed, and nothing runs
        # again.
        with contextlib.suppress(OSError):
            os.write(self._wakeup_write, b"\0")

    @property
    def has_callbacks(self) -> bool:
        """Return whether callbacks wait for a turn; for any thread."""
        return bool(self._ready or self._from_threads)

    def call_at(self, when_ms: int, callback: Callback, *args: object) -> RealTimer:
        """Run `callback(*args)` once the monotonic clock reaches `when_ms`."""
        timer = RealTimer(self, callback, args)
        self._timer_sequence += 1
        heapq.heappush(self._timers, (when_ms, self._timer_sequence, timer))
        return timer

    def call_later(self, delay_ms: int, callback: Callback, *args: object) -> RealTimer:
        """Run `callback(*args)` in `delay_ms` milliseconds."""
        if not delay_ms:
            self.on_part()
        return self.call_at(self._clock.monotonic_ms() + delay_ms, callback, *args)

    def timer_cancelled(self) -> None:
        """Count a cancelled timer; many of them are removed together."""
        self._cancelled_timers += 1
        if self._cancelled_timers > CANCELLED_TIMERS_MAX + len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def is_turn_spent(self) -> bool:
        """Return whether this turn has taken so long that postponable work should wait."""
        return self._now() - self._turn_began > _PHASE_SECONDS

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Task[T]:
        """Start `coroutine` at once, up to its first unfinished await."""
        return Task(self.call_soon, coroutine, name, self._unseen_task_error)

    def future(self) -> Future[Any]:
        """Return a Future whose callbacks run on this scheduler."""
        return Future(self.call_soon)

    def background(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` on the background thread, after earlier jobs."""
        future: Future[T] = Future(self.call_soon)
        self._jobs_pending += 1
        self._background_thread().submit(lambda: self._run_job(job, future))
        return future

    def background_all(self, jobs: Sequence[Callable[[], object]]) -> Future[None]:
        """Run `jobs` in parallel, as one job of the background thread."""
        return self.background(partial(self._background_thread().run_side_by_side, jobs))

    def _background_thread(self) -> "BackgroundThread":
        if self._background is None:
            from kctl.runtime.real.background import BackgroundThread

            self._background = BackgroundThread()
        return self._background

    def compute(self, job: Callable[[], T]) -> Future[T]:
        """Run `job`, which computes without the interpreter's lock, on another thread."""
        if self._compute is None:
            from kctl.runtime.real.background import ComputeThreads

            self._compute = ComputeThreads()
        future: Future[T] = Future(self.call_soon)
        self._jobs_pending += 1
        self._compute.submit(lambda: self._run_job(job, future))
        return future

    def run_aside(self, job: Callable[[], T], name: str) -> Future[T]:
        """Run `job`, which may block for long, on a separate thread."""
        from kctl.runtime.real.background import run_aside

        future: Future[T] = Future(self.call_soon)
        self._jobs_pending += 1
        run_aside(lambda: self._run_job(job, future), name)
        return future

    # Descriptors, for runtime.real only

    def watch(self, fd: int, mask: int, handler: Callable[[int], object]) -> None:
        """Call `handler(mask)` whenever `fd` is ready for an event in `mask`, or failed."""
        self._poller.register(fd, mask)
        self._handlers[fd] = handler

    def rewatch(self, fd: int, mask: int) -> None:
        """Change the events that `fd` is watched for."""
        self._poller.modify(fd, mask)

    def prioritize(self, fd: int) -> None:
        """Serve `fd` before the others of a turn, until it is unwatched."""
        self._urgent.add(fd)

    def unwatch(self, fd: int) -> None:
        """Stop serving `fd`; call it before closing the descriptor."""
        self._urgent.discard(fd)
        if self._handlers.pop(fd, None) is not None:
            self._poller.unregister(fd)
            if self._unserved:
                # The number may soon be that of another descriptor, which is not ready.
                self._unserved = [event for event in self._unserved if event[0] != fd]

    def queue_bulk(self, move: Callable[[], object]) -> None:
        """Call `move()` once, when its turn comes; it moves one quantum and may queue again."""
        self._bulk.append(move)

    def send_soon(self, send: Callable[[], object]) -> None:
        """Call `send()` together with other sends of this turn, SENDS_TOGETHER at most.

        A send to a sleeping peer costs twice as much as one to a peer that is awake (its core must
        be woken), and a peer that receives several responses at once does not sleep in between.
        """
        self._sends.append(send)
        if len(self._sends) == SENDS_TOGETHER:
            self._send_all()

    # Running

    def run_until(self, future: Future[T]) -> T:
        """Run until `future` is done; return its result. RuntimeError if nothing can
        complete it."""
        if type(future) is not Future:
            future.add_done_callback(_nothing)
        self._run(lambda: future.done)
        if not future.done:
            raise LoopStoppedError("the loop was stopped before the future was done")
        return future.result()

    def catch_up(self) -> None:
        """Run one turn without waiting, if something has come or was scheduled."""
        if not (self._unserved or self._ready or self._bulk):
            self._unserved = self._poller.poll(0, EVENTS_PER_TURN)
        if self._unserved or self._ready or self._bulk:
            turns = iter((False, True))
            self._run(turns.__next__)

    def run_forever(self) -> None:
        """Run until `stop()`."""
        self._run(lambda: False)

    def stop(self) -> None:
        """Return from `run_forever` at the end of the current turn."""
        self._is_stopping = True

    def on_signal(
        self, number: int, callback: Callback, at_once: Callable[[int], object] | None = None
    ) -> None:
        """Call `callback()` on the loop when signal `number` arrives (main thread only), and
        `at_once(number)` in the signal handler, even if the loop is busy."""
        if not self._signal_handlers:
            signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)

        def handle(*_: object) -> None:
            self._from_threads.append((callback, ()))
            if at_once is not None:
                at_once(number)

        previous = signal.signal(number, handle)
        self._signal_handlers.setdefault(number, previous)

    def close(self) -> None:
        """Finish background jobs, restore signal handlers, close every descriptor."""
        if self._background is not None:
            self._background.close()
            self._background = None
        if self._compute is not None:
            self._compute.close()
            self._compute = None
        for number, previous in self._signal_handlers.items():
            signal.signal(number, previous)
        if self._signal_handlers:
            signal.set_wakeup_fd(-1)
            self._signal_handlers.clear()
        if self._wakeup_read >= 0:
            self.unwatch(self._wakeup_read)
            self._poller.close()
            os.close(self._wakeup_read)
            os.close(self._wakeup_write)
            self._wakeup_read = self._wakeup_write = -1

    def report(self, what: str) -> None:
        """Log the exception being handled, with its traceback."""
        self._trace.warning(f"Unexpected error in {what}", traceback.format_exc())

    def _run(self, is_over: Callable[[], bool]) -> None:
        if self._is_running:
            raise RuntimeError("the loop is running already")
        self._is_running = True
        self._send_all()
        try:
            while not (self._is_stopping or is_over()):
                self._turn()
        finally:
            self._is_running = False
            self._is_stopping = False

    def _turn(self) -> None:
        if self._unserved:
            events, self._unserved = self._unserved, []
        else:
            events = self._wait(self._wait_seconds())
        began = self._turn_began = self._now()
        if events:
            self._serve_descriptors(events, began)
            if self._sends:
                self._send_all()
        if self._bulk:
            self._move_bulk()
        if self._timers:
            self._run_timers()
        if self._ready:
            self._run_ready()
        # A bulk transfer that ends may have responses to send too, so not only after callbacks.
        if self._sends:
            self._send_all()
        seconds = self._now() - began
        watchdog = self.watchdog
        watchdog.turns += 1
        watchdog.busy_seconds += seconds
        if seconds > watchdog.noted_seconds:
            watchdog.turn_ended(seconds, self._noted)
        if self._noted:
            self._noted = []

    def _serve_descriptors(self, events: list[tuple[int, int]], began: float) -> None:
        handlers, now = self._handlers, self._now
        last, deadline = began, began + _PHASE_SECONDS
        if self._urgent and len(events) > 1:
            events = sorted(events, key=lambda event: event[0] not in self._urgent)
        waiting = iter(events)
        for fd, mask in waiting:
            handler = handlers.get(fd)
            if handler is None:
                continue
            try:
                handler(mask)
            except Exception:  # noqa: BLE001 - one connection's bug must not end the loop
                self.report("a connection")
            ended = now()
            if ended > deadline:
                self._note(ended - last, handler)
                self._unserved = [event for event in waiting if event[0] in handlers]
            last = ended

    def _note(self, seconds: float, callback: Callback, *arguments: object) -> None:
        """Note a callback after an overrun of the phase, for the report, if it took long itself."""
        if seconds > _NOTED_SECONDS:
            self._noted.append((seconds, describe_work(callback, arguments)))
            self.watchdog.callback_was_long(seconds)

    def _wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """Return ready descriptors; poll repeatedly for a moment before sleeping (see
        the module)."""
        poll = self._poller.poll
        if seconds == 0:
            return poll(0, EVENTS_PER_TURN)
        if self._looks_to_skip:
            self._looks_to_skip -= 1
            return poll(seconds, EVENTS_PER_TURN)
        for _ in range(LOOKS_BEFORE_SLEEP):
            events = poll(0, EVENTS_PER_TURN)
            if events:
                self._looks_in_vain = 1
                return events
        self._looks_in_vain = min(2 * self._looks_in_vain, LOOKS_IN_VAIN_MAX)
        self._looks_to_skip = self._looks_in_vain
        return poll(seconds, EVENTS_PER_TURN)

    def _wait_seconds(self) -> float | None:
        if self._ready or self._bulk:
            return 0
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if timers:
            wait_ms = timers[0][0] - self._clock.monotonic_ms()
            return min(max(wait_ms, 0), WAIT_MS_MAX) / 1000
        if len(self._handlers) == 1 and not self._jobs_pending and not self._signal_handlers:
            raise RuntimeError("the loop waits, and nothing can ever wake it")
        return None

    def _send_all(self) -> None:
        sends, self._sends = self._sends, []
        for send in sends:
            try:
                send()
            except Exception:  # noqa: BLE001 - as for any descriptor
                self.report("a connection")

    def _move_bulk(self) -> None:
        move = self._bulk.popleft()
        began = self._now()
        try:
            move()
        except Exception:  # noqa: BLE001 - as for any descriptor
            self.report("a bulk transfer")
        self._note(self._now() - began, move)

    def _run_timers(self) -> None:
        now_ms = self._clock.monotonic_ms()
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            timer = heapq.heappop(timers)[2]
            if timer.callback is None:
                self._cancelled_timers -= 1
            else:
                self._ready.append((timer.fire, (timer.callback,)))

    def _run_ready(self) -> None:
        ready, now = self._ready, self._now
        last = now()
        deadline = last + _PHASE_SECONDS
        for _ in range(CALLBACKS_PER_TURN):
            if not ready:
                return
            callback, arguments = ready.popleft()
            try:
                callback(*arguments)
            except Exception:  # noqa: BLE001 - one callback's bug must not end the loop
                self.report(getattr(callback, "__qualname__", "a callback"))
            ended = now()
            if ended > deadline:
                self._note(ended - last, callback, *arguments)
                return
            last = ended

    def _drain_wakeups(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_read, 65_536)
        while self._from_threads:
            self._ready.append(self._from_threads.popleft())

    def _run_job(self, job: Callable[[], T], future: Future[T]) -> None:
        # On the background thread: only pass the outcome on.
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - the Future carries any error
            self.call_soon_threadsafe(self._job_done, future.set_error, error)
        else:
            self.call_soon_threadsafe(self._job_done, future.set_result, result)

    def _job_done(self, setter: Callable[[Any], None], value: object) -> None:
        self._jobs_pending -= 1
        setter(value)

    def _unseen_task_error(self, task: Task[Any], error: BaseException) -> None:
        lines = "".join(traceback.format_exception(error))
        self._trace.warning(f"Unexpected error in task {task.name or 'without a name'}", lines)


def _nothing_left() -> None:
    """Do nothing after a part of work."""


def _nothing(_future: Future[Any]) -> None:
    """Mark a Task as one whose error is handled."""
