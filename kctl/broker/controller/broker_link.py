"""ChannelLink: the controller's connection to another broker, opened on demand and after failures.

Kafka 2.7: kafka.controller.RequestSendThread (`brokerReady`), ControllerChannelManager
(`addNewBroker`); KIP-291.
"""

from kctl.client.broker_channel import BrokerChannel
from kctl.client.security import (
    NO_SECURITY,
    ClientSecurity,
    security_between_brokers,
    security_of_control_plane,
)
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UnreachableError
from kctl.model import BrokerInfo
from kctl.protocol.schema import Message
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime


class ChannelLink:
    """A BrokerLink over the network; one request at a time."""

    def __init__(
        self,
        runtime: Runtime,
        broker: BrokerInfo,
        listener_name: str,
        *,
        controller_id: int,
        timeout_ms: int,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self._runtime = runtime
        self._broker = broker
        self._listener = listener_name
        self._client_id = str(controller_id)
        self._timeout_ms = timeout_ms
        self._security = security
        self._channel: BrokerChannel | None = None
        self._is_closed = False

    def send(self, request: Message) -> Future[Message]:
        """Send a request; the Future fails with UnreachableError or TimedOutError."""
        return self._runtime.scheduler.spawn(self._ask(request), "controller-request")

    def close(self) -> None:
        """Close the connection, if any; requests in flight fail."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()

    async def _ask(self, request: Message) -> Message:
        channel = self._channel
        if channel is None or not channel.is_usable:
            channel = self._channel = self._new_channel()
            await channel.connect()
        answer: Message = await channel.send_in_turns(request)
        return answer

    def _new_channel(self) -> BrokerChannel:
        if self._is_closed:
            raise UnreachableError(f"broker {self._broker.broker_id} was removed")
        for endpoint in self._broker.endpoints:
            if endpoint.listener_name == self._listener:
                return BrokerChannel(
                    self._runtime,
                    endpoint.host,
                    endpoint.port,
                    client_id=self._client_id,
                    request_timeout_ms=self._timeout_ms,
                    security=self._security,
                )
        raise UnreachableError(
            f"broker {self._broker.broker_id} has no listener {self._listener} "
            "(inter.broker.listener.name)"
        )


def controller_link(
    runtime: Runtime, config: BrokerConfig, broker: BrokerInfo, controller_id: int
) -> ChannelLink:
    """Return the controller's link to `broker`, by its control-plane listener if it has that.

    While the brokers of a cluster are given a control plane, some do not have it yet: they are
    reached by the listener between brokers.
    """
    listener, security = config.inter_broker_listener, security_between_brokers(config)
    control = config.control_plane_listener
    if control is not None and control in {it.listener_name for it in broker.endpoints}:
        listener, security = control, security_of_control_plane(config)
    return ChannelLink(
        runtime,
        broker,
        listener,
        controller_id=controller_id,
        timeout_ms=config.controller_socket_timeout_ms,
        security=security,
    )
