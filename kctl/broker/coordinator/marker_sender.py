"""MarkerSender: sends a transaction coordinator's markers to the leaders of the partitions.

One request is in flight per broker; markers that arrive meanwhile go with the next. Failed requests
and partitions without a leader are retried until they succeed or until their coordinator shard is
gone: a transaction that was decided must end.

A partition that is missing from this broker's metadata may have been deleted, and then needs no
marker. Or the broker has just started and leads its part of __transaction_state before the
controller has sent it all partitions; omitting the marker would then leave a transaction open
forever. Only the store can decide. (Apache Kafka 2.7.2 assumes that it was deleted.)

Kafka 2.7: kafka.coordinator.transaction.TransactionMarkerChannelManager.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from kctl.broker.coordinator.shard_host import HostState, ShardHost
from kctl.broker.coordinator.transaction.marker_queue import (
    MarkerQueue,
    Parcel,
    Routed,
    request_of,
    settle,
)
from kctl.broker.coordinator.transaction.transaction_coordinator import (
    EndMarkers,
    TransactionCoordinator,
)
from kctl.model import TopicPartition
from kctl.protocol.schema import Message
from kctl.runtime.future import Future
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.store.errors import StoreError

RETRY_PAUSE_MS = 100

Host = ShardHost[TransactionCoordinator]


class MarkerLink(Protocol):
    """A connection to a broker (possibly this one) that reconnects after a failure."""

    def send(self, request: Message) -> Future[Message]:
        """Send a request; the Future fails with UnreachableError or TimedOutError."""
        ...

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        ...


class MarkerSender:
    """Sends the markers of all transactions that this broker coordinates."""

    def __init__(
        self,
        runtime: Runtime,
        leader_of: Callable[[TopicPartition], int | None],
        open_link: Callable[[int], MarkerLink | None],
        topic_stays: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Create a sender.

        `open_link(broker_id)` returns None if the broker's address is unknown. `topic_stays`
        returns whether a topic exists and is not being deleted, or raises StoreError.
        """
        self._runtime = runtime
        self._warnings = RecurringWarnings(runtime)
        self._open_link = open_link
        self._topic_stays = topic_stays
        self._queue: MarkerQueue[Host] = MarkerQueue(leader_of)
        self._links: dict[int, MarkerLink] = {}
        # Brokers with a request in flight, or about to be sent.
        self._busy: set[int] = set()
        # To be routed again after the pause.
        self._failed: list[Parcel[Host]] = []
        self._retry_timer: Timer | None = None
        self._is_closed = False

    def send(self, host: Host, markers: EndMarkers) -> None:
        """Send these markers and notify the shard of `host` when they are written."""
        self._route([Parcel(host, markers, markers.partitions)])

    def close(self) -> None:
        """Stop sending."""
        self._is_closed = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _route(self, parcels: Iterable[Parcel[Host]]) -> None:
        wanted = [parcel for parcel in parcels if parcel.owner.state is HostState.ACTIVE]
        routed: Routed[Host] = self._queue.route(wanted)
        if routed.unknown:
            self._runtime.scheduler.spawn(
                self._resolve_unknown(routed.unknown), "unknown-partitions"
            )
        for broker_id in routed.brokers:
            if broker_id not in self._busy:
                self._busy.add(broker_id)
                # In the next turn, so that other markers decided in this one are included.
                self._runtime.scheduler.call_soon(self._send_next, broker_id)
        if routed.is_leader_missing:
            self._retry_later()

    async def _resolve_unknown(self, parcels: list[Parcel[Host]]) -> None:
        """Determine which of these partitions were deleted; retry the others."""
        topics = dict.fromkeys(
            partition.topic for parcel in parcels for partition in parcel.partitions
        )
        try:
            staying = {topic for topic in topics if await self._topic_stays(topic)}
        except StoreError:
            staying = set(topics)
        for parcel in parcels:
            owner, markers, partitions = parcel.owner, parcel.markers, parcel.partitions
            gone = tuple(p for p in partitions if p.topic not in staying)
            if gone:
                self._written(Parcel(owner, markers, gone))
            if len(gone) < len(partitions):
                rest = tuple(p for p in partitions if p.topic in staying)
                self._failed.append(Parcel(owner, markers, rest))
        if self._failed:
            self._retry_later()

    def _send_next(self, broker_id: int) -> None:
        self._busy.discard(broker_id)
        parcels = self._queue.take(broker_id)
        if not parcels or self._is_closed:
            return
        link = self._links.get(broker_id) or self._open_link(broker_id)
        if link is None:
            self._failed += parcels
            self._retry_later()
            return
        self._links[broker_id] = link
        self._busy.add(broker_id)
        link.send(request_of(parcels)).add_done_callback(
            partial(self._on_response, broker_id, parcels)
        )

    def _on_response(
        self, broker_id: int, parcels: list[Parcel[Host]], answer: Future[Message]
    ) -> None:
        if self._is_closed:
            return
        error = answer.error()
        if error is not None:
            self._warnings.warn(
                broker_id,
                f"Broker {broker_id} did not receive transaction markers, will retry: {error}",
            )
            self._links.pop(broker_id).close()
            self._failed += parcels
        else:
            self._warnings.resolve(broker_id)
            settled = settle(parcels, answer.result())  # type: ignore[arg-type]  # by its API
            for parcel in settled.written:
                self._written(parcel)
            for parcel, code in settled.refused:
                if parcel.owner.state is HostState.ACTIVE:
                    parcel.owner.run(parcel.owner.shard.markers_refused(parcel.markers, code))
            self._failed += settled.failed
        if self._failed:
            self._retry_later()
        self._send_next(broker_id)

    def _written(self, parcel: Parcel[Host]) -> None:
        host = parcel.owner
        if host.state is HostState.ACTIVE:
            host.run(host.shard.partitions_marked(parcel.markers, parcel.partitions, host.moment()))

    def _retry_later(self) -> None:
        if self._retry_timer is None and not self._is_closed:
            self._retry_timer = self._runtime.scheduler.call_later(RETRY_PAUSE_MS, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        failed, self._failed = self._failed, []
        self._route([*failed, *self._queue.take_leaderless()])
