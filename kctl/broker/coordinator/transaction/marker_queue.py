"""MarkerQueue: transaction markers queued for the leaders of their partitions. Pure.

Markers are queued under the broker that leads their partition at that time; a request takes all
that are queued for its broker. Markers that a leader could not write are routed again, because
another broker may lead by then. Markers without a leader wait for one. For unknown partitions the
caller decides whether they still exist.

Kafka 2.7: kafka.coordinator.transaction.TransactionMarkerChannelManager,
TransactionMarkerRequestCompletionHandler.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from kctl.broker.coordinator.transaction.transaction_coordinator import EndMarkers
from kctl.lazy_dataclass import dataclass
from kctl.model import NO_LEADER, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kctl.work import parts

# Maximum number of partitions in one request, which is made, and whose response is interpreted, in
# one turn each, within 5 ms.
PARTITIONS_PER_REQUEST_MAX = 2_000

OwnerT = TypeVar("OwnerT", bound=Hashable)

_NONE = int(ErrorCode.NONE)
# A marker can neither be written nor is it needed: such a partition holds no transactions.
_NEEDS_NONE = frozenset(
    {int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), int(ErrorCode.UNSUPPORTED_VERSION)}
)
# A newer coordinator, or a newer producer, has written there.
_REFUSED = frozenset(
    {int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)}
)


@dataclass(frozen=True, slots=True)
class Parcel(Generic[OwnerT]):
    """One transaction's markers for one broker; `owner` is notified of the result."""

    owner: OwnerT
    markers: EndMarkers
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Routed(Generic[OwnerT]):
    """The result of routing: brokers with queued markers, and parcels of partitions missing from
    the metadata."""

    brokers: list[int] = field(default_factory=list)
    unknown: list[Parcel[OwnerT]] = field(default_factory=list)
    is_leader_missing: bool = False


@dataclass(slots=True)
class Settled(Generic[OwnerT]):
    """The result of a request."""

    written: list[Parcel[OwnerT]] = field(default_factory=list)
    # With their error code.
    refused: list[tuple[Parcel[OwnerT], int]] = field(default_factory=list)
    # To be routed again, after a pause.
    failed: list[Parcel[OwnerT]] = field(default_factory=list)


class MarkerQueue(Generic[OwnerT]):
    """Markers by broker.

    `leader_of` returns a partition's leader, NO_LEADER, or None for an unknown partition.
    """

    def __init__(self, leader_of: Callable[[TopicPartition], int | None]) -> None:
        self._leader_of = leader_of
        self._by_broker: dict[int, list[Parcel[OwnerT]]] = {}
        self._leaderless: list[Parcel[OwnerT]] = []

    def route(self, parcels: Iterable[Parcel[OwnerT]]) -> Routed[OwnerT]:
        """Queue each marker under the leader of its partition."""
        routed: Routed[OwnerT] = Routed()
        for parcel in parcels:
            by_leader: dict[int | None, list[TopicPartition]] = {}
            for partition in parcel.partitions:
                by_leader.setdefault(self._leader_of(partition), []).append(partition)
            for leader, partitions in by_leader.items():
                for part in parts(partitions, PARTITIONS_PER_REQUEST_MAX):
                    self._queue(Parcel(parcel.owner, parcel.markers, tuple(part)), leader, routed)
        return routed

    def _queue(self, parcel: Parcel[OwnerT], leader: int | None, routed: Routed[OwnerT]) -> None:
        if leader is None:
            routed.unknown.append(parcel)
        elif leader <= NO_LEADER:
            self._leaderless.append(parcel)
            routed.is_leader_missing = True
        else:
            self._by_broker.setdefault(leader, []).append(parcel)
            if leader not in routed.brokers:
                routed.brokers.append(leader)

    def take_leaderless(self) -> list[Parcel[OwnerT]]:
        """Remove and return the parcels without a leader, to be routed again."""
        waiting, self._leaderless = self._leaderless, []
        return waiting

    def take(self, broker_id: int) -> list[Parcel[OwnerT]]:
        """Remove and return the parcels of the next request to that broker."""
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
    """Return the request that writes these parcels."""
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
    """Interpret the response to `request_of(parcels)`; partitions that it omits have failed."""
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
