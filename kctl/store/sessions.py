"""SessionTracker: decides when sessions with a timeout expire. Pure, time passed in.

Each `touch` moves a session's deadline. The tree knows which ephemerals a session has. Sessions of
this process have no deadline and are not tracked.

ZooKeeper: org.apache.zookeeper.server.SessionTrackerImpl.
"""


class SessionTracker:
    """Owns the deadlines of sessions, not their state."""

    def __init__(self) -> None:
        # Session id -> timeout and deadline.
        self._sessions: dict[int, tuple[int, int]] = {}

    def track(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        """Expire the session `timeout_ms` from now unless `touch` is called."""
        self._sessions[session_id] = (timeout_ms, now_ms + timeout_ms)

    def touch(self, session_id: int, now_ms: int) -> bool:
        """Extend the session after a sign of life; return False if it is not tracked."""
        found = self._sessions.get(session_id)
        if found is None:
            return False
        self._sessions[session_id] = (found[0], now_ms + found[0])
        return True

    def forget(self, session_id: int) -> None:
        """Stop tracking a session that ended."""
        self._sessions.pop(session_id, None)

    def next_deadline_ms(self) -> int | None:
        """Return when the next session may expire; None if no session is tracked."""
        return min((deadline for _, deadline in self._sessions.values()), default=None)

    def expire(self, now_ms: int, count_max: int | None = None) -> list[int]:
        """Remove and return the sessions whose deadline has come, earliest first; at most
        `count_max`, if it is given."""
        due = sorted(
            (deadline, session_id)
            for session_id, (_, deadline) in self._sessions.items()
            if deadline <= now_ms
        )[:count_max]
        for _, session_id in due:
            del self._sessions[session_id]
        return [session_id for _, session_id in due]
