"""What a copy's leader does to its partition: raise the leader epoch, prepare to take over.

A leader raises its epoch as it would change the ISR below inter-broker protocol 2.7-IV2: it writes
the partition's state, on the condition that no one else has, and notifies the controller. That
reads the state, and sends it to the replicas.

Kafka 2.7: kafka.cluster.Partition, kafka.zk.KafkaZkClient (`propagateIsrChanges`)
"""

from kctl.broker.log.unified_log import AppendOrigin, UnifiedLog
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.errors import KctlError, TimedOutError
from kctl.model import LeaderAndIsr
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.runtime.future import sleep
from kctl.runtime.polling import poll_until
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore

# Epochs between those of a source and those after a failover. The source may be elected so often,
# and go on to write, without its epochs being taken for those of the cluster that took over.
EPOCH_STEP = 1_000
EPOCH_MAX = (1 << 31) - 1
PRODUCER_EPOCH_MAX = (1 << 15) - 1
WAIT_MS = 10_000
POLL_MS = 10
# Markers appended in one turn of the loop, within 5 ms.
MARKERS_PER_TURN = 20


class NotLeadingError(KctlError):
    """The broker no longer leads the partition."""


def epoch_after(leader_epoch: int) -> int:
    """Return the leader epoch that a failover begins after `leader_epoch`."""
    found = (leader_epoch // EPOCH_STEP + 1) * EPOCH_STEP
    if found > EPOCH_MAX:
        raise KctlError("no leader epochs are left")
    return found


async def raise_epoch(
    runtime: Runtime, store: ClusterStore, partition: Partition, leader_epoch: int
) -> None:
    """Lead the partition in `leader_epoch`, or a later one; raise KctlError."""
    tp = partition.topic_partition
    wanted = LeaderAndIsr(partition.broker_id, leader_epoch, partition.isr, partition.zk_version)
    _check_leads(partition)
    if await store.update_isr(tp, wanted, partition.controller_epoch) is not None:
        await store.propagate_isr_changes([tp])

    def is_raised() -> bool:
        return partition.role is not Role.LEADER or partition.leader_epoch >= leader_epoch

    if not await poll_until(runtime, is_raised, WAIT_MS, POLL_MS):
        raise TimedOutError("the controller has not sent the new leader epoch")
    _check_leads(partition)


async def begin_takeover(
    runtime: Runtime, store: ClusterStore, replicas: ReplicaManager, partition: Partition
) -> None:
    """Make the copy a log that this cluster can continue, except that no client writes to it yet.

    Raise KctlError.
    """
    log = _check_leads(partition)
    await raise_epoch(
        runtime, store, partition, epoch_after(max(partition.leader_epoch, log.latest_epoch))
    )
    known = dict(log.producers)
    if known:
        # Ids of this cluster that are in use, or may come to be.
        used_end = await store.next_producer_id_block()
        await store.allocate_producer_id_block(partition.broker_id, max(known))
        await _end_producers(runtime, replicas, partition, used_end)


async def end_takeover(runtime: Runtime, partition: Partition) -> None:
    """Wait until the whole copy is committed, so that any replica can lead it; raise KctlError."""
    log = _check_leads(partition)

    def is_committed() -> bool:
        return partition.role is not Role.LEADER or log.high_watermark >= log.log_end_offset

    if not await poll_until(runtime, is_committed, WAIT_MS, POLL_MS):
        raise TimedOutError("followers have not replicated the end of the log yet")
    _check_leads(partition)


async def _end_producers(
    runtime: Runtime, replicas: ReplicaManager, partition: Partition, used_end: int
) -> None:
    """Abort the open transactions, and end the epochs of producers whose ids this cluster uses."""
    log = _check_leads(partition)
    appended = 0
    for producer_id, state in list(log.producers.items()):
        if state.current_txn_first_offset is None and producer_id >= used_end:
            continue
        _check_leads(partition)
        log.append_as_leader(
            marker_batch(
                EndTransactionMarker(ControlRecordType.ABORT, max(state.coordinator_epoch, 0)),
                producer_id=producer_id,
                producer_epoch=min(state.producer_epoch + 1, PRODUCER_EPOCH_MAX),
                timestamp=runtime.clock.wall_ms(),
            ),
            partition.leader_epoch,
            origin=AppendOrigin.COORDINATOR,
            now_ms=runtime.clock.wall_ms(),
        )
        appended += 1
        if appended % MARKERS_PER_TURN == 0:
            await sleep(runtime.scheduler, 0)
    if appended:
        if log.is_write_through:
            replicas.flush_soon(partition)
        partition.maybe_increment_high_watermark(runtime.clock.wall_ms())
        replicas.wake(partition.topic_partition)


def _check_leads(partition: Partition) -> UnifiedLog:
    if partition.role is not Role.LEADER or partition.log is None:
        raise NotLeadingError("this broker no longer leads the partition")
    return partition.log
