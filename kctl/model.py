"""The nouns everybody shares: partitions, positions, epochs, leaders, brokers, endpoints."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's own spelling, which is also the name of the partition's directory."""
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch in which it was written (-1: unknown)."""

    offset: int
    leader_epoch: int


class PositionKind(Enum):
    """What a Position counts from."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    # The last `value` records.
    TAIL = auto()
    # The first record at or after `value` milliseconds since the epoch.
    TIME = auto()


class Position(NamedTuple):
    """A place in a partition that is not yet an offset."""

    kind: PositionKind
    value: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens: Kafka's `EndPoint`."""

    host: str
    port: int
    listener_name: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker as `/brokers/ids/N` tells it; `epoch` is that znode's czxid (KIP-380)."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Who leads a partition and who is in sync; `zk_version` is the state znode's version."""

    # Broker id, or -1: no leader; -2: the topic is being deleted.
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Replicas of a partition, preferred leader first; during a reassignment (KIP-455) also
    which of them are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas come or go."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment under way."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once it is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    def reassign_to(self, target: "tuple[int, ...]") -> "ReplicaAssignment":
        """On the way from where the replicas were, before any reassignment under way, to
        `target`: those of both, the target's first."""
        origin = self.origin
        return ReplicaAssignment(
            replicas=tuple(dict.fromkeys((*target, *origin))),
            adding=tuple(broker for broker in target if broker not in origin),
            removing=tuple(broker for broker in origin if broker not in target),
        )


NO_LEADER = -1
LEADER_DURING_DELETE = -2
