"""Maps errors of appends to __consumer_offsets to the errors that a group's clients receive.

A client cannot act on missing replicas; it can only retry, against the coordinator that it finds
then.

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager.storeGroup, storeOffsets.
"""

from kctl.protocol.error_codes import ErrorCode

_COMMON = {
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_ENOUGH_REPLICAS): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND): int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_LEADER_OR_FOLLOWER): int(ErrorCode.NOT_COORDINATOR),
    int(ErrorCode.KAFKA_STORAGE_ERROR): int(ErrorCode.NOT_COORDINATOR),
}
_TOO_LARGE = (
    int(ErrorCode.MESSAGE_TOO_LARGE),
    int(ErrorCode.RECORD_LIST_TOO_LARGE),
    int(ErrorCode.INVALID_FETCH_SIZE),
)
_GROUP = (
    _COMMON
    | {int(ErrorCode.REQUEST_TIMED_OUT): int(ErrorCode.REBALANCE_IN_PROGRESS)}
    | dict.fromkeys(_TOO_LARGE, int(ErrorCode.UNKNOWN_SERVER_ERROR))
)
_OFFSETS = _COMMON | dict.fromkeys(_TOO_LARGE, int(ErrorCode.INVALID_COMMIT_OFFSET_SIZE))


def group_error(code: int) -> int:
    """Return the error for JoinGroup and SyncGroup when appending the group's record failed with
    `code`."""
    return _GROUP.get(code, code)


def offsets_error(code: int) -> int:
    """Return the error for commits and deletions of offsets when their append failed with
    `code`."""
    return _OFFSETS.get(code, code)
