"""ElectLeaders: preferred and unclean elections, for some partitions or all.

Behaviour:

- Only the controller's broker handles it; others return NOT_CONTROLLER for every partition.
- Replies when this broker's own cache has the new leaders; partitions for which it has none
  within timeout_ms are REQUEST_TIMED_OUT.
- If no partitions are named, those that need no election are omitted from the response.

Versions: 0-2. v1 unclean elections and a top-level error; v2 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleElectReplicaLeader, DelayedElectLeader; KIP-460.
"""

from collections.abc import Iterator

from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kctl.runtime.turns import next_turn, pace_of
from kctl.work import Pace

# Results of a topic that are looked at in a unit of Pace.
REMOVED_PER_UNIT = 50


def handle_elect_leaders(services: Services, request: Request) -> None:
    """Reply when the election is done and its result is in this broker's cache."""
    reply_from(
        services.runtime.scheduler, request, _elect_leaders(services, request), "elect-leaders"
    )


async def _elect_leaders(services: Services, request: Request) -> None:
    body: ElectLeadersRequest = request.body
    response = await services.controller.ask(body)
    # The controller has used this turn.
    await next_turn(services.runtime.scheduler)
    pace = pace_of(services.runtime.scheduler)
    assert isinstance(response, ElectLeadersResponse)
    error_code = response.error_code
    if error_code == ErrorCode.NOT_CONTROLLER or (error_code and request.api_version < 1):
        response = await _for_all(services, body, error_code, pace)
    if body.topic_partitions is None:
        await _remove_unneeded(response, pace)
    await _until_known(services, response, body.timeout_ms, pace)
    request.reply(response)


async def _until_known(
    services: Services, response: ElectLeadersResponse, timeout_ms: int, pace: Pace
) -> None:
    """Wait until the cache has the elected leaders; the others time out."""
    expected: dict[TopicPartition, int] = {}
    results: dict[TopicPartition, PartitionResult] = {}
    for tp, result in _results(response):
        await pace.spend()
        if result.error_code == ErrorCode.NONE:
            known = services.controller.context.leadership.get(tp)
            if known:
                expected[tp], results[tp] = known.leader_and_isr.leader, result
    cache = services.metadata_cache

    def is_known(tp: TopicPartition) -> bool:
        state = cache.partition(tp)
        return state is not None and state.leader == expected[tp]

    topics = [tp.topic for tp in expected]
    await services.topic_waits.wait(topics, lambda: all(map(is_known, expected)), timeout_ms)
    for tp, result in results.items():
        await pace.spend()
        if not is_known(tp):
            result.error_code = ErrorCode.REQUEST_TIMED_OUT


def _results(response: ElectLeadersResponse) -> Iterator[tuple[TopicPartition, PartitionResult]]:
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            yield TopicPartition(topic.topic, result.partition_id), result


async def _remove_unneeded(response: ElectLeadersResponse, pace: Pace) -> None:
    for topic in response.replica_election_results:
        await pace.spend(1 + len(topic.partition_result) // REMOVED_PER_UNIT)
        topic.partition_result = [
            result
            for result in topic.partition_result
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED
        ]
    response.replica_election_results = [
        topic for topic in response.replica_election_results if topic.partition_result
    ]


async def _for_all(
    services: Services, body: ElectLeadersRequest, error_code: int, pace: Pace
) -> ElectLeadersResponse:
    """Return a response with the same error for every requested partition."""
    cache = services.metadata_cache
    if body.topic_partitions is None:
        asked = {topic: cache.partitions_of(topic) for topic in cache.topics()}
    else:
        asked = {topic.topic: topic.partition_id for topic in body.topic_partitions}
    response = ElectLeadersResponse()
    for topic, numbers in asked.items():
        result = ReplicaElectionResult(topic=topic)
        response.replica_election_results.append(result)
        for number in numbers:
            await pace.spend()
            result.partition_result.append(
                PartitionResult(partition_id=number, error_code=error_code)
            )
        await pace.spend()
    return response
