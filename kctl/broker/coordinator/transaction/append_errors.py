"""Maps errors of appends to __transaction_state to the errors that producers receive.

From the producer's view nothing was decided: it retries, against the coordinator that it finds
then.

Kafka 2.7: kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.
"""

from kctl.protocol.error_codes import ErrorCode

_PRODUCER_ERRORS = {
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_ENOUGH_REPLICAS): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.REQUEST_TIMED_OUT): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_LEADER_OR_FOLLOWER): int(ErrorCode.NOT_COORDINATOR),
    int(ErrorCode.KAFKA_STORAGE_ERROR): int(ErrorCode.NOT_COORDINATOR),
    int(ErrorCode.MESSAGE_TOO_LARGE): int(ErrorCode.UNKNOWN_SERVER_ERROR),
    int(ErrorCode.RECORD_LIST_TOO_LARGE): int(ErrorCode.UNKNOWN_SERVER_ERROR),
}


def producer_error(code: int) -> int:
    """Return the error for a transactional request whose record failed with `code`."""
    return _PRODUCER_ERRORS.get(code, code)
