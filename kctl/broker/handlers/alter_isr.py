"""AlterIsr: a partition's leader asks the controller for other in-sync replicas.

Behaviour:
- Only the controller's broker obeys; others answer NOT_CONTROLLER.
- A leader that knows an older state of a partition gets INVALID_UPDATE_VERSION for it, one whose
  epoch is over FENCED_LEADER_EPOCH.

Versions: 0.

Kafka 2.7: kafka.server.KafkaApis.handleAlterIsrRequest; KIP-497.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services


def handle_alter_isr(services: Services, request: Request) -> None:
    """Answer when the store has agreed."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))
