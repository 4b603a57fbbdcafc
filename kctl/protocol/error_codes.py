"""ErrorCode: the error codes of responses; ApiError: the exception that carries one.

Decoded messages hold plain integers. `ErrorCode(n)` never fails: a number that 2.7 does not know
becomes a new member (UNKNOWN_ERROR_CODE_n, not retriable), as newer brokers send them. Kafka 2.7:
Errors; which errors a client retries is RetriableException there.
"""

from enum import IntEnum

from kctl.errors import KctlError


class ErrorCode(IntEnum):
    """Number, short description, and whether a retry may help."""

    text: str
    retriable: bool

    def __new__(cls, number: int, text: str = "", retriable: bool = False) -> "ErrorCode":
        """Store the facts beside the number."""
        self = int.__new__(cls, number)
        self._value_ = number
        self.text = text
        self.retriable = retriable
        return self

    UNKNOWN_SERVER_ERROR = -1, "the broker failed in a way it did not expect"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset is outside the partition's range"
    CORRUPT_MESSAGE = (
        2,
        "a message failed its checksum, is too large, or is otherwise damaged",
        True,
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "no such topic or partition on this broker", True
    INVALID_FETCH_SIZE = 4, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", True
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "this broker does not lead, or does not replicate, the partition",
        True,
    )
    REQUEST_TIMED_OUT = 7, "the request took longer than its timeout", True
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available on this broker", True
    MESSAGE_TOO_LARGE = 10, "the record is larger than the broker accepts"
    STALE_CONTROLLER_EPOCH = 11, "the controller's epoch is older than one already seen"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata stored with the offset is too long"
    NETWORK_EXCEPTION = 13, "the connection broke before a response arrived", True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still loading its state", True
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available", True
    NOT_COORDINATOR = 16, "this broker does not coordinate that group or transaction", True
    INVALID_TOPIC_EXCEPTION = 17, "the topic name is not allowed, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, "the batch is larger than a segment may be"
    NOT_ENOUGH_REPLICAS = 19, "fewer replicas are in sync than min.insync.replicas requires", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "written, but then fewer replicas were in sync than min.insync.replicas requires",
        True,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, "the group has another generation"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        "the member's protocols have nothing in common with the group's",
    )
    INVALID_GROUP_ID = 24, "the group id is empty or not allowed"
    UNKNOWN_MEMBER_ID = 25, "the group does not know this member id"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset data is too large to be committed"
    TOPIC_AUTHORIZATION_FAILED = 29, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, "the record's timestamp is outside what the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer that SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the broker does not speak that version of the API"
    TOPIC_ALREADY_EXISTS = 36, "the topic exists already"
    INVALID_PARTITIONS = 37, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = (
        38,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is invalid"
    INVALID_CONFIG = 40, "a config value is wrong"
    NOT_CONTROLLER = 41, "this broker is not the controller", True
    INVALID_REQUEST = 42, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the topic's message format cannot do that"
    POLICY_VIOLATION = 44, "a policy of the broker forbids it"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "the producer's sequence number leaves a gap"
    DUPLICATE_SEQUENCE_NUMBER = 46, "the producer's sequence number was seen before"
    INVALID_PRODUCER_EPOCH = 47, "the producer's epoch is old"
    INVALID_TXN_STATE = 48, "the transaction's state does not allow that"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is above transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, "another operation on the transaction is still in progress"
    TRANSACTION_COORDINATOR_FENCED = 52, "the coordinator that sent the marker has been replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, "security features are switched off"
    OPERATION_NOT_ATTEMPTED = 55, "not attempted, because something else in the request failed"
    KAFKA_STORAGE_ERROR = 56, "the broker could not use its disk", True
    LOG_DIR_NOT_FOUND = 57, "no such log directory is configured"
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "the broker has no state of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "a reassignment of the partition is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the delegation token belongs to another principal"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation token requests need another authentication",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the principal type is not supported"
    NON_EMPTY_GROUP = 68, "the group has members"
    GROUP_ID_NOT_FOUND = 69, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "no such fetch session", True
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session has another epoch", True
    LISTENER_NOT_FOUND = 72, "the leader has no listener of that name", True
    TOPIC_DELETION_DISABLED = 73, "topic deletion is switched off"
    FENCED_LEADER_EPOCH = 74, "the requested leader epoch is older than the broker's", True
    UNKNOWN_LEADER_EPOCH = 75, "the requested leader epoch is newer than the broker's", True
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        "the client's protocol version does not allow that compression",
    )
    STALE_BROKER_EPOCH = 77, "the broker's epoch is older than the one registered"
    OFFSET_NOT_AVAILABLE = 78, "the new leader's high watermark has not caught up yet", True
    MEMBER_ID_REQUIRED = 79, "a member id was assigned: join again with it"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", True
    GROUP_MAX_SIZE_REACHED = 81, "the group is full"
    FENCED_INSTANCE_ID = 82, "another member holds this group.instance.id now"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no eligible replica can lead", True
    ELECTION_NOT_NEEDED = 84, "the partition needs no election", True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no reassignment of the partition is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group is subscribed to the topic"
    INVALID_RECORD = 87, "a record broke a rule, and its batch was rejected"
    UNSTABLE_OFFSET_COMMIT = 88, "offsets wait for a transaction to end", True
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        "too many changes in too short a time: a quota was exceeded",
        True,
    )
    PRODUCER_FENCED = 90, "a newer producer with the same transactional id took over"
    RESOURCE_NOT_FOUND = 91, "no such resource"
    DUPLICATE_RESOURCE = 92, "the same resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "the voters are not the expected ones"
    INVALID_UPDATE_VERSION = 95, "the state was changed meanwhile: the version does not match"
    FEATURE_UPDATE_FAILED = 96, "the feature could not be updated"

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCode | None":
        if not isinstance(value, int):
            return None
        unknown = int.__new__(cls, value)
        unknown._value_ = value
        unknown._name_ = f"UNKNOWN_ERROR_CODE_{value}"
        unknown.text = "an error that Kafka 2.7 does not know"
        unknown.retriable = False
        return unknown


class RefusedCode(int):
    """An authorization error that knows which permission is missing (kctl.protocol.permissions).

    It is equal to the plain number; responses hold it in place of that.
    """

    # As in `Describe on Topic orders`.
    needs: str
    # How to get it.
    hint: str

    def __new__(cls, number: int, needs: str, hint: str) -> "RefusedCode":
        """Store the texts beside the number."""
        self = super().__new__(cls, number)
        self.needs = needs
        self.hint = hint
        return self


class ApiError(KctlError):
    """A request failed with `code`; `message` replaces the code's own description.

    A RefusedCode adds the missing permission to either, and its hint unless there is another.
    """

    def __init__(self, code: int, message: str | None = None, *, hint: str | None = None) -> None:
        self.code = ErrorCode(code)
        # The `error_message` of the response, if any.
        self.reason = message
        text = message or f"{self.code.text} ({self.code.name})"
        if isinstance(code, RefusedCode):
            text = f"{text.rstrip('.')}: needs {code.needs}"
            hint = hint or code.hint
        super().__init__(text, hint=hint)
