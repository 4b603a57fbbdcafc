"""FailedTransitions: the partitions whose state could not be changed, for one line of the log.

When the last broker stops, or a cluster starts, partitions have no leader until a replica is back:
their state changes fail at every event of the controller. What has not succeeded REPORT_DELAY_MS
later is reported, all partitions in one line. Kafka's state.change.logger has a line for each.
"""

from kctl.model import TopicPartition
from kctl.runtime.scheduler import Scheduler, Timer
from kctl.runtime.trace import Trace

# Time from a failure to its report: longer than a broker takes to restart.
REPORT_DELAY_MS = 10_000
# Partitions named in one report.
NAMED_MAX = 3


class FailedTransitions:
    """Failures since the last success of each partition."""

    def __init__(self, scheduler: Scheduler, trace: Trace) -> None:
        self._scheduler = scheduler
        self._trace = trace
        # Why the last change of a partition failed: not reported yet, and reported.
        self._pending: dict[TopicPartition, str] = {}
        self._reported: dict[TopicPartition, str] = {}
        self._timer: Timer | None = None

    def add(self, partition: TopicPartition, why: str) -> None:
        """Record that a state change of `partition` failed."""
        if self._reported.get(partition) == why:
            self._pending.pop(partition, None)
            return
        self._pending[partition] = why
        if self._timer is None:
            self._timer = self._scheduler.call_later(REPORT_DELAY_MS, self._report)

    def resolve(self, partition: TopicPartition) -> None:
        """Forget the failures of a partition that has changed its state, or is gone."""
        self._pending.pop(partition, None)
        self._reported.pop(partition, None)

    def clear(self) -> None:
        """Forget all failures, reported or not (the controller resigns)."""
        self._pending.clear()
        self._reported.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self) -> None:
        self._timer = None
        if not self._pending:
            return
        failures, self._pending = self._pending, {}
        self._reported |= failures
        named = [f"{tp}: {why}" for tp, why in list(failures.items())[:NAMED_MAX]]
        more = f"; and {len(failures) - NAMED_MAX} more" if len(failures) > NAMED_MAX else ""
        noun = "partition" if len(failures) == 1 else "partitions"
        self._trace.warning(
            f"State changes of {len(failures)} {noun} failed: {'; '.join(named)}{more}"
        )
