"""kctl and Apache Kafka with a PLAINTEXT, a TLS and a SASL listener, and clients that log in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from benchmarks.servers import Client, Server
from kctl.protocol.acl import AclOperation, PatternType, PermissionType, ResourceType
from kctl.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.sasl.plain import plain_message
from kctl.protocol.sasl.scram import BY_NAME, ScramClient, salted_password
from tests.support.apache_kafka import free_port
from tests.support.secured_brokers import USERS, jaas, make_users
from tests.support.secured_cells import Secrets, in_properties

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
USER = "alice"
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # Who makes topics and ACLs here, on the PLAINTEXT listener.
    "super.users": "User:ANONYMOUS",
}
ALLOW_WITHOUT_ACLS = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
# Bindings that one request adds.
ACLS_PER_REQUEST = 100
# What the names of all topics of a Bench begin with.
TOPIC_PREFIX = "topic-"


class Listener(Server):
    """One listener of a broker that is up, seen as a server: topics are made at PLAINTEXT, load
    comes over this listener. With SASL, every connection of the load generator has logged in; TLS
    is for librdkafka, and the load generator uses PLAINTEXT."""

    def __init__(self, server: Server, protocol: str, port: int, secrets: Secrets) -> None:
        super().__init__(server.directory, port=server.port)
        self.title = server.title
        self.mechanism = ""
        self.secured_port = port
        self._server, self._protocol, self._secrets = server, protocol, secrets

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def ca_file(self) -> str:
        return self._secrets.ca_file

    @property
    def is_tls(self) -> bool:
        return self._protocol == "SSL"

    def client_settings(self) -> dict[str, str]:
        """The settings of librdkafka for a listener without SASL."""
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.secured_port}",
            "security.protocol": self._protocol,
        }
        return settings | ({"ssl.ca.location": self.ca_file} if self.is_tls else {})

    @contextmanager
    def connections(self, count: int) -> Iterator[Sequence[int]]:
        if self.is_tls:
            yield ()
            return
        with ExitStack() as stack:
            clients = []
            for _ in range(count):
                client = stack.enter_context(closing(Client(self.secured_port)))
                if self.mechanism:
                    log_in(client, self.mechanism)
                clients.append(client)
            yield [client.fileno() for client in clients]


@dataclass(frozen=True)
class Secured:
    """A broker with all LISTENERS."""

    server: Server
    ports: Mapping[str, int]
    secrets: Secrets

    def listener(self, protocol: str, mechanism: str = "") -> Listener:
        """One of them; with a mechanism, its clients log in."""
        found = Listener(self.server, protocol, self.ports[protocol], self.secrets)
        found.mechanism = mechanism
        return found

    def start(self) -> None:
        """Run it and make its users."""
        self.server.start()
        make_users(self.server.address)


def secured(
    new_server: Callable[[int, Mapping[str, str]], Server],
    secrets: Secrets,
    more: Mapping[str, str] | None = None,
) -> Secured:
    """A broker, not started yet; `new_server` takes the port of PLAINTEXT, and settings."""
    ports = {name: free_port() for name in LISTENERS}
    key_store = secrets.key_store(secrets.certificates.broker_file)
    prefix = "listener.name.sasl_plaintext"
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in LISTENERS),
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
        f"{prefix}.plain.sasl.jaas.config": jaas(PLAIN, "admin", USERS["admin"], **USERS),
        f"{prefix}.{SCRAM.lower()}.sasl.jaas.config": jaas(SCRAM, "admin", USERS["admin"]),
        **key_store,
        **(more or {}),
    }
    spelled = {name: in_properties(value) for name, value in settings.items()}
    return Secured(new_server(ports["PLAINTEXT"], spelled), ports, secrets)


def log_in(client: Client, mechanism: str) -> None:
    """Log in as USER."""
    if client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code:
        raise RuntimeError(f"the broker does not offer {mechanism}")
    if mechanism == PLAIN:
        _authenticate(client, plain_message(USER, USERS[USER]))
        return
    kind = BY_NAME[mechanism]
    exchange = ScramClient(kind, USER, "benchmark")
    salt, iterations = exchange.challenge(_authenticate(client, exchange.first()))
    salted = salted_password(kind, USERS[USER], salt, iterations)
    exchange.finish(_authenticate(client, exchange.final(salted)))


def _authenticate(client: Client, token: bytes) -> bytes:
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
    if answer.error_code:
        raise RuntimeError(f"the login failed: {answer.error_message}")
    return bytes(answer.auth_bytes)


def make_acls(server: Server, count: int) -> None:
    """Add `count` bindings, of which one lets USER do everything with the topics of a Bench.

    A third of the others are for other users of the same pattern, a third are prefixed, a third
    are literal."""
    bindings = [_binding(TOPIC_PREFIX, PatternType.PREFIXED, USER)]
    for number in range(count - 1):
        user = f"user-{number}"
        if number % 3 == 0:
            bindings.append(_binding(TOPIC_PREFIX, PatternType.PREFIXED, user))
        elif number % 3 == 1:
            bindings.append(_binding(f"topic{number}", PatternType.PREFIXED, user))
        else:
            bindings.append(_binding(f"{TOPIC_PREFIX}of-{user}", PatternType.LITERAL, user))
    with closing(Client(server.port)) as client:
        for begin in range(0, count, ACLS_PER_REQUEST):
            request = CreateAclsRequest(creations=bindings[begin : begin + ACLS_PER_REQUEST])
            if any(result.error_code for result in client.ask(request, 1).results):
                raise RuntimeError(f"{server.title} rejects an ACL")


def _binding(name: str, pattern: PatternType, user: str) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC, resource_name=name, resource_pattern_type=pattern,
        principal=f"User:{user}", host="*", operation=AclOperation.ALL,
        permission_type=PermissionType.ALLOW,
    )  # fmt: skip
