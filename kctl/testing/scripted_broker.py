"""ScriptedBroker: responds as a script says, with a list of responses per API; for tests of
clients.

    broker = ScriptedBroker(runtime, topics={"orders": 3}).start()
    broker.answer(ApiKey.PRODUCE, NOT_LEADER, SUCCESS)   # the last one repeats
    broker.hang_up(ApiKey.FETCH)                         # closes instead of responding
    ... a client connects to broker.host, broker.port ...
    assert [r.body.acks for r in broker.requests(ApiKey.PRODUCE)] == [-1, -1]

An answer is a response, a function from the request to a response, HANG_UP or SILENCE. Without a
script the broker serves ApiVersions (with the versions given to it, so that it can act as an older
or newer Kafka), Metadata (itself and its topics) and FindCoordinator (itself), and hangs up on any
other API. Requests of one connection are answered in order; one that meets SILENCE blocks those
after it. `hold(api)` delays the responses to an API until `release`, so that a client has several
requests in flight before the first response arrives.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import encode
from kctl.protocol.connection import BrokerConnection, RequestReceived, response_frame
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kctl.protocol.messages.find_coordinator import FindCoordinatorResponse
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.protocol.schema import Message
from kctl.runtime.network import Listener, Transport
from kctl.runtime.runtime import Runtime

__all__ = ["HANG_UP", "SILENCE", "Answer", "Instead", "ScriptedBroker"]


class Instead(Enum):
    """An alternative to a response."""

    HANG_UP = "hang up"
    SILENCE = "silence"


HANG_UP = Instead.HANG_UP
SILENCE = Instead.SILENCE

Answer = Message | Instead | Callable[[RequestReceived], "Message | Instead"]


class ScriptedBroker:
    """A broker that is its own controller and coordinator, and leads all its partitions."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        broker_id: int = 0,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        """Create the broker, with `topics` (name -> partitions).

        `versions` are the API versions it serves; by default those of Kafka 2.7.
        """
        self.broker_id = broker_id
        self.host = "127.0.0.1"
        # 0 before `start`.
        self.port = 0
        self.topics = dict(topics or {})
        # Other brokers that Metadata names: id -> (host, port).
        self.others: dict[int, tuple[str, int]] = {}
        # The controller that Metadata names, and the leaders of partitions led by other brokers.
        self.controller_id = broker_id
        self.leaders: dict[tuple[str, int], int] = {}
        # Leader epochs of (topic, partition); -1 if absent.
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self.connections_accepted = 0
        self._runtime = runtime
        self._versions = dict(versions or {api: (0, api.max_version) for api in ApiKey})
        self._scripts: dict[ApiKey, deque[Answer]] = {}
        self._received: list[RequestReceived] = []
        self._listener: Listener | None = None
        self._open: dict[_Connection, None] = {}
        # The API whose responses are delayed until `release`.
        self._held_api: ApiKey | None = None

    def start(self, port: int = 0) -> "ScriptedBroker":
        """Listen on `port`; 0 chooses a free one."""
        self._listener = self._runtime.network.listen(self.host, port, self._accept)
        self.port = self._listener.port
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port of the listener."""
        return self.host, self.port

    def answer(self, api: ApiKey, *answers: Answer) -> None:
        """Answer requests of `api` with `answers` from now on, one after another; the last
        repeats."""
        self._scripts[api] = deque(answers)

    def hang_up(self, api: ApiKey) -> None:
        """Close the connection on a request of `api`."""
        self.answer(api, HANG_UP)

    def hold(self, api: ApiKey) -> None:
        """Delay the responses to `api`, and those after them, until `release`."""
        self._held_api = api

    def release(self) -> None:
        """Send the delayed responses."""
        self._held_api = None
        for connection in list(self._open):
            connection.release()

    def holds(self, request: RequestReceived) -> bool:
        """Return whether the response to `request` must be delayed."""
        return request.api_key is self._held_api

    def requests(self, api: ApiKey | None = None) -> list[RequestReceived]:
        """Return the requests received so far, in order; those of `api` only, if given."""
        return [it for it in self._received if api is None or it.api_key is api]

    def drop_connections(self) -> None:
        """Reset every open connection."""
        for connection in list(self._open):
            connection.transport.abort()

    def stop(self) -> None:
        """Stop listening, and reset every open connection."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.drop_connections()

    def metadata(self, request: RequestReceived) -> MetadataResponse:
        """Return the default response to Metadata, which scripts can modify."""
        requested = request.body.topics  # type: ignore[attr-defined]
        names = [topic.name for topic in requested] if requested is not None else list(self.topics)
        brokers = {self.broker_id: self.address, **self.others}
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker_id, host=host, port=port)
                for broker_id, (host, port) in brokers.items()
            ],
            cluster_id="scripted",
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return MetadataResponseTopic(error_code=code, name=name)
        return MetadataResponseTopic(
            name=name,
            partitions=[
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=self.leaders.get((name, number), self.broker_id),
                    leader_epoch=self.leader_epochs.get((name, number), -1),
                    replica_nodes=[self.broker_id],
                    isr_nodes=[self.broker_id],
                )
                for number in range(self.topics[name])
            ],
        )

    def _api_versions(self, request: RequestReceived) -> ApiVersionsResponse:
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseKey(api_key=int(api), min_version=first, max_version=last)
                for api, (first, last) in self._versions.items()
            ]
        )
        if request.api_version > self._versions[ApiKey.API_VERSIONS][1]:
            response.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
        return response

    def answer_to(self, request: RequestReceived) -> Message | Instead:
        """Record `request` and return its scripted answer."""
        self._received.append(request)
        script = self._scripts.get(request.api_key)
        if script:
            answer = script[0] if len(script) == 1 else script.popleft()
            return answer(request) if callable(answer) else answer
        defaults: dict[ApiKey, Callable[[RequestReceived], Message]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.FIND_COORDINATOR: lambda _: FindCoordinatorResponse(
                node_id=self.broker_id, host=self.host, port=self.port
            ),
        }
        default = defaults.get(request.api_key)
        return HANG_UP if default is None else default(request)

    def speaks(self, request: RequestReceived) -> bool:
        """Return whether the request's API is served in its version; ApiVersions always is."""
        first, last = self._versions.get(request.api_key, (0, -1))
        return request.api_key is ApiKey.API_VERSIONS or first <= request.api_version <= last

    def forget(self, connection: "_Connection") -> None:
        """Remove a connection that was lost."""
        self._open.pop(connection, None)

    def _accept(self, transport: Transport) -> "_Connection":
        self.connections_accepted += 1
        connection = _Connection(self, transport)
        self._open[connection] = None
        return connection


class _Connection:
    """One client's connection."""

    def __init__(self, broker: ScriptedBroker, transport: Transport) -> None:
        self.transport = transport
        self._broker = broker
        self._protocol = BrokerConnection()
        self._is_silent = False
        # Delayed responses, in order.
        self._held: list[list[Any]] = []
        self.get_buffer: Callable[[], memoryview] = self._protocol.get_buffer

    def buffer_updated(self, count: int) -> None:
        """Answer the requests received."""
        self._protocol.buffer_updated(count)
        try:
            while not self._is_silent and (request := self._protocol.next_event()) is not None:
                self._serve(request)
        except CorruptDataError:
            self.transport.abort()
        self._protocol.release()

    def release(self) -> None:
        """Send the delayed responses."""
        held, self._held = self._held, []
        for parts in held:
            self.transport.send(parts)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop answering: the client has disconnected."""
        self._is_silent = True
        self._broker.forget(self)

    def _serve(self, request: RequestReceived) -> None:
        answer: Any = HANG_UP
        if self._broker.speaks(request):
            answer = self._broker.answer_to(request)
        if answer is SILENCE or answer is HANG_UP:
            self._is_silent = True
            if answer is HANG_UP:
                self.transport.abort()
        elif _expects_no_response(request):
            self._protocol.end_request()
        else:
            parts = self._response_parts(request, answer)
            if self._held or self._broker.holds(request):
                self._held.append([bytes(part) for part in parts])
            else:
                self.transport.send(parts)

    def _response_parts(self, request: RequestReceived, answer: Message) -> list[Any]:
        if getattr(answer, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION:
            # A broker rejects an unknown version of ApiVersions with version 0 (KIP-511).
            self._protocol.end_request()
            return response_frame(request.correlation_id, 0, encode(answer, 0))
        return self._protocol.send_response(request, answer)


def _expects_no_response(request: RequestReceived) -> bool:
    return request.api_key is ApiKey.PRODUCE and getattr(request.body, "acks", 1) == 0
