"""LoopWatchdog: counts turns of an event loop, and reports those that took too long.

A turn is the work of the loop between two polls for input: every connection waits for as long as
the longest turn takes. The loop measures each turn and each callback in it; this class counts the
turns over TURN_MS_MAX, logs what ran in those over LOGGED_MS (as a warning over STALL_MS), and
notifies listeners of a single callback that took so long that others may have given up on this
process.

Durations are wall time, which is what clients wait. On an overloaded machine a turn of a
millisecond may take 30: such turns are counted, but not logged individually.

Durations are passed in. The counters are plain numbers for a metrics endpoint to read.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kctl.runtime.clock import Clock
from kctl.runtime.trace import NullTrace, Trace

# A turn over this is counted, over LOGGED_MS it is also logged.
TURN_MS_MAX: Final = 20
LOGGED_MS: Final = 50
# Callbacks over this are named in the report of their turn.
NOTED_MS: Final = 5
# Callbacks named in one report, the longest first.
NOTED_MAX: Final = 4
# Minimum time between two log lines, except for stalls; turns that are not logged are counted in
# the next line.
REPORT_INTERVAL_MS: Final = 1_000
# A turn over this is a warning: clients notice. A callback over this is reported to stall listeners
# at once, before anything else runs.
STALL_MS: Final = 500

_TURN_SECONDS_MAX: Final = TURN_MS_MAX / 1000

# How long a callback ran, in seconds, and its name.
Noted = tuple[float, str]
StallListener = Callable[[float], object]


class LoopWatchdog:
    """The figures of one loop; read them at any time."""

    __slots__ = (
        "_clock",
        "_held_back",
        "_on_turn",
        "_reported_ms",
        "_stall_listeners",
        "_trace",
        "busy_seconds",
        "long_turns",
        "longest_turn_seconds",
        "noted_seconds",
        "turns",
    )

    def __init__(self, clock: Clock, trace: Trace | None = None) -> None:
        # Turns since the start, and the seconds spent in them: the rest was spent waiting.
        self.turns = 0
        self.busy_seconds = 0.0
        # Turns that took longer than TURN_MS_MAX.
        self.long_turns = 0
        self.longest_turn_seconds = 0.0
        # The loop reports turns that take longer.
        self.noted_seconds = _TURN_SECONDS_MAX
        self._on_turn: Callable[[float], object] | None = None
        self._clock = clock
        self._trace = trace or NullTrace()
        self._reported_ms = clock.monotonic_ms() - REPORT_INTERVAL_MS
        self._held_back = 0
        self._stall_listeners: list[StallListener] = []

    def on_stall(self, listener: StallListener) -> None:
        """Call `listener(seconds)` on the loop right after a callback that took over STALL_MS."""
        self._stall_listeners.append(listener)

    def be_silent(self) -> None:
        """Log nothing: a client's loop shares its process, and Python's lock, with an application
        that may keep it waiting."""
        self._trace = NullTrace()

    def callback_was_long(self, seconds: float) -> None:
        """Notify the listeners of a callback that took over STALL_MS."""
        if seconds * 1000 > STALL_MS:
            for listener in self._stall_listeners:
                listener(seconds)

    def measure_turns(
        self, on_turn: Callable[[float], object] | None, over_seconds: float = 0.0
    ) -> None:
        """Call `on_turn(seconds)` after each turn over `over_seconds` (at most TURN_MS_MAX) from
        now on, for metrics; None: no longer."""
        self._on_turn = on_turn
        self.noted_seconds = _TURN_SECONDS_MAX if on_turn is None else over_seconds

    def turn_ended(self, seconds: float, noted: Sequence[Noted]) -> None:
        """Note a turn that took longer than `noted_seconds`."""
        if self._on_turn is not None:
            self._on_turn(seconds)
        if seconds > _TURN_SECONDS_MAX:
            self.turn_was_long(seconds, noted)

    def turn_was_long(self, seconds: float, noted: Sequence[Noted]) -> None:
        """Count a turn over TURN_MS_MAX; log what ran in it if it took over LOGGED_MS."""
        self.long_turns += 1
        self.longest_turn_seconds = max(self.longest_turn_seconds, seconds)
        if seconds * 1000 <= LOGGED_MS:
            return
        is_stall = seconds * 1000 > STALL_MS
        now_ms = self._clock.monotonic_ms()
        if not is_stall and now_ms - self._reported_ms < REPORT_INTERVAL_MS:
            self._held_back += 1
            return
        self._reported_ms = now_ms
        log = self._trace.warning if is_stall else self._trace.info
        log(_report(seconds, noted, self._held_back))
        self._held_back = 0


def _report(seconds: float, noted: Sequence[Noted], held_back: int) -> str:
    longest = sorted(noted, key=lambda each: -each[0])[:NOTED_MAX]
    what = ", ".join(f"{name} {spent * 1000:.0f} ms" for spent, name in longest)
    more = f" ({held_back} more turns over {LOGGED_MS} ms not logged)" if held_back else ""
    return (
        f"The event loop was busy for {seconds * 1000:.0f} ms in one turn: "
        f"{what or f'many callbacks under {NOTED_MS} ms each'}{more}"
    )


def describe_work(callback: Callable[..., object], arguments: tuple[object, ...] = ()) -> str:
    """Name what a callback does: its owner's `describe_work(*arguments)` if it has one, or its
    function. `arguments` are those of the callback.

    >>> describe_work(print)
    'print'
    """
    owner = getattr(callback, "__self__", None)
    describe = getattr(owner, "describe_work", None)
    if describe is not None:
        return str(describe(*arguments))
    # functools.partial names what it calls; generators and coroutines have names.
    function = getattr(callback, "func", callback)
    name = getattr(function, "__qualname__", type(function).__name__)
    parts = [each.__qualname__ for each in arguments if hasattr(each, "__qualname__")]
    return f"{name}({', '.join(parts)})" if parts else name
