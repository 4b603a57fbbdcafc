"""CreateAcls: add access control entries (KIP-140).

API 30, v0-2. v1: prefixed patterns (KIP-290).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    """One entry to add."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api=ApiKey.CREATE_ACLS):
    """Entries to add."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """The outcome of one entry."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Message, api=ApiKey.CREATE_ACLS):
    """Outcomes in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
