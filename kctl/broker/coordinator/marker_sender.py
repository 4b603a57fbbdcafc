"""MarkerSender: has the leaders of partitions write what a transaction coordinator decided.

One request is under way per broker; what comes meanwhile goes with the next. A request that fails,
and partitions without a leader, are tried again until their coordinator is told of success or has
itself gone: a transaction that was decided must end.

A partition that this broker has not heard of may have been deleted: then it needs no marker. Or the
broker has just started, and leads its part of __transaction_state before the controller has told it
of all partitions: a marker that is left out then leaves a transaction open for ever. Only the store
knows. (Apache Kafka 2.7.2 takes it for deleted.)

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
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.store.errors import StoreError

RETRY_PAUSE_MS = 100

Host = ShardHost[TransactionCoordinator]


class MarkerLink(Protocol):
    """A connection to a broker (maybe this one) that is opened again when it breaks."""

    def send(self, request: Message) -> Future[Message]:
        """Ask; UnreachableError or TimedOutError through the Future."""
        ...

    def close(self) -> None:
        """Let go of the connection; what is under way fails."""
        ...


class MarkerSender:
    """The markers of all transactions that this broker coordinates."""

    def __init__(
        self,
        runtime: Runtime,
        leader_of: Callable[[TopicPartition], int | None],
        open_link: Callable[[int], MarkerLink | None],
        topic_stays: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`open_link(broker id)`: None if nobody knows where that broker is. `topic_stays`: whether
        a topic exists and is not being deleted; StoreError."""
        self._runtime = runtime
        self._open_link = open_link
        self._topic_stays = topic_stays
        self._queue: MarkerQueue[Host] = MarkerQueue(leader_of)
        self._links: dict[int, MarkerLink] = {}
        # Brokers with a request under way, or about to be sent.
        self._busy: set[int] = set()
        # To be routed when the pause is over.
        self._failed: list[Parcel[Host]] = []
        self._retry_timer: Timer | None = None
        self._is_closed = False

    def send(self, host: Host, markers: EndMarkers) -> None:
        """Write these; the shard of `host` is told when they are."""
        self._route([Parcel(host, markers, markers.partitions)])

    def close(self) -> None:
        """Send no more."""
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
            self._runtime.scheduler.spawn(self._find_out(routed.unknown), "unknown-partitions")
        for broker_id in routed.brokers:
            if broker_id not in self._busy:
                self._busy.add(broker_id)
                # Soon, not now: what else is decided in this turn goes along.
                self._runtime.scheduler.call_soon(self._send_next, broker_id)
        if routed.is_leader_missing:
            self._retry_later()

    async def _find_out(self, parcels: list[Parcel[Host]]) -> None:
        """Which of these were deleted; the others are tried again."""
        topics = dict.fromkeys(partition.topic for it in parcels for partition in it.partitions)
        try:
            staying = {topic for topic in topics if await self._topic_stays(topic)}
        except StoreError:
            staying = set(topics)
        for parcel in parcels:
            owner, markers, partitions = parcel.owner, parcel.markers, parcel.partitions
            gone = tuple(it for it in partitions if it.topic not in staying)
            if gone:
                self._written(Parcel(owner, markers, gone))
            if len(gone) < len(partitions):
                rest = tuple(it for it in partitions if it.topic in staying)
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
            partial(self._answered, broker_id, parcels)
        )

    def _answered(
        self, broker_id: int, parcels: list[Parcel[Host]], answer: Future[Message]
    ) -> None:
        if self._is_closed:
            return
        error = answer.error()
        if error is not None:
            self._runtime.trace.warning(
                f"Broker {broker_id} was not reached with transaction markers, will retry: {error}"
            )
            self._links.pop(broker_id).close()
            self._failed += parcels
        else:
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
