"""AuditLog: a log line for every denied access, as Apache Kafka's `kafka.authorizer.logger` has it.

A client that continuously asks for what it may not have must not fill the log: lines about the same
principal, operation and resource are limited; the next line has the number of those suppressed.
Resources whose names begin alike, up to the length that a line has of them, count as the same.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer.logAuditMessage.
"""

from collections.abc import Callable

from kctl.protocol.acl import AclOperation, PatternType, ResourceType
from kctl.runtime.trace import Trace

# Lines about the same principal, operation and resource per interval.
LINES_MAX = 10
INTERVAL_MS = 60_000
# Subjects remembered; beyond it all are forgotten.
SUBJECTS_MAX = 10_000
# Characters of a name in a line.
NAME_MAX = 256

_Subject = tuple[str, AclOperation, ResourceType, str]


class AuditLog:
    """Writes denied accesses to the log of one broker."""

    def __init__(self, trace: Trace, now_ms: Callable[[], int]) -> None:
        self._trace = trace
        self._now_ms = now_ms
        # Subject -> (begin of its interval, lines asked for in it).
        self._subjects: dict[_Subject, tuple[int, int]] = {}
        # Denied accesses that were requested, whether logged or not.
        self.denied = 0

    def deny(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
        count: int,
    ) -> None:
        """Log that `principal` was denied `operation`; `count` is how often the request names the
        resource."""
        self.denied += 1
        # What is remembered of a name is as short as in a line.
        shown = printable(name)
        suppressed = self._suppressed((principal, operation, resource_type, shown))
        if suppressed is None:
            return
        resource = f"{resource_type.text}:{PatternType.LITERAL.name}:{shown}"
        line = (
            f"Principal = {printable(principal)} is Denied Operation = {operation.text}"
            f" from host = {host} on resource = {resource}"
            f" for request = {api} with resourceRefCount = {count}"
        )
        self._trace.info(f"{line} ({suppressed} more like this)" if suppressed else line)

    def _suppressed(self, subject: _Subject) -> int | None:
        """Return the number of suppressed lines to mention; None: suppress this one."""
        now_ms = self._now_ms()
        begun_ms, lines = self._subjects.get(subject, (now_ms, 0))
        if now_ms - begun_ms >= INTERVAL_MS:
            suppressed = max(0, lines - LINES_MAX)
            self._subjects[subject] = (now_ms, 1)
            return suppressed
        if subject not in self._subjects and len(self._subjects) >= SUBJECTS_MAX:
            self._subjects.clear()
        self._subjects[subject] = (begun_ms, lines + 1)
        return 0 if lines < LINES_MAX else None


def printable(text: str) -> str:
    """Return `text` on one line, without control characters, and of limited length."""
    cut = text if len(text) <= NAME_MAX else f"{text[:NAME_MAX]}..."
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in cut)
