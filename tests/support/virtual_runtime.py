"""A Runtime whose time passes only when a test says so."""

import heapq
from collections import deque
from random import Random  # noqa: TID251 - the seed enters here

from kctl.runtime.future import Future, Task
from kctl.runtime.runtime import Runtime
from kctl.runtime.web import NoWeb


class VirtualClock:
    """The wall is ahead of the monotonic clock, so that mixing them up shows."""

    WALL_AHEAD_MS = 1_600_000_000_000

    def __init__(self):
        self.now_ms = 0

    def monotonic_ms(self):
        return self.now_ms

    def monotonic_ns(self):
        return self.now_ms * 1_000_000

    def wall_ms(self):
        return self.now_ms + self.WALL_AHEAD_MS


class VirtualTimer:
    def __init__(self, callback, arguments):
        self.callback = callback
        self.arguments = arguments

    def cancel(self):
        self.callback = None


class VirtualScheduler:
    def __init__(self, clock):
        self._clock = clock
        self._ready = deque()
        self._timers = []
        self._sequence = 0
        # Whether this turn is spent, which no time decides here.
        self.turn_is_spent = False

    def is_turn_spent(self):
        return self.turn_is_spent

    def call_soon(self, callback, *arguments):
        self._ready.append((callback, arguments))

    call_soon_threadsafe = call_soon

    def call_at(self, when_ms, callback, *arguments):
        timer = VirtualTimer(callback, arguments)
        self._sequence += 1
        heapq.heappush(self._timers, (when_ms, self._sequence, timer))
        return timer

    def call_later(self, delay_ms, callback, *arguments):
        return self.call_at(self._clock.now_ms + delay_ms, callback, *arguments)

    def spawn(self, coroutine, name=""):
        return Task(self.call_soon, coroutine, name)

    def future(self):
        return Future(self.call_soon)

    def background(self, job):
        """Run the job on a later turn of the same loop; its outcome arrives after that."""
        future = Future(self.call_soon)

        def run():
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - as the real scheduler hands it over
                future.set_error(error)
            else:
                future.set_result(result)

        self.call_soon(run)
        return future

    def background_all(self, jobs):
        """The jobs in their order, as one."""

        def run():
            for job in jobs:
                job()

        return self.background(run)

    @property
    def timer_count(self):
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def turn(self):
        """One turn of the loop at the present instant; whether there was anything to do."""
        due = []
        while self._timers and self._timers[0][0] <= self._clock.now_ms:
            due.append(heapq.heappop(self._timers)[2])
        busy = bool(due or self._ready)
        for timer in due:
            if timer.callback is not None:
                timer.callback(*timer.arguments)
        while self._ready:
            callback, arguments = self._ready.popleft()
            callback(*arguments)
        return busy

    def settle(self):
        """Turn until nothing is left to do at the present instant."""
        for _ in range(10_000):
            if not self.turn():
                return
        raise AssertionError("the loop never comes to rest")

    def advance(self, delay_ms):
        """Let time pass, stopping at every timer on the way."""
        end_ms = self._clock.now_ms + delay_ms
        self.settle()
        while self._timers and self._timers[0][0] <= end_ms:
            self._clock.now_ms = max(self._clock.now_ms, self._timers[0][0])
            self.settle()
        self._clock.now_ms = end_ms
        self.settle()


class SeededEntropy:
    def __init__(self, seed):
        self._random = Random(seed)

    def random_bytes(self, count):
        return self._random.randbytes(count)

    def random_below(self, bound):
        return self._random.randrange(bound)


class RecordingTrace:
    def __init__(self):
        self.events = []
        self.warnings = []

    def event(self, name, /, **fields):
        self.events.append((name, fields))

    def info(self, message):
        pass

    def warning(self, message, detail=""):
        self.warnings.append(f"{message}\n{detail}" if detail else message)

    def names(self):
        return [name for name, _ in self.events]


def virtual_runtime(seed=1):
    """Clock, scheduler, entropy and trace; no network and no disk."""
    clock = VirtualClock()
    return Runtime(
        clock=clock,
        scheduler=VirtualScheduler(clock),
        network=None,
        disk=None,
        entropy=SeededEntropy(seed),
        trace=RecordingTrace(),
        web=NoWeb(),
    )
