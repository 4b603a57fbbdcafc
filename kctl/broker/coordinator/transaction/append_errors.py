"""What a producer is told when the coordinator's log refuses a record.

Nothing was decided then, as far as the producer knows: it asks again, of the coordinator it will
find.

Kafka 2.7: kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.
"""

from kctl.protocol.error_codes import ErrorCode

_TOLD = {
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
    """For the transactional requests, when their record failed with `code`."""
    return _TOLD.get(code, code)
