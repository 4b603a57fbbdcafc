"""Leadership: applies the controller's requests to this broker's replicas.

A LeaderAndIsr or StopReplica request is applied per partition, and only if neither its controller
epoch nor its leader epoch is older than the known one. A log is created when the controller first
names a replica; listeners receive every role gained or lost, in the order of the request.

Creating and deleting logs takes time, so a request with many replicas is applied in parts, with
turns of the loop for others between them. If a newer controller sends a request meanwhile, the rest
is rejected.

Kafka 2.7: kafka.server.ReplicaManager (`becomeLeaderOrFollower`, `stopReplicas`); KIP-380, KIP-570
(leader epoch in StopReplica).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kctl.broker.log.log_config import LogConfig
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.errors import StorageError
from kctl.lazy_dataclass import dataclass
from kctl.model import LEADER_DURING_DELETE, TopicPartition
from kctl.protocol.constants import EPOCH_DURING_DELETE, NO_EPOCH
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
from kctl.work import Work, parts

# Partitions of a request processed per turn of the loop; one whose log is created or deleted, which
# takes up to 0.8 ms, counts as UNITS_PER_LOG.
PARTITIONS_PER_TURN = 500
UNITS_PER_LOG = 80


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A partition that this broker now leads, follows, no longer holds (NONE), or whose files it
    lost (OFFLINE)."""

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


def _writable(_topic: str) -> None:
    """Return that producers may write: there are no copies of other clusters' topics."""


class Leadership:
    """Applies the controller's requests to a ReplicaManager."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        clock: Clock,
        log_config: Callable[[str], LogConfig],
        broker_epoch: Callable[[], int],
        replica_lag_ms_max: int = 30_000,
        read_only: Callable[[str], str | None] = _writable,
    ) -> None:
        self._replicas = replica_manager
        # replica.lag.time.max.ms
        self._replica_lag_ms_max = replica_lag_ms_max
        self._clock = clock
        # Returns the configs of a topic, for logs that are created.
        self._log_config = log_config
        self._broker_epoch = broker_epoch
        # Returns why producers may not write to a topic, None if they may.
        self._read_only = read_only
        self._listeners: list[RoleListener] = []
        replica_manager.on_offline(self._went_offline)

    def on_role_change(self, listener: RoleListener) -> None:
        """Call `listener` with the changes of each part of a request, after they are made, and with
        the partitions that a failed log directory took offline."""
        self._listeners.append(listener)

    # --- LeaderAndIsr ------------------------------------------------------------------------

    def become_leader_or_follower(self, body: LeaderAndIsrRequest) -> Work[LeaderAndIsrResponse]:
        """Apply a LeaderAndIsr request; stop early if a newer controller sends one meanwhile."""
        refusal = self.refusal(body.controller_epoch, body.broker_epoch)
        if refusal:
            return LeaderAndIsrResponse(error_code=refusal)
        errors, kept = [], []
        changes: list[RoleChange] = []
        units = 0
        # The configs of the topics whose logs this turn creates: a later turn may find others.
        configs: dict[str, LogConfig] = {}
        for topic, state in leader_and_isr_states(body):
            if units >= PARTITIONS_PER_TURN:
                self._announce(changes)
                units, changes, configs = 0, [], {}
                yield
                if body.controller_epoch < self._replicas.controller_epoch:
                    return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
            if state is None:
                units += 1
                continue
            is_known = (topic, state.partition_index) in self._replicas.partitions
            units += 1 if is_known else UNITS_PER_LOG
            code, change = self._apply(topic, state, configs)
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
        yield from self._wake(kept, units)
        return LeaderAndIsrResponse(partition_errors=errors)

    def _wake(self, kept: Sequence[tuple[str, int]], units: int) -> Work[None]:
        """Look again at what waits for partitions that this broker continues to lead or follow, in
        a turn that has done `units` of work: such a leader may have a smaller ISR now, so that
        acks=all waits for fewer replicas."""
        for part in parts(kept, PARTITIONS_PER_TURN):
            units += len(part)
            if units > PARTITIONS_PER_TURN:
                units = len(part)
                yield
            for key in part:
                self._replicas.wake(key)

    def _apply(
        self, topic: str, state: LeaderAndIsrPartitionState, configs: dict[str, LogConfig]
    ) -> tuple[int, RoleChange | None]:
        replicas = self._replicas
        tp = TopicPartition(topic, state.partition_index)
        partition = replicas.partitions.get(tp) or Partition(
            tp, replicas.broker_id, self._replica_lag_ms_max
        )
        if partition.role is Role.OFFLINE:
            # Report this to every request: it informs the controller.
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        if state.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH, None
        if replicas.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        replicas.partitions[tp] = partition
        try:
            log = partition.log
            if log is None:
                if topic not in configs:
                    configs[topic] = self._log_config(topic)
                log = replicas.log_manager.get_or_create_log(
                    tp, configs[topic], is_new=state.is_new
                )
            if state.leader == replicas.broker_id:
                partition.read_only = self._read_only(topic)
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

    def stop_replicas(self, body: StopReplicaRequest) -> Work[StopReplicaResponse]:
        """Apply a StopReplica request: remove replicas, and delete the logs of those marked for
        deletion."""
        refusal = self.refusal(body.controller_epoch, body.broker_epoch)
        if refusal:
            return StopReplicaResponse(error_code=refusal)
        errors: list[StopReplicaPartitionError] = []
        changes: list[RoleChange] = []
        units = 0
        for stop in stop_replica_states(body):
            if units >= PARTITIONS_PER_TURN:
                self._announce(changes)
                units, changes = 0, []
                yield
                if body.controller_epoch < self._replicas.controller_epoch:
                    return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
            if stop is None:
                units += 1
                continue
            units += UNITS_PER_LOG if stop.delete else 1
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

    def apply_metadata(
        self,
        states: Iterable[tuple[str, UpdateMetadataPartitionState | None]],
        *,
        may_delete: bool = True,
    ) -> Work[None]:
        """Apply received metadata: resign where another broker leads in a newer epoch, and delete
        replicas that are only assigned elsewhere.

        Replicas are deleted only if `may_delete`: the metadata was sent to this registration of the
        broker. The request to stop a replica may be lost with the controller that sent it, or with
        the process that it was sent to; the next controller does not know of a replica that is in
        no assignment. Such a replica would lead or follow forever and keep its clients waiting, and
        its log would remain until a topic of the same name begins with it. (In Apache Kafka 2.7.2
        it does.)
        """
        broker_id = self._replicas.broker_id
        controller_epoch = self._replicas.controller_epoch
        partitions = self._replicas.partitions
        changes: list[RoleChange] = []
        units = 0
        for topic, state in states:
            if units >= PARTITIONS_PER_TURN:
                self._announce(changes)
                units, changes = 0, []
                yield
                if self._replicas.controller_epoch != controller_epoch:
                    # A newer controller may have created a topic of the same name since.
                    return
            units += 1
            if state is None:
                continue
            is_elsewhere = broker_id not in state.replicas
            partition = partitions.get((topic, state.partition_index))
            if partition is None:
                if is_elsewhere and may_delete:
                    units += self._delete_stray(TopicPartition(topic, state.partition_index), state)
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
                units += self._delete_stray(partition.topic_partition, state)
        self._announce(changes)

    def _delete_stray(self, tp: TopicPartition, state: UpdateMetadataPartitionState) -> int:
        """Delete the log, if any; return the units of work."""
        log_manager = self._replicas.log_manager
        log = log_manager.get_log(tp)
        if log is None:
            return 0
        try:
            log_manager.delete_log(tp, f"its replicas are now on brokers {state.replicas}")
        except StorageError as error:
            log_manager.handle_log_dir_failure(log.log_directory, str(error))
        return UNITS_PER_LOG

    # --- both --------------------------------------------------------------------------------

    def refusal(self, controller_epoch: int, broker_epoch: int) -> int:
        """Return the error code of a stale controller's request, or record its epoch and
        return 0."""
        if broker_epoch not in (-1, self._broker_epoch()) and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self._replicas.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._replicas.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _went_offline(self, partitions: Sequence[Partition]) -> None:
        """Notify the listeners that coordinate, follow or move partitions that went offline."""
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
) -> Iterator[tuple[str, LeaderAndIsrPartitionState | None]]:
    """Yield (topic, state) of a request of any version, (topic, None) of a topic without
    partitions: the caller may have to count it."""
    for state in body.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in body.topic_states:
        if not topic.partition_states:
            yield topic.topic_name, None
        for state in topic.partition_states:
            yield topic.topic_name, state


def stop_replica_states(body: StopReplicaRequest) -> Iterator[StopReplica | None]:
    """Yield the partitions of a request of any version, None for a topic without partitions: the
    caller may have to count it."""
    delete = body.delete_partitions
    for ungrouped in body.ungrouped_partitions:
        tp = TopicPartition(ungrouped.topic_name, ungrouped.partition_index)
        yield StopReplica(tp, NO_EPOCH, delete)
    for topic in body.topics:
        if not topic.partition_indexes:
            yield None
        for number in topic.partition_indexes:
            yield StopReplica(TopicPartition(topic.name, number), NO_EPOCH, delete)
    for state in body.topic_states:
        if not state.partition_states:
            yield None
        for partition in state.partition_states:
            tp = TopicPartition(state.topic_name, partition.partition_index)
            yield StopReplica(tp, partition.leader_epoch, partition.delete_partition)
