"""RetryPolicy: whether to retry a request, and after what delay. Pure: randomness is an argument.

The delay doubles with every attempt up to a maximum; the last fifth of it is random, so that
clients that failed together do not return together (KIP-144).
"""

from collections.abc import Callable, Iterator
from typing import Any

from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.schema import Struct

JITTER_PERCENT = 20

# The broker is not the controller; another is, or none is yet.
WRONG_CONTROLLER = frozenset({ErrorCode.NOT_CONTROLLER})
# The broker does not coordinate the group or transaction, or is still loading it.
WRONG_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# The known leader is outdated, or the leader is changing.
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
    """The limits of retries; `attempts_max` is a safety net in addition to the caller's
    deadline."""

    backoff_ms: int = 100
    backoff_ms_max: int = 1_000
    attempts_max: int = 1_000

    def wait_ms(self, attempt: int, random_below: Callable[[int], int]) -> int:
        """Return the delay in milliseconds after `attempt` failures (1: the first)."""
        doublings = min(max(attempt - 1, 0), 30)
        wait_ms = min(self.backoff_ms << doublings, self.backoff_ms_max)
        jitter_ms = wait_ms * JITTER_PERCENT // 100
        return wait_ms - random_below(jitter_ms + 1)

    def is_worth_a_retry(self, code: int, attempt: int) -> bool:
        """Return whether a retry after `attempt` failures may succeed, given error `code`."""
        return attempt < self.attempts_max and ErrorCode(code).retriable


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code in a response other than NONE, the outermost first."""
    code = getattr(message, "error_code", 0)
    if code:
        yield code
    for field in message.fields:
        if field.kind == "array" and isinstance(field.element, type):
            for element in getattr(message, field.name) or ():
                if isinstance(element, Struct):
                    yield from error_codes(element)


def first_error_among(message: Any, codes: frozenset[ErrorCode]) -> ErrorCode | None:
    """Return the first error code of a response that is one of `codes`."""
    return next((ErrorCode(code) for code in error_codes(message) if code in codes), None)
