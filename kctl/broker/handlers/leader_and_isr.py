"""LeaderAndIsr and StopReplica: the controller assigns and removes this broker's replicas.

Behaviour:

- A request of an older controller is STALE_CONTROLLER_EPOCH, one for a previous registration of
  this broker STALE_BROKER_EPOCH; neither changes anything.
- Each partition is accepted or rejected on its own; a failed log directory is KAFKA_STORAGE_ERROR.
- An invalid topic name would be a path into other directories: such a request is corrupt.
- A deletion is confirmed once a power loss no longer undoes it.
- Configs of topics that are new here are read from the store first, as they are not announced.

Versions: LeaderAndIsr 0-4 (v2 groups by topic and has the broker epoch, KIP-380; v3 adding and
removing replicas, KIP-455; v4 flexible), StopReplica 0-3 (v3 leader epochs, KIP-570).

Kafka 2.7: kafka.server.KafkaApis.{handleLeaderAndIsrRequest, handleStopReplicaRequest}.
"""

from collections.abc import Container

from kctl.broker.replication.leadership import leader_and_isr_states
from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.configs.topic_name import check_topic_name
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kctl.protocol.messages.stop_replica import StopReplicaResponse
from kctl.runtime.turns import done_in_turns
from kctl.store.errors import ConnectionLossError, SessionExpiredError
from kctl.work import Work

# Partitions whose names are checked in one turn, within 5 ms.
CHECKED_PER_TURN = 1_000


def handle_leader_and_isr(services: Services, request: Request) -> None:
    """Apply the request, and reply after reading the configs of new topics."""
    reply_from(
        services.runtime.scheduler, request, _leader_and_isr(services, request), "leader-and-isr"
    )


def new_topics(
    body: LeaderAndIsrRequest, partitions: Container[tuple[str, int]]
) -> Work[list[str]]:
    """Return the topics with partitions that are not among `partitions`, with a `yield` after every
    CHECKED_PER_TURN partitions; raise CorruptDataError for names that no partition has."""
    found: dict[str, None] = {}
    for number, (topic, state) in enumerate(leader_and_isr_states(body), 1):
        if number % CHECKED_PER_TURN == 0:
            yield
        try:
            check_topic_name(topic)
        except ApiError as error:
            raise CorruptDataError(f"LeaderAndIsr: {error}") from None
        if state is None:
            continue
        if state.partition_index < 0:
            raise CorruptDataError(f"LeaderAndIsr: partition {state.partition_index}")
        if (topic, state.partition_index) not in partitions:
            found[topic] = None
    return list(found)


async def _leader_and_isr(services: Services, request: Request) -> None:
    body: LeaderAndIsrRequest = request.body
    scheduler = services.runtime.scheduler
    work = new_topics(body, services.replica_manager.partitions)
    try:
        await services.dynamic_configs.load_topics(await done_in_turns(scheduler, work))
    except (SessionExpiredError, ConnectionLossError):
        # The registration that the request was sent to ends with the session, or with this broker:
        # only one that stops does not wait for the connection.
        request.reply(LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        return
    applied = services.leadership.become_leader_or_follower(body)
    request.reply(await done_in_turns(scheduler, applied))


def handle_stop_replica(services: Services, request: Request) -> None:
    """Stop the replicas, and reply when all are stopped and deletions are durable."""
    reply_from(
        services.runtime.scheduler, request, _stop_replica(services, request), "stop-replica"
    )


async def _stop_replica(services: Services, request: Request) -> None:
    stopped = services.leadership.stop_replicas(request.body)
    response = await done_in_turns(services.runtime.scheduler, stopped)
    if not await services.replica_manager.log_manager.removal.make_durable():
        response = StopReplicaResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    request.reply(response)
