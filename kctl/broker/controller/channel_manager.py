"""ControllerChannelManager: one ordered queue of requests per broker.

A broker gets the next request only after its response to the last one, so it receives the
controller's decisions in order. A request to another broker is retried, after a pause, until there
is a response or the broker is removed; the controller's own broker is called in process. Every
response returns through `on_response`, as an event.

Kafka 2.7: kafka.controller.{ControllerChannelManager, RequestSendThread}.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kctl.broker.controller.request_batch import BrokerRequest
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import BrokerInfo
from kctl.protocol.schema import Message
from kctl.runtime.future import Future, Task, pass_on
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime

RETRY_PAUSE_MS = 100
# Requests waiting for one broker at which a warning is logged.
QUEUE_WARNING_LENGTH = 1000


class BrokerLink(Protocol):
    """A connection to another broker that is reopened after failures."""

    def send(self, request: Message) -> Future[Message]:
        """Send a request; the Future fails with UnreachableError or TimedOutError."""
        ...

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        ...


OpenLink = Callable[[BrokerInfo], BrokerLink]
# Returns the own broker's response, at once or later.
DeliverLocal = Callable[[Message], Message | Future[Message]]


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A broker's response (itself an event of the controller's queue)."""

    broker_id: int
    request: Message
    response: Message


class ControllerChannelManager:
    """Owns the queues; `close` drops them when the controller resigns."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        deliver_local: DeliverLocal,
        open_link: OpenLink,
        on_response: Callable[[ResponseReceived], object],
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._deliver_local = deliver_local
        self._open_link = open_link
        self._on_response = on_response
        self._queues: dict[int, BrokerQueue] = {}
        self._warnings = RecurringWarnings(runtime)

    def add_broker(self, broker: BrokerInfo) -> None:
        """Create the queue of a registered broker; its address comes from the registration."""
        if broker.broker_id == self._broker_id:
            link: BrokerLink = LocalLink(self._runtime, self._deliver_local)
        else:
            link = self._open_link(broker)
        self._queues[broker.broker_id] = BrokerQueue(
            self._runtime, broker.broker_id, link, self._on_response
        )

    def remove_broker(self, broker_id: int) -> None:
        """Remove the broker's queue and all requests in it."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            queue.close()
            # Warn again if requests to it cannot be sent.
            self._warnings.clear()

    def send(self, request: BrokerRequest) -> None:
        """Queue a request; drop it with a warning if the broker has no queue."""
        queue = self._queues.get(request.broker_id)
        if queue is None:
            self._warnings.warn(
                (request.broker_id, type(request.request)),
                f"Not sending {type(request.request).__name__} to broker {request.broker_id}, "
                "since it is offline",
            )
            return
        queue.put(request.request)

    def close(self) -> None:
        """Remove all queues."""
        for broker_id in list(self._queues):
            self.remove_broker(broker_id)


class LocalLink:
    """Calls the controller's own broker, in a separate turn of the loop."""

    def __init__(self, runtime: Runtime, deliver: DeliverLocal) -> None:
        self._scheduler = runtime.scheduler
        self._deliver = deliver

    def send(self, request: Message) -> Future[Message]:
        """Pass the request to the broker in a later turn."""
        future = self._scheduler.future()
        self._scheduler.call_soon(self._run, request, future)
        return future

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _run(self, request: Message, future: Future[Message]) -> None:
        try:
            answer = self._deliver(request)
        except KctlError as error:
            future.set_error(error)
            return
        if isinstance(answer, Future):
            answer.add_done_callback(partial(pass_on, future))
        else:
            future.set_result(answer)


class BrokerQueue:
    """One broker's requests, first in, first out, one in flight."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        link: BrokerLink,
        on_response: Callable[[ResponseReceived], object],
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._link = link
        self._on_response = on_response
        self._warnings = RecurringWarnings(runtime)
        self._waiting: deque[Message] = deque()
        self._sender: Task[None] | None = None
        self._closed = False

    def put(self, request: Message) -> None:
        """Send `request` after all earlier ones."""
        self._waiting.append(request)
        if len(self._waiting) == QUEUE_WARNING_LENGTH:
            self._runtime.trace.warning(
                f"{QUEUE_WARNING_LENGTH} requests of the controller wait for broker "
                f"{self._broker_id}"
            )
        if self._sender is None or self._sender.done:
            self._sender = self._runtime.scheduler.spawn(
                self._send_all(), f"controller-to-{self._broker_id}"
            )

    def close(self) -> None:
        """Drop queued requests; late responses are ignored."""
        self._closed = True
        self._waiting.clear()
        self._link.close()

    async def _send_all(self) -> None:
        while self._waiting:
            request = self._waiting[0]
            try:
                response = await self._link.send(request)
            except KctlError as error:
                await self._pause(error)
                continue
            if self._closed:
                return
            self._waiting.popleft()
            self._warnings.clear()
            self._on_response(ResponseReceived(self._broker_id, request, response))

    async def _pause(self, error: KctlError) -> None:
        if self._closed:
            return
        self._warnings.warn(
            self._broker_id,
            f"Controller's request to broker {self._broker_id} failed, will retry: {error}",
        )
        woken = self._runtime.scheduler.future()
        self._runtime.scheduler.call_later(RETRY_PAUSE_MS, woken.set_result, None)
        await woken
