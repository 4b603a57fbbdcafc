"""Member: one consumer (or Connect worker) of a group, as its coordinator sees it. Pure.

Kafka 2.7: kafka.coordinator.group.MemberMetadata; KIP-345 for the instance id.
"""

from collections.abc import Collection
from dataclasses import field

from kctl.broker.coordinator.outcome import Reply
from kctl.broker.coordinator.timers import Timer
from kctl.lazy_dataclass import dataclass


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group; only `Group` changes its replies, because it counts them."""

    member_id: str
    # group.instance.id: set for static members, which keep their place across restarts.
    group_instance_id: str | None
    client_id: str
    # Java's InetAddress.toString: "/" and the address.
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    # Name of an assignment protocol -> the member's metadata for it, in order of preference.
    protocols: dict[str, bytes]
    # Fires after the session timeout without a request; set when the member joins a group.
    session: Timer = field(init=False)
    assignment: bytes = b""
    # It has not received its member id yet, so it cannot send heartbeats.
    is_new: bool = False
    # Replies owed at the end of PreparingRebalance and of CompletingRebalance.
    join_reply: Reply | None = field(default=None)
    sync_reply: Reply | None = field(default=None)

    @property
    def name_bytes(self) -> int:
        """Return the length of its ids and names."""
        instance_id = self.group_instance_id or ""
        return len(self.member_id) + len(instance_id) + len(self.client_id) + len(self.client_host)

    @property
    def is_static(self) -> bool:
        """Return whether it joined with an instance id."""
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Return whether the coordinator owes it a response, so that its silence is expected."""
        return self.join_reply is not None or self.sync_reply is not None

    def vote(self, candidates: Collection[str]) -> str:
        """Return its first choice among `candidates`, protocols that all members support."""
        return next(name for name in self.protocols if name in candidates)

    def has_same_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Return whether `protocols` equals its current ones, order included."""
        return list(self.protocols.items()) == list(protocols.items())
