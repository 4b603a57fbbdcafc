"""SessionReports: log lines about a session with ZooKeeper, and how often they appear.

A lost connection is logged at once with the server's address, then every REPEAT_MS until it ends.
The reports decide nothing.
"""

from kctl.runtime.clock import Clock
from kctl.runtime.trace import Trace

# A server that has not responded for so long is reported.
UNANSWERED_MS = 1_000
# Time between two lines about the same outage.
REPEAT_MS = 30_000


class SessionReports:
    """Log lines about successive sessions."""

    def __init__(
        self, clock: Clock, trace: Trace, connect_string: str, session_timeout_ms: int
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._where = f"ZooKeeper at {connect_string}"
        self._timeout_ms = session_timeout_ms
        self._has_begun = False
        # Since when the server is missing; None while it responds.
        self._missing_since_ms: int | None = None
        self._said_ms = 0

    def began(self, session_id: int) -> None:
        """Report that a session has begun, the first or a new one."""
        if self._has_begun or self._missing_since_ms is not None:
            self._trace.info(f"New session {session_id:#x} with {self._where}")
        self._has_begun = True
        self._missing_since_ms = None

    def suspended(self, why: str) -> None:
        """Report that the server is unreachable; the session may continue."""
        self._miss(
            f"{self._where} is unreachable: {why}. The session ends {self._timeout_ms} ms after "
            f"the server last heard from it; trying to reconnect"
        )

    def unanswered(self, waited_ms: int) -> None:
        """Report a request that has waited `waited_ms` for its response."""
        if waited_ms >= UNANSWERED_MS and self._missing_since_ms is None:
            self._miss(f"{self._where} has not answered for {waited_ms} ms")
        elif self._missing_since_ms is not None:
            self.still_missing("it does not answer")

    def still_missing(self, why: str) -> None:
        """Report, now and then, that there is no connection."""
        if self._missing_since_ms is None:
            self._miss(f"Waiting for {self._where}: {why or 'no response yet'}")
        elif self._clock.monotonic_ms() - self._said_ms >= REPEAT_MS:
            missing_s = (self._clock.monotonic_ms() - self._missing_since_ms) // 1000
            self._say(f"{self._where} has been unreachable for {missing_s} s: {why}")

    def answered(self) -> None:
        """Report that the server responds again, on a connection that was never lost."""
        if self._missing_since_ms is not None:
            self._missing_since_ms = None
            self._trace.info(f"{self._where} answers again")

    def resumed(self, session_id: int) -> None:
        """Report that the session continues."""
        if self._missing_since_ms is not None:
            self._missing_since_ms = None
            self._trace.info(f"Reconnected to {self._where}, session {session_id:#x} continues")

    def expired(self, session_id: int) -> None:
        """Report that the session has ended."""
        self._miss(
            f"Session {session_id:#x} with {self._where} has ended: what this process "
            "registered is gone, and others take over what it led or read. Asking for a new session"
        )

    def _miss(self, message: str) -> None:
        if self._missing_since_ms is None:
            self._missing_since_ms = self._clock.monotonic_ms()
        self._say(message)

    def _say(self, message: str) -> None:
        self._said_ms = self._clock.monotonic_ms()
        self._trace.warning(message)
