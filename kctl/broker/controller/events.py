"""ControllerEvent: everything that can make the controller act, one frozen dataclass each.

An event says what happened, never what to do; most only say "look at the store again", because
the store's watches are one-shot and the truth is there. Events that come from somewhere else than
this queue (timers, answers, watches) carry no reference to controller state.

Kafka 2.7: kafka.controller.ControllerEvent and its case classes.
"""

from dataclasses import dataclass, field
from typing import Any

from kctl.broker.controller.channel_manager import ResponseReceived
from kctl.model import TopicPartition
from kctl.protocol.schema import Message
from kctl.runtime.future import Future


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker starts: watch the election and stand for it."""


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """`/controller` was created or changed: perhaps we are no longer it."""


@dataclass(frozen=True, slots=True)
class Reelect:
    """`/controller` is gone: stand for election."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """Our session with the store is over, and with it our registration and any controllership."""


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """Children of `/brokers/ids` came or went."""


@dataclass(frozen=True, slots=True)
class BrokerModification:
    """A broker's registration was rewritten: its listeners changed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Children of `/brokers/topics` came or went."""


@dataclass(frozen=True, slots=True)
class PartitionModification:
    """A topic's assignment was rewritten: it has more partitions, or is being reassigned."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Children of `/admin/delete_topics` came."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    """Leaders changed ISRs on their own (inter-broker protocol below 2.7-IV2)."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    """A broker says that one of its log directories failed."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """Somebody wrote `/admin/reassign_partitions`."""


@dataclass(frozen=True, slots=True)
class PartitionIsrChanged:
    """The ISR of a partition that is being reassigned changed: perhaps it can be completed."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PreferredReplicaElection:
    """Somebody wrote `/admin/preferred_replica_election`."""


@dataclass(frozen=True, slots=True)
class AutoPreferredElection:
    """It is time to see whether leadership strayed too far from the preferred replicas."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A broker or a client asked the controller for something, and waits for the answer."""

    request: Message
    # Not told: its address in memory is not the same when a seed is played again.
    answer: Future[Message] = field(repr=False)

    def refuse(self, error_code: int) -> None:
        """Answer with nothing but an error."""
        api = self.request.api
        assert api is not None
        answer: Any = api.response_class()
        answer.error_code = error_code
        self.answer.set_result(answer)


ControllerEvent = (
    Startup
    | ControllerChange
    | Reelect
    | SessionExpired
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
    | Asked
    | ResponseReceived
)
