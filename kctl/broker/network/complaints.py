"""Complaints: log lines about bad peers, at most one per peer and second.

A peer that sends garbage as fast as it can must not fill the log; what was held back is counted
and told with the peer's next line. So it is with the traces of errors of ours that a peer's
requests bring to light. Pure: time is passed in.
"""

from collections.abc import Callable

INTERVAL_MS = 1_000
# Peers remembered; the table starts over beyond it.
PEERS_MAX = 1_000


class Complaints:
    """Who was complained about when."""

    def __init__(self) -> None:
        # Host -> (monotonic ms of the last line, lines held back since).
        self._peers: dict[str, tuple[int, int]] = {}

    def line(self, host: str, words: Callable[[], str], now_ms: int) -> str | None:
        """The line to log about `host`, or None for now; `words` are made only if they count."""
        last_ms, held_back = self._peers.get(host, (now_ms - INTERVAL_MS, 0))
        if now_ms - last_ms < INTERVAL_MS:
            self._peers[host] = (last_ms, held_back + 1)
            return None
        if host not in self._peers and len(self._peers) >= PEERS_MAX:
            self._peers.clear()
        self._peers[host] = (now_ms, 0)
        return f"{words()} ({held_back} more like this)" if held_back else words()
