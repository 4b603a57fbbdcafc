"""PartitionReport: what a worker of a mirror did with one partition of the source."""

from dataclasses import dataclass, field

from kctl.errors import KctlError
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
    position: int = -1
    end: int = -1
    # Why it stopped.
    error: KctlError | Loss | None = None
    # Losses that were skipped on request.
    losses: list[Loss] = field(default_factory=list)
