"""Controllers of older protocol versions: converts controller requests to what these would send.

With inter.broker.protocol.version below 2.7 Apache Kafka's controller sends older versions of
LeaderAndIsr, UpdateMetadata and StopReplica: StopReplica without leader epochs (KIP-570), in one
request for deleted replicas and one for the others; LeaderAndIsr without adding replicas (KIP-455).
A request that arrives at a broker is split into these, and their responses are joined.

Kafka 2.7: kafka.controller.AbstractControllerBrokerRequestBatch (versions by protocol version).
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from kctl.broker.request import Request
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.messages.stop_replica import StopReplicaTopicV1
from kctl.protocol.schema import Message

# The first version of StopReplica with an epoch and a deletion per partition.
STOP_REPLICA_BY_PARTITION = 3


@dataclass(frozen=True, slots=True)
class ControllerVersions:
    """The request versions that a controller sends under an inter-broker protocol version."""

    protocol: str
    leader_and_isr: int
    update_metadata: int
    stop_replica: int

    def of(self, api: ApiKey) -> int | None:
        """Return the version of a controller's request; None for any other."""
        versions = {
            ApiKey.LEADER_AND_ISR: self.leader_and_isr,
            ApiKey.UPDATE_METADATA: self.update_metadata,
            ApiKey.STOP_REPLICA: self.stop_replica,
        }
        return versions.get(api)


# Older versions have no broker epochs (KIP-380, 2.2), so that a restarted broker looks like its
# predecessor, or no static members (KIP-345, 2.3), which the workload uses.
OLD_VERSIONS = (
    ControllerVersions("2.3-IV1", 2, 5, 1),
    ControllerVersions("2.4-IV0", 3, 5, 1),
    ControllerVersions("2.4-IV1", 4, 6, 2),
)


class OldController:
    """An Interceptor of a broker whose controllers are old."""

    def __init__(self, versions: ControllerVersions) -> None:
        self._versions = versions
        # Requests converted to an older version.
        self.converted = 0

    def __call__(self, request: Request, handle: Callable[[Request], None]) -> None:
        """Pass the request on, in the version of the old controller."""
        version = self._versions.of(request.api_key)
        if version is None or version >= request.api_version:
            handle(request)
            return
        self.converted += 1
        bodies = _parts(request.body, version)
        answers: list[Any] = []

        def answered(answer: Message | None) -> None:
            answers.append(answer)
            if len(answers) == len(bodies):
                request.reply(_joined(answers))

        for body in bodies:
            arrived = decode(type(body), version, b"".join(map(bytes, encode(body, version))))
            handle(replace(request, api_version=version, body=arrived, send=answered))


def _parts(body: Any, version: int) -> list[Any]:
    if body.api is not ApiKey.STOP_REPLICA or version >= STOP_REPLICA_BY_PARTITION:
        return [body]
    parts: list[Any] = []
    for delete in (True, False):
        topics = [
            StopReplicaTopicV1(
                name=topic.topic_name,
                partition_indexes=[
                    state.partition_index
                    for state in topic.partition_states
                    if state.delete_partition is delete
                ],
            )
            for topic in body.topic_states
        ]
        part = copy(body)
        part.topics = [topic for topic in topics if topic.partition_indexes]
        part.topic_states, part.delete_partitions = [], delete
        if part.topics or not (delete or parts):
            parts.append(part)
    return parts


def _joined(answers: list[Any]) -> Any:
    whole = answers[0]
    for other in answers[1:]:
        whole.error_code = whole.error_code or other.error_code
        whole.partition_errors.extend(other.partition_errors)
    return whole
