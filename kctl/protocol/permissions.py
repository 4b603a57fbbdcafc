"""What each API requires of its client, for the errors that name the missing permission. Pure.

A broker reports only which kind of resource a client is not authorized for. `explain_refusals`
finds the operation in PERMISSIONS and the resource in the request and the response, and puts them
into the error code itself: a `RefusedCode` is the same number, and an ApiError that is made of it
has the message and the hint.

tests/broker/test_authorization_table.py compares the table with what the broker requires.

Kafka 2.7: kafka.server.KafkaApis; Kafka 4.1 for later APIs
"""

from collections.abc import Mapping
from typing import Any

from kctl.protocol.acl import (
    AUTHORIZATION_ERRORS,
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    ResourceType,
)
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import RefusedCode
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import Message, Struct

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
# A row of the table: the operation that is missing when a resource of this type is refused.
Row = Mapping[ResourceType, AclOperation]

_READ_GROUP: Row = {GROUP: READ}
_OF_CONTROLLER: Row = {CLUSTER: CLUSTER_ACTION}

# By the name of the API, which later versions of an API share.
PERMISSIONS: dict[str, Row] = {
    it.name: row
    for it, row in {
        ApiKey.PRODUCE: {TOPIC: WRITE, TRANSACTIONAL_ID: WRITE,
                         CLUSTER: AclOperation.IDEMPOTENT_WRITE},
        ApiKey.FETCH: {TOPIC: READ},
        ApiKey.LIST_OFFSETS: {TOPIC: DESCRIBE},
        ApiKey.METADATA: {TOPIC: DESCRIBE},
        ApiKey.LEADER_AND_ISR: _OF_CONTROLLER,
        ApiKey.STOP_REPLICA: _OF_CONTROLLER,
        ApiKey.UPDATE_METADATA: _OF_CONTROLLER,
        ApiKey.CONTROLLED_SHUTDOWN: _OF_CONTROLLER,
        ApiKey.OFFSET_COMMIT: {GROUP: READ, TOPIC: READ},
        ApiKey.OFFSET_FETCH: {GROUP: DESCRIBE, TOPIC: DESCRIBE},
        ApiKey.FIND_COORDINATOR: {GROUP: DESCRIBE, TRANSACTIONAL_ID: DESCRIBE},
        ApiKey.JOIN_GROUP: _READ_GROUP,
        ApiKey.HEARTBEAT: _READ_GROUP,
        ApiKey.LEAVE_GROUP: _READ_GROUP,
        ApiKey.SYNC_GROUP: _READ_GROUP,
        ApiKey.DESCRIBE_GROUPS: {GROUP: DESCRIBE},
        ApiKey.CREATE_TOPICS: {TOPIC: CREATE, CLUSTER: CREATE},
        ApiKey.DELETE_TOPICS: {TOPIC: DELETE},
        ApiKey.DELETE_RECORDS: {TOPIC: DELETE},
        ApiKey.INIT_PRODUCER_ID: {TRANSACTIONAL_ID: WRITE, CLUSTER: AclOperation.IDEMPOTENT_WRITE},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {TOPIC: DESCRIBE},
        ApiKey.ADD_PARTITIONS_TO_TXN: {TRANSACTIONAL_ID: WRITE, TOPIC: WRITE},
        ApiKey.ADD_OFFSETS_TO_TXN: {TRANSACTIONAL_ID: WRITE, GROUP: READ},
        ApiKey.END_TXN: {TRANSACTIONAL_ID: WRITE},
        ApiKey.WRITE_TXN_MARKERS: _OF_CONTROLLER,
        ApiKey.TXN_OFFSET_COMMIT: {TRANSACTIONAL_ID: WRITE, GROUP: READ, TOPIC: READ},
        ApiKey.DESCRIBE_ACLS: {CLUSTER: DESCRIBE},
        ApiKey.CREATE_ACLS: {CLUSTER: ALTER},
        ApiKey.DELETE_ACLS: {CLUSTER: ALTER},
        ApiKey.DESCRIBE_CONFIGS: {TOPIC: DESCRIBE_CONFIGS, CLUSTER: DESCRIBE_CONFIGS},
        ApiKey.ALTER_CONFIGS: {TOPIC: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS},
        ApiKey.ALTER_REPLICA_LOG_DIRS: {CLUSTER: ALTER},
        ApiKey.DESCRIBE_LOG_DIRS: {CLUSTER: DESCRIBE},
        ApiKey.CREATE_PARTITIONS: {TOPIC: ALTER},
        ApiKey.DELETE_GROUPS: {GROUP: DELETE},
        ApiKey.ELECT_LEADERS: {CLUSTER: ALTER},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {TOPIC: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS},
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {CLUSTER: ALTER},
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {CLUSTER: DESCRIBE},
        ApiKey.OFFSET_DELETE: {GROUP: DELETE, TOPIC: READ},
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {CLUSTER: DESCRIBE_CONFIGS},
        ApiKey.ALTER_CLIENT_QUOTAS: {CLUSTER: ALTER_CONFIGS},
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {CLUSTER: DESCRIBE},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {CLUSTER: ALTER},
        ApiKey.ALTER_ISR: _OF_CONTROLLER,
        ApiKey.UPDATE_FEATURES: {CLUSTER: ALTER},
        LaterApi.DESCRIBE_QUORUM: {CLUSTER: DESCRIBE},
        LaterApi.CONSUMER_GROUP_DESCRIBE: {GROUP: DESCRIBE, TOPIC: DESCRIBE},
        LaterApi.SHARE_GROUP_DESCRIBE: {GROUP: DESCRIBE, TOPIC: DESCRIBE},
        LaterApi.STREAMS_GROUP_DESCRIBE: {GROUP: DESCRIBE, TOPIC: DESCRIBE},
        LaterApi.DESCRIBE_SHARE_GROUP_OFFSETS: {GROUP: DESCRIBE, TOPIC: DESCRIBE},
        LaterApi.DESCRIBE_TOPIC_PARTITIONS: {TOPIC: DESCRIBE},
    }.items()
}  # fmt: skip

_TYPES = {int(code): kind for kind, code in AUTHORIZATION_ERRORS.items()}
# The fields that name a resource, in a request or in an element of a response.
_NAMES = {
    TOPIC: ("name", "topic", "topic_name", "resource_name"),
    GROUP: ("group_id", "key"),
    TRANSACTIONAL_ID: ("transactional_id", "key"),
}
# Responses in which elements of elements are never refused, and may be many.
_SHALLOW = frozenset({ApiKey.METADATA})


def explain_refusals(request: Message, response: Struct) -> None:
    """Replace the authorization errors in `response` by RefusedCodes."""
    api = request.api
    row = None if api is None else PERMISSIONS.get(api.name)
    if row is not None:
        _explain(response, row, (request,), depth=1 if api in _SHALLOW else None)


def _described(operation: AclOperation, kind: ResourceType, name: str | None) -> tuple[str, str]:
    # A local import: every client loads this module, and few are refused something.
    from kctl.protocol.acl_text import pattern_text

    pattern = AclPattern(kind, CLUSTER_NAME if kind is CLUSTER else name or "NAME")
    named = "Cluster" if kind is CLUSTER else f"{kind.text} {name}" if name else f"the {kind.text}"
    words = "-".join(operation.name.lower().split("_"))
    command = f"kctl acl add USER {words} {pattern_text(pattern)}"
    return (
        f"{operation.text} on {named}",
        f"an administrator of the cluster can allow it: {command}",
    )


def _explain(part: Any, row: Row, around: tuple[Any, ...], depth: int | None) -> None:
    """Explain the errors of `part`; what is `around` it, the innermost last, may have the name."""
    kind = _TYPES.get(getattr(part, "error_code", 0))
    if kind is not None and kind in row:
        needs, hint = _described(row[kind], kind, _name_of(kind, (*around, part)))
        part.error_code = RefusedCode(part.error_code, needs, hint)
    if depth == 0:
        return
    for field in part.fields:
        if field.kind == "array" and isinstance(field.element, type):
            for element in getattr(part, field.name) or ():
                if isinstance(element, Struct):
                    _explain(element, row, (*around, part), None if depth is None else depth - 1)


def _name_of(kind: ResourceType, parts: tuple[Any, ...]) -> str | None:
    for part in reversed(parts):
        for field in _NAMES.get(kind, ()):
            name = getattr(part, field, None)
            if isinstance(name, str) and name:
                return name
    return None
