"""TlsSettings: what the `ssl.*` settings of a client or of a listener ask for.

The combinations that Apache Kafka refuses are refused here, before a file is read. Not refused,
unlike there: a PEM file whose key is not encrypted.

Kafka 2.7: org.apache.kafka.common.config.SslConfigs, DefaultSslEngineFactory; KIP-519, KIP-651
"""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.tls.cipher_suites import ANY_SUITES, CipherSuites, cipher_suites

PEM = "PEM"
STORE_TYPES = (PEM, "JKS", "PKCS12")
TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_VERSIONS = (TLS_1_2, TLS_1_3)
_PROTOCOLS = ("TLS", *_VERSIONS)
HTTPS = "https"


class ClientAuth(Enum):
    """Whether a listener's clients must have certificates."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class KeyStoreSettings:
    """Where the key and its certificates are: in one file, in two PEM files, or in the settings."""

    location: str | None = None
    # A PEM file of its own for the certificates (librdkafka's ssl.certificate.location).
    chain_location: str | None = None
    key: str | None = field(default=None, repr=False)
    chain: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def locations(self) -> tuple[str, ...]:
        """Return the files."""
        return tuple(filter(None, (self.location, self.chain_location)))


@dataclass(frozen=True, slots=True)
class TrustStoreSettings:
    """Where the certificates of the trusted CAs are: in a file, or in the settings."""

    location: str | None = None
    certificates: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of one side of a connection. Hashable; `repr` shows no secret."""

    key_store: KeyStoreSettings | None = None
    # None: the CAs that the system trusts.
    trust_store: TrustStoreSettings | None = None
    versions: tuple[str, ...] = _VERSIONS
    suites: CipherSuites = ANY_SUITES
    # Of a listener.
    client_auth: ClientAuth = ClientAuth.NONE
    # Of a listener: whether brokers connect to each other with the same stores.
    is_between_brokers: bool = False
    # Of a client: whether the broker's certificate is verified, and whether its name is.
    verifies_broker: bool = True
    verifies_host: bool = True

    @property
    def locations(self) -> tuple[str, ...]:
        """Return the files of both stores."""
        key_files = () if self.key_store is None else self.key_store.locations
        trusted = None if self.trust_store is None else self.trust_store.location
        return key_files if trusted is None else (*key_files, trusted)

    def with_stores_of(self, other: "TlsSettings") -> "TlsSettings":
        """Return these settings with the stores of `other`."""
        return replace(self, key_store=other.key_store, trust_store=other.trust_store)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "TlsSettings":
        """Return what the settings with Apache Kafka's names ask for; raise UsageError."""
        suites = cipher_suites(_items(given.get("ssl.cipher.suites", "")))
        return cls(
            key_store=_key_store(given),
            trust_store=_trust_store(given),
            versions=_versions(given, suites),
            suites=suites,
            client_auth=_client_auth(given.get("ssl.client.auth", "none")),
            verifies_broker=given.get("enable.ssl.certificate.verification", "true") != "false",
            verifies_host=_verifies_host(given),
        )


def _key_store(given: Mapping[str, str]) -> KeyStoreSettings | None:
    store_type = _store_type(given, "ssl.keystore.type")
    location, password = given.get("ssl.keystore.location"), given.get("ssl.keystore.password")
    key, chain = given.get("ssl.keystore.key"), given.get("ssl.keystore.certificate.chain")
    chain_location = given.get("ssl.certificate.location")
    is_inline = key is not None or chain is not None
    _refuse_if(
        {
            "ssl.keystore.key needs ssl.keystore.certificate.chain": is_inline and not chain,
            "ssl.keystore.certificate.chain needs ssl.keystore.key": is_inline and not key,
            f"ssl.keystore.key is PEM, but ssl.keystore.type is {store_type}": is_inline
            and store_type != PEM,
            "ssl.keystore.location and ssl.keystore.key are both given": is_inline
            and location is not None,
            "PEM has no ssl.keystore.password: its password is ssl.key.password": store_type == PEM
            and password is not None,
            "ssl.keystore.password is given, but no ssl.keystore.location": password is not None
            and location is None
            and not is_inline,
        }
    )
    if location is not None and password is None and store_type != PEM:
        raise UsageError(
            "ssl.keystore.location needs ssl.keystore.password",
            hint="or set ssl.keystore.type=PEM if the file is PEM",
        )
    if location is None and not is_inline:
        return None
    key_password = given.get("ssl.key.password")
    return KeyStoreSettings(location, chain_location, key, chain, password, key_password)


def _trust_store(given: Mapping[str, str]) -> TrustStoreSettings | None:
    store_type = _store_type(given, "ssl.truststore.type")
    location, password = given.get("ssl.truststore.location"), given.get("ssl.truststore.password")
    certificates = given.get("ssl.truststore.certificates")
    is_inline = certificates is not None
    _refuse_if(
        {
            f"ssl.truststore.certificates is PEM, but ssl.truststore.type is {store_type}": (
                is_inline and store_type != PEM
            ),
            "ssl.truststore.location and ssl.truststore.certificates are both given": is_inline
            and location is not None,
            "PEM has no ssl.truststore.password": store_type == PEM and password is not None,
            "ssl.truststore.password is given, but no ssl.truststore.location": password is not None
            and location is None,
        }
    )
    if location is None and not is_inline:
        return None
    return TrustStoreSettings(location, certificates, password)


def _refuse_if(problems: Mapping[str, bool]) -> None:
    for message, is_present in problems.items():
        if is_present:
            raise UsageError(message)


def _store_type(given: Mapping[str, str], name: str) -> str:
    store_type = given.get(name, "JKS").upper()
    if store_type not in STORE_TYPES:
        raise UsageError(f"{name}={store_type} is not supported", hint=f"{', '.join(STORE_TYPES)}")
    return store_type


def _versions(given: Mapping[str, str], suites: CipherSuites) -> tuple[str, ...]:
    enabled = _items(given.get("ssl.enabled.protocols", "")) or list(_VERSIONS)
    protocol = given.get("ssl.protocol", "TLS")
    for version in [*enabled, protocol]:
        if version not in _PROTOCOLS:
            raise UsageError(
                f"{version} is not supported, as it is not safe",
                hint="set ssl.enabled.protocols to TLSv1.2 or TLSv1.3, or to both",
            )
    # Java's context for TLSv1.2 does not offer anything later.
    is_limited = protocol == TLS_1_2
    has_suites = bool(suites.tls_1_2 or suites.tls_1_3)
    usable = {
        TLS_1_2: not has_suites or bool(suites.tls_1_2),
        TLS_1_3: not is_limited and (not has_suites or bool(suites.tls_1_3)),
    }
    versions = tuple(it for it in _VERSIONS if it in enabled and usable[it])
    if not versions:
        raise UsageError(
            "ssl.enabled.protocols, ssl.protocol and ssl.cipher.suites have no version of TLS in"
            " common"
        )
    return versions


def _client_auth(text: str) -> ClientAuth:
    try:
        return ClientAuth(text.lower())
    except ValueError:
        raise UsageError(
            f"ssl.client.auth={text}", hint="set it to required, requested or none"
        ) from None


def _verifies_host(given: Mapping[str, str]) -> bool:
    text = given.get("ssl.endpoint.identification.algorithm", HTTPS).strip().lower()
    if text not in ("", "none", HTTPS):
        raise UsageError(
            f"ssl.endpoint.identification.algorithm={text}",
            hint="set it to https, or leave it empty to accept any host name",
        )
    return text == HTTPS


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
