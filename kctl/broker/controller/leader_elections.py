"""LeaderElections: elections that somebody asks for, preferred or unclean.

They come as a request (ElectLeaders, KIP-460) or, in the old way, by the znode
`/admin/preferred_replica_election`, which goes when it is done with. A partition that is led as
wanted already needs none; what cannot be done is said per partition.

Kafka 2.7: kafka.controller.KafkaController (processReplicaLeaderElection, onReplicaElection).
"""

from collections.abc import Iterable, Iterator

from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.elections import Election, ElectionStrategy
from kctl.broker.controller.state_changes import StateChanges
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kctl.store.cluster_store import ClusterStore

PREFERRED = 0
UNCLEAN = 1
_STRATEGIES = {PREFERRED: ElectionStrategy.PREFERRED, UNCLEAN: ElectionStrategy.UNCLEAN}
_NOBODY = {
    PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}

# Error code and words for the client.
Refusal = tuple[int, str | None]


class LeaderElections:
    """Part of the active controller."""

    def __init__(
        self, context: ControllerContext, changes: StateChanges, store: ClusterStore
    ) -> None:
        self._context = context
        self._changes = changes
        self._store = store

    async def elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """A result per partition; with no partitions named, all of them."""
        if request.election_type not in _STRATEGIES:
            return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topic_partitions
        if asked is None:
            partitions = list(self._context.partitions())
        else:
            partitions = [
                TopicPartition(topic.topic, n) for topic in asked for n in topic.partition_id
            ]
        results = await self._elect(partitions, request.election_type)
        return _response(results)

    async def elect_by_znode(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that `/admin/preferred_replica_election` names; then the znode goes."""
        await self._elect(partitions, PREFERRED)
        await self._store.delete_preferred_replica_election(self._context.epoch_zk_version)

    async def _elect(
        self, partitions: Iterable[TopicPartition], election_type: int
    ) -> dict[TopicPartition, Refusal]:
        results: dict[TopicPartition, Refusal] = {}
        electable = []
        for tp in partitions:
            refusal = self._refusal(tp, election_type)
            results[tp] = refusal or (ErrorCode.NONE, None)
            if refusal is None:
                electable.append(tp)
        outcomes = await self._changes.bring_online(electable, _STRATEGIES[election_type])
        for tp in electable:
            outcome = outcomes.get(tp)
            if not isinstance(outcome, Election):
                results[tp] = (_NOBODY[election_type], str(outcome or "its state is unknown"))
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


def _response(results: dict[TopicPartition, Refusal]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for tp, (error_code, message) in results.items():
        topic = topics.setdefault(tp.topic, ReplicaElectionResult(topic=tp.topic))
        topic.partition_result.append(
            PartitionResult(partition_id=tp.partition, error_code=error_code, error_message=message)
        )
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


def elected(response: ElectLeadersResponse) -> Iterator[TopicPartition]:
    """The partitions of a response that were given a leader."""
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            if result.error_code == ErrorCode.NONE:
                yield TopicPartition(topic.topic, result.partition_id)
