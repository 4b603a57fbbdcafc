"""ClientAccess: the access of one client's request, decided by the authorizer and logged if denied.

Kafka 2.7: kafka.server.KafkaApis (authorize, filterByAuthorized, authorizedOperations).
"""

from collections import Counter
from collections.abc import Iterable

from kctl.broker.security.authorizer import AclAuthorizer
from kctl.protocol.acl import CLUSTER_NAME, AclOperation, ResourceType, camel_case
from kctl.protocol.api_keys import ApiKey


class ClientAccess:
    """What the authorizer allows to a principal at an address, for one request."""

    __slots__ = ("_api_key", "_authorizer", "_host", "_principal")

    def __init__(
        self, authorizer: AclAuthorizer, principal: str, client_host: str, api_key: ApiKey
    ) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = client_host
        self._api_key = api_key

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_probe: bool = False,
        count: int = 1,
    ) -> bool:
        """Return the authorizer's verdict; `count` is how often the request names the resource."""
        authorizer = self._authorizer
        if authorizer.is_allowed(self._principal, self._host, operation, resource_type, name):
            return True
        if not is_probe:
            api = camel_case(self._api_key.name)
            authorizer.audit_log.deny(
                self._principal, self._host, operation, resource_type, name, api, count
            )
        return False

    def allows_cluster(self, operation: AclOperation, *, is_probe: bool = False) -> bool:
        """Return the authorizer's verdict on the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_probe=is_probe)

    def allowed(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        is_probe: bool = False,
    ) -> set[str]:
        """Return the names that the authorizer allows."""
        return {
            name
            for name, count in Counter(names).items()
            if self.allows(operation, resource_type, name, is_probe=is_probe, count=count)
        }

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the authorizer allows."""
        return self._authorizer.operations(self._principal, self._host, resource_type, name)
