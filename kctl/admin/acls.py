"""AclAdmin: access control entries, and which of them decides.

Kafka 2.7: kafka.admin.AclCommand; KIP-140, KIP-290
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kctl.client.results import error_of, raise_for
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
    by_pattern,
)
from kctl.protocol.acl_decisions import AclIndex, Verdict
from kctl.protocol.error_codes import ApiError

if TYPE_CHECKING:
    from kctl.client.router import Router


@dataclass(frozen=True, slots=True)
class AclResult:
    """The result of one entry."""

    binding: AclBinding
    error: ApiError | None = None


class AclAdmin:
    """The ACLs of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def list_acls(self, *filters: AclFilter) -> list[AclBinding]:
        """Return the entries that match any filter, all without one, sorted by pattern; ApiError.

        SECURITY_DISABLED: the brokers have no authorizer. What only later versions have is called
        UNKNOWN with its number.
        """
        found = [it for wanted in filters or (AclFilter(),) for it in await self._matching(wanted)]
        return sorted(dict.fromkeys(found))

    async def existing(self, bindings: Sequence[AclBinding]) -> list[AclBinding]:
        """Return those of `bindings` that exist, in order."""
        found = set(await self.list_acls())
        return [binding for binding in bindings if binding in found]

    async def _matching(self, wanted: AclFilter) -> list[AclBinding]:
        from kctl.protocol.messages.describe_acls import DescribeAclsRequest

        response = await self._router.send_to_any(DescribeAclsRequest(**_filter_fields(wanted)))
        raise_for(response.error_code, response.error_message)
        return [
            AclBinding(
                AclPattern(
                    ResourceType.of(resource.resource_type),
                    resource.resource_name,
                    PatternType.of(resource.pattern_type),
                ),
                AclEntry(
                    acl.principal,
                    acl.host,
                    AclOperation.of(acl.operation),
                    PermissionType.of(acl.permission_type),
                ),
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    async def create_acls(self, bindings: Sequence[AclBinding]) -> list[AclResult]:
        """Create entries, and return a result for each, in order; those that exist are no error."""
        from kctl.protocol.messages.create_acls import AclCreation, CreateAclsRequest

        creations = [
            AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
        response = await self._router.send_to_any(CreateAclsRequest(creations=creations))
        return [
            AclResult(binding, error_of(result.error_code, result.error_message))
            for binding, result in zip(bindings, response.results, strict=True)
        ]

    async def delete_acls(self, bindings: Sequence[AclBinding]) -> list[AclResult]:
        """Delete exactly these entries, and return a result for each, in order.

        An entry that no longer exists is no error.
        """
        from kctl.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

        filters = [
            DeleteAclsFilter(**_filter_fields(AclFilter.of(binding))) for binding in bindings
        ]
        response = await self._router.send_to_any(DeleteAclsRequest(filters=filters))
        results = []
        for binding, result in zip(bindings, response.filter_results, strict=True):
            failed = [it for it in (result, *result.matching_acls) if it.error_code]
            error = error_of(failed[0].error_code, failed[0].error_message) if failed else None
            results.append(AclResult(binding, error))
        return results

    async def check(
        self, principal: str, operations: Sequence[AclOperation], resource: AclPattern, host: str
    ) -> list[Verdict]:
        """Return, for each operation, whether the entries allow it to `principal` at `host`, and
        which of them decides.

        `resource` is a literal name. Super users, and what happens without any entry, are settings
        of the brokers, which this does not see: the verdict without an entry is a refusal.
        """
        wanted = AclFilter(resource.resource_type, resource.name, PatternType.MATCH)
        index = AclIndex()
        for pattern, entries in by_pattern(await self.list_acls(wanted)).items():
            index.replace(pattern, entries)
        kind, name = resource.resource_type, resource.name
        return [
            index.decide(principal, host, operation, kind, name, allow_if_no_acl=False)
            for operation in operations
        ]


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    """Return the fields that describe a filter in DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
