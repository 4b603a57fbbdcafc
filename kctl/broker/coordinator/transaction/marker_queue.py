"""MarkerQueue: markers on their way to the leaders of their partitions. Pure.

Markers wait under the broker that leads their partition when they are put in; a request takes all
that wait for its broker. What a leader could not write is routed anew, as another broker may lead
by then; what has no leader waits for one; whether what is unknown here still exists, others know.

Kafka 2.7: kafka.coordinator.transaction.TransactionMarkerChannelManager,
TransactionMarkerRequestCompletionHandler.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kctl.broker.coordinator.transaction.transaction_coordinator import EndMarkers
from kctl.model import NO_LEADER, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Partitions in one request at most.
PARTITIONS_PER_REQUEST_MAX = 10_000

OwnerT = TypeVar("OwnerT", bound=Hashable)

_NONE = int(ErrorCode.NONE)
# Nothing can be written there, and nothing need be: such a partition holds no transactions.
_NEEDS_NONE = frozenset(
    {int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), int(ErrorCode.UNSUPPORTED_VERSION)}
)
# A younger coordinator, or a younger producer, was there.
_REFUSED = frozenset(
    {int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)}
)


@dataclass(frozen=True, slots=True)
class Parcel(Generic[OwnerT]):
    """One transaction's markers for one broker; `owner` is whoever wants to hear of them."""

    owner: OwnerT
    markers: EndMarkers
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Routed(Generic[OwnerT]):
    """Where markers went: brokers that have news to be sent, and what was deleted, or has not been
    heard of yet."""

    brokers: list[int] = field(default_factory=list)
    unknown: list[Parcel[OwnerT]] = field(default_factory=list)
    is_leader_missing: bool = False


@dataclass(slots=True)
class Settled(Generic[OwnerT]):
    """What became of a request."""

    written: list[Parcel[OwnerT]] = field(default_factory=list)
    # With the error code.
    refused: list[tuple[Parcel[OwnerT], int]] = field(default_factory=list)
    # To be routed anew, after a while.
    failed: list[Parcel[OwnerT]] = field(default_factory=list)


class MarkerQueue(Generic[OwnerT]):
    """Markers by broker; `leader_of` says a partition's leader, NO_LEADER, or None for a
    partition that it has not heard of."""

    def __init__(self, leader_of: Callable[[TopicPartition], int | None]) -> None:
        self._leader_of = leader_of
        self._by_broker: dict[int, list[Parcel[OwnerT]]] = {}
        self._leaderless: list[Parcel[OwnerT]] = []

    def route(self, parcels: Iterable[Parcel[OwnerT]]) -> Routed[OwnerT]:
        """Put each marker to those for its leader."""
        routed: Routed[OwnerT] = Routed()
        for parcel in parcels:
            by_leader: dict[int | None, list[TopicPartition]] = {}
            for partition in parcel.partitions:
                by_leader.setdefault(self._leader_of(partition), []).append(partition)
            for leader, partitions in by_leader.items():
                part = Parcel(parcel.owner, parcel.markers, tuple(partitions))
                if leader is None:
                    routed.unknown.append(part)
                elif leader <= NO_LEADER:
                    self._leaderless.append(part)
                    routed.is_leader_missing = True
                else:
                    self._by_broker.setdefault(leader, []).append(part)
                    if leader not in routed.brokers:
                        routed.brokers.append(leader)
        return routed

    def take_leaderless(self) -> list[Parcel[OwnerT]]:
        """What waits for a leader, to be routed anew."""
        waiting, self._leaderless = self._leaderless, []
        return waiting

    def take(self, broker_id: int) -> list[Parcel[OwnerT]]:
        """What is to be sent to that broker in the next request."""
        waiting = self._by_broker.pop(broker_id, [])
        count = size = 0
        for parcel in waiting:
            if count and size + len(parcel.partitions) > PARTITIONS_PER_REQUEST_MAX:
                self._by_broker[broker_id] = waiting[count:]
                break
            count += 1
            size += len(parcel.partitions)
        return waiting[:count]


def request_of(parcels: Sequence[Parcel[OwnerT]]) -> WriteTxnMarkersRequest:
    """The request that has these written."""
    markers = []
    for parcel in parcels:
        topics: dict[str, list[int]] = {}
        for topic, partition in parcel.partitions:
            topics.setdefault(topic, []).append(partition)
        markers.append(
            WritableTxnMarker(
                producer_id=parcel.markers.producer_id,
                producer_epoch=parcel.markers.producer_epoch,
                transaction_result=parcel.markers.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in topics.items()
                ],
                coordinator_epoch=parcel.markers.coordinator_epoch,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)


def settle(parcels: Sequence[Parcel[OwnerT]], response: WriteTxnMarkersResponse) -> Settled[OwnerT]:
    """Read the answer to `request_of(parcels)`; what it does not name has failed."""
    codes = {
        (marker.producer_id, TopicPartition(topic.name, item.partition_index)): item.error_code
        for marker in response.markers
        for topic in marker.topics
        for item in topic.partitions
    }
    settled: Settled[OwnerT] = Settled()
    for parcel in parcels:
        by_code: dict[int, list[TopicPartition]] = {}
        for partition in parcel.partitions:
            code = codes.get(
                (parcel.markers.producer_id, partition), int(ErrorCode.UNKNOWN_SERVER_ERROR)
            )
            by_code.setdefault(code, []).append(partition)
        for code, partitions in by_code.items():
            part = Parcel(parcel.owner, parcel.markers, tuple(partitions))
            if code == _NONE or code in _NEEDS_NONE:
                settled.written.append(part)
            elif code in _REFUSED:
                settled.refused.append((part, code))
            else:
                settled.failed.append(part)
    return settled
