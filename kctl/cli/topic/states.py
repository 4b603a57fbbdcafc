"""The options that select partitions by state, as those of kafka-topics do."""

from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.partition_states import PartitionState

UnderReplicatedOption = Annotated[
    bool, Option("--under-replicated", help="Only with out-of-sync replicas.")
]
UnderMinIsrOption = Annotated[
    bool,
    Option(
        "--under-min-isr",
        help="Only with fewer in-sync replicas than min.insync.replicas, or without a leader.",
    ),
]
AtMinIsrOption = Annotated[
    bool,
    Option("--at-min-isr", help="Only with min.insync.replicas in-sync replicas."),
]
UnavailableOption = Annotated[bool, Option("--unavailable", help="Only without a leader.")]


@dataclass
class StateOptions:
    """The options that select partitions by state; several select the partitions of any."""

    under_replicated: UnderReplicatedOption = False
    under_min_isr: UnderMinIsrOption = False
    at_min_isr: AtMinIsrOption = False
    unavailable: UnavailableOption = False

    def chosen(self) -> "set[PartitionState]":
        """Return the states that the options name."""
        from kctl.admin.partition_states import PartitionState

        given = {
            PartitionState.UNDER_REPLICATED: self.under_replicated,
            PartitionState.UNDER_MIN_ISR: self.under_min_isr,
            PartitionState.AT_MIN_ISR: self.at_min_isr,
            PartitionState.UNAVAILABLE: self.unavailable,
        }
        return {state for state, is_given in given.items() if is_given}
