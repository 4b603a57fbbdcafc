"""Reassignment: moves partitions to other replicas (KIP-455).

While a partition moves, its assignment holds the old and new replicas (RS), those being added (AR)
and those being removed (RR); TRS is the target. Each step is written to the store before memory
changes, and any controller can continue what it finds in the store.

    U1  write RS, AR, RR                               a new, another or no target
    U2  update memory
    U3  stop replicas of an earlier target that are not in this one
    A1  send RS to all its replicas, under a new leader epoch    while TRS is not in sync
    A2  start the replicas of AR
    B1  the replicas of AR are online                  once all of TRS is in sync
    B2  update memory: RS = TRS
    B3  elect a leader in TRS if it has none, or send TRS under a new epoch
    B4  take the replicas of RR offline
    B5  delete the replicas of RR
    B6  write RS = TRS
    B7  remove the partition from `/admin/reassign_partitions`
    B8  update the metadata of all brokers

Kafka 2.7: kafka.controller.KafkaController (onPartitionReassignment and the methods it calls).
"""

from collections.abc import Iterable, Mapping, Sequence

from kctl.broker.controller.broker_and_topic_changes import BrokerAndTopicChanges
from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.leader_election_algorithms import ElectionStrategy
from kctl.broker.controller.replica_state_machine import ReplicaState
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.state_transitions import StateTransitions
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import ControllerMovedError, SessionExpiredError, StoreError
from kctl.work import Pace

# Maximum number of brokers that the message about an invalid target names.
NAMED_BROKERS_MAX = 100

# Target replicas per partition; None: cancel.
Targets = Mapping[TopicPartition, tuple[int, ...] | None]
# Error code and message for the client.
Refusal = tuple[int, str | None]
_STATES_OF_DELETION = (
    ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL,
    ReplicaState.NON_EXISTENT,
)


class Reassignment:
    """Executes reassignments for the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        transitions: StateTransitions,
        batch: ControllerBrokerRequestBatch,
        store: ClusterStore,
        cluster: BrokerAndTopicChanges,
        pace: Pace,
    ) -> None:
        self._context = context
        self._transitions = transitions
        self._batch = batch
        self._store = store
        self._cluster = cluster
        self._spend = pace.spend

    # --- start -------------------------------------------------------------------------------

    async def start(self, targets: Targets) -> dict[TopicPartition, Refusal]:
        """Start, replace or cancel reassignments; each rejection affects only its partition."""
        results: dict[TopicPartition, Refusal] = {}
        for tp, target in targets.items():
            await self._spend()
            refusal = self._refusal(tp, target)
            if refusal is None:
                refusal = await self._begin(tp, target)
            results[tp] = refusal
        return results

    async def start_by_znode(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Start the reassignments in `/admin/reassign_partitions`; remove rejected ones from it."""
        results = await self.start({tp: tuple(replicas) for tp, replicas in targets.items()})
        refused = [tp for tp, (error_code, _) in results.items() if error_code != ErrorCode.NONE]
        if refused:
            await self._remove_from_znode(refused)

    async def _begin(self, tp: TopicPartition, target: tuple[int, ...] | None) -> Refusal:
        current = self._context.assignment(tp)
        moving = current.reassign_to(current.origin if target is None else target)
        try:
            await self._update_assignment(tp, moving)
            await self.advance(tp)
        except (ControllerMovedError, SessionExpiredError):
            raise
        except StoreError as error:
            return ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        return ErrorCode.NONE, None

    def _refusal(self, tp: TopicPartition, target: tuple[int, ...] | None) -> Refusal | None:
        context = self._context
        if tp.partition not in context.topics.get(tp.topic, ()):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        if context.is_to_be_deleted(tp.topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic is being deleted."
        if target is not None:
            return self._bad_target(tp, target) or self._loss(tp, target)
        if tp not in context.reassigning:
            return (
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                "No partition reassignment is in progress.",
            )
        return self._loss(tp, context.assignment(tp).origin)

    def _bad_target(self, tp: TopicPartition, target: tuple[int, ...]) -> Refusal | None:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if not target:
            return code, "Empty replica list specified in partition reassignment."
        if any(broker < 0 for broker in target):
            return code, "Invalid broker id in replica list."
        if len(set(target)) != len(target):
            return code, "Duplicate replica ids in partition reassignment replica list."
        # A replica that already has the data may be down for the moment.
        origin = self._context.assignment(tp).origin
        alive = self._context.live_broker_ids
        if any(broker not in alive for broker in target if broker not in origin):
            dead = "Replica assignment has brokers that are not alive."
            named = list(target[:NAMED_BROKERS_MAX])
            return code, f"{dead} Replica list: {named}, live broker IDs: {alive}"
        return None

    def _loss(self, tp: TopicPartition, target: tuple[int, ...]) -> Refusal | None:
        """Return a refusal to delete the last in-sync replica, else None.

        A replica of an earlier target may be the only one that has all records. (Apache Kafka 2.7.2
        deletes it.)
        """
        state = self._context.leadership.get(tp)
        left = list(self._context.assignment(tp).reassign_to(target).replicas)
        if state is None or any(broker in left for broker in state.leader_and_isr.isr):
            return None
        in_sync = list(state.leader_and_isr.isr)
        message = f"Records would be lost: of replicas {left} none is in sync, only {in_sync}."
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message

    # --- U: update of the target -------------------------------------------------------------

    async def _update_assignment(self, tp: TopicPartition, moving: ReplicaAssignment) -> None:
        before = self._context.assignment(tp)
        if moving != before:
            await self._write(tp, moving)  # U1
        self._context.set_assignment(tp, moving)  # U2
        unwanted = [broker for broker in before.replicas if broker not in moving.replicas]
        state = self._context.leadership.get(tp)
        await self._stop(tp, unwanted)  # U3
        if state is not None and state.leader_and_isr.leader in unwanted:
            # Elect a leader from the ISR, which no other step does. (Nor does Apache Kafka 2.7.2.)
            await self._transitions.bring_online([tp], ElectionStrategy.OFFLINE)
        if moving.is_being_reassigned:
            # Deletion waits for the end of the move.
            self._cluster.deletion.mark_ineligible([tp.topic])

    async def _write(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        # The whole topic is written, whichever partition moves.
        await self._spend(len(self._context.topics[tp.topic]))
        # The store is authoritative for the other partitions: some may have been added that this
        # controller has not noticed yet.
        await self._store.update_topic_assignment(
            tp.topic,
            lambda topic: {**topic, tp.partition: assignment},
            self._context.epoch_zk_version,
        )

    async def _stop(self, tp: TopicPartition, broker_ids: Iterable[int]) -> None:
        """Take replicas offline and delete their data (B4, B5, U3)."""
        replicas = [PartitionAndReplica(tp, broker_id) for broker_id in broker_ids]
        if not replicas:
            return
        await self._transitions.take_offline(replicas)
        alive = self._context.live_brokers
        self._cluster.deletion.mark_leaving(r for r in replicas if r.broker_id in alive)
        for state in _STATES_OF_DELETION:
            await self._transitions.move_replicas(replicas, state)

    # --- A and B: progress and completion ----------------------------------------------------

    async def advance(self, tp: TopicPartition) -> None:
        """Perform the next step for a partition that moves, or has just stopped moving."""
        if self._cluster.deletion.is_started(tp.topic):
            # Deleted replicas would be created again. (In Apache Kafka 2.7.2 they are, when a
            # broker starts.)
            return
        assignment = self._context.assignment(tp)
        if not self.is_in_sync(tp):
            # A mere change of the order waits for replicas that are down, too.
            self._context.reassigning[tp] = None
            await self._transitions.bump_leader_epoch(tp, assignment.replicas)  # A1
            adding = [PartitionAndReplica(tp, broker_id) for broker_id in assignment.adding]
            # A replica on a broker that has restarted is already being added.
            fresh = [
                replica
                for replica in adding
                if self._transitions.replicas.is_legal(replica, ReplicaState.NEW)
            ]
            await self._transitions.move_replicas(fresh, ReplicaState.NEW)  # A2
            return
        await self._complete(tp, assignment)

    def is_in_sync(self, tp: TopicPartition) -> bool:
        """Return whether every replica of the target is in the ISR."""
        state = self._context.leadership.get(tp)
        if state is None:
            return False
        isr = state.leader_and_isr.isr
        return all(broker in isr for broker in self._context.assignment(tp).target)

    async def _complete(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        adding = [PartitionAndReplica(tp, broker_id) for broker_id in assignment.adding]
        await self._transitions.move_replicas(adding, ReplicaState.ONLINE)  # B1
        done = ReplicaAssignment(assignment.target)
        self._context.set_assignment(tp, done)  # B2
        await self._lead_from_target(tp, done)  # B3
        await self._stop(tp, assignment.removing)  # B4, B5
        if done != assignment:
            # A write is as long as the topic is wide: a request may name each of its partitions.
            await self._write(tp, done)  # B6
        await self._remove_from_znode([tp])  # B7
        self._batch.add_update_metadata([tp])  # B8
        self._cluster.deletion.resume([tp.topic])
        await self._cluster.run_deletions()

    async def _lead_from_target(self, tp: TopicPartition, done: ReplicaAssignment) -> None:
        leader = self._context.leadership[tp].leader_and_isr.leader
        if leader in done.replicas and self._context.is_replica_online(leader, tp):
            await self._transitions.bump_leader_epoch(tp, done.replicas)
        else:
            await self._transitions.bring_online([tp], ElectionStrategy.REASSIGN)

    async def _remove_from_znode(self, partitions: Sequence[TopicPartition]) -> None:
        asked = await self._store.get_partition_reassignment()
        done = set(partitions)
        left = {tp: replicas for tp, replicas in asked.items() if tp not in done}
        if len(left) < len(asked):
            await self._store.set_or_delete_partition_reassignment(
                left, self._context.epoch_zk_version
            )

    # --- continuation ------------------------------------------------------------------------

    async def resume(self) -> None:
        """Continue the reassignments that the store says are in progress, as a new controller."""
        for tp in list(self._context.reassigning):
            if not self._context.is_to_be_deleted(tp.topic):
                await self.advance(tp)

    async def isrs_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue moves whose new replicas may all be in sync now."""
        for tp in partitions:
            await self._spend()
            if tp in self._context.reassigning and self.is_in_sync(tp):
                await self.advance(tp)

    async def brokers_started(self, broker_ids: Sequence[int]) -> None:
        """Continue moves to brokers that have just started."""
        for tp in list(self._context.reassigning):
            await self._spend()
            target = self._context.assignment(tp).target
            if any(broker in target for broker in broker_ids):
                await self.advance(tp)
