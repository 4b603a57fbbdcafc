"""LeaderAndIsr and StopReplica: the controller tells this broker what it leads, follows, drops.

Behaviour:
- An older controller's request is STALE_CONTROLLER_EPOCH, one meant for our previous
  registration STALE_BROKER_EPOCH; neither changes anything.
- Each partition is obeyed or refused on its own; a failed log directory is KAFKA_STORAGE_ERROR.
- A topic that cannot exist would be a path into other directories: such a request is corrupt.
- Settings of topics that are new here are read from the store first, as nobody announces them.

Versions: LeaderAndIsr 0-4 (v2 groups by topic and has the broker epoch, KIP-380; v3 adding and
removing replicas, KIP-455; v4 flexible), StopReplica 0-3 (v3 leader epochs, KIP-570).

Kafka 2.7: kafka.server.KafkaApis.{handleLeaderAndIsrRequest, handleStopReplicaRequest}.
"""

from kctl.broker.replication.leadership import leader_and_isr_states
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.broker.topic_creation import check_topic_name
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.runtime.turns import done_in_turns


def handle_leader_and_isr(services: Services, request: Request) -> None:
    """Answer once the settings of new topics are there."""
    _check_names(request.body)
    services.runtime.scheduler.spawn(_leader_and_isr(services, request), "leader-and-isr")


def _check_names(body: LeaderAndIsrRequest) -> None:
    for topic, state in leader_and_isr_states(body):
        try:
            check_topic_name(topic)
        except ApiError as error:
            raise CorruptDataError(f"LeaderAndIsr: {error}") from None
        if state.partition_index < 0:
            raise CorruptDataError(f"LeaderAndIsr: partition {state.partition_index}")


async def _leader_and_isr(services: Services, request: Request) -> None:
    body: LeaderAndIsrRequest = request.body
    partitions = services.replica_manager.partitions
    new_topics = {
        topic: None
        for topic, state in leader_and_isr_states(body)
        if (topic, state.partition_index) not in partitions
    }
    await services.dynamic_configs.load_topics(list(new_topics))
    work = services.leadership.become_leader_or_follower(body)
    request.reply(await done_in_turns(services.runtime.scheduler, work))


def handle_stop_replica(services: Services, request: Request) -> None:
    """Answer at once."""
    request.reply(services.leadership.stop_replicas(request.body))
