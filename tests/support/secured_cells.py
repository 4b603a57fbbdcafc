"""The cells of security interoperability: a mechanism on a listener, the broker that has all of
these listeners at once (kctl or Apache Kafka), and the settings by which a client logs in.

SASL_PLAINTEXT accepts unsecured tokens of OAUTHBEARER, SASL_SSL tokens that a key has signed, and
SSL asks for a client certificate. PLAINTEXT is there to make users, topics and ACLs: its clients
are super users, all others may do what ACLs allow to the user that they log in as.
"""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.apache_kafka import ApacheBroker, free_port
from tests.support.certificates import TestCertificates
from tests.support.identity_provider import AUDIENCE, ISSUER, RsaKey, claims_of, jwks, part, token
from tests.support.kctl_process import ConfiguredKctlBroker
from tests.support.secured_brokers import MECHANISMS, MODULE, USERS, jaas

USER = "alice"
OAUTHBEARER = "OAUTHBEARER"
BEARER_MODULE = f"{MODULE}.oauthbearer.OAuthBearerLoginModule"
UNSECURED_LOGIN = f'{BEARER_MODULE} required unsecuredLoginStringClaim_sub="{USER}";'
VALIDATOR = f"{MODULE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
# TLS asks for no certificate: its clients are anonymous.
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SSL": "SSL",
    "TLS": "SSL",
}


@dataclass(frozen=True)
class Cell:
    """A listener and, if it has SASL, a mechanism."""

    listener: str
    mechanism: str = ""

    def __str__(self) -> str:
        if self.mechanism:
            return f"{self.listener}-{self.mechanism}"
        return "mTLS" if self.has_certificate else self.listener

    @property
    def protocol(self) -> str:
        return LISTENERS[self.listener]

    @property
    def has_certificate(self) -> bool:
        return self.listener == "SSL"

    @property
    def has_signed_tokens(self) -> bool:
        return self.mechanism == OAUTHBEARER and self.listener == "SASL_SSL"


CELLS = (
    *(
        Cell(protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in (*MECHANISMS, OAUTHBEARER)
    ),
    Cell("SSL"),
)
ONE_WAY_TLS = Cell("TLS")


class Secrets:
    """Certificates, and a key that signs tokens, in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.certificates = TestCertificates(directory)
        self.ca_file = self.certificates.ca_file
        self.client_file = self.certificates.client_file
        self.key = RsaKey()
        self.jwks_file = directory / "jwks.json"
        self.jwks_file.write_bytes(jwks(self.key))
        self.signed = token(self.key, claims_of(USER))
        self.unsecured = f"{part({'alg': 'none'})}.{part(claims_of(USER))}."
        self.token_file = directory / "token"
        self.token_file.write_text(self.signed)

    def token(self, cell: Cell) -> str:
        """Return the token of OAUTHBEARER that the cell's listener accepts."""
        return self.signed if cell.has_signed_tokens else self.unsecured

    def key_store(self, path: str) -> dict[str, str]:
        """Return the inline settings of a file with a key and its chain: Java takes PKCS#8 only."""
        pem = Path(path).read_text()
        key = load_pem_private_key(pem.encode(), None)
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key.private_bytes(*form).decode(),
            "ssl.keystore.certificate.chain": pem[pem.index("-----BEGIN CERTIFICATE") :],
        }

    def trust_store(self) -> dict[str, str]:
        """Return the inline settings by which the CA is trusted."""
        pem = Path(self.ca_file).read_text()
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem}

    def java_settings(self, cell: Cell) -> dict[str, str]:
        """Return the properties of a Java client; signed tokens need a handler on top of these."""
        settings = {"security.protocol": cell.protocol}
        if cell.protocol != "SASL_PLAINTEXT":
            settings |= self.trust_store()
        if not cell.mechanism:
            return settings | (self.key_store(self.client_file) if cell.has_certificate else {})
        settings["sasl.mechanism"] = cell.mechanism
        if cell.mechanism != OAUTHBEARER:
            settings["sasl.jaas.config"] = jaas(cell.mechanism, USER, USERS[USER])
        elif cell.has_signed_tokens:
            settings["sasl.jaas.config"] = f"{BEARER_MODULE} required;"
        else:
            settings["sasl.jaas.config"] = UNSECURED_LOGIN
        return settings

    def listener_settings(self, kind: str, ports: dict[str, int]) -> dict[str, str]:
        """Return a broker's settings; `kind`: "kctl" or the version of Apache Kafka."""
        bearer = f"{BEARER_MODULE} required"
        unsecured = (
            ' unsecured="true";' if kind == "kctl" else ' unsecuredLoginStringClaim_sub="admin";'
        )
        signed_by = "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer"
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, OAUTHBEARER)),
            "listener.name.ssl.ssl.client.auth": "required",
            # The certificate's common name is the user's.
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            for mechanism in MECHANISMS:
                users = USERS if mechanism == "PLAIN" else {}
                settings[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = jaas(
                    mechanism, "admin", USERS["admin"], **users
                )
            settings[f"listener.name.{name}.oauthbearer.sasl.jaas.config"] = bearer + unsecured
        if self.accepts_signed_tokens(kind):
            settings["listener.name.sasl_ssl.oauthbearer.sasl.jaas.config"] = f"{bearer};"
            settings |= {
                f"{signed_by}.jwks.endpoint.url": self.jwks_file.as_uri(),
                f"{signed_by}.expected.audience": AUDIENCE,
                f"{signed_by}.expected.issuer": ISSUER,
            }
            if kind != "kctl":
                handler = "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class"
                settings[handler] = VALIDATOR
        stores = self.key_store(self.certificates.broker_file) | self.trust_store()
        for name in ("sasl_ssl", "ssl", "tls"):
            settings |= {f"listener.name.{name}.{key}": value for key, value in stores.items()}
        return {name: in_properties(value) for name, value in settings.items()}

    def accepts_signed_tokens(self, kind: str) -> bool:
        """Whether a broker of that kind can: Apache Kafka does from 3.1 on."""
        return kind == "kctl" or kind >= "3.1"


def in_properties(value: str) -> str:
    """Return the value as it is spelled in a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


class SecuredKctl(ConfiguredKctlBroker):
    """A `kctl serve` with all listeners of LISTENERS."""

    def __init__(self, directory: Path, secrets: Secrets) -> None:
        self.ports = {name: free_port() for name in LISTENERS}
        settings = secrets.listener_settings("kctl", self.ports)
        super().__init__(directory, settings, "-c", "group.initial.rebalance.delay.ms=0")

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


class SecuredApache(ApacheBroker):
    """Apache Kafka `version` with all listeners of LISTENERS."""

    def __init__(self, directory: Path, zookeeper: str, secrets: Secrets, version: str) -> None:
        self.ports = {name: free_port() for name in LISTENERS}
        super().__init__(
            directory,
            zookeeper,
            port=self.ports["PLAINTEXT"],
            settings=secrets.listener_settings(version, self.ports),
            version=version,
        )

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"
