"""What a mirror's worker is asked to do, and the topics that it copies."""

from collections.abc import Mapping
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.mirror.loss import OnLoss

# A transaction that its worker abandons holds up readers of the target for this long.
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The settings of a worker."""

    name: str
    worker: str = "1"
    exactly_once: bool = True
    on_loss: OnLoss = OnLoss.STOP
    # Stop at the ends of the source as they were when the partitions were assigned.
    until_end: bool = False
    # Bytes per second, 0 for no limit.
    throttle: int = 0
    # What is done to records, for positions; empty if nothing is.
    changes: str = ""


@dataclass(frozen=True, slots=True)
class MirroredTopics:
    """The topics of a mirror: names in the target by names in the source, and the source's ids."""

    targets: Mapping[str, str]
    topic_ids: Mapping[str, str]
    source_id: str | None
    # Numbers of partitions by names in the source.
    partitions: Mapping[str, int] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, str]:
        """Return names in the source by names in the target."""
        return {target: source for source, target in self.targets.items()}
