"""AlterIsrManager: requests changes to the ISRs of partitions led here from the controller.

A follower that has caught up is proposed at its fetch; followers that lag are found by a periodic
check. There is one proposal per partition at a time; the proposals of one turn of the loop go in
one request, and one request is in flight at a time. The partition takes a proposal into account as
soon as it is made (see `isr_state`), and adopts the state in the controller's response.

Below inter-broker protocol 2.7-IV2 a leader writes its partition's state itself and notifies the
controller: `StoreIsrWriter`.

Kafka 2.7: kafka.server.{DefaultAlterIsrManager, ReplicaManager (maybeShrinkIsr,
maybePropagateIsrChanges)}, kafka.cluster.Partition; KIP-497.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kctl.broker.replication.isr_state import IsrState
from kctl.broker.replication.partition import Partition
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.alter_isr import (
    AlterIsrRequest,
    AlterIsrResponse,
    PartitionData,
    TopicData,
)
from kctl.protocol.schema import Message
from kctl.runtime.future import Future, Task
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import alone_in_turns
from kctl.store.cluster_store import ClusterStore
from kctl.work import Work

RETRY_PAUSE_MS = 50
# Partitions whose followers are checked in one turn.
CHECKED_PER_TURN = 1_000
# After these errors the controller sends, or has sent, a LeaderAndIsr with the current state.
SETTLED_BY_CONTROLLER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
    }
)


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that a leader proposes, based on the current state of the partition."""

    topic_partition: TopicPartition
    # The proposed state: leader, its epoch, the new ISR, the version it replaces.
    leader_and_isr: LeaderAndIsr
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """The response of the controller, or of the store, to a proposal."""

    error_code: int
    leader_epoch: int = -1
    isr: Sequence[int] = ()
    zk_version: int = -1


class IsrWriter(Protocol):
    """Accepts or rejects proposals."""

    async def alter(self, proposals: Sequence[IsrProposal]) -> Mapping[TopicPartition, IsrAnswer]:
        """Return an answer per partition; raise KctlError if there was no response."""
        ...


class AlterIsrManager:
    """Watches the ISRs of the partitions that this broker leads."""

    def __init__(
        self,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        writer: IsrWriter,
        replica_lag_ms_max: int,
    ) -> None:
        self._runtime = runtime
        self._warnings = RecurringWarnings(runtime)
        self._replicas = replica_manager
        self._writer = writer
        self._check_interval_ms = max(1, replica_lag_ms_max // 2)
        # Proposals to send, by partition, in order of arrival.
        self._waiting: dict[TopicPartition, IsrProposal] = {}
        self._sender: Task[None] | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin to check for followers that lag."""
        self._replicas.on_follower_fetch(self._on_follower_fetch)
        self._set_timer()

    def shutdown(self) -> None:
        """Stop proposing."""
        self._is_stopped = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    # --- what to propose ---------------------------------------------------------------------

    def _on_follower_fetch(self, partition: Partition, broker_id: int) -> None:
        if partition.wants_in_sync(broker_id):
            self._propose(partition, partition.expand_isr(broker_id))

    def _set_timer(self) -> None:
        self._timer = self._runtime.scheduler.call_later(self._check_interval_ms, self._check)

    def _check(self) -> None:
        self._set_timer()
        alone_in_turns(self._runtime.scheduler, self._checking())

    def _checking(self) -> Work[None]:
        """Propose to remove the followers that lag, CHECKED_PER_TURN partitions in one turn."""
        now_ms = self._runtime.clock.wall_ms()
        partitions = self._replicas.partitions
        for number, partition in enumerate(list(partitions.values())):
            if number and number % CHECKED_PER_TURN == 0:
                yield
                now_ms = self._runtime.clock.wall_ms()
            # Skip partitions without followers or without lagging ones early: they are the
            # majority.
            if not partition.followers:
                continue
            if partitions.get(partition.topic_partition) is not partition:
                continue
            behind = partition.out_of_sync(now_ms)
            if behind:
                self._runtime.trace.info(
                    f"{partition.topic_partition}: replicas {behind} are out of sync"
                )
                self._propose(partition, partition.shrink_isr(behind))

    def _propose(self, partition: Partition, state: IsrState) -> None:
        if self._is_stopped:
            return
        self._waiting[partition.topic_partition] = IsrProposal(
            partition.topic_partition,
            LeaderAndIsr(
                self._replicas.broker_id, partition.leader_epoch, state.wanted, partition.zk_version
            ),
            partition.controller_epoch,
        )
        if self._sender is None or self._sender.done:
            self._sender = self._runtime.scheduler.spawn(self._send_all(), "alter-isr")

    # --- requests ----------------------------------------------------------------------------

    async def _send_all(self) -> None:
        await self._pause(0)
        while self._waiting and not self._is_stopped:
            proposals = list(self._waiting.values())
            self._waiting.clear()
            try:
                answers = await self._writer.alter(proposals)
            except KctlError as error:
                self._warnings.warn(None, f"Cannot change ISRs, will retry: {error}")
                self._retry(proposals)
                await self._pause(RETRY_PAUSE_MS)
                continue
            self._warnings.clear()
            failed = [p for p in proposals if not self._settle(p, answers.get(p.topic_partition))]
            if failed:
                self._retry(failed)
                await self._pause(RETRY_PAUSE_MS)

    def _retry(self, proposals: Iterable[IsrProposal]) -> None:
        """Queue the proposals that are still current."""
        for proposal in proposals:
            partition = self._replicas.partitions.get(proposal.topic_partition)
            if partition is not None and _is_current(proposal, partition):
                self._waiting.setdefault(proposal.topic_partition, proposal)

    def _settle(self, proposal: IsrProposal, answer: IsrAnswer | None) -> bool:
        """Apply the answer to one proposal; return False if it must be sent again."""
        tp = proposal.topic_partition
        partition = self._replicas.partitions.get(tp)
        if answer is None or partition is None:
            return partition is None
        if answer.error_code == ErrorCode.NONE:
            now_ms = self._runtime.clock.wall_ms()
            before = len(partition.isr)
            if partition.isr_altered(answer.isr, answer.leader_epoch, answer.zk_version, now_ms):
                self._replicas.wake(tp)
            else:
                # acks=all may have waited for one more in-sync replica.
                self._replicas.wake_produces(tp)
            self._runtime.trace.event(
                "isr_altered", partition=tp, isr=tuple(answer.isr), before=before
            )
            return True
        return answer.error_code in SETTLED_BY_CONTROLLER

    def _pause(self, delay_ms: int) -> Future[None]:
        future: Future[None] = self._runtime.scheduler.future()
        self._runtime.scheduler.call_later(delay_ms, future.set_result, None)
        return future


def _is_current(proposal: IsrProposal, partition: Partition) -> bool:
    return (
        partition.leader_epoch == proposal.leader_and_isr.leader_epoch
        and partition.zk_version == proposal.leader_and_isr.zk_version
        and partition.isr_state.is_in_flight
        and partition.isr_state.wanted == proposal.leader_and_isr.isr
    )


# --- writers
# -------------------------------------------------------------------------------------


class ControllerIsrWriter:
    """Sends proposals to the controller, by AlterIsr."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[Message], Future[Message]],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask = ask_controller

    async def alter(self, proposals: Sequence[IsrProposal]) -> Mapping[TopicPartition, IsrAnswer]:
        """Send the proposals; see IsrWriter."""
        topics: dict[str, list[PartitionData]] = {}
        for proposal in proposals:
            topic, number = proposal.topic_partition
            wanted = proposal.leader_and_isr
            topics.setdefault(topic, []).append(
                PartitionData(
                    partition_index=number,
                    leader_epoch=wanted.leader_epoch,
                    new_isr=list(wanted.isr),
                    current_isr_version=wanted.zk_version,
                )
            )
        response = await self._ask(
            AlterIsrRequest(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                topics=[TopicData(name=name, partitions=each) for name, each in topics.items()],
            )
        )
        assert isinstance(response, AlterIsrResponse)
        if response.error_code:
            raise ApiError(response.error_code)
        return {
            TopicPartition(topic.name, answer.partition_index): IsrAnswer(
                answer.error_code, answer.leader_epoch, answer.isr, answer.current_isr_version
            )
            for topic in response.topics
            for answer in topic.partitions
        }


class StoreIsrWriter:
    """Writes the partition's state to the store and notifies the controller."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store

    async def alter(self, proposals: Sequence[IsrProposal]) -> Mapping[TopicPartition, IsrAnswer]:
        """Write the proposed states; see IsrWriter."""
        answers = {}
        changed = []
        for proposal in proposals:
            tp, wanted = proposal.topic_partition, proposal.leader_and_isr
            version = await self._store.update_isr(tp, wanted, proposal.controller_epoch)
            if version is None:
                answers[tp] = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
            else:
                answers[tp] = IsrAnswer(0, wanted.leader_epoch, wanted.isr, version)
                changed.append(tp)
        if changed:
            await self._store.propagate_isr_changes(changed)
        return answers
