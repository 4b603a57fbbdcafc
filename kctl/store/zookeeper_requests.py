"""ZooKeeperRequests: the requests that a store has given to kazoo, and those that wait for a turn.

kazoo's thread waits for the loop before it writes (see `zookeeper_thread`), and its answers are
work of the loop: a bounded number of requests is under way at a time.

Invariants: requests are sent in the order in which they were given; kazoo holds at most
IN_FLIGHT_MAX of them.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kctl.lazy_dataclass import dataclass
from kctl.runtime.scheduler import Scheduler
from kctl.store.zookeeper_thread import InlineHandler

# Requests that kazoo holds at a time.
IN_FLIGHT_MAX = 128


@dataclass(frozen=True, slots=True)
class _Request:
    """A request; see `ZooKeeperRequests.send`."""

    call: Callable[[], Any]
    receiver: Callable[[Any], None]
    unsent: Callable[[Exception], object]


class ZooKeeperRequests:
    """The requests of one session."""

    def __init__(self, scheduler: Scheduler, handler: InlineHandler) -> None:
        self._scheduler = scheduler
        self._handler = handler
        self._waiting: deque[_Request] = deque()
        # By number.
        self._in_flight: set[int] = set()
        self._count = 0

    def send(
        self,
        call: Callable[[], Any],
        receiver: Callable[[Any], None],
        unsent: Callable[[Exception], object],
    ) -> None:
        """Send a request, now or once kazoo holds fewer.

        `call` is a method of kazoo's client; its result goes to `receiver`, on the loop. If it
        cannot be sent, `unsent` is called instead, with the reason.
        """
        self._waiting.append(_Request(call, receiver, unsent))
        self._send_waiting()

    def drop(self, reason: Exception) -> None:
        """Do not send what waits, for `reason`."""
        dropped, self._waiting = self._waiting, deque()
        for request in dropped:
            request.unsent(reason)

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
            self._send(self._waiting.popleft())

    def _send(self, request: _Request) -> None:
        self._count += 1
        number = self._count
        self._in_flight.add(number)
        post = self._scheduler.call_soon_threadsafe
        self._handler.gate.note_turn()
        self._handler.link_next(partial(post, self._received, number, request.receiver))
        try:
            request.call()
        except ValueError as error:
            # kazoo refuses the path.
            self._handler.link_next(None)
            self._in_flight.discard(number)
            request.unsent(error)

    def _received(self, number: int, receiver: Callable[[Any], None], result: Any) -> None:
        # kazoo sets some errors twice.
        self._in_flight.discard(number)
        receiver(result)
        self._send_waiting()
