"""RequestFaults: the faults that a test injects per API, between connections and handlers.

A request meets the faults of its API in this order: the first latency with turns left delays it,
then the first error or disconnect with turns left ends it; otherwise it is handled as usual. Each
request uses one turn of a fault. A Fetch that will be rejected must name its partitions: an
incremental Fetch gets FETCH_SESSION_ID_NOT_FOUND, as from a full session cache, and the full Fetch
that follows meets the error. Requests that do not arrive over a connection (the controller's to its
own broker) meet no faults.

Everything here is called on the thread of the broker's loop.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from kctl.broker.error_responses import error_response, mark_metadata
from kctl.broker.request import Request
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchResponse
from kctl.protocol.schema import Message
from kctl.runtime.scheduler import Scheduler, Timer

Handle = Callable[[Request], None]


class FaultKind(Enum):
    """What happens to a request."""

    LATENCY = "latency"
    # Rejected with an error code, without being handled.
    ERROR = "error"
    # The connection is closed, without handling the request.
    DISCONNECT = "disconnect"
    # The request is handled, but the connection is closed instead of responding.
    LOST_RESPONSE = "lost response"


@dataclass(slots=True, eq=False)
class InjectedFault:
    """One fault; `hits` counts the requests that met it."""

    kind: FaultKind
    api: ApiKey
    # The number of requests that will still meet it; None: all, until it is removed.
    times_left: int | None
    error_code: ErrorCode = ErrorCode.NONE
    latency_ms: int = 0
    hits: int = 0

    def spend(self) -> None:
        """Count a request that meets the fault."""
        self.hits += 1
        if self.times_left is not None:
            self.times_left -= 1


class RequestFaults:
    """The interceptor of one broker's requests."""

    def __init__(self) -> None:
        # In the order injected; faults without turns left are dropped.
        self._faults: list[InjectedFault] = []
        # Delayed requests, by number.
        self._held: dict[int, tuple[Request, Timer]] = {}
        self._held_count = 0
        # Requests received over connections, per API.
        self.request_counts: dict[int, int] = {}
        # Connections get no more responses, until the next start.
        self.is_cut_off = False

    def add(self, fault: InjectedFault) -> None:
        """Add a fault for the requests that follow."""
        self._faults.append(fault)

    def remove(self, fault: InjectedFault) -> None:
        """Remove a fault; do nothing if it is used up."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        """Remove all faults; requests that are being delayed remain delayed."""
        self._faults.clear()

    def let_go(self) -> None:
        """Close delayed requests, when the broker stops."""
        held, self._held = self._held, {}
        for request, timer in held.values():
            timer.cancel()
            request.close()

    def cut_off(self) -> None:
        """Handle no more requests and send no more responses: the broker counts as killed."""
        self.is_cut_off = True
        self.let_go()

    def interceptor(self, scheduler: Scheduler) -> Callable[[Request, Handle], None]:
        """Return the interceptor for a `Broker` that starts; delays use `scheduler`."""
        self.is_cut_off = False

        def intercept(request: Request, handle: Handle) -> None:
            if self.is_cut_off:
                request.close()
                return
            request.send = partial(self._send, request.send, request.close)
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

    def _send(
        self,
        send: Callable[[Message | None], None],
        close: Callable[[], None],
        response: Message | None,
    ) -> None:
        if self.is_cut_off:
            close()
        else:
            send(response)

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
            request.api_key, FaultKind.ERROR, FaultKind.DISCONNECT, FaultKind.LOST_RESPONSE
        )
        if fault is None:
            handle(request)
        elif fault.kind is FaultKind.DISCONNECT:
            request.close()
        elif fault.kind is FaultKind.LOST_RESPONSE:
            close = request.close
            request.send = lambda _: close()
            handle(request)
        else:
            _reject(request, handle, fault.error_code)

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


def _reject(request: Request, handle: Handle, code: ErrorCode) -> None:
    if request.api_key == ApiKey.METADATA:
        _reject_topics(request, handle, code)
    elif request.api_key == ApiKey.PRODUCE and request.body.acks == 0:
        # acks=0 has no response; the broker closes the connection on errors, too.
        request.close()
    else:
        request.reply(error_response(request, code, f"injected by a test: {code.name}"))


def _reject_topics(request: Request, handle: Handle, code: ErrorCode) -> None:
    """Let the handler answer with its brokers, but with the error on every topic."""
    send = request.send

    def send_marked(response: Message | None) -> None:
        mark_metadata(response, code)
        send(response)

    request.send = send_marked
    request.body.allow_auto_topic_creation = False
    handle(request)


def _is_incremental(request: Request) -> bool:
    """Return whether a Fetch takes its partitions from its session."""
    return request.api_key == ApiKey.FETCH and request.body.session_epoch > 0


def api_named(api: ApiKey | str) -> ApiKey:
    """Return the API named "ListOffsets" or "LIST_OFFSETS"; UsageError for an unknown name."""
    if isinstance(api, ApiKey):
        return api
    wanted = api.replace("_", "").lower()
    for key in ApiKey:
        if key.title.lower() == wanted:
            return key
    names = ", ".join(key.title for key in ApiKey)
    raise UsageError(f"Kafka 2.7 has no API named {api}", hint=f"APIs: {names}")


def error_named(error: ErrorCode | str | int) -> ErrorCode:
    """Return the error named e.g. "NOT_LEADER_OR_FOLLOWER", or with this number; UsageError."""
    if not isinstance(error, str):
        return ErrorCode(error)
    name = error.upper()
    if name not in ErrorCode.__members__:
        raise UsageError(
            f"Kafka 2.7 has no error named {error}", hint="e.g. NOT_LEADER_OR_FOLLOWER"
        )
    return ErrorCode[name]
