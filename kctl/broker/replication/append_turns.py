"""AppendTurns: executes a partition's appends in order, although some take many turns of the loop.

Records that must be checked one by one may take long, because a batch of a few bytes may hold very
many. Such an append continues in the WorkQueue. Until it is done, later appends to the same
partition wait, as they wait for the log's lock in Kafka: the offsets assigned to the records are
reserved. Appends of a client also wait for the next turn if this one is spent, because a request
may name hundreds of partitions.

Invariants: a partition has an entry exactly while one of its appends takes turns or waits for one;
`on_done` is called exactly once for each append.

Kafka 2.7: kafka.log.Log.append (the log's lock)
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from kctl.broker.log.log_validator import CheckedRecords, ValidatedRecords, ValidationInTurns
from kctl.broker.log.unified_log import UnifiedLog
from kctl.broker.log.validation_rules import RecordValidationError
from kctl.broker.replication.delayed import AppendResult
from kctl.errors import KctlError, StorageError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.scheduler import Scheduler
from kctl.runtime.work_queue import WorkQueue

# Errors of a produce request that occur before the log is reached; others report the log start
# offset.
_ERRORS_BEFORE_THE_LOG: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

Records = bytearray | memoryview
Key = tuple[str, int]


class Append(NamedTuple):
    """An append: `append` gets the records, the result of their check if that took turns, or its
    error; `on_done` is called after it."""

    records: Records
    append: Callable[[Records | CheckedRecords | KctlError], object]
    on_done: Callable[[], object]


class AppendTurns:
    """The order of a broker's appends, per partition."""

    def __init__(self, scheduler: Scheduler, work_queue: WorkQueue) -> None:
        self._scheduler = scheduler
        self._work_queue = work_queue
        # The waiting appends of each partition that has an append in turns.
        self.waiting: dict[Key, deque[Append]] = {}

    def start(self, key: Key, append: Append, *, may_wait: bool) -> None:
        """Append to partition `key` now, or after its earlier appends; if it `may_wait`, not in a
        turn that is spent."""
        waiting = self.waiting.get(key)
        if waiting is not None:
            waiting.append(append)
        elif may_wait and self._scheduler.is_turn_spent():
            self.waiting[key] = deque([append])
            self._scheduler.call_later(0, self._next, key)
        else:
            self._try(key, append)

    def _try(self, key: Key, append: Append) -> bool:
        """Append; return False if it takes turns."""
        try:
            append.append(append.records)
        except ValidationInTurns as pending:
            self.waiting.setdefault(key, deque())
            self._work_queue.start(
                pending.work,
                partial(self._checked, key, append, pending),
                partial(self._failed, key, append),
            )
            return False
        append.on_done()
        return True

    def _checked(
        self, key: Key, append: Append, pending: ValidationInTurns, found: ValidatedRecords
    ) -> None:
        self._settle(key, append, CheckedRecords(pending, found))

    def _failed(self, key: Key, append: Append, error: Exception) -> None:
        if isinstance(error, KctlError):
            self._settle(key, append, error)
            return
        self._settle(key, append, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        raise error

    def _settle(self, key: Key, append: Append, outcome: CheckedRecords | KctlError) -> None:
        try:
            append.append(outcome)
            append.on_done()
        finally:
            self._scheduler.call_soon(self._next, key)

    def _next(self, key: Key) -> None:
        waiting = self.waiting[key]
        if not waiting:
            del self.waiting[key]
            return
        # After an unexpected error, too: the appends behind this one have nothing to do with it.
        has_ended = True
        try:
            has_ended = self._try(key, waiting.popleft())
        finally:
            if has_ended:
                self._scheduler.call_soon(self._next, key)


def set_error(result: AppendResult, error: KctlError, log: UnifiedLog | None) -> bool:
    """Set the error in `result`; return whether the log was reached, so that its start is
    reported."""
    if isinstance(error, ApiError):
        result.error_code = error.code
        result.error_message = error.reason
        if isinstance(error, RecordValidationError):
            result.record_errors = error.record_errors
    elif isinstance(error, StorageError):
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.error_code = ErrorCode.CORRUPT_MESSAGE
        result.error_message = str(error)
    if result.error_code in _ERRORS_BEFORE_THE_LOG:
        return False
    if log is not None:
        result.log_start_offset = log.log_start_offset
    return True


def note_rejected(
    records: Records | CheckedRecords | KctlError, error: KctlError, log: UnifiedLog | None
) -> None:
    """Let the log remember records that a client will resend because of this error."""
    if log is not None and isinstance(error, ApiError) and error.code.retriable:
        if isinstance(records, CheckedRecords):
            log.producer_state.note_rejected(records.found.records)
        elif not isinstance(records, KctlError):
            log.producer_state.note_rejected(records)
