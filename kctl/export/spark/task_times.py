"""How long the tasks of an export took on Spark: the longest ones, and whether few of them held up
the run."""

from collections.abc import Sequence
from statistics import median

from kctl.counts import counted
from kctl.lazy_dataclass import dataclass

SLOWEST_MAX = 3
# A task that takes longer than so many medians holds up the others.
_SKEW = 2
_SKEW_TASKS_MIN = 3


@dataclass(frozen=True, slots=True)
class TaskTime:
    """One split, and how long its export took in milliseconds."""

    # Topic, partition and offsets.
    split: str
    # Bytes of log; 0 if brokers do not report sizes.
    size: int
    elapsed_ms: int


def summary(times: Sequence[TaskTime]) -> list[str]:
    """Return lines about the tasks: their number, median and longest time; and the slowest ones if
    they are much slower than the median. None without tasks."""
    if not times:
        return []
    middle_ms = median(it.elapsed_ms for it in times)
    slowest = sorted(times, key=lambda it: (-it.elapsed_ms, it.split))[:SLOWEST_MAX]
    longest_ms = slowest[0].elapsed_ms
    line = f"{counted(len(times), 'task')} on Spark: median {_seconds(middle_ms)}"
    line += f", longest {_seconds(longest_ms)}"
    is_skewed = len(times) >= _SKEW_TASKS_MIN and longest_ms > _SKEW * middle_ms
    if not is_skewed:
        return [line]
    return [
        f"{line}; a smaller --file-size divides the slowest:",
        *(f"  {_seconds(it.elapsed_ms)}  {it.split}{_size(it.size)}" for it in slowest),
    ]


def _seconds(elapsed_ms: float) -> str:
    return f"{elapsed_ms / 1000:,.1f} s"


def _size(size: int) -> str:
    return f", {size / 1024 / 1024:,.1f} MiB" if size else ""
