"""IsrState: the in-sync replicas of a partition while a change awaits the controller's response.

    Committed --- a follower caught up ---> PendingExpand --- response ---> Committed
    Committed --- followers fell behind --> PendingShrink --- response ---> Committed

A proposed change may already be in effect without the leader knowing. The high watermark therefore
waits for every replica that may be in the ISR (`maximal`), and `min.insync.replicas` counts these
when an append is acknowledged, as all of them have it. Before an append it counts only those that
certainly are in the ISR (`isr`).

Invariants: at most one change is pending; `isr` is the controller's latest; `maximal` contains it.

Kafka 2.7: kafka.cluster.{CommittedIsr, PendingExpandIsr, PendingShrinkIsr}; KIP-497.
"""

from collections.abc import Collection
from enum import Enum

from kctl.lazy_dataclass import dataclass


class IsrChange(Enum):
    """The change that is proposed to the controller."""

    NONE = "none"
    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class IsrState:
    """One partition's in-sync replicas, in the controller's order."""

    # The controller's latest ISR.
    isr: tuple[int, ...] = ()
    change: IsrChange = IsrChange.NONE
    # The proposed ISR; `isr` if none is pending.
    wanted: tuple[int, ...] = ()

    @classmethod
    def committed(cls, isr: Collection[int]) -> "IsrState":
        """Return the state that the controller has confirmed."""
        return cls(tuple(isr), IsrChange.NONE, tuple(isr))

    @property
    def is_in_flight(self) -> bool:
        """Return whether a change awaits the controller's response."""
        return self.change is not IsrChange.NONE

    @property
    def maximal(self) -> tuple[int, ...]:
        """Return every replica that may be in the ISR."""
        return self.wanted if self.change is IsrChange.EXPAND else self.isr

    def expand(self, broker_id: int) -> "IsrState":
        """Propose one more replica; raise RuntimeError while a change is pending."""
        self._check_idle()
        return IsrState(self.isr, IsrChange.EXPAND, (*self.isr, broker_id))

    def shrink(self, broker_ids: Collection[int]) -> "IsrState":
        """Propose fewer replicas; raise RuntimeError while a change is pending."""
        self._check_idle()
        kept = tuple(replica for replica in self.isr if replica not in broker_ids)
        return IsrState(self.isr, IsrChange.SHRINK, kept)

    def _check_idle(self) -> None:
        if self.is_in_flight:
            raise RuntimeError(f"an ISR change is already pending: {self}")
