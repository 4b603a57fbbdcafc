"""Shared data types: partitions, positions, epochs, leaders, brokers, endpoints, security
protocols."""

from enum import Enum, StrEnum, auto
from typing import NamedTuple

from kctl.lazy_dataclass import dataclass


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return `TOPIC-N`, Kafka's notation, which is also the name of the partition's
        directory."""
        return f"{self.topic}-{self.partition}"


class PositionKind(Enum):
    """What the value of a Position means."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    # The last `value` records.
    TAIL = auto()
    # The first record at or after `value` milliseconds since the epoch.
    TIME = auto()
    # The record with the largest timestamp; brokers of Kafka 3.0 and later find it (KIP-734).
    MAX_TIMESTAMP = auto()
    # The first record on the leader's disk, and the last one in tiered storage (KIP-405, KIP-1005).
    EARLIEST_LOCAL = auto()
    LATEST_TIERED = auto()

    @property
    def needs_broker(self) -> bool:
        """Return whether only a broker can find the position."""
        return self in _FOUND_BY_BROKERS


_FOUND_BY_BROKERS = frozenset(
    {PositionKind.MAX_TIMESTAMP, PositionKind.EARLIEST_LOCAL, PositionKind.LATEST_TIERED}
)


class Position(NamedTuple):
    """A place in a partition that has not been resolved to an offset."""

    kind: PositionKind
    value: int = 0


class SecurityProtocol(StrEnum):
    """What a listener speaks below Kafka's protocol: TLS, SASL, both or neither.

    Kafka 2.7: org.apache.kafka.common.security.auth.SecurityProtocol.
    """

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def number(self) -> int:
        """Return the protocol's number in UpdateMetadata requests."""
        return _PROTOCOL_NUMBERS[self]

    @property
    def uses_tls(self) -> bool:
        """Return whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Return whether clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


_PROTOCOL_NUMBERS = {protocol: number for number, protocol in enumerate(SecurityProtocol)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address on which a broker listens: Kafka's `EndPoint`."""

    host: str
    port: int
    listener_name: str = "PLAINTEXT"
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker as registered in `/brokers/ids/N`; `epoch` is the czxid of that znode
    (KIP-380)."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1


class LeaderAndIsr(NamedTuple):
    """The leader and ISR of a partition; `zk_version` is the version of its state znode."""

    # Broker id; -1 if there is no leader, -2 while the topic is being deleted.
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int = 0


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition, preferred leader first; during a reassignment (KIP-455) also the
    replicas that are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Return whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Return the replicas before the reassignment in progress."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas after the reassignment in progress."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    def reassign_to(self, target: "tuple[int, ...]") -> "ReplicaAssignment":
        """Return the assignment of a reassignment to `target`, which replaces one in progress. Its
        replicas are those of the target, then those from before any reassignment."""
        origin = self.origin
        return ReplicaAssignment(
            replicas=tuple(dict.fromkeys((*target, *origin))),
            adding=tuple(broker for broker in target if broker not in origin),
            removing=tuple(broker for broker in origin if broker not in target),
        )


NO_LEADER = -1
LEADER_DURING_DELETE = -2
