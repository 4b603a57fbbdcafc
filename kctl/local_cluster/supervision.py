"""Supervision: the state of one process of a local cluster. Pure.

    STOPPED -> STARTING -> RUNNING -> STOPPING -> STOPPED
    STARTING, RUNNING --it dies--> WAITING --after a pause--> STARTING
    STARTING, RUNNING --restart--> RESTARTING --it has ended--> STARTING

A process that dies is restarted, after a pause that doubles with each death up to BACKOFF_MS_MAX
and is reset once it ran for STEADY_MS. A process that was stopped or killed by command stays down
until it is started by command.
"""

from enum import Enum

BACKOFF_MS_MIN = 100
BACKOFF_MS_MAX = 10_000
STEADY_MS = 30_000


class ProcessState(Enum):
    """The state of a process."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    RESTARTING = "restarting"


class Event(Enum):
    """An event of a process."""

    START = "start"
    READY = "ready"
    STOP = "stop"
    RESTART = "restart"
    EXITED = "exited"
    PAUSE_OVER = "pause over"


_S, _E = ProcessState, Event
MOVES = {
    (_S.STOPPED, _E.START): _S.STARTING,
    (_S.STOPPED, _E.RESTART): _S.STARTING,
    (_S.STOPPED, _E.STOP): _S.STOPPED,
    (_S.STARTING, _E.READY): _S.RUNNING,
    (_S.STARTING, _E.EXITED): _S.WAITING,
    (_S.STARTING, _E.START): _S.STARTING,
    (_S.STARTING, _E.STOP): _S.STOPPING,
    (_S.STARTING, _E.RESTART): _S.RESTARTING,
    (_S.RUNNING, _E.EXITED): _S.WAITING,
    (_S.RUNNING, _E.START): _S.RUNNING,
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.RUNNING, _E.RESTART): _S.RESTARTING,
    (_S.WAITING, _E.PAUSE_OVER): _S.STARTING,
    (_S.WAITING, _E.START): _S.STARTING,
    (_S.WAITING, _E.RESTART): _S.STARTING,
    (_S.WAITING, _E.STOP): _S.STOPPED,
    (_S.STOPPING, _E.EXITED): _S.STOPPED,
    (_S.STOPPING, _E.READY): _S.STOPPING,
    (_S.STOPPING, _E.STOP): _S.STOPPING,
    (_S.STOPPING, _E.START): _S.RESTARTING,
    (_S.STOPPING, _E.RESTART): _S.RESTARTING,
    (_S.RESTARTING, _E.EXITED): _S.STARTING,
    (_S.RESTARTING, _E.READY): _S.RESTARTING,
    (_S.RESTARTING, _E.START): _S.RESTARTING,
    (_S.RESTARTING, _E.RESTART): _S.RESTARTING,
    (_S.RESTARTING, _E.STOP): _S.STOPPING,
}


class Supervision:
    """Owns the state of one process, and counts its deaths."""

    def __init__(self) -> None:
        self.state = ProcessState.STOPPED
        # Unrequested deaths.
        self.deaths = 0
        self._backoff_ms = BACKOFF_MS_MIN
        self._running_since_ms = 0

    def handle(self, event: Event, now_ms: int) -> ProcessState:
        """Return the state after `event`; RuntimeError for an illegal one, with nothing changed."""
        after = MOVES.get((self.state, event))
        if after is None:
            raise RuntimeError(f"{event.value} of a process that is {self.state.value}")
        if after is ProcessState.WAITING:
            self.deaths += 1
            was_running = self.state is ProcessState.RUNNING
            if was_running and now_ms - self._running_since_ms >= STEADY_MS:
                self._backoff_ms = BACKOFF_MS_MIN
        if event is Event.READY:
            self._running_since_ms = now_ms
        self.state = after
        return after

    def next_pause_ms(self) -> int:
        """Return how long to wait before the next restart."""
        pause_ms = self._backoff_ms
        self._backoff_ms = min(2 * pause_ms, BACKOFF_MS_MAX)
        return pause_ms
