"""SimSecurity: how the brokers of a secured simulated cluster are configured, and as whom each
process connects.

Every seed that has it runs the product's own SASL exchanges, sessions that expire, and authorizer.
TLS is a door of the network: `SimNetwork` carries what a handshake agrees on, and the files of
certificates, without cryptography.

    brokers    super users
    clients    of the workloads: allowed everything by entries, or super users
    admin      a super user, who changes the entries of others
    intruder   is allowed what the admin's entries say, which changes all the time
    impostor   gives the name of a broker and a wrong password
    stranger   does not authenticate

`acl_workload.py` has the last four, `acl_invariants.py` what must hold.
"""

from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol
from kctl.protocol.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
    ResourceType,
)
from kctl.protocol.sasl.login import PasswordLogin
from kctl.protocol.sasl.mechanism import PLAIN
from kctl.protocol.sasl.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    credential_of_password,
    encode_credential,
)
from kctl.simulation.runtime import SimEntropy
from kctl.store import znodes
from kctl.store.embedded import EmbeddedStore
from kctl.store.security_znodes import ACL_PATHS, acl_path, encode_acls
from kctl.tls.settings import TlsSettings

ADMIN, INTRUDER, IMPOSTOR, STRANGER = "admin", "intruder", "impostor", "stranger"
BROKER, CLIENT = "broker", "client"
USERS = (BROKER, CLIENT, ADMIN, INTRUDER)
_KEY_STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/tls/broker.pem"}
_CLIENT_TLS = TlsSettings()


@dataclass(frozen=True, slots=True)
class SecurityPlan:
    """What a seed drew; chances in thousandths per step of the fault loop."""

    has_tls: bool = True
    # Of the admin and the intruder; all others use PLAIN, which costs less.
    mechanism: str = PLAIN
    # connections.max.reauth.ms; 0: sessions do not expire.
    session_ms: int = 0
    are_clients_super_users: bool = False
    # Chance of new certificates.
    reload: int = 0

    @classmethod
    def drawn(cls, entropy: SimEntropy) -> "SecurityPlan":
        """Return the plan that one seed draws."""
        return cls(
            has_tls=entropy.chance(600),
            mechanism=entropy.choice([PLAIN, ScramMechanism.SHA_256.value]),
            session_ms=entropy.choice([0, 1_500, 4_000]),
            are_clients_super_users=entropy.chance(300),
            reload=entropy.choice([0, 80, 250]),
        )


class SimSecurity:
    """The security of one simulated cluster."""

    def __init__(self, plan: SecurityPlan) -> None:
        self.plan = plan
        self.protocol = (
            SecurityProtocol.SASL_SSL if plan.has_tls else SecurityProtocol.SASL_PLAINTEXT
        )
        # Clients and brokers share these, and therefore nothing that a login keeps.
        self._tls = _CLIENT_TLS if plan.has_tls else None

    def settings(self) -> dict[str, str]:
        """Return the settings of every broker, besides its listener."""
        options = " ".join(f'user_{name}="{_password(name)}"' for name in USERS)
        super_users = [BROKER, ADMIN, *([CLIENT] if self.plan.are_clients_super_users else [])]
        jaas = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' username="{BROKER}" password="{_password(BROKER)}" {options};'
        )
        return {
            "security.inter.broker.protocol": self.protocol.value,
            "sasl.enabled.mechanisms": ",".join((PLAIN, ScramMechanism.SHA_256.value)),
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            f"listener.name.{self.protocol.value.lower()}.plain.sasl.jaas.config": jaas,
            "connections.max.reauth.ms": str(self.plan.session_ms),
            "connection.failed.authentication.delay.ms": "20",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in super_users),
            **(_KEY_STORE if self.plan.has_tls else {}),
        }

    def prepare(self, store: EmbeddedStore) -> None:
        """Write the users and the entries that the cluster begins with."""
        paths = (znodes.CONFIG, znodes.config_type_path(znodes.USER_CONFIGS), *ACL_PATHS)
        for path in paths:
            _create(store, path)
        for name in (ADMIN, INTRUDER):
            mechanism = ScramMechanism.SHA_256
            salt = name.encode().ljust(SALT_BYTES, b"-")
            found = credential_of_password(mechanism, _password(name), salt, ITERATIONS_MIN)
            config = {mechanism.value: encode_credential(found)}
            path = znodes.config_path(znodes.USER_CONFIGS, name)
            store.create(path, znodes.encode_config(config)).result()
        allow_all = AclEntry(f"User:{CLIENT}", WILDCARD, AclOperation.ALL, PermissionType.ALLOW)
        for resource_type in (
            ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER,
            ResourceType.TRANSACTIONAL_ID,
        ):  # fmt: skip
            is_cluster = resource_type is ResourceType.CLUSTER
            pattern = AclPattern(resource_type, CLUSTER_NAME if is_cluster else WILDCARD)
            store.create(acl_path(pattern), encode_acls([allow_all])).result()

    def of(self, process: str) -> ClientSecurity:
        """Return how a client process connects."""
        if process == STRANGER:
            # TLS does not authenticate it.
            protocol = SecurityProtocol.SSL if self.plan.has_tls else SecurityProtocol.PLAINTEXT
            return ClientSecurity(protocol, tls=self._tls)
        mechanism = PLAIN
        if process in (ADMIN, INTRUDER, IMPOSTOR):
            mechanism = self.plan.mechanism
        user = process if process in (ADMIN, INTRUDER) else CLIENT
        login = PasswordLogin(mechanism, user, _password(user))
        if process == IMPOSTOR:
            login = PasswordLogin(mechanism, ADMIN, _password(INTRUDER))
        return ClientSecurity(self.protocol, login, tls=self._tls)


def principal_of(process: str) -> str | None:
    """Return the principal of requests from a process; None: it must not have any served."""
    if process in (IMPOSTOR, STRANGER):
        return None
    if process in (ADMIN, INTRUDER):
        return f"User:{process}"
    return f"User:{BROKER if process.startswith('broker-') else CLIENT}"


def client_security(security: SimSecurity | None, process: str) -> ClientSecurity:
    """Return how a client process connects to a cluster that may not be secured."""
    return NO_SECURITY if security is None else security.of(process)


def _password(name: str) -> str:
    return f"password-of-{name}"


def _create(store: EmbeddedStore, path: str) -> None:
    """Create a znode without data, and its parents."""
    parent = path.rpartition("/")[0]
    if parent and store.exists(parent).result() is None:
        _create(store, parent)
    if store.exists(path).result() is None:
        store.create(path, b"").result()
