"""AlterPartitionReassignments, ListPartitionReassignments: move partitions to other replicas.

Behaviour:
- Only the controller's broker obeys; others answer NOT_CONTROLLER.
- A target of null cancels: the partition goes back to where it was.
- The answer says that a move has begun, not that it is done; what is refused is refused alone.

Versions: 0 of both.

Kafka 2.7: kafka.server.KafkaApis (handleAlterPartitionReassignmentsRequest,
handleListPartitionReassignmentsRequest); KIP-455.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services


def handle_alter_partition_reassignments(services: Services, request: Request) -> None:
    """Answer when every move has begun, or was refused."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))


def handle_list_partition_reassignments(services: Services, request: Request) -> None:
    """Answer in the controller's turn: behind what was asked for before."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))
