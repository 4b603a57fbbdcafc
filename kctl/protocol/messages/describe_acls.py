"""DescribeAcls: find access control entries (KIP-140).

API 29, v0-2. v1: prefixed patterns (KIP-290).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Message, api=ApiKey.DESCRIBE_ACLS):
    """A filter; null and ANY (1) match everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """One entry."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """Entries of one resource pattern."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, api=ApiKey.DESCRIBE_ACLS):
    """Entries found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
