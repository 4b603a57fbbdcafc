"""Member: one consumer (or worker) of a group, as its coordinator sees it. Pure.

Kafka 2.7: kafka.coordinator.group.MemberMetadata; KIP-345 for the instance id.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from kctl.broker.coordinator.outcome import Reply
from kctl.broker.coordinator.timers import Timer


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group; `Group` alone changes its replies, as it counts them."""

    member_id: str
    # group.instance.id: set for static members, whose place survives their restart.
    group_instance_id: str | None
    client_id: str
    # Java's InetAddress.toString: "/" and the address.
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    # Name of an assignment protocol -> what the member says for it, most wanted first.
    protocols: dict[str, bytes]
    # Fires when the member was silent for its session timeout; set when it joins a group.
    session: Timer = field(init=False)
    assignment: bytes = b""
    # It has not been told its member id yet, so it cannot send heartbeats.
    is_new: bool = False
    # Who waits for the end of PreparingRebalance, and of CompletingRebalance.
    join_reply: Reply | None = field(default=None)
    sync_reply: Reply | None = field(default=None)

    @property
    def is_static(self) -> bool:
        """Whether it came with an instance id."""
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """The coordinator owes it an answer, so its silence is no fault of its own."""
        return self.join_reply is not None or self.sync_reply is not None

    def vote(self, candidates: Collection[str]) -> str:
        """Its first choice among protocols that all members know."""
        return next(name for name in self.protocols if name in candidates)

    def has_same_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether it says the same again, order included."""
        return list(self.protocols.items()) == list(protocols.items())
