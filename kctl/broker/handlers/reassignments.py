"""AlterPartitionReassignments, ListPartitionReassignments: moves of partitions to other replicas.

Behaviour:

- Only the controller's broker handles them; others return NOT_CONTROLLER.
- A target of null cancels: the partition returns to its original replicas.
- The response confirms that a move has begun, not that it is done; each rejection stands alone.

Versions: 0 of both.

Kafka 2.7: kafka.server.KafkaApis (handleAlterPartitionReassignmentsRequest,
handleListPartitionReassignmentsRequest); KIP-455.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services


def handle_alter_partition_reassignments(services: Services, request: Request) -> None:
    """Reply when every move has begun or was rejected."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))


def handle_list_partition_reassignments(services: Services, request: Request) -> None:
    """List the moves in progress, once the controller has handled earlier events."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))
