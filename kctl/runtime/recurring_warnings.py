"""RecurringWarnings: a condition is logged once it has lasted, and when it changes, not each time
it is met.

While a cluster starts or a broker restarts, connections are refused, the controller changes, and
brokers are not registered yet. Each of these is retried several times a second and passes by
itself: a line for each would bury everything else. A condition is logged when it is met again
PATIENCE_MS after it was first met, unless it was resolved, or not met for that long, in between.
"""

from collections.abc import Hashable

from kctl.lazy_dataclass import dataclass
from kctl.runtime.runtime import Runtime

# How long a condition must last until it is logged: longer than a broker takes to restart.
PATIENCE_MS = 10_000
# Conditions remembered; beyond that the oldest is forgotten, and logged again if it lasts.
CONDITIONS_MAX = 100_000


@dataclass(slots=True)
class _Condition:
    """What is wrong with a subject."""

    first_ms: int
    last_ms: int
    # The last message logged; empty until the condition has lasted.
    logged: str = ""


class RecurringWarnings:
    """The conditions of subjects that have a problem."""

    def __init__(self, runtime: Runtime, patience_ms: int = PATIENCE_MS) -> None:
        self._trace = runtime.trace
        self._clock = runtime.clock
        self._patience_ms = patience_ms
        self._conditions: dict[Hashable, _Condition] = {}

    def warn(self, subject: Hashable, message: str) -> None:
        """Log a new `message` about `subject` if its condition has lasted for `patience_ms`."""
        now_ms = self._clock.monotonic_ms()
        condition = self._conditions.get(subject)
        if condition is None or now_ms - condition.last_ms > self._patience_ms:
            condition = self._remember(subject, now_ms)
        condition.last_ms = now_ms
        if now_ms - condition.first_ms >= self._patience_ms and condition.logged != message:
            condition.logged = message
            self._trace.warning(message)

    def resolve(self, subject: Hashable) -> None:
        """Forget the condition of `subject`: the next one is logged again if it lasts."""
        self._conditions.pop(subject, None)

    def clear(self) -> None:
        """Forget all conditions."""
        self._conditions.clear()

    def _remember(self, subject: Hashable, now_ms: int) -> _Condition:
        self._conditions.pop(subject, None)
        if len(self._conditions) >= CONDITIONS_MAX:
            del self._conditions[next(iter(self._conditions))]
        condition = self._conditions[subject] = _Condition(now_ms, now_ms)
        return condition
