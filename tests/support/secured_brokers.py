"""Brokers with a SASL_PLAINTEXT and a PLAINTEXT listener, kctl's and Apache Kafka's, with the same
settings and the same users."""

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kctl.admin.admin_client import AdminClient as KctlAdmin
from kctl.errors import AuthenticationError
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support.apache_kafka import ApacheBroker, free_port
from tests.support.kctl_process import ConfiguredKctlBroker
from tests.support.waiting import wait_for

MODULE = "org.apache.kafka.common.security"
USERS = {"admin": "admin-secret", "alice": 'alice\'s "secret"'}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
TIMEOUT_S = 30


def make_users(plain_address, sasl_address):
    """Give every user a credential of each SCRAM mechanism, and wait until all of them log in.

    Apache Kafka stores a credential before its brokers know it: until the notification of
    ZooKeeper arrives, they reject the user."""
    admin = AdminClient({"bootstrap.servers": plain_address})
    changes = [
        UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), secret.encode())
        for name, secret in USERS.items()
        for kind in SCRAM
    ]
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(TIMEOUT_S)
    for name, secret in USERS.items():
        for mechanism in MECHANISMS:
            wait_for_login(sasl_address, login_settings(mechanism, name, secret))


def wait_for_login(address, properties):
    """Return as soon as the broker accepts the credentials of `properties`."""
    wait_for(lambda: logs_in(address, properties), lambda: f"{address} rejects {properties}")


def login_settings(mechanism, user, password):
    """Return the properties of a kctl client that logs in on SASL_PLAINTEXT."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def logs_in(address, properties):
    """Whether the broker accepts the credentials of `properties`."""
    runtime = make_runtime(NullTrace())
    host, _, port = address.rpartition(":")
    admin = KctlAdmin.connect(runtime, [(host, int(port))], TIMEOUT_S * 1000, properties)
    try:
        runtime.scheduler.run_until(runtime.scheduler.spawn(admin.cluster.describe()))
    except AuthenticationError:
        return False
    else:
        return True
    finally:
        admin.close()
        runtime.scheduler.close()


def allow_all(client_settings, user):
    """The user may do everything, from anywhere; `client_settings` are those of a super user."""
    admin = AdminClient(client_settings)
    where = (ResourcePatternType.LITERAL, f"User:{user}", "*")
    entry = (*where, AclOperation.ALL, AclPermissionType.ALLOW)
    resources = (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
        (ResourceType.BROKER, "kafka-cluster"),
    )
    bindings = [AclBinding(*resource, *entry) for resource in resources]
    for future in admin.create_acls(bindings).values():
        future.result(TIMEOUT_S)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas(mechanism, username, password, **users):
    """Return a value of sasl.jaas.config; `users` are the users that PLAIN accepts."""
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    options = {"username": username, "password": password}
    options.update({f"user_{name}": secret for name, secret in users.items()})
    pairs = " ".join(f"{key}={quoted(value)}" for key, value in options.items())
    return f"{MODULE}.{kind}LoginModule required {pairs};"


def sasl_settings(port, plain_port, **settings):
    """Settings of a broker: SASL for clients and between brokers, PLAINTEXT to make users.

    `settings` override them; those of the SASL listener begin with `sasl_plaintext.`.
    """
    values = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain_port}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(
            "PLAIN", "admin", USERS["admin"], **USERS
        ),
        **{
            f"listener.name.sasl_plaintext.{name.lower()}.sasl.jaas.config": jaas(
                name, "admin", USERS["admin"]
            )
            for name in MECHANISMS[1:]
        },
        **{_full_name(name): value for name, value in settings.items()},
    }
    # A backslash is written twice in a properties file.
    return {name: str(value).replace("\\", "\\\\") for name, value in values.items()}


def _full_name(name):
    if name.startswith("sasl_plaintext."):
        return f"listener.name.{name}"
    return name.replace("_", ".")


class SaslKctl(ConfiguredKctlBroker):
    """A `kctl serve` with SASL; `address` is its SASL listener's, `plain_address` the other's."""

    def __init__(self, directory, **settings):
        self.sasl_port, self.plain_port = free_port(), free_port()
        all_settings = sasl_settings(self.sasl_port, self.plain_port, **settings)
        super().__init__(directory, all_settings, "-c", "group.initial.rebalance.delay.ms=0")

    @property
    def address(self):
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def plain_address(self):
        return f"127.0.0.1:{self.plain_port}"


class SaslApache(ApacheBroker):
    """Apache Kafka with SASL; its PLAINTEXT listener is asked whether it is ready."""

    def __init__(self, directory, zookeeper, **settings):
        self.sasl_port = free_port()
        port = free_port()
        super().__init__(
            directory,
            zookeeper,
            port=port,
            settings=sasl_settings(self.sasl_port, port, **settings),
        )

    @property
    def sasl_address(self):
        return f"127.0.0.1:{self.sasl_port}"
