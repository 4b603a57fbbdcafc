"""RequestFaults: what a test wants to go wrong, per API, between a connection and the handlers.

A request of an API meets the faults injected for it in this order: the first latency that has
turns left delays it, then the first error or disconnect that has turns left ends it; without one
it is handled as usual. A fault spends one turn a request. A Fetch that is to be refused must name
its partitions: an incremental one is told that its session is gone, as a full cache does, and the
full Fetch that follows meets the error. Requests that do not come over a connection (the
controller's to its own broker) meet no faults.

Lives on the broker's loop: everything here is called on its thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kctl.broker.request import Request
from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchResponse
from kctl.protocol.schema import Message
from kctl.runtime.scheduler import Scheduler, Timer
from kctl.testing.error_answers import error_answer, mark_metadata

Handle = Callable[[Request], None]


class FaultKind(Enum):
    """What happens to a request."""

    LATENCY = "latency"
    # Refused with an error code; nothing is done of what it asks.
    ERROR = "error"
    # The connection is closed; nothing is done of what the request asks.
    DISCONNECT = "disconnect"
    # The request is handled, but instead of the answer the connection is closed.
    LOST_ANSWER = "lost answer"


@dataclass(slots=True, eq=False)
class InjectedFault:
    """One fault; `hits` counts the requests that met it."""

    kind: FaultKind
    api: ApiKey
    # Requests that will still meet it; None: all, until it is removed.
    times_left: int | None
    error_code: ErrorCode = ErrorCode.NONE
    latency_ms: int = 0
    hits: int = 0

    def spend(self) -> None:
        """One request meets it."""
        self.hits += 1
        if self.times_left is not None:
            self.times_left -= 1


class RequestFaults:
    """The interceptor of one broker."""

    def __init__(self) -> None:
        # In the order injected; those without turns left are dropped.
        self._faults: list[InjectedFault] = []
        # Requests that a latency keeps from the handlers, by number.
        self._held: dict[int, tuple[Request, Timer]] = {}
        self._held_count = 0
        # Requests that came over a connection, per API.
        self.request_counts: dict[int, int] = {}

    def add(self, fault: InjectedFault) -> None:
        """From now on."""
        self._faults.append(fault)

    def remove(self, fault: InjectedFault) -> None:
        """No longer; harmless when it is spent."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        """No faults any more; requests that are being delayed stay so."""
        self._faults.clear()

    def let_go(self) -> None:
        """The broker stops: nobody waits for requests that are being delayed."""
        held, self._held = self._held, {}
        for request, timer in held.values():
            timer.cancel()
            request.close()

    def interceptor(self, scheduler: Scheduler) -> Callable[[Request, Handle], None]:
        """For `Broker`: delays on `scheduler`."""

        def intercept(request: Request, handle: Handle) -> None:
            counts = self.request_counts
            counts[request.api_key] = counts.get(request.api_key, 0) + 1
            if not self._faults:
                handle(request)
                return
            latency = self._take(request.api_key, FaultKind.LATENCY)
            if latency is None:
                self._meet(request, handle)
            else:
                self._hold(scheduler, latency.latency_ms, request, handle)

        return intercept

    def _hold(self, scheduler: Scheduler, delay_ms: int, request: Request, handle: Handle) -> None:
        self._held_count += 1
        number = self._held_count

        def release() -> None:
            del self._held[number]
            self._meet(request, handle)

        self._held[number] = request, scheduler.call_later(delay_ms, release)

    def _meet(self, request: Request, handle: Handle) -> None:
        if _is_incremental(request) and self._is_pending(request.api_key, FaultKind.ERROR):
            request.reply(FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
            return
        fault = self._take(
            request.api_key, FaultKind.ERROR, FaultKind.DISCONNECT, FaultKind.LOST_ANSWER
        )
        if fault is None:
            handle(request)
        elif fault.kind is FaultKind.DISCONNECT:
            request.close()
        elif fault.kind is FaultKind.LOST_ANSWER:
            close = request.close
            request.send = lambda _: close()
            handle(request)
        else:
            _refuse(request, handle, fault.error_code)

    def _is_pending(self, api_key: int, kind: FaultKind) -> bool:
        return any(it.api == api_key and it.kind is kind for it in self._faults)

    def _take(self, api_key: int, *kinds: FaultKind) -> InjectedFault | None:
        for fault in self._faults:
            if fault.api == api_key and fault.kind in kinds:
                fault.spend()
                if fault.times_left == 0:
                    self._faults.remove(fault)
                return fault
        return None


def _refuse(request: Request, handle: Handle, code: ErrorCode) -> None:
    if request.api_key == ApiKey.METADATA:
        _refuse_topics(request, handle, code)
    elif request.api_key == ApiKey.PRODUCE and request.body.acks == 0:
        # Nobody waits for an answer: as the broker does with errors then.
        request.close()
    else:
        request.reply(error_answer(request, code))


def _refuse_topics(request: Request, handle: Handle, code: ErrorCode) -> None:
    """A client must still be told where the brokers are: the handler says it."""
    send = request.send

    def send_marked(response: Message | None) -> None:
        mark_metadata(response, code)
        send(response)

    request.send = send_marked
    request.body.allow_auto_topic_creation = False
    handle(request)


def _is_incremental(request: Request) -> bool:
    """Whether a Fetch leaves it to its session to know the partitions."""
    return request.api_key == ApiKey.FETCH and request.body.session_epoch > 0


def api_named(api: ApiKey | str) -> ApiKey:
    """The API of a name such as "ListOffsets" or "LIST_OFFSETS"; UsageError."""
    if isinstance(api, ApiKey):
        return api
    wanted = api.replace("_", "").lower()
    for key in ApiKey:
        if key.title.lower() == wanted:
            return key
    names = ", ".join(key.title for key in ApiKey)
    raise UsageError(f"Kafka 2.7 has no API named {api}", hint=f"there are {names}")


def error_named(error: ErrorCode | str | int) -> ErrorCode:
    """The error of a name such as "NOT_LEADER_OR_FOLLOWER", or of a number; UsageError."""
    if not isinstance(error, str):
        return ErrorCode(error)
    name = error.upper()
    if name not in ErrorCode.__members__:
        raise UsageError(
            f"Kafka 2.7 has no error named {error}", hint="e.g. NOT_LEADER_OR_FOLLOWER"
        )
    return ErrorCode[name]
