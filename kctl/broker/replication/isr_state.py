"""IsrState: the in-sync replicas a leader counts with, while the controller has not answered yet.

    Committed --- a follower caught up ---> PendingExpand --- the controller's word ---> Committed
    Committed --- followers fell behind --> PendingShrink --- the controller's word ---> Committed

What was asked for may hold already without the leader knowing. So the high watermark waits for
every replica that may be in the ISR (`maximal`), and `min.insync.replicas` counts only those that
certainly are (`isr`).

Invariants: at most one change is under way; `isr` is what the controller said last; `maximal`
contains it.

Kafka 2.7: kafka.cluster.{CommittedIsr, PendingExpandIsr, PendingShrinkIsr}; KIP-497.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


class IsrChange(Enum):
    """What is being asked of the controller."""

    NONE = "none"
    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class IsrState:
    """One partition's in-sync replicas, in the order of the controller."""

    # What the controller said last.
    isr: tuple[int, ...] = ()
    change: IsrChange = IsrChange.NONE
    # What the leader asked for; `isr` if nothing is under way.
    wanted: tuple[int, ...] = ()

    @classmethod
    def committed(cls, isr: Collection[int]) -> "IsrState":
        """The controller has spoken."""
        return cls(tuple(isr), IsrChange.NONE, tuple(isr))

    @property
    def is_in_flight(self) -> bool:
        """Whether the controller owes an answer."""
        return self.change is not IsrChange.NONE

    @property
    def maximal(self) -> tuple[int, ...]:
        """Every replica that may be in the ISR by now."""
        return self.wanted if self.change is IsrChange.EXPAND else self.isr

    def expand(self, broker_id: int) -> "IsrState":
        """Ask for one more; RuntimeError while something is under way."""
        self._check_idle()
        return IsrState(self.isr, IsrChange.EXPAND, (*self.isr, broker_id))

    def shrink(self, broker_ids: Collection[int]) -> "IsrState":
        """Ask for fewer; RuntimeError while something is under way."""
        self._check_idle()
        kept = tuple(replica for replica in self.isr if replica not in broker_ids)
        return IsrState(self.isr, IsrChange.SHRINK, kept)

    def _check_idle(self) -> None:
        if self.is_in_flight:
            raise RuntimeError(f"an ISR change is under way: {self}")
