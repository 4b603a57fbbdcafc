"""IsrChanges: the controller confirms the in-sync replicas that leaders propose (AlterIsr).

A leader names the version of the partition's state that it knows. The write is conditional on it,
so that of two changes to one state only the first succeeds, and it is fenced by the controller
epoch. A state that already equals the proposal is confirmed as it is: the response to an earlier
request may have been lost. A leader that names an older version of a state that it still leads gets
that state. It has missed a response, to a proposal that was written without one of its brokers; no
LeaderAndIsr follows, as its epoch has not changed.

A broker that is gone or shutting down does not join: its last fetches may reach the leader late,
and records would then wait for it, or be lost with it (KAFKA-14140). Nor does one that is no longer
assigned, which a leader may not know yet. The leader gets the ISR without it.

Kafka 2.7: kafka.controller.KafkaController.processAlterIsr; KIP-497.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_isr import (
    AlterIsrRequest,
    AlterIsrResponse,
    PartitionData,
    PartitionDataResponse,
    TopicDataResponse,
)
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import StoreError
from kctl.store.znodes import LeaderIsrAndControllerEpoch
from kctl.work import Pace

Answers = dict[TopicPartition, LeaderAndIsr | int]


class IsrChanges:
    """Handles AlterIsr for the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        batch: ControllerBrokerRequestBatch,
        store: ClusterStore,
        on_changed: Callable[[Sequence[TopicPartition]], object],
        pace: Pace,
    ) -> None:
        self._context = context
        self._batch = batch
        self._store = store
        self._spend = pace.spend
        # Called with partitions whose ISR changed, after the context is updated.
        self._on_changed = on_changed

    async def alter(self, request: AlterIsrRequest) -> AlterIsrResponse:
        """Write the proposed ISRs where allowed; return a result per partition."""
        broker = self._context.live_brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AlterIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        answers: Answers = {}
        updates: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, asked in _proposals(request):
            await self._spend()
            known = self._context.leadership.get(tp)
            wanted = LeaderAndIsr(
                request.broker_id,
                asked.leader_epoch,
                self._eligible(tp, request.broker_id, asked.new_isr),
                asked.current_isr_version,
            )
            is_whole = len(wanted.isr) == len(asked.new_isr)
            if known is None:
                answers[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif self._is_outdated(wanted, known.leader_and_isr):
                answers[tp] = ErrorCode.FENCED_LEADER_EPOCH
            elif is_whole and _is_same(wanted, known.leader_and_isr):
                answers[tp] = known.leader_and_isr
            else:
                updates[tp] = wanted
        if updates:
            await self._write(updates, answers)
        return _response(answers)

    @staticmethod
    def _is_outdated(wanted: LeaderAndIsr, known: LeaderAndIsr) -> bool:
        """Return whether another broker leads now; in the same epoch, if the topic was deleted and
        created again."""
        is_older = wanted.leader_epoch < known.leader_epoch
        return is_older or wanted.leader != known.leader

    def _eligible(self, tp: TopicPartition, leader: int, isr: Iterable[int]) -> tuple[int, ...]:
        alive, assigned = self._context.live_broker_ids, self._context.assignment(tp).replicas
        return tuple(it for it in isr if it == leader or (it in alive and it in assigned))

    async def _write(self, updates: dict[TopicPartition, LeaderAndIsr], answers: Answers) -> None:
        context = self._context
        finished, to_retry = await self._store.update_leader_and_isr(
            updates, context.epoch, context.epoch_zk_version
        )
        changed = []
        outdated = dict.fromkeys(to_retry)
        # A response of the store may be lost; the retry then finds this controller's own write.
        found = await self._store.get_partition_states(to_retry) if to_retry else {}
        for tp, state in found.items():
            if state.controller_epoch == context.epoch and _is_same(
                updates[tp], state.leader_and_isr
            ):
                finished[tp] = state.leader_and_isr
                del outdated[tp]
            elif state.controller_epoch <= context.epoch and _is_led_by_same(
                updates[tp], state.leader_and_isr
            ):
                answers[tp] = state.leader_and_isr
                context.leadership[tp] = state
                del outdated[tp]
        for tp, result in finished.items():
            await self._spend()
            if isinstance(result, StoreError):
                answers[tp] = ErrorCode.UNKNOWN_SERVER_ERROR
                continue
            answers[tp] = result
            context.leadership[tp] = LeaderIsrAndControllerEpoch(result, context.epoch)
            changed.append(tp)
        for tp in outdated:
            answers[tp] = ErrorCode.INVALID_UPDATE_VERSION
        if changed:
            self._batch.add_update_metadata(changed)
            self._on_changed(changed)


def _proposals(request: AlterIsrRequest) -> Iterator[tuple[TopicPartition, PartitionData]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition


def _is_same(wanted: LeaderAndIsr, known: LeaderAndIsr) -> bool:
    return _is_led_by_same(wanted, known) and wanted.isr == known.isr


def _is_led_by_same(wanted: LeaderAndIsr, known: LeaderAndIsr) -> bool:
    return (wanted.leader, wanted.leader_epoch) == (known.leader, known.leader_epoch)


def _response(answers: Answers) -> AlterIsrResponse:
    topics: dict[str, TopicDataResponse] = {}
    for tp, answer in answers.items():
        topic = topics.setdefault(tp.topic, TopicDataResponse(name=tp.topic))
        if isinstance(answer, LeaderAndIsr):
            result_data = PartitionDataResponse(
                partition_index=tp.partition,
                leader_id=answer.leader,
                leader_epoch=answer.leader_epoch,
                isr=list(answer.isr),
                current_isr_version=answer.zk_version,
            )
        else:
            result_data = PartitionDataResponse(partition_index=tp.partition, error_code=answer)
        topic.partitions.append(result_data)
    return AlterIsrResponse(topics=list(topics.values()))
