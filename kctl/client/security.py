"""ClientSecurity: how a client secures and authenticates its connections.

The settings are those of Apache Kafka's Java clients; librdkafka's spellings of the same settings
are accepted, but not both for one thing. What Java's clients load by class name is not loaded.

Kafka 2.7: org.apache.kafka.clients.CommonClientConfigs, SaslConfigs
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol

if TYPE_CHECKING:
    from kctl.configs.broker_config import BrokerConfig
    from kctl.protocol.sasl.login import SaslLogin
    from kctl.tls.settings import TlsSettings


class CurrentToken:
    """The bearer token that a client's next login uses; empty if it needs a new one."""

    __slots__ = ("reused_until_ms", "token")

    def __init__(self) -> None:
        self.token = ""
        # Milliseconds since the epoch.
        self.reused_until_ms = 0


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security protocol, and what SASL authenticates with; `repr` shows no secret."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    # None if the protocol has no SASL.
    login: "SaslLogin | None" = None
    # The bearer token of `login`, shared by all connections.
    current_token: CurrentToken = field(default_factory=CurrentToken, compare=False, repr=False)
    # None if the protocol has no TLS.
    tls: "TlsSettings | None" = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "ClientSecurity":
        """Return the security that client settings ask for; raise UsageError."""
        if not properties:
            return NO_SECURITY
        # Local imports: they are many, and most clients of developers have no such settings.
        from kctl.client.security_settings import login_of, without_synonyms
        from kctl.tls.settings import TlsSettings

        given = without_synonyms(properties)
        name = given.get("security.protocol", SecurityProtocol.PLAINTEXT).upper()
        try:
            protocol = SecurityProtocol(name)
        except ValueError:
            raise UsageError(
                f"security.protocol={name} is not supported",
                hint=f"supported: {', '.join(SecurityProtocol)}",
            ) from None
        return cls(
            protocol,
            login_of(given) if protocol.uses_sasl else None,
            tls=TlsSettings.of(given) if protocol.uses_tls else None,
        )


NO_SECURITY = ClientSecurity()


def security_between_brokers(config: "BrokerConfig") -> ClientSecurity:
    """Return how a broker with `config` connects to the others."""
    return ClientSecurity(
        config.inter_broker_protocol, config.inter_broker_login, tls=config.inter_broker_tls
    )


def security_of_control_plane(config: "BrokerConfig") -> ClientSecurity:
    """Return how a controller with `config` connects to control.plane.listener.name of others."""
    return ClientSecurity(
        config.control_plane_protocol, config.control_plane_login, tls=config.control_plane_tls
    )
