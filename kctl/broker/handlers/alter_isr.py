"""AlterIsr: a partition's leader proposes other in-sync replicas to the controller.

Behaviour:

- Only the controller's broker handles it; others return NOT_CONTROLLER.
- A leader that knows an older state of a partition gets INVALID_UPDATE_VERSION for it, one with an
  older epoch FENCED_LEADER_EPOCH.

Versions: 0.

Kafka 2.7: kafka.server.KafkaApis.handleAlterIsrRequest; KIP-497.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services


def handle_alter_isr(services: Services, request: Request) -> None:
    """Pass the request to the controller; reply when the store has accepted the changes."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))
