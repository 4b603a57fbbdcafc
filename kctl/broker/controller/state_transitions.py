"""StateTransitions: moves of partitions and replicas that need the metadata store.

Each method lets the pure selectors decide, writes conditionally, and only then changes the context
and the state machines and adds to the request batch. It decides first on the states in the context:
a write that succeeds proves that they were current. Where one conflicts, or where there would be
nothing to write, the state is read from the store and decided on again. All writes are fenced by
the controller epoch: ControllerMovedError ends the event, and states that were not written are
unchanged. A partition or replica whose move is illegal stays as it is, with a warning.
Writes of many partitions run concurrently. Every loop over partitions or replicas spends units of a
Pace, so that a topic of any size is changed over several turns of the loop.

Kafka 2.7: kafka.controller.{ZkPartitionStateMachine, ZkReplicaStateMachine}.
"""

from collections.abc import Iterable, Sequence

from kctl.broker.controller import leader_election_algorithms as elections
from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.failed_transitions import FailedTransitions
from kctl.broker.controller.leader_election_algorithms import Election, ElectionStrategy
from kctl.broker.controller.partition_state_machine import PartitionState, PartitionStateMachine
from kctl.broker.controller.replica_state_machine import ReplicaState, ReplicaStateMachine
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.errors import KctlError
from kctl.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.runtime.runtime import Runtime
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import ControllerMovedError, NodeExistsError, StoreError
from kctl.store.znodes import LeaderIsrAndControllerEpoch
from kctl.work import Pace

# After this many consecutive conflicts with other writers, a state is skipped in this event.
MAX_WRITE_ATTEMPTS = 100
UNCLEAN_CONFIG = "unclean.leader.election.enable"

ElectionOutcomes = dict[TopicPartition, Election | KctlError]
States = dict[TopicPartition, LeaderIsrAndControllerEpoch]


class StateTransitions:
    """Executes moves of the two state machines."""

    def __init__(
        self,
        context: ControllerContext,
        batch: ControllerBrokerRequestBatch,
        store: ClusterStore,
        runtime: Runtime,
        pace: Pace,
        *,
        unclean_election_default: bool,
    ) -> None:
        self.context = context
        self.partitions = PartitionStateMachine()
        self.replicas = ReplicaStateMachine()
        self._batch = batch
        self._store = store
        self._trace = runtime.trace
        self._failures = FailedTransitions(runtime.scheduler, runtime.trace)
        self._pace = pace
        # Of topics without the config.
        self.unclean_election_default = unclean_election_default

    def clear(self) -> None:
        """Clear all states (the controller resigns)."""
        self.partitions.clear()
        self.replicas.clear()
        self._failures.clear()

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove the states of partitions whose znodes another client removed."""
        for tp in partitions:
            self.partitions.forget(tp)
            self._failures.resolve(tp)

    # --- partitions

    async def move_partitions(
        self, partitions: Iterable[TopicPartition], target: PartitionState
    ) -> None:
        """Make the moves that need no store: to NEW, OFFLINE and NON_EXISTENT."""
        legal = await self._legal_partitions(partitions, target)
        async for part in self._pace.over(legal):
            for partition in part:
                self.partitions.move(partition, target)

    async def bring_online(
        self, partitions: Iterable[TopicPartition], strategy: ElectionStrategy
    ) -> ElectionOutcomes:
        """Elect leaders: the first one for NEW partitions, a new one by `strategy` for others."""
        legal = await self._legal_partitions(partitions, PartitionState.ONLINE)
        new = [tp for tp in legal if self.partitions.state(tp) is PartitionState.NEW]
        led_before = [tp for tp in legal if self.partitions.state(tp) is not PartitionState.NEW]
        outcomes: ElectionOutcomes = {}
        if new:
            outcomes.update(await self._initialize(new))
        if led_before:
            outcomes.update(await self.elect(led_before, strategy))
        return outcomes

    async def bring_all_online(self) -> None:
        """Elect leaders for all partitions without one, except of topics being deleted."""
        waiting = [
            tp
            for state in (PartitionState.OFFLINE, PartitionState.NEW)
            for tp in self.partitions.in_state(state)
            if not self.context.is_to_be_deleted(tp.topic)
        ]
        if waiting:
            await self.bring_online(waiting, ElectionStrategy.OFFLINE)

    async def _initialize(self, partitions: Sequence[TopicPartition]) -> ElectionOutcomes:
        outcomes: ElectionOutcomes = {}
        states: States = {}
        async for part in self._pace.over(partitions):
            for tp in part:
                first = elections.initial_leader_and_isr(self.context, tp)
                if first is None:
                    outcomes[tp] = self._failed(tp, "no replica of the new partition is alive")
                else:
                    states[tp] = LeaderIsrAndControllerEpoch(first, self.context.epoch)
        if not states:
            return outcomes
        results = await self._store.create_partition_states(states, self.context.epoch_zk_version)
        exists = [tp for tp, error in results.items() if isinstance(error, NodeExistsError)]
        found = await self._store.get_partition_states(exists) if exists else {}
        async for created in self._pace.over(results.items()):
            for tp, error in created:
                # After a lost response this is our own write: the znode then has our epoch.
                ours = found.get(tp)
                is_ours = ours is not None and ours.controller_epoch == self.context.epoch
                if error is None or is_ours:
                    state = ours or states[tp]
                    self._become_online(tp, state, state.leader_and_isr.isr, is_new=True)
                    outcomes[tp] = Election(state.leader_and_isr, state.leader_and_isr.isr)
                else:
                    outcomes[tp] = self._failed(tp, f"its state could not be created: {error}")
        return outcomes

    async def elect(
        self, partitions: Iterable[TopicPartition], strategy: ElectionStrategy
    ) -> ElectionOutcomes:
        """Elect a leader for each partition; those without an eligible replica stay unchanged."""
        outcomes: ElectionOutcomes = {}
        remaining = await self._elect_once(partitions, strategy, outcomes, from_store=False)
        for _ in range(MAX_WRITE_ATTEMPTS):
            if not remaining:
                return outcomes
            remaining = await self._elect_once(remaining, strategy, outcomes, from_store=True)
        for tp in remaining:
            outcomes[tp] = self._failed(tp, "its state changes faster than it can be written")
        return outcomes

    async def _elect_once(
        self,
        partitions: Iterable[TopicPartition],
        strategy: ElectionStrategy,
        outcomes: ElectionOutcomes,
        *,
        from_store: bool,
    ) -> list[TopicPartition]:
        """Elect on the states in the store or in the context; return the partitions whose state
        must be read from the store (again)."""
        undecided: list[TopicPartition] = []
        if from_store:
            states = await self._read_states(list(partitions), outcomes)
        else:
            states = await self._known_states(partitions, undecided)
        unclean = await self._unclean_allowed(states, strategy)
        chosen: dict[TopicPartition, Election] = {}
        async for part in self._pace.over(states.items()):
            for tp, state in part:
                election = elections.elect(
                    self.context,
                    tp,
                    state.leader_and_isr,
                    strategy,
                    unclean_allowed=unclean.get(tp.topic, False),
                )
                if election.leader_and_isr is not None:
                    chosen[tp] = election
                elif not from_store:
                    undecided.append(tp)
                else:
                    why = f"Failed to elect leader for partition {tp} under strategy"
                    outcomes[tp] = self._failed(tp, f"{why} {strategy.value}")
        updates = {tp: e.leader_and_isr for tp, e in chosen.items() if e.leader_and_isr}
        finished, to_retry = await self._write(updates)
        async for written in self._pace.over(finished.items()):
            for tp, result in written:
                outcomes[tp] = self._elected(tp, chosen[tp], result)
        return undecided + to_retry

    def _elected(
        self, tp: TopicPartition, chosen: Election, result: LeaderAndIsr | StoreError
    ) -> Election | KctlError:
        if isinstance(result, StoreError):
            return self._failed(tp, f"its state could not be written: {result}")
        state = LeaderIsrAndControllerEpoch(result, self.context.epoch)
        self._become_online(tp, state, chosen.recipients, is_new=False)
        if chosen.is_unclean:
            self._trace.event("unclean_election", partition=tp, leader=result.leader)
        return Election(result, chosen.recipients, chosen.is_unclean)

    async def _known_states(
        self, partitions: Iterable[TopicPartition], unknown: list[TopicPartition]
    ) -> States:
        """Return the states in the context; append partitions without one to `unknown`."""
        found: States = {}
        leadership = self.context.leadership
        async for part in self._pace.over(partitions):
            for tp in part:
                state = leadership.get(tp)
                if state is None:
                    unknown.append(tp)
                else:
                    found[tp] = state
        return found

    async def _read_states(
        self, partitions: Sequence[TopicPartition], outcomes: ElectionOutcomes
    ) -> States:
        found = await self._store.get_partition_states(partitions)
        async for part in self._pace.over(partitions):
            for tp in part:
                state = found.get(tp)
                if state is None:
                    outcomes[tp] = self._failed(
                        tp, f"LeaderAndIsr information doesn't exist for partition {tp}"
                    )
                elif state.controller_epoch > self.context.epoch:
                    # Written by a newer controller; the fence would reject this write anyway.
                    raise ControllerMovedError(znodes.CONTROLLER_EPOCH)
        return found

    async def _unclean_allowed(self, states: States, strategy: ElectionStrategy) -> dict[str, bool]:
        if strategy is ElectionStrategy.UNCLEAN:
            return dict.fromkeys((tp.topic for tp in states), True)
        if strategy is not ElectionStrategy.OFFLINE:
            return {}
        topics: dict[str, None] = {}
        async for part in self._pace.over(states.items()):
            for tp, state in part:
                if elections.needs_unclean(self.context, tp, state.leader_and_isr.isr):
                    topics[tp.topic] = None
        configs = await self._store.get_entity_configs(znodes.TOPIC_CONFIGS, list(topics))
        default = "true" if self.unclean_election_default else "false"
        return {
            topic: config.get(UNCLEAN_CONFIG, default).lower() == "true"
            for topic, config in configs.items()
        }

    async def bump_leader_epoch(self, partition: TopicPartition, recipients: Iterable[int]) -> None:
        """Write the partition's state under the next leader epoch and send it to `recipients` with
        the new assignment."""
        outcomes: ElectionOutcomes = {}
        for _ in range(MAX_WRITE_ATTEMPTS):
            state = (await self._read_states([partition], outcomes)).get(partition)
            if state is None:
                return
            bumped = self._next_epoch(partition, state.leader_and_isr)
            finished, to_retry = await self._write({partition: bumped})
            if to_retry:
                continue
            result = finished[partition]
            if isinstance(result, StoreError):
                self._failed(partition, f"its leader epoch could not be raised: {result}")
            else:
                written = LeaderIsrAndControllerEpoch(result, self.context.epoch)
                self.context.leadership[partition] = written
                self._batch.add_leader_and_isr(recipients, partition, is_new=False)
            return
        self._failed(partition, "its state changes faster than it can be written")

    def _next_epoch(self, partition: TopicPartition, current: LeaderAndIsr) -> LeaderAndIsr:
        """Return the state with the next leader epoch, without replicas that are no longer
        assigned.

        Below inter-broker protocol 2.7-IV2 a leader that does not know the new assignment may have
        added one.
        """
        assigned = self.context.assignment(partition).replicas
        isr = tuple(broker for broker in current.isr if broker in assigned)
        return current._replace(leader_epoch=current.leader_epoch + 1, isr=isr or current.isr)

    def _become_online(
        self,
        partition: TopicPartition,
        state: LeaderIsrAndControllerEpoch,
        recipients: Iterable[int],
        *,
        is_new: bool,
    ) -> None:
        self.context.leadership[partition] = state
        self.partitions.move(partition, PartitionState.ONLINE)
        self._failures.resolve(partition)
        self._batch.add_leader_and_isr(recipients, partition, is_new=is_new)
        current = state.leader_and_isr
        self._trace.event(
            "leader_elected",
            partition=partition,
            leader=current.leader,
            leader_epoch=current.leader_epoch,
            isr=current.isr,
        )

    # --- replicas

    async def move_replicas(
        self, replicas: Iterable[PartitionAndReplica], target: ReplicaState
    ) -> None:
        """Make the moves that need no store: all but to OFFLINE."""
        async for part in self._pace.over(await self._legal_replicas(replicas, target)):
            if target is ReplicaState.ONLINE:
                self._announce_online(part)
            for replica in part:
                if target is ReplicaState.NEW and not self._announce_new(replica):
                    continue
                if target is ReplicaState.DELETION_STARTED:
                    self._batch.add_stop_replica(replica, delete=True)
                elif target is ReplicaState.NON_EXISTENT:
                    self.context.remove_replica(replica)
                self.replicas.move(replica, target)

    def _announce_new(self, replica: PartitionAndReplica) -> bool:
        state = self.context.leadership.get(replica.partition)
        if state is None:
            return True
        if state.leader_and_isr.leader == replica.broker_id:
            self._failed(replica.partition, f"replica {replica.broker_id} is new and leads it")
            return False
        self._batch.add_leader_and_isr([replica.broker_id], replica.partition, is_new=True)
        return True

    def _announce_online(self, replicas: Sequence[PartitionAndReplica]) -> None:
        known: dict[int, list[TopicPartition]] = {}
        for replica in replicas:
            partition, broker_id = replica
            if self.replicas.state(replica) is ReplicaState.NEW:
                assignment = self.context.assignment(partition)
                if broker_id not in assignment.replicas:
                    self.context.set_assignment(
                        partition, ReplicaAssignment((*assignment.replicas, broker_id))
                    )
            elif partition in self.context.leadership:
                known.setdefault(broker_id, []).append(partition)
        self._batch.add_known(known)

    async def take_offline(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Stop the replicas and remove them from their partitions' ISRs."""
        by_broker: dict[int, list[TopicPartition]] = {}
        legal = await self._legal_replicas(replicas, ReplicaState.OFFLINE)
        async for part in self._pace.over(legal):
            for replica in part:
                self._batch.add_stop_replica(replica, delete=False)
                if replica.partition in self.context.leadership:
                    by_broker.setdefault(replica.broker_id, []).append(replica.partition)
                else:
                    self.replicas.move(replica, ReplicaState.OFFLINE)
                    self._batch.add_update_metadata([replica.partition])
        for broker_id in sorted(by_broker):
            await self._take_broker_offline(broker_id, by_broker[broker_id])

    async def _take_broker_offline(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> None:
        states = await self._remove_from_isr(broker_id, partitions)
        async for part in self._pace.over(partitions):
            known: dict[int, list[TopicPartition]] = {}
            for tp in part:
                state = states.get(tp)
                is_to_be_deleted = self.context.is_to_be_deleted(tp.topic)
                if state is None and not is_to_be_deleted:
                    continue
                if state is not None:
                    self.context.leadership[tp] = state
                if not is_to_be_deleted:
                    for other in self.context.assignment(tp).replicas:
                        if other != broker_id:
                            known.setdefault(other, []).append(tp)
                self.replicas.move(PartitionAndReplica(tp, broker_id), ReplicaState.OFFLINE)
            self._batch.add_known(known)
            self._batch.add_update_metadata(
                tp for tp in part if not self.context.is_to_be_deleted(tp.topic)
            )

    async def _remove_from_isr(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> States:
        done: States = {}
        unknown: list[TopicPartition] = []
        states = await self._known_states(partitions, unknown)
        unchanged, conflicts = await self._remove_once(broker_id, states, done)
        remaining = unknown + unchanged + conflicts
        for _ in range(MAX_WRITE_ATTEMPTS):
            if not remaining:
                return done
            states = await self._store.get_partition_states(remaining)
            async for part in self._pace.over(remaining):
                for tp in part:
                    if tp not in states and not self.context.is_to_be_deleted(tp.topic):
                        self._failed(tp, "it has no state to remove a replica from")
            unchanged, remaining = await self._remove_once(broker_id, states, done)
            async for part in self._pace.over(unchanged):
                done.update((tp, states[tp]) for tp in part)
        for tp in remaining:
            self._failed(tp, "its state changes faster than it can be written")
        return done

    async def _remove_once(
        self, broker_id: int, states: States, done: States
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Add the states without the broker, once written, to `done`; return the partitions
        (whose ISR is without it, whose state has changed)."""
        updates: dict[TopicPartition, LeaderAndIsr] = {}
        unchanged: list[TopicPartition] = []
        async for part in self._pace.over(states.items()):
            for tp, state in part:
                if broker_id in state.leader_and_isr.isr:
                    updates[tp] = _without(broker_id, state.leader_and_isr)
                else:
                    unchanged.append(tp)
        finished, conflicts = await self._write(updates)
        async for written in self._pace.over(finished.items()):
            for tp, result in written:
                if isinstance(result, StoreError):
                    self._failed(tp, f"its ISR could not be written: {result}")
                else:
                    done[tp] = LeaderIsrAndControllerEpoch(result, self.context.epoch)
        return unchanged, conflicts

    # --- shared

    async def _write(
        self, updates: dict[TopicPartition, LeaderAndIsr]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr | StoreError], list[TopicPartition]]:
        if not updates:
            return {}, []
        return await self._store.update_leader_and_isr(
            updates, self.context.epoch, self.context.epoch_zk_version
        )

    async def _legal_partitions(
        self, partitions: Iterable[TopicPartition], target: PartitionState
    ) -> list[TopicPartition]:
        legal = []
        async for part in self._pace.over(partitions):
            for tp in part:
                if self.partitions.is_legal(tp, target):
                    legal.append(tp)
                else:
                    state = self.partitions.state(tp)
                    self._failed(tp, f"it cannot move from {state.value} to {target.value}")
        return legal

    async def _legal_replicas(
        self, replicas: Iterable[PartitionAndReplica], target: ReplicaState
    ) -> list[PartitionAndReplica]:
        legal: list[PartitionAndReplica] = []
        async for part in self._pace.over(replicas):
            legal_of_part, illegal = self.replicas.split(part, target)
            legal += legal_of_part
            for replica in illegal:
                state = self.replicas.state(replica)
                self._failed(
                    replica.partition,
                    f"replica {replica.broker_id} cannot move from {state.value} to {target.value}",
                )
        return legal

    def _failed(self, partition: TopicPartition, why: str) -> KctlError:
        self._failures.add(partition, why)
        return KctlError(why)


def _without(broker_id: int, current: LeaderAndIsr) -> LeaderAndIsr:
    """Return `current` without the broker; the last in-sync replica stays in the ISR."""
    leader = NO_LEADER if current.leader == broker_id else current.leader
    isr = current.isr
    if len(isr) > 1:
        isr = tuple(replica for replica in isr if replica != broker_id)
    return LeaderAndIsr(leader, current.leader_epoch + 1, isr, current.zk_version)
