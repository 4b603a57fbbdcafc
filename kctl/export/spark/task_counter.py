"""TaskCounter: what the finished tasks of a job have done, known to the driver while others run.

It is an accumulator of Spark, so its value travels with the result of a task and costs no request
of its own, and the tasks of a lost executor count once.
"""

from typing import Any, NamedTuple

from pyspark import AccumulatorParam

from kctl.export.live_plan import LiveSplit
from kctl.export.splits import Split


class Done(NamedTuple):
    """Sums over finished splits."""

    splits: int = 0
    # Of log; 0 if brokers do not report sizes.
    bytes: int = 0
    offsets: int = 0
    rows: int = 0


class _Sums(AccumulatorParam[Done]):
    def zero(self, _value: Done) -> Done:
        return Done()

    def addInPlace(self, value1: Done, value2: Done) -> Done:
        return Done(*map(sum, zip(value1, value2, strict=True)))


class TaskCounter:
    """Counts finished splits; pickled to the executors, which add to it."""

    def __init__(self, session: Any) -> None:
        self._counted = session.sparkContext.accumulator(Done(), _Sums())

    def add(self, split: Split | LiveSplit, rows: int) -> None:
        """Count a split, on an executor."""
        self._counted.add(amount_of(split)._replace(rows=rows))

    @property
    def done(self) -> Done:
        """Return the sums, on the driver."""
        found: Done = self._counted.value
        return found


def amount_of(split: Split | LiveSplit) -> Done:
    """Return what a split counts for, without its rows, which are not known before it is read."""
    return Done(1, split.size, split.end_offset - split.first_offset)
