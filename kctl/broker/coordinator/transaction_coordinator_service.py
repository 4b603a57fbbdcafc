"""TransactionCoordinatorService: the transaction coordinator as request handlers know it.

Finds the shard that a transactional id belongs to, refuses what cannot be asked of it now (not
elected, still loading) and what comes late (`connection_order`), gets fresh producer ids, hands
the rest to the pure core, and the markers that it wants written to the MarkerSender. Replies are
given as callbacks, called exactly once, maybe before the call returns.

Kafka 2.7: kafka.coordinator.transaction.TransactionCoordinator (what stands around its core).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kctl.broker.config import BrokerConfig
from kctl.broker.coordinator.connection_order import ConnectionOrder
from kctl.broker.coordinator.java_hash import abs_java_hash
from kctl.broker.coordinator.marker_sender import MarkerLink, MarkerSender
from kctl.broker.coordinator.outcome import NO_PRODUCER_ID
from kctl.broker.coordinator.runtime import CoordinatorOptions, CoordinatorRuntime
from kctl.broker.coordinator.shard_host import HostState, PartitionWriter, ShardHost
from kctl.broker.coordinator.transaction.settings import TransactionSettings
from kctl.broker.coordinator.transaction.transaction_coordinator import (
    Producer,
    ProducerIdResult,
    TransactionCoordinator,
)
from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.producer_ids import ProducerIdManager
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.runtime.runtime import Runtime
from kctl.store.errors import StoreError

TRANSACTION_STATE_TOPIC = "__transaction_state"
# Bytes of the log decoded per turn of the loop while a partition is loaded: a few milliseconds.
LOAD_BYTES_PER_TURN_MAX = 128 * 1024
# How long the first request of a transaction waits for the one before to be complete; clients that
# are told CONCURRENT_TRANSACTIONS come back after 20 to 100 ms.
COMPLETION_WAIT_MS_MAX = 100

_NONE = int(ErrorCode.NONE)

Host = ShardHost[TransactionCoordinator]
# Takes an error code, or None: the request came late, and its connection is to be closed.
LateOrCode = Callable[[int | None], object]


class TransactionCoordinatorService:
    """Transactions of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        writer: PartitionWriter,
        metadata_cache: MetadataCache,
        producer_ids: ProducerIdManager,
        open_link: Callable[[int], MarkerLink | None],
        topic_stays: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`open_link` and `topic_stays`: see MarkerSender."""
        self._runtime = runtime
        self._metadata_cache = metadata_cache
        self._partition_count_default = config.transaction_state_log_num_partitions
        self._producer_ids = producer_ids
        self._markers = MarkerSender(runtime, self._leader_of, open_link, topic_stays)
        self._order = ConnectionOrder()
        self._is_active = False
        settings = TransactionSettings(
            timeout_max_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_interval_ms=(config.transaction_abort_timed_out_transaction_cleanup_interval_ms),
            expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
        options = CoordinatorOptions(
            TRANSACTION_STATE_TOPIC,
            min(config.transaction_state_log_load_buffer_size, LOAD_BYTES_PER_TURN_MAX),
        )
        self._shards: CoordinatorRuntime[TransactionCoordinator] = CoordinatorRuntime(
            runtime,
            writer,
            options,
            lambda epoch: TransactionCoordinator(settings, epoch),
            self._markers.send,
        )
        # Partition -> the host of its shard.
        self.hosts = self._shards.hosts

    # Life

    def start(self) -> None:
        """Serve from now on."""
        self._is_active = True

    def shutdown(self) -> None:
        """Serve no more; who waits is sent to find another coordinator."""
        self._is_active = False
        self._shards.close()
        self._markers.close()

    def on_elected(self, partition: int, epoch: int) -> None:
        """This broker leads that partition of __transaction_state, in that leader epoch."""
        self._shards.elect(partition, epoch)

    def on_resigned(self, partition: int, epoch: int | None) -> None:
        """It leads it no more; None: its replica is gone altogether."""
        self._shards.resign(partition, epoch)

    # Where a transactional id is

    def partition_for(self, transactional_id: str) -> int:
        """The partition of __transaction_state that keeps it."""
        known = self._metadata_cache.partition_count(TRANSACTION_STATE_TOPIC)
        return abs_java_hash(transactional_id) % (known or self._partition_count_default)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        state = self._metadata_cache.partition(partition)
        return None if state is None else state.leader

    def _find(self, transactional_id: str) -> tuple[Host | None, int]:
        """The id's host, or why there is none."""
        if not transactional_id:
            return None, int(ErrorCode.INVALID_REQUEST)
        if not self._is_active:
            return None, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = self.partition_for(transactional_id)
        host = self.hosts.get(partition)
        if host is not None and host.state is HostState.ACTIVE:
            return host, _NONE
        return None, self._shards.error_of(partition)

    # Requests

    def init_producer_id(
        self, claimed: Producer, timeout_ms: int, reply: Callable[[ProducerIdResult], object]
    ) -> None:
        """InitProducerId, for a transactional id."""
        host, code = self._find(claimed.transactional_id)
        if host is None:
            reply(ProducerIdResult(code))
        elif host.shard.needs_producer_id(claimed.transactional_id):
            self._runtime.scheduler.spawn(
                self._init_with_fresh_id(claimed, timeout_ms, reply), "init-producer-id"
            )
        else:
            self._init(host, claimed, timeout_ms, NO_PRODUCER_ID, reply)

    async def _init_with_fresh_id(
        self, claimed: Producer, timeout_ms: int, reply: Callable[[ProducerIdResult], object]
    ) -> None:
        try:
            fresh_id = await self._producer_ids.next_producer_id()
        except StoreError:
            reply(ProducerIdResult(int(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        # The partition may have moved away meanwhile.
        host, code = self._find(claimed.transactional_id)
        if host is None:
            reply(ProducerIdResult(code))
        else:
            self._init(host, claimed, timeout_ms, fresh_id, reply)

    def _init(
        self, host: Host, claimed: Producer, timeout_ms: int, fresh_id: int, reply: Any
    ) -> None:
        host.run(host.shard.init_producer_id(claimed, timeout_ms, fresh_id, host.moment(), reply))

    def add_partitions(
        self,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        connection_number: int,
        reply: LateOrCode,
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn; the first of a transaction may wait a little, for
        the one before to be complete."""

        def add() -> None:
            host = self._host_of(producer, connection_number, reply)
            if host is not None:
                host.run(host.shard.add_partitions(producer, partitions, host.moment(), reply))

        host = self._host_of(producer, connection_number, reply)
        if host is not None and not self._waits_for_completion(host.shard, producer, add):
            host.run(host.shard.add_partitions(producer, partitions, host.moment(), reply))

    def _waits_for_completion(
        self, shard: TransactionCoordinator, producer: Producer, then: Callable[[], object]
    ) -> bool:
        """Whether `then` is called later, once."""

        def woken(_: object = None) -> None:
            timer.cancel()
            shard.stop_waiting(producer, woken)
            then()

        if not shard.wait_for_completion(producer, woken):
            return False
        timer = self._runtime.scheduler.call_later(COMPLETION_WAIT_MS_MAX, woken)
        return True

    def end_transaction(
        self, producer: Producer, connection_number: int, reply: LateOrCode, *, is_commit: bool
    ) -> None:
        """EndTxn."""
        host = self._host_of(producer, connection_number, reply)
        if host is not None:
            host.run(
                host.shard.end_transaction(producer, host.moment(), reply, is_commit=is_commit)
            )

    def _host_of(
        self, producer: Producer, connection_number: int, reply: LateOrCode
    ) -> Host | None:
        """Who carries the request out; None: nobody, and `reply` was told why."""
        host, code = self._find(producer.transactional_id)
        if host is None:
            reply(code)
            return None
        if self._is_late(producer, connection_number):
            reply(None)
            return None
        return host

    def _is_late(self, producer: Producer, connection_number: int) -> bool:
        is_late = self._order.is_late(
            producer.producer_id, producer.producer_epoch, connection_number
        )
        if is_late:
            self._runtime.trace.event(
                "late_transaction_request", transactional_id=producer.transactional_id
            )
        return is_late
