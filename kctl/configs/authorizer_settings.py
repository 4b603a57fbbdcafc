"""AuthorizerSettings: whether access is controlled, and the settings of AclAuthorizer. Pure.

The authorizer is built in, under both of Apache Kafka's names; no other class is ever loaded. Its
settings are the authorizer's own, which is why they are not among the configs of a broker.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer; KIP-11.
"""

from collections.abc import Mapping

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import is_principal

CLASS_NAME = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
# Settings of the authorizer itself.
AUTHORIZER_KEYS = (SUPER_USERS, ALLOW_EVERYONE)
# Of an ensemble for ACLs alone.
_OWN_STORE_PREFIX = "authorizer.zookeeper."

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
# The name before Kafka 2.4; the same entries and decisions.
SIMPLE_ACL_AUTHORIZER = "kafka.security.auth.SimpleAclAuthorizer"
CLASS_NAMES = (ACL_AUTHORIZER, SIMPLE_ACL_AUTHORIZER)


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """The settings of AclAuthorizer: principals as `Type:name`."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


def authorizer_settings(class_name: str, given: Mapping[str, str]) -> AuthorizerSettings | None:
    """Return the settings of the authorizer that `class_name` names, or None without one; raise
    UsageError for any other class and for invalid settings."""
    own_store = sorted(name for name in given if name.startswith(_OWN_STORE_PREFIX))
    if own_store:
        raise UsageError(
            f"{own_store[0]} is set, but kctl keeps ACLs in the same store as everything else",
            hint="remove it; the ACLs are read from zookeeper.connect",
        )
    if not class_name:
        return None
    if class_name not in CLASS_NAMES:
        raise UsageError(
            f"{CLASS_NAME} is {class_name}, but only {ACL_AUTHORIZER} is supported",
            hint=f"set {CLASS_NAME}={ACL_AUTHORIZER}, or leave it empty to allow everything",
        )
    return AuthorizerSettings(
        frozenset(_super_users(given.get(SUPER_USERS, ""))),
        # As in Java, every other text is false.
        given.get(ALLOW_EVERYONE, "").lower() == "true",
    )


def with_authorizer(settings: Mapping[str, str]) -> dict[str, str]:
    """Return `settings` with access controlled, unless they name an authorizer themselves."""
    return {CLASS_NAME: ACL_AUTHORIZER, **settings}


def _super_users(text: str) -> list[str]:
    users = [part.strip() for part in text.split(";")] if text else []
    while users and not users[-1]:
        users.pop()
    for user in users:
        if not is_principal(user):
            raise UsageError(
                f"{SUPER_USERS}: {user!r} is not a principal",
                hint="write User:NAME, several separated by semicolons",
            )
    return users
