"""GUARDS: what each API requires of its client, checked before its handler is called.

    request -> guard -> handler -> response
                 |                     ^
                 +-- refused elements -+

A guard refuses the whole request, or removes the elements that the client may not touch: the
handler never sees these, and the response names them with their error. A handler cannot forget a
check, because it does not make it. Where the elements are known only later (the partitions of a
fetch session, "all topics", a list of groups) the row says `DECIDED_BY_HANDLER`, and the handler
asks `request.access`.

Whether a resource exists is looked up only after the client is found to be authorized for it, so
that errors do not reveal the names of others' topics.

Invariants: every API that has a handler has a row (tests/broker/test_authorization_table.py tries
each of them with and without permission); without an authorizer no guard is called.

Kafka 2.7: kafka.server.KafkaApis; KIP-11, KIP-98, KIP-429, KIP-430.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final

from kctl.broker.error_responses import MIRRORED_PER_TURN, named_error_response, rejecting
from kctl.broker.produced_batches import produced_batches
from kctl.broker.replies import reply_in_turns
from kctl.broker.request import Request
from kctl.broker.security.acl_cache import AclCache
from kctl.broker.security.client_access import ClientAccess
from kctl.broker.services import Services
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import AUTHORIZATION_ERRORS, AclOperation, ResourceType
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import (
    ACKS_NONE,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_KEY_TYPE,
    TOPIC_RESOURCE,
    TRANSACTION_KEY_TYPE,
)
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kctl.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from kctl.protocol.messages.leave_group import LeaveGroupResponse
from kctl.protocol.schema import Message
from kctl.work import Work, parts

# Larger requests are refused without being decoded: they may hold millions of elements.
REFUSED_BY_NAME_BYTES_MAX: Final = 1024 * 1024

# Returns the request for the handler, perhaps with fewer elements; None if it was answered.
Guard = Callable[[Services, Request], Request | None]

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


def authorized(services: Services, request: Request) -> Request | None:
    """Return the part of `request` that its client is authorized for; None if there is none, and
    the request has its response."""
    context = request.context
    if services.acl_cache is None or context.is_internal:
        return request
    request.access = _access(services.acl_cache, request)
    return GUARDS[request.api_key](services, request)


def may_be_decoded(services: Services, request: Request, size: int) -> bool:
    """Return whether the body of a large request of `size` bytes, which is not decoded yet, is
    worth decoding. If not, the request has its response: whether its client may send it depends on
    the client alone, and it may not.

    The response names no element of the request. Brokers fail on the error all the same, so their
    requests are refused at any size. Some clients look for the elements in the response: up to
    REFUSED_BY_NAME_BYTES_MAX they find them, as for a small request.
    """
    operation = OF_CLIENT_ALONE.get(request.api_key)
    if services.acl_cache is None or operation is None:
        return True
    if operation is not CLUSTER_ACTION and size <= REFUSED_BY_NAME_BYTES_MAX:
        return True
    request.access = _access(services.acl_cache, request)
    if request.access.allows_cluster(operation, is_probe=True):
        return True
    request.body = request.api_key.request_class()
    return GUARDS[request.api_key](services, request) is not None


def _access(acl_cache: AclCache, request: Request) -> ClientAccess:
    context = request.context
    return ClientAccess(
        acl_cache.authorizer, context.principal, context.client_host, request.api_key
    )


# --- whole requests


def refuse(
    services: Services, request: Request, code: ErrorCode, message: str | None = None
) -> None:
    """Answer a request with an error for all that it names, now or in turns if this is much; with
    acks=0, close the connection."""
    if getattr(request.body, "acks", None) == ACKS_NONE:
        request.close()
        return
    reply_in_turns(services.runtime.scheduler, request, rejecting(request, code, message))


def allow_all(_services: Services, request: Request) -> Request | None:
    """Let every client in: the request reveals and changes nothing that is protected."""
    return request


def decided_by_handler(_services: Services, request: Request) -> Request | None:
    """Let the request pass: its handler decides, element by element."""
    return request


@dataclass(frozen=True, slots=True)
class OnCluster:
    """Requires an operation on the cluster."""

    operation: AclOperation

    def __call__(self, services: Services, request: Request) -> Request | None:
        """Refuse the whole request unless the client has the permission."""
        if request.access.allows_cluster(self.operation):
            return request
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refuse(services, request, code, MESSAGES[code])
        return None


@dataclass(frozen=True, slots=True)
class OnOne:
    """Requires an operation on the one resource that a field of the request names."""

    operation: AclOperation
    resource_type: ResourceType
    field: str

    def __call__(self, services: Services, request: Request) -> Request | None:
        """Refuse the whole request unless the client has the permission."""
        name = getattr(request.body, self.field)
        if request.access.allows(self.operation, self.resource_type, name or ""):
            return request
        code = AUTHORIZATION_ERRORS[self.resource_type]
        refuse(services, request, code, MESSAGES[code])
        return None


def all_of(*guards: Guard) -> Guard:
    """Return a guard that applies `guards` in order."""

    def guard(services: Services, request: Request) -> Request | None:
        left: Request | None = request
        for each in guards:
            if left is not None:
                left = each(services, left)
        return left

    return guard


# --- elements of requests


@dataclass(frozen=True, slots=True)
class Elements:
    """The array of a request whose elements stand alone, and that of its response."""

    field: str
    answers: str
    # The field of an element that has its name; None: the element is the name.
    name: str | None = "name"
    answer_name: str = "name"
    message: str | None = None
    # Whether the handler has something to say about a request without elements.
    is_handled_empty: bool = False

    def name_of(self, element: Any) -> str:
        """Return the name of the resource that an element is about."""
        return str(element if self.name is None else getattr(element, self.name))


@dataclass(frozen=True, slots=True)
class OnEach:
    """Requires an operation on the resource of each element, and removes those without it."""

    operation: AclOperation
    resource_type: ResourceType
    elements: Elements

    def __call__(self, _services: Services, request: Request) -> Request | None:
        """Return the request with the elements that are allowed."""
        elements = getattr(request.body, self.elements.field) or ()
        names = map(self.elements.name_of, elements)
        allowed = request.access.allowed(self.operation, self.resource_type, names)
        code = AUTHORIZATION_ERRORS[self.resource_type]
        return without(
            request,
            self.elements,
            {code: [it for it in elements if self.elements.name_of(it) not in allowed]},
        )


def without(
    request: Request, elements: Elements, refused: Mapping[ErrorCode, Sequence[Any]]
) -> Request | None:
    """Return `request` without its `refused` elements (by error), which its response will have;
    reply, and return None, if there is nothing else to do."""
    if not any(refused.values()):
        return request
    gone = {id(element) for part in refused.values() for element in part}
    every = getattr(request.body, elements.field)
    left = [element for element in every if id(element) not in gone]
    answers = [
        it for code, part in refused.items() for it in _refusals(request, elements, code, part)
    ]
    merge = _Merge(request, elements, answers, [elements.name_of(it) for it in every])
    if not left and not elements.is_handled_empty:
        merge.send(_class_of_response(request)())
        return None
    part = _answering(request, merge.send)
    part.body = _with(request.body, elements.field, left)
    return part


def _answering(request: Request, send: Callable[[Any], None]) -> Request:
    """Return `request` for a handler whose response `send` takes; if the handler fails, `request`
    does."""
    part = copy(request)
    part.send = send
    part.whole = request if request.whole is None else request.whole
    part.failed = lambda _part, error: request.fail(error)
    return part


def _refusals(
    request: Request, elements: Elements, code: ErrorCode, refused: Sequence[Any]
) -> list[Any]:
    """Return the elements of a response that refuse those of a request."""
    if not refused:
        return []
    only = copy(request)
    only.body = _with(request.body, elements.field, list(refused))
    answers: list[Any] = getattr(
        named_error_response(only, code, elements.message), elements.answers
    )
    return answers


def _class_of_response(request: Request) -> type[Any]:
    response_class: type[Any] = request.api_key.response_class
    return response_class


def _with(message: Any, field: str, value: list[Any]) -> Any:
    changed = copy(message)
    setattr(changed, field, value)
    return changed


class _Merge:
    """Adds the refused elements to a handler's response, in the order of the request."""

    def __init__(
        self, request: Request, elements: Elements, refused: list[Any], names: Iterable[str]
    ) -> None:
        self._request = request
        self._elements = elements
        self._refused = refused
        self._order = {name: number for number, name in enumerate(names)}

    def send(self, response: Message | None) -> None:
        """Send the response to the client; without one (acks=0) the connection is closed."""
        if response is None or getattr(self._request.body, "acks", None) == ACKS_NONE:
            self._request.close()
            return
        answers = getattr(response, self._elements.answers)
        # A response with an error for the whole request has no elements.
        has_failed = bool(getattr(response, "error_code", False))
        if not (self._elements.is_handled_empty and has_failed):
            merged = sorted([*answers, *self._refused], key=self._place)
            setattr(response, self._elements.answers, merged)
        self._request.reply(response)

    def _place(self, answer: Any) -> int:
        return self._order.get(getattr(answer, self._elements.answer_name), len(self._order))


TOPICS = Elements("topics", "topics")


# --- APIs with rules of their own


def guard_produce(services: Services, request: Request) -> Request | None:
    """Require Write on the transactional id of transactional batches, else IdempotentWrite for
    batches with a producer id; then Write on each topic.

    The batches count, not what the request says about them (CVE-2018-17196).
    """
    body, access = request.body, request.access
    found = produced_batches(body, request.api_version)
    if found.is_transactional:
        transactional_id = getattr(body, "transactional_id", None)
        if transactional_id is None or not access.allows(WRITE, TRANSACTIONAL_ID, transactional_id):
            refuse(services, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return None
    elif found.has_producer_id and not access.allows_cluster(AclOperation.IDEMPOTENT_WRITE):
        refuse(services, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return None
    return _write_topics(services, request)


_write_topics = OnEach(WRITE, TOPIC, Elements("topics", "responses"))


def guard_find_coordinator(services: Services, request: Request) -> Request | None:
    """Require Describe on the group or transactional id."""
    kinds = {GROUP_KEY_TYPE: GROUP, TRANSACTION_KEY_TYPE: TRANSACTIONAL_ID}
    kind = kinds.get(request.body.key_type)
    # The handler rejects other types of keys.
    return request if kind is None else OnOne(DESCRIBE, kind, "key")(services, request)


def guard_sync_group(services: Services, request: Request) -> Request | None:
    """Require Read on the group. A request of version 5 or later that does not name the group's
    protocol is rejected for that first (Kafka 2.7: KafkaApis.handleSyncGroupRequest)."""
    body = request.body
    if request.api_version >= 5 and None in (body.protocol_type, body.protocol_name):
        refuse(services, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return None
    return _READ_GROUP(services, request)


def guard_init_producer_id(services: Services, request: Request) -> Request | None:
    """Require Write on the transactional id, or IdempotentWrite without one."""
    if request.body.transactional_id is None:
        return OnCluster(AclOperation.IDEMPOTENT_WRITE)(services, request)
    return OnOne(WRITE, TRANSACTIONAL_ID, "transactional_id")(services, request)


def guard_offset_for_leader_epoch(services: Services, request: Request) -> Request | None:
    """Require ClusterAction, as followers have it, or Describe on each topic (KIP-320)."""
    if request.access.allows_cluster(CLUSTER_ACTION, is_probe=True):
        return request
    return OnEach(DESCRIBE, TOPIC, TOPICS)(services, request)


def at_controller(guard: Guard) -> Guard:
    """Return a guard that answers NOT_CONTROLLER on other brokers, before permissions are looked
    at; the handler might otherwise find that this broker has become the controller."""

    def guard_at_controller(services: Services, request: Request) -> Request | None:
        if services.controller.is_active:
            return guard(services, request)
        if request.api_key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            _refuse_users(
                services,
                request,
                ErrorCode.NOT_CONTROLLER,
                "This is not the correct controller for this cluster.",
            )
        else:
            refuse(services, request, ErrorCode.NOT_CONTROLLER)
        return None

    return guard_at_controller


def guard_create_topics(_services: Services, request: Request) -> Request | None:
    """Require Create on the cluster, or on each topic. A topic that is named twice is invalid,
    whatever is allowed (Kafka 2.7: KafkaApis.handleCreateTopicsRequest)."""
    access, topics = request.access, request.body.topics
    if access.allows_cluster(CREATE, is_probe=True):
        return request
    allowed = access.allowed(CREATE, TOPIC, (topic.name for topic in topics))
    counts = Counter(topic.name for topic in topics)
    # The handler rejects duplicates, and needs no permission for that.
    refused = [it for it in topics if it.name not in allowed and counts[it.name] == 1]
    elements = Elements("topics", "topics", message="Authorization failed.")
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    marked = _answering(request, partial(_reply_without_configs, request))
    return without(marked, elements, {code: refused})


def _reply_without_configs(request: Request, response: Any) -> None:
    """Reply to CreateTopics; what failed has the error of its configs, too, if these may not be
    seen."""
    names = (it.name for it in request.body.topics)
    seen = request.access.allowed(AclOperation.DESCRIBE_CONFIGS, TOPIC, names, is_probe=True)
    for topic in response.topics:
        if topic.error_code and topic.name not in seen:
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    request.reply(response)


def guard_leave_group(_services: Services, request: Request) -> Request | None:
    """Require Read on the group; a refusal names no members."""
    if request.access.allows(READ, GROUP, request.body.group_id):
        return request
    request.reply(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, members=[]))
    return None


def guard_delete_topics(services: Services, request: Request) -> Request | None:
    """Require Delete on each topic, if topics can be deleted at all."""
    if not services.config.delete_topic_enable:
        return request
    elements = Elements("topic_names", "responses", name=None)
    return OnEach(DELETE, TOPIC, elements)(services, request)


def on_configs(operation: AclOperation, answers: str, *, has_message: bool) -> Guard:
    """Return a guard that requires `operation` on each topic, and on the cluster for brokers."""

    def guard(_services: Services, request: Request) -> Request | None:
        resources = request.body.resources
        topics = [it for it in resources if it.resource_type == TOPIC_RESOURCE]
        kinds = (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE)
        brokers = [it for it in resources if it.resource_type in kinds]
        allowed = request.access.allowed(operation, TOPIC, (it.resource_name for it in topics))
        refused = {
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: [
                it for it in topics if it.resource_name not in allowed
            ]
        }
        if brokers and not request.access.allows_cluster(operation):
            refused[ErrorCode.CLUSTER_AUTHORIZATION_FAILED] = brokers
        left: Request | None = request
        for code, part in refused.items():
            elements = Elements(
                "resources", answers, "resource_name", "resource_name",
                MESSAGES[code] if has_message else None,
            )  # fmt: skip
            if left is not None and part:
                left = without(left, elements, {code: part})
        return left

    return guard


def guard_describe_log_dirs(_services: Services, request: Request) -> Request | None:
    """Require Describe on the cluster; without it there are no directories, and no error."""
    if request.access.allows_cluster(DESCRIBE):
        return request
    request.reply(DescribeLogDirsResponse(results=[]))
    return None


def guard_alter_users(services: Services, request: Request) -> Request | None:
    """Require Alter on the cluster."""
    if request.access.allows_cluster(ALTER):
        return request
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    _refuse_users(services, request, code, MESSAGES[code])
    return None


def _refuse_users(services: Services, request: Request, code: ErrorCode, message: str) -> None:
    work = _refusing_users(request, code, message)
    reply_in_turns(services.runtime.scheduler, request, work)


def _refusing_users(
    request: Request, code: ErrorCode, message: str
) -> Work[AlterUserScramCredentialsResponse]:
    names = {it.name for it in (*request.body.deletions, *request.body.upsertions)}
    response = AlterUserScramCredentialsResponse()
    for part in parts(sorted(names), MIRRORED_PER_TURN):
        yield
        response.results += [
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
            for name in part
        ]
    return response


_READ_GROUP = OnOne(READ, GROUP, "group_id")
_WRITE_TRANSACTION = OnOne(WRITE, TRANSACTIONAL_ID, "transactional_id")
_OFFSETS = Elements("topics", "topics", is_handled_empty=True)
_NEW_PARTITIONS = Elements("topics", "results", message="The topic authorization is failed.")
_GROUPS = Elements("groups_names", "results", name=None, answer_name="group_id")

GUARDS: dict[ApiKey, Guard] = {
    ApiKey.PRODUCE: guard_produce,
    ApiKey.FETCH: decided_by_handler,
    ApiKey.LIST_OFFSETS: OnEach(DESCRIBE, TOPIC, TOPICS),
    ApiKey.METADATA: decided_by_handler,
    ApiKey.LEADER_AND_ISR: OnCluster(CLUSTER_ACTION),
    ApiKey.STOP_REPLICA: OnCluster(CLUSTER_ACTION),
    ApiKey.UPDATE_METADATA: OnCluster(CLUSTER_ACTION),
    ApiKey.CONTROLLED_SHUTDOWN: OnCluster(CLUSTER_ACTION),
    ApiKey.OFFSET_COMMIT: all_of(_READ_GROUP, OnEach(READ, TOPIC, TOPICS)),
    # A request for all offsets is filtered by the handler.
    ApiKey.OFFSET_FETCH: all_of(
        OnOne(DESCRIBE, GROUP, "group_id"), OnEach(DESCRIBE, TOPIC, _OFFSETS)
    ),
    ApiKey.FIND_COORDINATOR: guard_find_coordinator,
    ApiKey.JOIN_GROUP: _READ_GROUP,
    ApiKey.HEARTBEAT: _READ_GROUP,
    ApiKey.LEAVE_GROUP: guard_leave_group,
    ApiKey.SYNC_GROUP: guard_sync_group,
    ApiKey.DESCRIBE_GROUPS: decided_by_handler,
    ApiKey.LIST_GROUPS: decided_by_handler,
    ApiKey.SASL_HANDSHAKE: allow_all,
    ApiKey.API_VERSIONS: allow_all,
    ApiKey.CREATE_TOPICS: at_controller(guard_create_topics),
    ApiKey.DELETE_TOPICS: at_controller(guard_delete_topics),
    ApiKey.DELETE_RECORDS: OnEach(DELETE, TOPIC, TOPICS),
    ApiKey.INIT_PRODUCER_ID: guard_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: guard_offset_for_leader_epoch,
    # Partitions that may not be written: decided by the handler, as all fail together.
    ApiKey.ADD_PARTITIONS_TO_TXN: _WRITE_TRANSACTION,
    ApiKey.ADD_OFFSETS_TO_TXN: all_of(_WRITE_TRANSACTION, _READ_GROUP),
    ApiKey.END_TXN: _WRITE_TRANSACTION,
    ApiKey.WRITE_TXN_MARKERS: OnCluster(CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: all_of(_WRITE_TRANSACTION, _READ_GROUP, OnEach(READ, TOPIC, TOPICS)),
    ApiKey.DESCRIBE_ACLS: OnCluster(DESCRIBE),
    ApiKey.CREATE_ACLS: OnCluster(ALTER),
    ApiKey.DELETE_ACLS: OnCluster(ALTER),
    ApiKey.DESCRIBE_CONFIGS: on_configs(AclOperation.DESCRIBE_CONFIGS, "results", has_message=True),
    ApiKey.ALTER_CONFIGS: on_configs(AclOperation.ALTER_CONFIGS, "responses", has_message=False),
    ApiKey.ALTER_REPLICA_LOG_DIRS: OnCluster(ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: guard_describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: allow_all,
    ApiKey.CREATE_PARTITIONS: at_controller(OnEach(ALTER, TOPIC, _NEW_PARTITIONS)),
    # Tokens belong to their owners, whom the handler compares with the client.
    ApiKey.CREATE_DELEGATION_TOKEN: decided_by_handler,
    ApiKey.RENEW_DELEGATION_TOKEN: decided_by_handler,
    ApiKey.EXPIRE_DELEGATION_TOKEN: decided_by_handler,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: decided_by_handler,
    ApiKey.DELETE_GROUPS: OnEach(DELETE, GROUP, _GROUPS),
    ApiKey.ELECT_LEADERS: OnCluster(ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: on_configs(
        AclOperation.ALTER_CONFIGS, "responses", has_message=False
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: OnCluster(ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: OnCluster(DESCRIBE),
    ApiKey.OFFSET_DELETE: all_of(OnOne(DELETE, GROUP, "group_id"), OnEach(READ, TOPIC, _OFFSETS)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: OnCluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: OnCluster(AclOperation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: OnCluster(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: at_controller(guard_alter_users),
    ApiKey.ALTER_ISR: OnCluster(CLUSTER_ACTION),
    ApiKey.UPDATE_FEATURES: OnCluster(ALTER),
}

# The APIs whose guards need nothing of the body: API -> operation on the cluster.
OF_CLIENT_ALONE: dict[ApiKey, AclOperation] = {
    **{key: guard.operation for key, guard in GUARDS.items() if isinstance(guard, OnCluster)},
    ApiKey.DESCRIBE_LOG_DIRS: DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ALTER,
}
