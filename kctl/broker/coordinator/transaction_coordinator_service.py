"""TransactionCoordinatorService: the transaction coordinator's interface for request handlers.

Finds the shard of a transactional id, rejects requests that it cannot serve now (not elected, still
loading) and late ones (`connection_order`), obtains fresh producer ids, passes the rest to the pure
core and the core's markers to the MarkerSender. Replies are callbacks, called exactly once,
possibly before the call returns.

A broker that another one has replaced may not know it yet. What it writes fails, but it would still
reject requests from its old state, and clients give up after PRODUCER_FENCED or
INVALID_PRODUCER_ID_MAPPING. So these two are sent only once the store has confirmed that this
broker leads the partition; otherwise the client gets an error that makes it look up the coordinator
again. (Apache Kafka 2.7.2 sends them at once.)

Kafka 2.7: kafka.coordinator.transaction.TransactionCoordinator (the parts outside its core).
"""

from collections.abc import Awaitable, Callable, Sequence

from kctl.broker.coordinator.connection_order import ConnectionOrder
from kctl.broker.coordinator.marker_sender import MarkerLink, MarkerSender
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
from kctl.configs.broker_config import BrokerConfig
from kctl.java_hash import abs_java_hash
from kctl.model import TopicPartition
from kctl.protocol.constants import TRANSACTION_STATE_TOPIC
from kctl.protocol.error_codes import ErrorCode
from kctl.records.record_batch import NO_PRODUCER_ID
from kctl.runtime.runtime import Runtime
from kctl.store.errors import StoreError

# Bytes of the log decoded per turn of the loop while a partition loads: a few milliseconds.
LOAD_BYTES_PER_TURN_MAX = 128 * 1024
# How long the first request of a transaction waits for the completion of the previous one; clients
# that receive CONCURRENT_TRANSACTIONS retry after 20 to 100 ms.
COMPLETION_WAIT_MS_MAX = 100

_NONE = int(ErrorCode.NONE)
# After these, a producer gives up.
_FINAL = frozenset({int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), int(ErrorCode.PRODUCER_FENCED)})

Host = ShardHost[TransactionCoordinator]
# Takes an error code, or None for a late request, whose connection must then be closed.
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
        leads: Callable[[TopicPartition], Awaitable[bool]],
    ) -> None:
        """Create the service; `open_link` and `topic_stays` are documented at MarkerSender.

        `leads(partition)` returns whether the store has this broker as leader, in the epoch that it
        knows, or raises StoreError.
        """
        self._leads = leads
        self._runtime = runtime
        self._metadata_cache = metadata_cache
        self._partition_count_default = config.transaction_state_log_num_partitions
        self._producer_ids = producer_ids
        self._markers = MarkerSender(runtime, self._leader_of, open_link, topic_stays)
        self._order = ConnectionOrder()
        self._is_active = False
        self._timeout_max_ms = config.transaction_max_timeout_ms
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

    # Lifecycle

    def start(self) -> None:
        """Begin to serve requests."""
        self._is_active = True

    def shutdown(self) -> None:
        """Stop serving; pending requests get an error that makes clients look up the coordinator
        again."""
        self._is_active = False
        self._shards.close()
        self._markers.close()

    def on_elected(self, partition: int, epoch: int) -> None:
        """Load the ids of a partition of __transaction_state that this broker leads in `epoch`."""
        self._shards.elect(partition, epoch)

    def on_resigned(self, partition: int, epoch: int | None) -> None:
        """Release a partition that this broker no longer leads; `epoch` is None if it has no
        replica."""
        self._shards.resign(partition, epoch)

    # Shards

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of __transaction_state that stores the transactional id."""
        known = self._metadata_cache.partition_count(TRANSACTION_STATE_TOPIC)
        return abs_java_hash(transactional_id) % (known or self._partition_count_default)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        state = self._metadata_cache.partition(partition)
        return None if state is None else state.leader

    def _find(self, transactional_id: str) -> tuple[Host | None, int]:
        """Return the host of the transactional id and 0, or None and the error code."""
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
        """Handle InitProducerId for a transactional id. An invalid timeout is an error at any
        broker, also at one that is not the coordinator."""
        host, code = self._find(claimed.transactional_id)
        if claimed.transactional_id and not 0 < timeout_ms <= self._timeout_max_ms:
            reply(ProducerIdResult(int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)))
        elif host is None:
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
        self,
        host: Host,
        claimed: Producer,
        timeout_ms: int,
        fresh_id: int,
        reply: Callable[[ProducerIdResult], object],
    ) -> None:
        def confirmed(result: ProducerIdResult) -> None:
            if result.error_code in _FINAL:
                self._confirm(host, result.error_code, lambda it: reply(ProducerIdResult(it)))
            else:
                reply(result)

        shard = host.shard
        host.run(shard.init_producer_id(claimed, timeout_ms, fresh_id, host.moment(), confirmed))

    def add_partitions(
        self,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        connection_number: int,
        reply: LateOrCode,
    ) -> None:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn.

        The first request of a transaction may briefly wait for the completion of the previous one.
        """

        def add() -> None:
            host = self._host_of(producer, connection_number, reply)
            if host is not None:
                run(host)

        def run(host: Host) -> None:
            confirmed = self._confirming(host, reply)
            host.run(host.shard.add_partitions(producer, partitions, host.moment(), confirmed))

        host = self._host_of(producer, connection_number, reply)
        if host is not None and not self._waits_for_completion(host.shard, producer, add):
            run(host)

    def _waits_for_completion(
        self, shard: TransactionCoordinator, producer: Producer, then: Callable[[], object]
    ) -> bool:
        """Return whether `then` is called later, once."""

        def on_wake(_: object = None) -> None:
            timer.cancel()
            shard.stop_waiting(producer, on_wake)
            then()

        if not shard.wait_for_completion(producer, on_wake):
            return False
        timer = self._runtime.scheduler.call_later(COMPLETION_WAIT_MS_MAX, on_wake)
        return True

    def end_transaction(
        self, producer: Producer, connection_number: int, reply: LateOrCode, *, is_commit: bool
    ) -> None:
        """Handle EndTxn."""
        host = self._host_of(producer, connection_number, reply)
        if host is not None:
            confirmed = self._confirming(host, reply)
            host.run(
                host.shard.end_transaction(producer, host.moment(), confirmed, is_commit=is_commit)
            )

    def _confirming(self, host: Host, reply: LateOrCode) -> LateOrCode:
        """Return a `reply` that sends a final rejection only once the store has confirmed it."""

        def confirmed(code: int | None) -> None:
            if code in _FINAL:
                self._confirm(host, code, reply)
            else:
                reply(code)

        return confirmed

    def _confirm(self, host: Host, code: int, reply: Callable[[int], object]) -> None:
        self._runtime.scheduler.spawn(self._confirmed(host, code, reply), "confirm-coordinator")

    async def _confirmed(self, host: Host, code: int, reply: Callable[[int], object]) -> None:
        """Reply with `code`, unless the store has another leader or cannot be reached."""
        try:
            leads = await self._leads(host.topic_partition)
        except StoreError:
            code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            code = code if leads else int(ErrorCode.NOT_COORDINATOR)
        reply(code)

    def _host_of(
        self, producer: Producer, connection_number: int, reply: LateOrCode
    ) -> Host | None:
        """Return the host that executes the request, or None after calling `reply` with the
        error."""
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
