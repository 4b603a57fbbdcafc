"""IsrChanges: the controller agrees to the in-sync replicas that leaders ask for (AlterIsr).

A leader names the version of the partition's state that it knows. The write is conditional on
it, so of two changes of one state only the first holds, and it is fenced by the controller epoch.
What is as wanted already is confirmed as it is: the answer to an earlier request may have been
lost.

A broker that is gone or on its way out does not join: its last fetches may reach the leader late,
and records would then wait for it, or be lost with it (KAFKA-14140). Nor does one that is assigned
no more, which a leader may not have heard yet. The leader gets the ISR without it.

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

Answers = dict[TopicPartition, LeaderAndIsr | int]


class IsrChanges:
    """Part of the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        batch: ControllerBrokerRequestBatch,
        store: ClusterStore,
        on_changed: Callable[[Sequence[TopicPartition]], object],
    ) -> None:
        self._context = context
        self._batch = batch
        self._store = store
        # Told of partitions whose ISR changed, after the context knows.
        self._on_changed = on_changed

    async def alter(self, request: AlterIsrRequest) -> AlterIsrResponse:
        """Carry out what can be; an answer per partition."""
        broker = self._context.live_brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AlterIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        answers: Answers = {}
        updates: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, asked in _asked(request):
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
        """Whether somebody else leads by now; in the same epoch, if the topic was deleted and
        created again."""
        is_older = wanted.leader_epoch < known.leader_epoch
        return is_older or wanted.leader != known.leader

    def _eligible(self, tp: TopicPartition, leader: int, isr: Iterable[int]) -> tuple[int, ...]:
        alive, assigned = self._context.live_broker_ids, self._context.assignment(tp).replicas
        return tuple(it for it in isr if it == leader or (it in alive and it in assigned))

    async def _write(self, updates: dict[TopicPartition, LeaderAndIsr], answers: Answers) -> None:
        context = self._context
        finished, outdated = await self._store.update_leader_and_isr(
            updates, context.epoch, context.epoch_zk_version
        )
        changed = []
        # An answer of the store may be lost; asked again, it names our own write as newer.
        found = await self._store.get_partition_states(outdated) if outdated else {}
        for tp, state in found.items():
            if state.controller_epoch == context.epoch and _is_same(
                updates[tp], state.leader_and_isr
            ):
                finished[tp] = state.leader_and_isr
                outdated.remove(tp)
        for tp, result in finished.items():
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


def _asked(request: AlterIsrRequest) -> Iterator[tuple[TopicPartition, PartitionData]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition


def _is_same(wanted: LeaderAndIsr, known: LeaderAndIsr) -> bool:
    return (wanted.leader, wanted.leader_epoch, wanted.isr) == (
        known.leader,
        known.leader_epoch,
        known.isr,
    )


def _response(answers: Answers) -> AlterIsrResponse:
    topics: dict[str, TopicDataResponse] = {}
    for tp, answer in answers.items():
        topic = topics.setdefault(tp.topic, TopicDataResponse(name=tp.topic))
        if isinstance(answer, LeaderAndIsr):
            told = PartitionDataResponse(
                partition_index=tp.partition,
                leader_id=answer.leader,
                leader_epoch=answer.leader_epoch,
                isr=list(answer.isr),
                current_isr_version=answer.zk_version,
            )
        else:
            told = PartitionDataResponse(partition_index=tp.partition, error_code=answer)
        topic.partitions.append(told)
    return AlterIsrResponse(topics=list(topics.values()))
