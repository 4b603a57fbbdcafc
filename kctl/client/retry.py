"""RetryPolicy: whether to ask again, and how long to wait first. Pure: chance is passed in.

The wait doubles from one attempt to the next up to a maximum; the last fifth of it is drawn, so
that clients who failed together do not return together (KIP-144).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.schema import Struct

JITTER_PERCENT = 20

# Somebody else is the controller now, or nobody is yet.
WRONG_CONTROLLER = frozenset({ErrorCode.NOT_CONTROLLER})
# Somebody else coordinates the group or transaction, or is about to.
WRONG_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# Our picture of who leads the partition is old, or the partition is just changing hands.
WRONG_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient a client is; `attempts_max` is a backstop behind the caller's deadline."""

    backoff_ms: int = 100
    backoff_ms_max: int = 1_000
    attempts_max: int = 1_000

    def wait_ms(self, attempt: int, random_below: Callable[[int], int]) -> int:
        """Milliseconds to wait after `attempt` failures (1: the first)."""
        doublings = min(max(attempt - 1, 0), 30)
        wait_ms = min(self.backoff_ms << doublings, self.backoff_ms_max)
        jitter_ms = wait_ms * JITTER_PERCENT // 100
        return wait_ms - random_below(jitter_ms + 1)

    def is_worth_a_retry(self, code: int, attempt: int) -> bool:
        """Whether asking again after `attempt` failures may help against `code`."""
        return attempt < self.attempts_max and ErrorCode(code).retriable


def error_codes(message: Any) -> Iterator[int]:
    """Every error code in a response other than NONE, the outermost first."""
    code = getattr(message, "error_code", 0)
    if code:
        yield code
    for field in message.fields:
        if field.kind == "array" and isinstance(field.element, type):
            for element in getattr(message, field.name) or ():
                if isinstance(element, Struct):
                    yield from error_codes(element)


def first_error_among(message: Any, codes: frozenset[ErrorCode]) -> ErrorCode | None:
    """The first error code of a response that is one of `codes`."""
    return next((ErrorCode(code) for code in error_codes(message) if code in codes), None)
