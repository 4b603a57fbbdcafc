"""Leadership: carries out what the controller says about this broker's replicas.

A LeaderAndIsr or StopReplica request is obeyed per partition and only if neither its controller
epoch nor its leader epoch is older than what is known. Logs are made here, when the controller
first names a replica; the listener hears of every role taken or lost, in the order of the request.
Making logs takes time: a request with many replicas is obeyed in parts, with turns for others.

Kafka 2.7: kafka.server.ReplicaManager (`becomeLeaderOrFollower`, `stopReplicas`); KIP-380,
KIP-570 (leader epoch in StopReplica).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kctl.broker.log.log_config import LogConfig
from kctl.broker.replication.partition import NO_EPOCH, Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.errors import StorageError
from kctl.model import LEADER_DURING_DELETE, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kctl.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kctl.runtime.clock import Clock
from kctl.runtime.turns import Work

# A StopReplica of a version without leader epochs, or of a topic's deletion: always newer.
EPOCH_DURING_DELETE = -2
# Partitions of a LeaderAndIsr request between two turns for others; 0.1 ms each if logs are made.
PARTITIONS_PER_TURN = 250


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A partition that this broker now leads, follows, no longer holds (NONE), or lost the files
    of (OFFLINE)."""

    topic_partition: TopicPartition
    role: Role
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopReplica:
    """One partition of a StopReplica request, whatever its version."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


RoleListener = Callable[[Sequence[RoleChange]], object]


class Leadership:
    """The controller's hand on a ReplicaManager."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        clock: Clock,
        log_config: Callable[[str], LogConfig],
        broker_epoch: Callable[[], int],
        replica_lag_ms_max: int = 30_000,
    ) -> None:
        self._replicas = replica_manager
        # replica.lag.time.max.ms
        self._replica_lag_ms_max = replica_lag_ms_max
        self._clock = clock
        # The settings of a topic, for logs that are made.
        self._log_config = log_config
        self._broker_epoch = broker_epoch
        self._listeners: list[RoleListener] = []
        replica_manager.on_offline = self._went_offline

    def on_role_change(self, listener: RoleListener) -> None:
        """Call `listener` with the changes of each request, after all of them are made; and with
        what a failed log directory took offline."""
        self._listeners.append(listener)

    # --- LeaderAndIsr ------------------------------------------------------------------------

    def become_leader_or_follower(self, body: LeaderAndIsrRequest) -> Work[LeaderAndIsrResponse]:
        """Obey a LeaderAndIsr request, or the beginning of one if another controller speaks up
        in between."""
        refusal = self.refusal(body.controller_epoch, body.broker_epoch)
        if refusal:
            return LeaderAndIsrResponse(error_code=refusal)
        errors, kept = [], []
        changes: list[RoleChange] = []
        for number, (topic, state) in enumerate(leader_and_isr_states(body), 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
                if body.controller_epoch < self._replicas.controller_epoch:
                    self._announce(changes)
                    return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
            code, change = self._apply(topic, state)
            errors.append(
                LeaderAndIsrPartitionError(
                    topic_name=topic, partition_index=state.partition_index, error_code=code
                )
            )
            if change is not None:
                changes.append(change)
            elif code == ErrorCode.NONE:
                kept.append((topic, state.partition_index))
        self._announce(changes)
        for key in kept:
            # Who leads on may have got a smaller ISR: acks=all waits for fewer now.
            self._replicas.wake(key)
        return LeaderAndIsrResponse(partition_errors=errors)

    def _apply(
        self, topic: str, state: LeaderAndIsrPartitionState
    ) -> tuple[int, RoleChange | None]:
        replicas = self._replicas
        tp = TopicPartition(topic, state.partition_index)
        partition = replicas.partitions.get(tp) or Partition(
            tp, replicas.broker_id, self._replica_lag_ms_max
        )
        if partition.role is Role.OFFLINE:
            # However often the controller asks: that is how it learns of it.
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        if state.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH, None
        if replicas.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        replicas.partitions[tp] = partition
        try:
            log = partition.log or replicas.log_manager.get_or_create_log(
                tp, self._log_config(topic), is_new=state.is_new
            )
            if state.leader == replicas.broker_id:
                is_change = partition.become_leader(state, log, self._clock.wall_ms())
                if log.is_write_through:
                    replicas.flush_soon(partition)
            else:
                is_change = partition.become_follower(state, log)
        except StorageError as error:
            replicas.handle_storage_failure(partition, error)
            partition.leader_epoch = state.leader_epoch
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        change = RoleChange(tp, partition.role, state.leader_epoch) if is_change else None
        return ErrorCode.NONE, change

    # --- StopReplica -------------------------------------------------------------------------

    def stop_replicas(self, body: StopReplicaRequest) -> StopReplicaResponse:
        """Obey a StopReplica request: forget replicas, and delete the logs of those to delete."""
        refusal = self.refusal(body.controller_epoch, body.broker_epoch)
        if refusal:
            return StopReplicaResponse(error_code=refusal)
        errors, changes = [], []
        for stop in stop_replica_states(body):
            tp = stop.topic_partition
            code = self._stop(stop)
            if code == ErrorCode.NONE:
                changes.append(RoleChange(tp, Role.NONE, stop.leader_epoch))
            errors.append(
                StopReplicaPartitionError(
                    topic_name=tp.topic, partition_index=tp.partition, error_code=code
                )
            )
        self._announce(changes)
        return StopReplicaResponse(partition_errors=errors)

    def _stop(self, stop: StopReplica) -> int:
        replicas = self._replicas
        tp = stop.topic_partition
        partition = replicas.partitions.get(tp)
        if partition is not None:
            is_fenced = stop.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE)
            if is_fenced and stop.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if partition.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            del replicas.partitions[tp]
            partition.role = Role.NONE
            if stop.delete:
                partition.leader_id = LEADER_DURING_DELETE
        try:
            if stop.delete:
                replicas.log_manager.delete_log(tp)
        except StorageError as error:
            if partition is not None:
                replicas.handle_storage_failure(partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # --- UpdateMetadata ----------------------------------------------------------------------

    def heed_metadata(
        self,
        states: Iterable[tuple[str, UpdateMetadataPartitionState]],
        *,
        may_delete: bool = True,
    ) -> None:
        """Cease to lead what somebody else leads in a newer epoch, and delete what has replicas
        elsewhere only; the latter if `may_delete`: these states were meant for this registration.

        The request to stop may be lost with the controller that sent it, or with the process that
        it was meant for; the next controller does not know of a replica that is in no assignment
        any more. It would lead or follow for ever and let its clients wait, and its log would lie
        there until a topic of the same name begins with it. (In Apache Kafka 2.7.2 it does.)
        """
        broker_id = self._replicas.broker_id
        partitions = self._replicas.partitions
        changes = []
        for topic, state in states:
            is_elsewhere = broker_id not in state.replicas
            partition = partitions.get((topic, state.partition_index))
            if partition is None:
                if is_elsewhere and may_delete:
                    self._delete_stray(TopicPartition(topic, state.partition_index), state)
                continue
            if state.leader_epoch <= partition.leader_epoch:
                continue
            leads = partition.role is Role.LEADER and state.leader != broker_id
            if leads or (partition.role is Role.FOLLOWER and is_elsewhere):
                partition.resign()
                changes.append(
                    RoleChange(partition.topic_partition, Role.NONE, partition.leader_epoch)
                )
            if is_elsewhere and may_delete and partition.role is Role.NONE:
                del partitions[topic, state.partition_index]
                self._delete_stray(partition.topic_partition, state)
        self._announce(changes)

    def _delete_stray(self, tp: TopicPartition, state: UpdateMetadataPartitionState) -> None:
        log_manager = self._replicas.log_manager
        log = log_manager.get_log(tp)
        if log is None:
            return
        try:
            log_manager.delete_log(tp, f"its replicas are on brokers {state.replicas} by now")
        except StorageError as error:
            log_manager.handle_log_dir_failure(log.log_directory, str(error))

    # --- both --------------------------------------------------------------------------------

    def refusal(self, controller_epoch: int, broker_epoch: int) -> int:
        """The error code for a whole request of the controller, or 0; remembers its epoch."""
        if broker_epoch not in (-1, self._broker_epoch()) and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self._replicas.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._replicas.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _went_offline(self, partitions: Sequence[Partition]) -> None:
        """Whoever coordinates, follows or moves them must not go on as if nothing had happened."""
        self._announce(
            [RoleChange(it.topic_partition, it.role, it.leader_epoch) for it in partitions]
        )

    def _announce(self, changes: Sequence[RoleChange]) -> None:
        if not changes:
            return
        for listener in self._listeners:
            listener(changes)
        for change in changes:
            self._replicas.wake(change.topic_partition)


def leader_and_isr_states(
    body: LeaderAndIsrRequest,
) -> Iterator[tuple[str, LeaderAndIsrPartitionState]]:
    """(topic, state) of a request of any version."""
    for state in body.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in body.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state


def stop_replica_states(body: StopReplicaRequest) -> Iterator[StopReplica]:
    """The partitions of a request of any version."""
    delete = body.delete_partitions
    for ungrouped in body.ungrouped_partitions:
        tp = TopicPartition(ungrouped.topic_name, ungrouped.partition_index)
        yield StopReplica(tp, NO_EPOCH, delete)
    for topic in body.topics:
        for number in topic.partition_indexes:
            yield StopReplica(TopicPartition(topic.name, number), NO_EPOCH, delete)
    for state in body.topic_states:
        for partition in state.partition_states:
            tp = TopicPartition(state.topic_name, partition.partition_index)
            yield StopReplica(tp, partition.leader_epoch, partition.delete_partition)
