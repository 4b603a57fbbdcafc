"""AclAuthorizer: decides on every access of a client, from the entries that the store has.

Verdicts are remembered until any entry changes, except those on resources with very long names:
clients may name any, of up to 32 KB. The entries are those of `AclCache`, which reads the store.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer; KIP-11, KIP-290, KIP-504.
"""

from collections.abc import Callable, Iterable

from kctl.broker.security.audit_log import AuditLog
from kctl.configs.authorizer_settings import AuthorizerSettings
from kctl.protocol.acl import (
    SUPPORTED_OPERATIONS,
    AclEntry,
    AclOperation,
    AclPattern,
    ResourceType,
)
from kctl.protocol.acl_decisions import AclIndex, Reason, Verdict, java_host_address
from kctl.runtime.trace import Trace

# Verdicts that are remembered; beyond it all are forgotten.
VERDICTS_MAX = 65_536
# Characters of the name of a resource whose verdicts are remembered; a topic has at most 249.
NAME_MAX = 255

# Principal, address of the client, operation, resource type, resource name.
_Access = tuple[str, str, AclOperation, ResourceType, str]


class AclAuthorizer:
    """Who may do what on one broker."""

    def __init__(
        self, settings: AuthorizerSettings, trace: Trace, now_ms: Callable[[], int]
    ) -> None:
        self._super_users = settings.super_users
        self._allow_if_no_acl = settings.allow_everyone_if_no_acl_found
        self.index = AclIndex()
        self.audit_log = AuditLog(trace, now_ms)
        self._verdicts: dict[_Access, bool] = {}

    def replace(self, pattern: AclPattern, entries: Iterable[AclEntry]) -> None:
        """Set the entries of a pattern; they apply to the next request."""
        if self.index.replace(pattern, entries):
            self._verdicts.clear()

    def is_allowed(
        self,
        principal: str,
        client_host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return whether the access is allowed, without a log line."""
        access = (principal, client_host, operation, resource_type, name)
        known = self._verdicts.get(access)
        if known is not None:
            return known
        verdict = self.explain(*access).is_allowed
        if len(name) > NAME_MAX:
            return verdict
        if len(self._verdicts) >= VERDICTS_MAX:
            self._verdicts.clear()
        self._verdicts[access] = verdict
        return verdict

    def explain(
        self,
        principal: str,
        client_host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Verdict:
        """Return the verdict and its reason."""
        if principal in self._super_users:
            return Verdict(is_allowed=True, reason=Reason.SUPER_USER)
        return self.index.decide(
            principal,
            java_host_address(client_host),
            operation,
            resource_type,
            name,
            allow_if_no_acl=self._allow_if_no_acl,
        )

    def operations(
        self, principal: str, client_host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return the operations allowed on a resource, bit n for the operation of number n."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.is_allowed(principal, client_host, operation, resource_type, name)
        )
