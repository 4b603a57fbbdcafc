"""RealScheduler: the one event loop of a process, on epoll.

One turn: wait for input (not at all if something is due), serve every descriptor that is ready,
send the small answers that came of it, move one quantum of one bulk transfer, run the timers that
are due, run the callbacks that were asked for before this point. Bulk transfers (big frames, big
FileSlices) queue up and get one quantum per turn between them, so a small request waits for at
most one quantum.

To fall asleep and be woken costs more than a small request, on virtual machines twice as much. So
before the loop sleeps it looks LOOKS_BEFORE_SLEEP times, for some 50 microseconds: the next request
of a peer that asks one thing after the other comes in that time. If nothing came it does so less
and less often, so that it costs next to nothing where it is of no use.

Invariants: callbacks run one at a time on the thread that runs the loop; an exception in one is
told to the trace and ends nothing else; a descriptor that was forgotten is served no more, and a
stale event for a reused descriptor number is harmless because all sockets are non-blocking.
"""

import contextlib
import heapq
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.runtime.clock import Clock
from kctl.runtime.future import Future, Task
from kctl.runtime.real.poller import READABLE, Poller, make_poller
from kctl.runtime.trace import NullTrace, Trace

if TYPE_CHECKING:
    from kctl.runtime.real.background import BackgroundThread

T = TypeVar("T")
Callback = Callable[..., object]

# Descriptors served in one turn before timers and callbacks get theirs.
EVENTS_PER_TURN = 256
# Before the loop sleeps.
LOOKS_BEFORE_SLEEP = 128
# After looks in vain this often at most the loop sleeps at once.
LOOKS_IN_VAIN_MAX = 256
# Small answers that are sent one right after the other.
SENDS_TOGETHER = 16
# Callbacks run in one turn before descriptors get theirs.
CALLBACKS_PER_TURN = 1_000
# Cancelled timers kept in the heap before it is rebuilt without them.
CANCELLED_TIMERS_MAX = 512
# epoll takes no longer timeouts than this comfortably; waking up once a day is harmless.
WAIT_MS_MAX = 86_400_000


class RealTimer:
    """A callback in the timer heap."""

    __slots__ = ("_scheduler", "arguments", "callback")

    def __init__(
        self, scheduler: "RealScheduler", callback: Callback, arguments: tuple[object, ...]
    ) -> None:
        self._scheduler = scheduler
        self.callback: Callback | None = callback
        self.arguments = arguments

    def fire(self) -> None:
        """Run the callback, unless it was cancelled after it became due."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(*self.arguments)

    def cancel(self) -> None:
        """Forget the callback; harmless once it ran."""
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
        self._ready: deque[tuple[Callback, tuple[object, ...]]] = deque()
        self._from_threads: deque[tuple[Callback, tuple[object, ...]]] = deque()
        self._bulk: deque[Callable[[], object]] = deque()
        self._sends: list[Callable[[], object]] = []
        # (deadline in monotonic ms, sequence, timer)
        self._timers: list[tuple[int, int, RealTimer]] = []
        self._timer_sequence = 0
        self._cancelled_timers = 0
        self._background: BackgroundThread | None = None
        self._jobs_pending = 0
        self._signal_handlers: dict[int, Any] = {}
        # How often to sleep at once before the next try to do without, and the same after that.
        self._looks_to_skip = 0
        self._looks_in_vain = 1
        self._is_stopping = False
        self._is_running = False
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_read, False)
        os.set_blocking(self._wakeup_write, False)
        self.watch(self._wakeup_read, READABLE, self._drain_wakeups)

    # Callbacks and timers

    def call_soon(self, callback: Callback, *args: object) -> None:
        """Run `callback(*args)` after the current callback, before waiting for input."""
        self._ready.append((callback, args))

    def call_soon_threadsafe(self, callback: Callback, *args: object) -> None:
        """The same from another thread; wakes the loop."""
        self._from_threads.append((callback, args))
        with contextlib.suppress(BlockingIOError):  # full of wake-ups: the loop will wake
            os.write(self._wakeup_write, b"\0")

    def call_at(self, when_ms: int, callback: Callback, *args: object) -> RealTimer:
        """Run `callback(*args)` once the monotonic clock reaches `when_ms`."""
        timer = RealTimer(self, callback, args)
        self._timer_sequence += 1
        heapq.heappush(self._timers, (when_ms, self._timer_sequence, timer))
        return timer

    def call_later(self, delay_ms: int, callback: Callback, *args: object) -> RealTimer:
        """Run `callback(*args)` in `delay_ms` milliseconds."""
        return self.call_at(self._clock.monotonic_ms() + delay_ms, callback, *args)

    def timer_cancelled(self) -> None:
        """A timer tells that it is dead; many of them are thrown out together."""
        self._cancelled_timers += 1
        if self._cancelled_timers > CANCELLED_TIMERS_MAX + len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Task[T]:
        """Start `coroutine` at once, up to its first unfinished await."""
        return Task(self.call_soon, coroutine, name, self._unseen_task_error)

    def future(self) -> Future[Any]:
        """A Future whose callbacks run on this scheduler."""
        return Future(self.call_soon)

    def background(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` on the background thread, after those given before it."""
        future: Future[T] = Future(self.call_soon)
        self._jobs_pending += 1
        self._background_thread().submit(lambda: self._run_job(job, future))
        return future

    def background_all(self, jobs: Sequence[Callable[[], object]]) -> Future[None]:
        """Run `jobs` side by side, as one job of the background thread."""
        return self.background(partial(self._background_thread().run_side_by_side, jobs))

    def _background_thread(self) -> "BackgroundThread":
        if self._background is None:
            from kctl.runtime.real.background import BackgroundThread

            self._background = BackgroundThread()
        return self._background

    def run_aside(self, job: Callable[[], T], name: str) -> Future[T]:
        """Run `job`, which may block for long, on a thread of its own."""
        from kctl.runtime.real.background import run_aside

        future: Future[T] = Future(self.call_soon)
        self._jobs_pending += 1
        run_aside(lambda: self._run_job(job, future), name)
        return future

    # Descriptors, for runtime.real only

    def watch(self, fd: int, mask: int, handler: Callable[[int], object]) -> None:
        """Call `handler(mask)` whenever `fd` is ready for something in `mask`, or failed."""
        self._poller.register(fd, mask)
        self._handlers[fd] = handler

    def rewatch(self, fd: int, mask: int) -> None:
        """Change what `fd` is watched for."""
        self._poller.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Serve `fd` no more; call it before closing the descriptor."""
        if self._handlers.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def queue_bulk(self, move: Callable[[], object]) -> None:
        """Call `move()` once, when its turn comes; it moves one quantum and may queue again."""
        self._bulk.append(move)

    def send_soon(self, send: Callable[[], object]) -> None:
        """Call `send()` with the others that ask for it in this turn, SENDS_TOGETHER at most.

        A send to a peer that sleeps costs twice as much as one to a peer that is awake (its core
        must be woken), and a peer that has to serve several answers at once does not fall asleep
        in between.
        """
        self._sends.append(send)
        if len(self._sends) == SENDS_TOGETHER:
            self._send_all()

    # Running

    def run_until(self, future: Future[T]) -> T:
        """Run until `future` is done; its result. RuntimeError if nothing can make it so."""
        future.add_done_callback(_nothing)
        self._run(lambda: future.done)
        if not future.done:
            raise RuntimeError("the loop was stopped before the future was done")
        return future.result()

    def run_forever(self) -> None:
        """Run until `stop()`."""
        self._run(lambda: False)

    def stop(self) -> None:
        """Return from `run_forever` at the end of the current turn."""
        self._is_stopping = True

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call `callback()` on the loop when signal `number` arrives (main thread only)."""
        if not self._signal_handlers:
            signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        previous = signal.signal(number, lambda *_: self._from_threads.append((callback, ())))
        self._signal_handlers.setdefault(number, previous)

    def close(self) -> None:
        """Finish background jobs, give signals back, let go of every descriptor."""
        if self._background is not None:
            self._background.close()
            self._background = None
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
        """Tell the trace about the exception being handled, with its traceback."""
        self._trace.warning(f"Unexpected error in {what}\n{traceback.format_exc().rstrip()}")

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
        handlers = self._handlers
        for fd, mask in self._wait(self._wait_seconds()):
            handler = handlers.get(fd)
            if handler is not None:
                try:
                    handler(mask)
                except Exception:  # noqa: BLE001 - one connection's bug is not the loop's end
                    self.report("a connection")
        if self._sends:
            self._send_all()
        if self._bulk:
            self._move_bulk()
        if self._timers:
            self._run_timers()
        if self._ready:
            self._run_ready()
        if self._sends:
            self._send_all()

    def _wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """What is ready; asks again and again for a moment before it sleeps (see the module)."""
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
        try:
            move()
        except Exception:  # noqa: BLE001 - as for any descriptor
            self.report("a bulk transfer")

    def _run_timers(self) -> None:
        now_ms = self._clock.monotonic_ms()
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            timer = heapq.heappop(timers)[2]
            if timer.callback is None:
                self._cancelled_timers -= 1
            else:
                self._ready.append((timer.fire, ()))

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(CALLBACKS_PER_TURN):
            if not ready:
                return
            callback, arguments = ready.popleft()
            try:
                callback(*arguments)
            except Exception:  # noqa: BLE001 - one callback's bug is not the loop's end
                self.report(getattr(callback, "__qualname__", "a callback"))

    def _drain_wakeups(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_read, 65_536)
        while self._from_threads:
            self._ready.append(self._from_threads.popleft())

    def _run_job(self, job: Callable[[], T], future: Future[T]) -> None:
        # On the background thread: only hand the outcome over.
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - the Future carries whatever it was
            self.call_soon_threadsafe(self._job_done, future.set_error, error)
        else:
            self.call_soon_threadsafe(self._job_done, future.set_result, result)

    def _job_done(self, setter: Callable[[Any], None], value: object) -> None:
        self._jobs_pending -= 1
        setter(value)

    def _unseen_task_error(self, task: Task[Any], error: BaseException) -> None:
        lines = "".join(traceback.format_exception(error)).rstrip()
        self._trace.warning(f"Unexpected error in task {task.name or 'without a name'}\n{lines}")


def _nothing(_future: Future[Any]) -> None:
    """Marks a Task as one whose error somebody will see."""
