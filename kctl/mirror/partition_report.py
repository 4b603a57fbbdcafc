"""PartitionReport: what a worker of a mirror did with one partition of the source; TurnCounts: how
its turns ended."""

from dataclasses import field

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.loss import Loss
from kctl.model import TopicPartition


@dataclass(slots=True)
class PartitionReport:
    """What a worker did with one partition of the source."""

    source: TopicPartition
    target: TopicPartition
    records: int = 0
    bytes: int = 0
    raw_batches: int = 0
    rebuilt_batches: int = 0
    # The next offset to copy, and the end of the source; -1: unknown yet.
    position: int = -1
    end: int = -1
    # Whether the worker had the partition when it ended.
    is_held: bool = True
    # When the position was at the end last, monotonic; -1: never.
    caught_up_ms: int = -1
    # Why it stopped.
    error: KctlError | Loss | None = None
    # Losses that were skipped on request.
    losses: list[Loss] = field(default_factory=list)


@dataclass(slots=True)
class TurnCounts:
    """How the turns of a worker ended."""

    committed: int = 0
    # Transactions that were under way when a failure occurred.
    aborted: int = 0
    failed: int = 0
