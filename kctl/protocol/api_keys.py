"""ApiKey: the 54 APIs of Kafka 2.7, their numbers and versions, and where their messages are.

This table alone lists the versions that the broker serves; message classes take them from
here. What only the client speaks, to later brokers, is in `later_apis`; both tables share the base
class Api. A message module is imported on the first access to its classes. Those are typed
`type[Any]`, not `type[Message]`: message classes name their Api, and modules import in one
direction only. APIs 52 to 55 (KRaft's quorum) are not part of a 2.7 broker. Kafka 2.7: ApiKeys.
"""

from enum import IntEnum
from importlib import import_module
from typing import Any

# A first flexible version that is never reached.
NEVER = 0x7FFF


class Api(IntEnum):
    """An API in some of its versions; a class without members, the base of the tables of APIs."""

    min_version: int
    max_version: int
    # First version with compact strings and tagged fields (KIP-482); NEVER if there is none.
    flexible_from: int
    # Requires ClusterAction: only brokers and the controller send it to each other.
    is_cluster_action: bool
    _request_class: "type[Any] | None"
    _response_class: "type[Any] | None"

    @property
    def title(self) -> str:
        """Return Kafka's name of the API, such as "ListOffsets"."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def request_class(self) -> type[Any]:
        """Return the class of the request."""
        if self._request_class is None:
            self._request_class = self._import_class("Request")
        return self._request_class

    @property
    def response_class(self) -> type[Any]:
        """Return the class of the response."""
        if self._response_class is None:
            self._response_class = self._import_class("Response")
        return self._response_class

    def has_version(self, version: int) -> bool:
        """Return whether this table has `version`."""
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        """Return 0: no client id (ControlledShutdown v0 only); 2: flexible; else 1."""
        if version >= self.flexible_from:
            return 2
        return 0 if self is ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """Return 1 if flexible, else 0; always 0 for ApiVersions, whose version the
        client guessed."""
        return int(version >= self.flexible_from and self != ApiKey.API_VERSIONS)

    def _import_class(self, kind: str) -> type[Any]:
        """Import the class of the `kind` Request or Response."""
        raise NotImplementedError


class ApiKey(Api):
    """An API of 2.7: number, last version, first flexible version, whether only brokers may send
    it. The first version is 0."""

    def __new__(
        cls,
        number: int,
        max_version: int,
        flexible_from: int = NEVER,
        is_cluster_action: bool = False,
    ) -> "ApiKey":
        """Store the facts beside the number."""
        self = int.__new__(cls, number)
        self._value_ = number
        self.min_version, self.max_version = 0, max_version
        self.flexible_from = flexible_from
        self.is_cluster_action = is_cluster_action
        self._request_class = self._response_class = None
        return self

    PRODUCE = 0, 8
    FETCH = 1, 12, 12
    LIST_OFFSETS = 2, 5
    METADATA = 3, 9, 9
    LEADER_AND_ISR = 4, 4, 4, True
    STOP_REPLICA = 5, 3, 2, True
    UPDATE_METADATA = 6, 6, 6, True
    CONTROLLED_SHUTDOWN = 7, 3, 3, True
    OFFSET_COMMIT = 8, 8, 8
    OFFSET_FETCH = 9, 7, 6
    FIND_COORDINATOR = 10, 3, 3
    JOIN_GROUP = 11, 7, 6
    HEARTBEAT = 12, 4, 4
    LEAVE_GROUP = 13, 4, 4
    SYNC_GROUP = 14, 5, 4
    DESCRIBE_GROUPS = 15, 5, 5
    LIST_GROUPS = 16, 4, 3
    SASL_HANDSHAKE = 17, 1
    API_VERSIONS = 18, 3, 3
    CREATE_TOPICS = 19, 6, 5
    DELETE_TOPICS = 20, 5, 4
    DELETE_RECORDS = 21, 2, 2
    INIT_PRODUCER_ID = 22, 4, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 3
    ADD_PARTITIONS_TO_TXN = 24, 2
    ADD_OFFSETS_TO_TXN = 25, 2
    END_TXN = 26, 2
    WRITE_TXN_MARKERS = 27, 0, NEVER, True
    TXN_OFFSET_COMMIT = 28, 3, 3
    DESCRIBE_ACLS = 29, 2, 2
    CREATE_ACLS = 30, 2, 2
    DELETE_ACLS = 31, 2, 2
    DESCRIBE_CONFIGS = 32, 3
    ALTER_CONFIGS = 33, 1
    ALTER_REPLICA_LOG_DIRS = 34, 1
    DESCRIBE_LOG_DIRS = 35, 2, 2
    SASL_AUTHENTICATE = 36, 2, 2
    CREATE_PARTITIONS = 37, 3, 2
    CREATE_DELEGATION_TOKEN = 38, 2, 2
    RENEW_DELEGATION_TOKEN = 39, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 2, 2
    DELETE_GROUPS = 42, 2, 2
    ELECT_LEADERS = 43, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0
    OFFSET_DELETE = 47, 0
    DESCRIBE_CLIENT_QUOTAS = 48, 0
    ALTER_CLIENT_QUOTAS = 49, 0
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0
    ALTER_ISR = 56, 0, 0, True
    UPDATE_FEATURES = 57, 0, 0

    def _import_class(self, kind: str) -> type[Any]:
        module = import_module(f"kctl.protocol.messages.{self.name.lower()}")
        # Kafka 2.7 has ListOffsets, but ListOffsetRequest.
        title = "ListOffset" if self is ApiKey.LIST_OFFSETS else self.title
        message_class: type[Any] = getattr(module, title + kind)
        return message_class
