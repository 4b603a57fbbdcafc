"""ControlledShutdown: a broker asks the controller to move its leaderships to other brokers.

Behaviour:

- Only the controller's broker handles it; others return NOT_CONTROLLER.
- The response names partitions that still have no other leader; the broker may retry.

Versions: 0-3. v0 has no client id in its header; v2 broker epoch (KIP-380); v3 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleControlledShutdownRequest.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services


def handle_controlled_shutdown(services: Services, request: Request) -> None:
    """Pass the request to the controller; reply when it is done."""
    answered = services.controller.ask(request.body)
    answered.add_done_callback(lambda answer: request.reply(answer.result()))
