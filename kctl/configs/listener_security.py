"""SecuredListenerConfig: what the configs of a listener with TLS or SASL ask for. Pure.

`sasl.jaas.config` counts only with the prefix of listener and mechanism: what one mechanism is
configured with must not reach another. This module is loaded for such listeners only.

Kafka 2.7: org.apache.kafka.common.network.ChannelBuilders, JaasContext; KIP-103, KIP-86.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from kctl.configs.broker_configs import BrokerSettings
from kctl.configs.listener_config import ListenerConfig
from kctl.configs.oauthbearer_configs import BearerConfig, bearer_config, bearer_login
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol
from kctl.protocol.sasl.jaas import PLAIN_MODULE, JaasConfig, jaas_config_of
from kctl.protocol.sasl.login import SaslLogin, check_mechanism, password_login
from kctl.protocol.sasl.mechanism import OAUTHBEARER, PLAIN, SUPPORTED_MECHANISMS
from kctl.tls.certificate import Certificate
from kctl.tls.principal_rules import DEFAULT_RULES, PrincipalRules
from kctl.tls.principal_rules import SETTING as MAPPING_RULES
from kctl.tls.settings import ClientAuth, TlsSettings

TLS_PREFIX = "ssl."
# What a login needs: of a password, of a token.
_WANTED = ("username and password", "unsecuredLoginStringClaim_sub, or clientId and clientSecret,")


@dataclass(frozen=True, slots=True)
class SaslListener:
    """What a listener with SASL accepts."""

    mechanisms: tuple[str, ...]
    # The users of PLAIN, from JAAS options `user_NAME`.
    plain_passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Mechanism -> connections.max.reauth.ms; none: sessions do not expire.
    lifetimes_ms: Mapping[str, int] = field(default_factory=dict)
    # connection.failed.authentication.delay.ms
    failure_delay_ms: int = 100
    # What OAUTHBEARER requires of tokens; None if the listener does not offer it.
    bearer: BearerConfig | None = None

    def lifetime_ms(self, mechanism: str, credential_ms: int | None) -> int:
        """Return after how many milliseconds a client must authenticate again; 0: never.

        `credential_ms` is the remaining life of its credential, which counts only if
        connections.max.reauth.ms is set (KIP-368).
        """
        limit_ms = max(self.lifetimes_ms.get(mechanism, 0), 0)
        if credential_ms is None or not limit_ms:
            return limit_ms
        return max(min(limit_ms, credential_ms), 1)


@dataclass(frozen=True, slots=True)
class TlsListener:
    """How a listener speaks TLS, and who its clients are by their certificates."""

    settings: TlsSettings
    principal_rules: PrincipalRules

    def name_of(self, certificate: bytes) -> str | None:
        """Return the name of a client, in DER, by its certificate; None if no mapping rule applies.
        Raise CorruptDataError."""
        return self.principal_rules.name_of(Certificate.of(certificate).subject)

    def between_brokers(self) -> "TlsListener":
        """Return the same for the listener that brokers connect to."""
        return replace(self, settings=replace(self.settings, is_between_brokers=True))


class SecuredListenerConfig(ListenerConfig):
    """The configs of one listener with TLS or SASL."""

    def settings(self, mechanism: str | None = None) -> BrokerSettings:
        """Return the values in force for the listener, or for one SASL mechanism of it; raise
        UsageError."""
        prefixes = [self._prefix, ""]
        if mechanism is not None:
            prefixes.insert(0, self._mechanism_prefix(mechanism))
        settings = BrokerSettings()
        for name, attribute in BrokerSettings.ATTRIBUTES.items():
            setattr(settings, attribute, self._value(name, prefixes))
        return settings

    def sasl(self) -> SaslListener:
        """Return what the listener accepts; raise UsageError if no client could log in."""
        settings = self.settings()
        mechanisms = settings.sasl_enabled_mechanisms
        for mechanism in mechanisms:
            if mechanism not in SUPPORTED_MECHANISMS:
                raise UsageError(
                    f"Listener {self._name}: SASL mechanism {mechanism} is not supported",
                    hint="set sasl.enabled.mechanisms to some of"
                    f" {', '.join(SUPPORTED_MECHANISMS)}",
                )
        if not mechanisms:
            raise UsageError(f"Listener {self._name}: sasl.enabled.mechanisms is empty")
        return SaslListener(
            tuple(mechanisms),
            self._plain_passwords() if PLAIN in mechanisms else {},
            {it: self.settings(it).connections_max_reauth_ms for it in mechanisms},
            settings.connection_failed_authentication_delay_ms,
            self._bearer() if OAUTHBEARER in mechanisms else None,
        )

    def tls(self, protocol: SecurityProtocol) -> TlsListener:
        """Return how the listener speaks TLS; raise UsageError.

        With SASL no client needs a certificate, whatever ssl.client.auth says: KIP-684 changes that
        in Kafka 2.8.
        """
        try:
            settings = TlsSettings.of(self._tls_values())
            if settings.key_store is None:
                raise UsageError(
                    "no key and certificate",
                    hint="set ssl.keystore.location, or ssl.keystore.key and"
                    " ssl.keystore.certificate.chain",
                )
            rules = PrincipalRules(self._tls_values().get(MAPPING_RULES, DEFAULT_RULES))
        except UsageError as error:
            raise UsageError(f"Listener {self._name}: {error}", hint=error.hint) from None
        if protocol.uses_sasl:
            settings = replace(settings, client_auth=ClientAuth.NONE)
        return TlsListener(settings, rules)

    def login(self, mechanism: str) -> SaslLogin:
        """Return what this broker authenticates with to the same listener of other brokers; raise
        UsageError."""
        check_mechanism(mechanism, "sasl.mechanism.inter.broker.protocol")
        jaas = self.jaas(mechanism)
        login: SaslLogin | None = None
        if mechanism == OAUTHBEARER:
            login = bearer_login(self._lookup(mechanism), jaas)
        elif jaas is not None:
            login = password_login(mechanism, jaas)
        if login is None:
            raise UsageError(
                f"Brokers authenticate with {mechanism} on listener {self._name}, but have no"
                " credentials",
                hint=f"set {_WANTED[mechanism == OAUTHBEARER]} in"
                f" {self._mechanism_prefix(mechanism)}sasl.jaas.config",
            )
        return login

    def jaas(self, mechanism: str) -> JaasConfig | None:
        """Return the JAAS config of a mechanism; raise UsageError if it is malformed or another
        mechanism's."""
        name = f"{self._mechanism_prefix(mechanism)}sasl.jaas.config"
        text = self._given.get(name)
        return None if text is None else jaas_config_of(mechanism, text, name)

    def _tls_values(self) -> dict[str, str]:
        """Return the `ssl.*` settings of the listener as text."""
        values = {name: text for name, text in self._given.items() if name.startswith(TLS_PREFIX)}
        prefix = self._prefix + TLS_PREFIX
        for name, text in self._given.items():
            if name.startswith(prefix):
                values[name.removeprefix(self._prefix)] = text
        return values

    def _plain_passwords(self) -> Mapping[str, str]:
        jaas = self.jaas(PLAIN)
        if jaas is None:
            raise UsageError(
                f"Listener {self._name}: PLAIN has no users",
                hint=f"set {self._mechanism_prefix(PLAIN)}sasl.jaas.config to {PLAIN_MODULE}"
                ' required user_NAME="PASSWORD";',
            )
        return jaas.users

    def _bearer(self) -> BearerConfig:
        return bearer_config(self._name, self._lookup(OAUTHBEARER), self.jaas(OAUTHBEARER))

    def _lookup(self, mechanism: str) -> Callable[[str], str | None]:
        """Return a function from the name of a config to its text for a mechanism, or None."""
        prefixes = (self._mechanism_prefix(mechanism), self._prefix, "")
        return lambda name: next(
            (self._given[prefix + name] for prefix in prefixes if prefix + name in self._given),
            None,
        )

    def _mechanism_prefix(self, mechanism: str) -> str:
        return f"{self._prefix}{mechanism.lower()}."
