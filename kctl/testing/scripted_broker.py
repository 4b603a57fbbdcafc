"""ScriptedBroker: answers as a script says, one answer list per API; for tests of clients.

    broker = ScriptedBroker(runtime, topics={"orders": 3}).start()
    broker.answer(ApiKey.PRODUCE, NOT_LEADER, SUCCESS)   # the last one stays
    broker.hang_up(ApiKey.FETCH)                         # closes instead of answering
    ... a client talks to broker.host, broker.port ...
    assert [r.body.acks for r in broker.requests(ApiKey.PRODUCE)] == [-1, -1]

An answer is a response, a function from the request to a response, HANG_UP or SILENCE. Without a
script it speaks ApiVersions (with the versions it was given, so that it can pass for an old or a
new Kafka), Metadata (itself and its topics) and FindCoordinator (itself), and hangs up on all else.
Requests of one connection are answered in order; one that meets SILENCE holds up those behind it.
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


class Instead(Enum):
    """What to do instead of answering."""

    HANG_UP = "hang up"
    SILENCE = "silence"


HANG_UP = Instead.HANG_UP
SILENCE = Instead.SILENCE

Answer = Message | Instead | Callable[[RequestReceived], "Message | Instead"]


class ScriptedBroker:
    """One broker, which is its own controller and coordinator and leads all its partitions."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        broker_id: int = 0,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        """`topics`: name -> partitions; `versions`: what it speaks, all of 2.7's by default."""
        self.broker_id = broker_id
        self.host = "127.0.0.1"
        # 0 until started.
        self.port = 0
        self.topics = dict(topics or {})
        # Other brokers that Metadata names: id -> (host, port).
        self.others: dict[int, tuple[str, int]] = {}
        # Who Metadata says is the controller, and who leads what it does not lead itself.
        self.controller_id = broker_id
        self.leaders: dict[tuple[str, int], int] = {}
        # Leader epochs of (topic, partition), where the test cares.
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self.connections_accepted = 0
        self._runtime = runtime
        self._versions = dict(versions or {api: (0, api.max_version) for api in ApiKey})
        self._scripts: dict[ApiKey, deque[Answer]] = {}
        self._received: list[RequestReceived] = []
        self._listener: Listener | None = None
        self._open: dict[_Connection, None] = {}

    def start(self, port: int = 0) -> "ScriptedBroker":
        """Listen, at any free port unless told one."""
        self._listener = self._runtime.network.listen(self.host, port, self._accept)
        self.port = self._listener.port
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.host, self.port

    def answer(self, api: ApiKey, *answers: Answer) -> None:
        """From now on answer `api` with these, one after the other; the last again and again."""
        self._scripts[api] = deque(answers)

    def hang_up(self, api: ApiKey) -> None:
        """Close the connection when `api` comes."""
        self.answer(api, HANG_UP)

    def requests(self, api: ApiKey | None = None) -> list[RequestReceived]:
        """What came so far, in order."""
        return [it for it in self._received if api is None or it.api_key is api]

    def drop_connections(self) -> None:
        """Reset every open connection."""
        for connection in list(self._open):
            connection.transport.abort()

    def stop(self) -> None:
        """Listen no more and reset every open connection."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.drop_connections()

    def metadata(self, request: RequestReceived) -> MetadataResponse:
        """What it answers to Metadata: to build upon in scripts."""
        asked = request.body.topics  # type: ignore[attr-defined]
        names = [topic.name for topic in asked] if asked is not None else list(self.topics)
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
        """Note `request`; what the script says to it."""
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
        """Whether it has the request's API in that version; ApiVersions it always answers."""
        first, last = self._versions.get(request.api_key, (0, -1))
        return request.api_key is ApiKey.API_VERSIONS or first <= request.api_version <= last

    def forget(self, connection: "_Connection") -> None:
        """A connection is gone."""
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
        self.get_buffer: Callable[[], memoryview] = self._protocol.get_buffer

    def buffer_updated(self, count: int) -> None:
        """Answer what has come."""
        self._protocol.buffer_updated(count)
        try:
            while not self._is_silent and (request := self._protocol.next_event()) is not None:
                self._serve(request)
        except CorruptDataError:
            self.transport.abort()
        self._protocol.release()

    def connection_lost(self, _error: Exception | None) -> None:
        """The client went away."""
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
        elif not _wants_no_answer(request):
            self.transport.send(self._answer_parts(request, answer))

    def _answer_parts(self, request: RequestReceived, answer: Message) -> list[Any]:
        if getattr(answer, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION:
            # As every Kafka does for an ApiVersions it is too old for (KIP-511).
            return response_frame(request.correlation_id, 0, encode(answer, 0))
        return self._protocol.send_response(request, answer)


def _wants_no_answer(request: RequestReceived) -> bool:
    return request.api_key is ApiKey.PRODUCE and getattr(request.body, "acks", 1) == 0
