"""RequestedElections: elections on request, preferred or unclean.

They arrive as a request (ElectLeaders, KIP-460) or, in the old way, in the znode
`/admin/preferred_replica_election`, which is deleted afterwards. A partition whose leader is the
requested one needs no election; errors are reported per partition.

Kafka 2.7: kafka.controller.KafkaController (processReplicaLeaderElection, onReplicaElection).
"""

from collections.abc import Iterable, Iterator

from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.leader_election_algorithms import Election, ElectionStrategy
from kctl.broker.controller.state_transitions import StateTransitions
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kctl.store.cluster_store import ClusterStore
from kctl.work import Pace

PREFERRED = 0
UNCLEAN = 1
_STRATEGIES = {PREFERRED: ElectionStrategy.PREFERRED, UNCLEAN: ElectionStrategy.UNCLEAN}
_NO_LEADER_ERRORS = {
    PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}

# Error code and message for the client.
Refusal = tuple[int, str | None]


class RequestedElections:
    """Executes requested elections for the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        transitions: StateTransitions,
        store: ClusterStore,
        pace: Pace,
    ) -> None:
        self._context = context
        self._transitions = transitions
        self._store = store
        self._spend = pace.spend

    async def elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect leaders, for all partitions if none are named; return a result per partition."""
        if request.election_type not in _STRATEGIES:
            return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topic_partitions
        if asked is None:
            partitions = list(self._context.partitions())
        else:
            partitions = []
            for topic in asked:
                for number in topic.partition_id:
                    await self._spend()
                    partitions.append(TopicPartition(topic.topic, number))
        results = await self._elect(partitions, request.election_type)
        return await self._response(results)

    async def elect_by_znode(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect the partitions in `/admin/preferred_replica_election`, then delete the znode."""
        await self._elect(partitions, PREFERRED)
        await self._store.delete_preferred_replica_election(self._context.epoch_zk_version)

    async def _elect(
        self, partitions: Iterable[TopicPartition], election_type: int
    ) -> dict[TopicPartition, Refusal]:
        results: dict[TopicPartition, Refusal] = {}
        electable = []
        for tp in partitions:
            await self._spend()
            refusal = self._refusal(tp, election_type)
            results[tp] = refusal or (ErrorCode.NONE, None)
            if refusal is None:
                electable.append(tp)
        outcomes = await self._transitions.bring_online(electable, _STRATEGIES[election_type])
        for tp in electable:
            await self._spend()
            outcome = outcomes.get(tp)
            if not isinstance(outcome, Election):
                results[tp] = (
                    _NO_LEADER_ERRORS[election_type],
                    str(outcome or "its state is unknown"),
                )
        return results

    def _refusal(self, tp: TopicPartition, election_type: int) -> Refusal | None:
        context = self._context
        known = context.leadership.get(tp)
        if context.is_to_be_deleted(tp.topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
        if tp.partition not in context.topics.get(tp.topic, ()):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        if known is None:
            return None
        leader = known.leader_and_isr.leader
        if election_type == PREFERRED:
            is_needed = leader != context.assignment(tp).replicas[0]
        else:
            is_needed = not context.is_replica_online(leader, tp)
        if not is_needed:
            return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition"
        return None

    async def _response(self, results: dict[TopicPartition, Refusal]) -> ElectLeadersResponse:
        topics: dict[str, ReplicaElectionResult] = {}
        for tp, (error_code, message) in results.items():
            await self._spend()
            topic = topics.setdefault(tp.topic, ReplicaElectionResult(topic=tp.topic))
            topic.partition_result.append(
                PartitionResult(
                    partition_id=tp.partition, error_code=error_code, error_message=message
                )
            )
        return ElectLeadersResponse(replica_election_results=list(topics.values()))


def elected(response: ElectLeadersResponse) -> Iterator[TopicPartition]:
    """Yield the partitions of a response that have a new leader."""
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            if result.error_code == ErrorCode.NONE:
                yield TopicPartition(topic.topic, result.partition_id)
