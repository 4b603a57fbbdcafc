"""ControllerChannel: sends a broker's requests to the current controller.

An active controller in this process is called directly, whatever the metadata cache contains. A
remote one is looked up in the cache for every request, and its connection is kept while it stays
controller. A lost connection fails the requests in flight; their callers decide about retries.

Kafka 2.7: kafka.server.BrokerToControllerChannelManager.
"""

from collections.abc import Callable

from kctl.broker.metadata_cache import MetadataCache
from kctl.client.broker_channel import BrokerChannel
from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.errors import UnreachableError
from kctl.protocol.schema import Message
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime

# Sends a request to the controller in this process.
AskLocal = Callable[[Message], Future[Message]]


class ControllerChannel:
    """The channel of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        metadata_cache: MetadataCache,
        listener_name: str,
        ask_local: AskLocal,
        is_local: Callable[[], bool],
        *,
        timeout_ms: int,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """Create a channel; `is_local` returns whether the controller in this process is active."""
        self._runtime = runtime
        self._broker_id = broker_id
        self._cache = metadata_cache
        self._listener = listener_name
        self._ask_local = ask_local
        self._is_local = is_local
        self._timeout_ms = timeout_ms
        self._security = security
        # The connection, and the broker that it is connected to.
        self._channel: BrokerChannel | None = None
        self._controller_id: int | None = None

    def ask(self, request: Message) -> Future[Message]:
        """Send `request`; the Future fails with UnreachableError or TimedOutError."""
        controller_id = self._cache.controller_id
        if self._is_local() or controller_id == self._broker_id:
            return self._ask_local(request)
        return self._runtime.scheduler.spawn(self._ask(request, controller_id), "ask-controller")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._channel is not None:
            self._channel.close()

    async def _ask(self, request: Message, controller_id: int | None) -> Message:
        channel = self._channel
        is_there = channel is not None and channel.is_usable
        if channel is None or not is_there or controller_id != self._controller_id:
            self.close()
            channel = self._channel = self._new_channel(controller_id)
            self._controller_id = controller_id
            await channel.connect()
        answer: Message = await channel.send(request)
        return answer

    def _new_channel(self, controller_id: int | None) -> BrokerChannel:
        endpoint = None
        if controller_id is not None:
            endpoint = self._cache.broker_endpoint(controller_id, self._listener)
        if endpoint is None:
            raise UnreachableError("the controller is currently unknown")
        return BrokerChannel(
            self._runtime,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}-to-controller",
            request_timeout_ms=self._timeout_ms,
            security=self._security,
        )
