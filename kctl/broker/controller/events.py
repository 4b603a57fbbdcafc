"""ControllerEvent: the events that the controller handles, one frozen dataclass each.

An event states what happened, not what to do; most only request a read of the store, because its
watches are one-shot and it has the current state. Events from outside this queue (timers,
responses, watches) carry no reference to controller state.

Kafka 2.7: kafka.controller.ControllerEvent and its case classes.
"""

from dataclasses import field
from typing import Any

from kctl.broker.controller.channel_manager import ResponseReceived
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.schema import Message
from kctl.runtime.future import Future


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker starts: watch the election and stand for it."""


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """`/controller` was created or changed: this broker may no longer be the controller."""


@dataclass(frozen=True, slots=True)
class Reelect:
    """`/controller` was deleted: stand for election."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The session with the store expired, and with it the registration and any controllership."""


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """Children of `/brokers/ids` were added or removed."""


@dataclass(frozen=True, slots=True)
class BrokerModification:
    """A broker's registration was rewritten: its listeners changed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Children of `/brokers/topics` were added or removed."""


@dataclass(frozen=True, slots=True)
class PartitionModification:
    """A topic's assignment was rewritten: it has more partitions, or is being reassigned."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Children of `/admin/delete_topics` were added."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    """Leaders changed ISRs on their own (inter-broker protocol below 2.7-IV2)."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    """A broker reports that one of its log directories failed."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """`/admin/reassign_partitions` was written."""


@dataclass(frozen=True, slots=True)
class PartitionIsrChanged:
    """The ISR of a partition that is being reassigned changed: the move may be complete."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PreferredReplicaElection:
    """`/admin/preferred_replica_election` was written."""


@dataclass(frozen=True, slots=True)
class AutoPreferredElection:
    """The periodic check of how many leaders are not the preferred replicas is due."""


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """unclean.leader.election.enable became true, of a topic or of all brokers."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestReceived:
    """A request to the controller whose sender waits for the response."""

    request: Message
    # Not in the repr: its address differs between two runs of a seed.
    answer: Future[Message] = field(repr=False)

    def reject(self, error_code: int) -> None:
        """Send a response that contains only an error."""
        api = self.request.api
        assert api is not None
        answer: Any = api.response_class()
        answer.error_code = error_code
        self.answer.set_result(answer)


# Handled by every broker; all other events only by the active controller.
ElectionEvent = Startup | ControllerChange | Reelect | SessionExpired

ControllerEvent = (
    ElectionEvent
    | BrokerChange
    | BrokerModification
    | TopicChange
    | PartitionModification
    | TopicDeletion
    | IsrChangeNotification
    | LogDirEventNotification
    | PartitionReassignment
    | PartitionIsrChanged
    | PreferredReplicaElection
    | AutoPreferredElection
    | UncleanElectionEnabled
    | RequestReceived
    | ResponseReceived
)
