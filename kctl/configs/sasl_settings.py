"""The settings of a single broker with security: users that log in, TLS, or both.

For development and tests: `kctl serve --user --tls` and `KafkaBroker(users=..., security=...)`. The
users can log in by PLAIN and by SCRAM; the broker stores their SCRAM credentials when it starts.
Pure.
"""

from collections.abc import Mapping

from kctl.configs.listener_config import LISTENER_PREFIX
from kctl.errors import UsageError
from kctl.model import SecurityProtocol
from kctl.protocol.sasl.jaas import jaas_text
from kctl.protocol.sasl.mechanism import PASSWORD_MECHANISMS, PLAIN


def protocol_of(*, has_users: bool, has_tls: bool) -> SecurityProtocol:
    """Return the protocol of a listener."""
    if has_users:
        return SecurityProtocol.SASL_SSL if has_tls else SecurityProtocol.SASL_PLAINTEXT
    return SecurityProtocol.SSL if has_tls else SecurityProtocol.PLAINTEXT


def security_settings(
    address: str, users: Mapping[str, str], tls: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings of a broker with one listener at `address` (host:port).

    Clients log in as one of `users`, user name -> password, if there are any, and speak TLS if
    `tls` has its `ssl.*` settings. Raise UsageError for users that cannot be configured.
    """
    protocol = protocol_of(has_users=bool(users), has_tls=tls is not None)
    return {
        "listeners": f"{protocol}://{address}",
        "security.inter.broker.protocol": protocol.value,
        **(tls or {}),
        **(_sasl_settings(protocol, users) if users else {}),
    }


def _sasl_settings(protocol: SecurityProtocol, users: Mapping[str, str]) -> dict[str, str]:
    check_users(users)
    (name, password), *_ = users.items()
    options = {"username": name, "password": password}
    options.update({f"user_{user}": secret for user, secret in users.items()})
    jaas = f"{LISTENER_PREFIX}{protocol.lower()}.{PLAIN.lower()}.sasl.jaas.config"
    return {
        "sasl.enabled.mechanisms": ",".join(PASSWORD_MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        jaas: jaas_text(PLAIN, options),
    }


def check_users(users: Mapping[str, str]) -> None:
    """Raise UsageError unless every user has a name that JAAS options allow, and a password."""
    if not users:
        raise UsageError("No users given")
    for name, password in users.items():
        if not name or not password:
            raise UsageError(f"User {name!r} needs a name and a password")
        if any(mark in name for mark in " =;,\"'\n\t"):
            raise UsageError(f"The user name {name!r} contains a character that JAAS reserves")
