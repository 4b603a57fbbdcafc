"""DescribeAcls, CreateAcls, DeleteAcls: access control entries.

Behaviour:

- Without an authorizer every filter and every creation is SECURITY_DISABLED.
- A change is in the store, and in force on this broker, before the response is sent; other brokers
  apply it when they are notified.
- New entries of one pattern are one write. An entry that is already there is no error.
- An invalid creation or filter is INVALID_REQUEST, and does not affect the others.
- A deleted entry is reported for the first filter that matches it. Filters that name a pattern find
  its entries in the store, other filters in this broker's copy.

Versions: 0-2. v0 knows literal patterns only; v1 prefixed patterns (KIP-290); v2 flexible.

Kafka 2.7: KafkaApis.handleDescribeAcls, handleCreateAcls, handleDeleteAcls; AclAuthorizer; KIP-140.
"""

from collections.abc import Sequence

from kctl.broker.error_responses import error_response
from kctl.broker.replies import reply_from, reply_in_turns
from kctl.broker.request import Request
from kctl.broker.security.acl_cache import AclCache
from kctl.broker.services import Services
from kctl.errors import CorruptDataError
from kctl.protocol.acl import (
    ANY,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
    is_principal,
)
from kctl.protocol.acl_decisions import Entries
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kctl.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kctl.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kctl.runtime.turns import pace_of
from kctl.store.errors import StoreError
from kctl.work import Pace, Work

# Patterns and entries that are compared with a filter in one turn.
MATCHES_PER_TURN = 2_000
# Filters that an entry is compared with in a unit of `Pace`.
_FILTERS_PER_UNIT = 10
# Cost of a write to the store, in units of `Pace`.
_WRITE_UNITS = 20
_NO_AUTHORIZER = "No Authorizer is configured on the broker"
# Patterns with these need brokers that know them.
_PREFIXED_FROM = "2.0-IV1"
_LAST_OPERATION = AclOperation.IDEMPOTENT_WRITE


# --- describe ----------------------------------------------------------------------------------


def handle_describe_acls(services: Services, request: Request) -> None:
    """Reply with the entries that match the filter."""
    if services.acl_cache is None:
        request.reply(error_response(request, ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))
        return
    try:
        wanted = _filter(request.body)
    except ApiError as error:
        request.reply(DescribeAclsResponse(error_code=error.code, error_message=error.reason))
        return
    reply_in_turns(services.runtime.scheduler, request, _described(services.acl_cache, wanted))


def _described(cache: AclCache, wanted: AclFilter) -> Work[DescribeAclsResponse]:
    resources = []
    compared = 0
    for pattern in sorted(cache.index.patterns()):
        if compared >= MATCHES_PER_TURN:
            compared = 0
            yield
        compared += 1
        if not wanted.matches_pattern(pattern):
            continue
        compared += len(cache.index.entries(pattern))
        acls = [
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in cache.index.entries(pattern)
            if wanted.matches_entry(entry)
        ]
        if acls:
            resources.append(
                DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=acls,
                )
            )
    yield
    return DescribeAclsResponse(resources=resources)


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter; raise ApiError if a number in it has no meaning."""
    kinds = (
        ("resource type", asked.resource_type_filter, ResourceType),
        ("pattern type", asked.pattern_type_filter, PatternType),
        ("operation", asked.operation, AclOperation),
        ("permission type", asked.permission_type, PermissionType),
    )
    for what, number, kind in kinds:
        if number != ANY and number not in list(kind):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown {what}: {number}")
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


# --- create ------------------------------------------------------------------------------------


def handle_create_acls(services: Services, request: Request) -> None:
    """Reply when the new entries are in force on this broker."""
    if services.acl_cache is None:
        request.reply(error_response(request, ErrorCode.SECURITY_DISABLED, f"{_NO_AUTHORIZER}."))
        return
    creating = _create(services, services.acl_cache, request)
    reply_from(services.runtime.scheduler, request, creating, "create-acls")


async def _create(services: Services, cache: AclCache, request: Request) -> None:
    body: CreateAclsRequest = request.body
    results = [AclCreationResult() for _ in body.creations]
    by_pattern: dict[AclPattern, list[tuple[AclEntry, AclCreationResult]]] = {}
    for creation, result in zip(body.creations, results, strict=True):
        try:
            pattern, entry = _binding(services, creation)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.reason
        else:
            by_pattern.setdefault(pattern, []).append((entry, result))
    pace = pace_of(services.runtime.scheduler)
    for pattern, added in by_pattern.items():
        await pace.spend(_WRITE_UNITS)
        try:
            await cache.extend(pattern, [entry for entry, _ in added])
        except (ApiError, StoreError, CorruptDataError) as error:
            is_refused = isinstance(error, ApiError)
            code = ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.UNKNOWN_SERVER_ERROR
            for _, result in added:
                result.error_code, result.error_message = code, str(error)
    request.reply(CreateAclsResponse(results=results))


def _binding(services: Services, creation: AclCreation) -> AclBinding:
    """Return the binding to create; raise ApiError if it is invalid."""
    name = creation.resource_name
    if creation.resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    if "/" in name or "\0" in name or name in (".", ".."):
        # It would be lost: the name is that of a znode.
        raise _invalid(f"The resource name {name!r} cannot be stored")
    if not is_principal(creation.principal):
        raise _invalid(f"The principal {creation.principal!r} is not of the form Type:name")
    try:
        pattern = AclPattern(
            ResourceType(creation.resource_type),
            name,
            PatternType(creation.resource_pattern_type),
        )
        entry = AclEntry(
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            PermissionType(creation.permission_type),
        )
    except ValueError as error:
        raise _invalid(f"Failed to create ACL: {error}") from None
    if pattern.resource_type not in SUPPORTED_OPERATIONS or entry.operation > _LAST_OPERATION:
        raise _invalid(
            f"Failed to create ACL: Kafka 2.7 has no {entry.operation.name} on {pattern}"
        )
    if pattern.pattern_type is PatternType.MATCH:
        raise _invalid("Failed to create ACL: a pattern must be LITERAL or PREFIXED")
    is_prefixed = pattern.pattern_type is PatternType.PREFIXED
    if is_prefixed and not services.config.is_at_least(_PREFIXED_FROM):
        raise _invalid("Failed to create ACL")
    return AclBinding(pattern, entry)


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


# --- delete ------------------------------------------------------------------------------------


def handle_delete_acls(services: Services, request: Request) -> None:
    """Reply when the entries are no longer in force on this broker."""
    if services.acl_cache is None:
        request.reply(error_response(request, ErrorCode.SECURITY_DISABLED, f"{_NO_AUTHORIZER}."))
        return
    deleting = _delete(services, services.acl_cache, request)
    reply_from(services.runtime.scheduler, request, deleting, "delete-acls")


async def _delete(services: Services, cache: AclCache, request: Request) -> None:
    body: DeleteAclsRequest = request.body
    results = [DeleteAclsFilterResult(error_message=None) for _ in body.filters]
    filters: list[tuple[AclFilter, DeleteAclsFilterResult]] = []
    for asked, result in zip(body.filters, results, strict=True):
        try:
            filters.append((_filter(asked), result))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.reason
    named = [pattern for wanted, _ in filters for pattern in wanted.named_patterns()]
    pace = pace_of(services.runtime.scheduler)
    for pattern in dict.fromkeys([*cache.index.patterns(), *named]):
        await pace.spend(1 + len(filters) // _FILTERS_PER_UNIT)
        matching = [it for it in filters if it[0].matches_pattern(pattern)]
        if matching:
            await pace.spend(_WRITE_UNITS)
            await _delete_in(cache, pattern, matching, pace)
    request.reply(DeleteAclsResponse(filter_results=results))


async def _delete_in(
    cache: AclCache,
    pattern: AclPattern,
    filters: Sequence[tuple[AclFilter, DeleteAclsFilterResult]],
    pace: Pace,
) -> None:
    """Delete the entries of one pattern that match, and add each to its filter's result."""
    deleted: dict[AclEntry, DeleteAclsFilterResult] = {}
    units = 1 + len(filters) // _FILTERS_PER_UNIT

    async def left(before: Entries) -> list[AclEntry]:
        deleted.clear()
        for entry in before:
            await pace.spend(units)
            for wanted, result in filters:
                if wanted.matches_entry(entry):
                    deleted[entry] = result
                    break
        return [entry for entry in before if entry not in deleted]

    code, message = ErrorCode.NONE, None
    try:
        await cache.change(pattern, left)
    except (StoreError, CorruptDataError) as error:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        if not deleted:
            # The entries could not be read: which of them match is unknown.
            for _, result in filters:
                result.error_code, result.error_message = code, message
    for entry, result in deleted.items():
        await pace.spend()
        result.matching_acls.append(
            DeleteAclsMatchingAcl(
                error_code=code,
                error_message=message,
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
