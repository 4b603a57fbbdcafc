"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    """TODO."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api=ApiKey.CREATE_ACLS):
    """TODO."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """TODO."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Message, api=ApiKey.CREATE_ACLS):
    """TODO."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
