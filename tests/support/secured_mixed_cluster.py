"""A mixed cluster whose brokers and clients speak SASL_SSL, log in by SCRAM, and have ACLs."""

from tests.support import apache_kafka
from tests.support.apache_kafka import ApacheBroker, free_port
from tests.support.kctl_process import ConfiguredKctlBroker
from tests.support.mixed_cluster import MixedCluster
from tests.support.secured_brokers import jaas
from tests.support.secured_cells import Secrets, in_properties

MECHANISM = "SCRAM-SHA-512"
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "mallory": "mallory-secret"}
SECURED = "listener.name.sasl_ssl"


class SecuredMixedCluster(MixedCluster):
    """`admin` is the brokers' and a super user; the others have the rights that ACLs give them.

    The PLAINTEXT listener of a broker is only asked whether it is ready: its clients may do
    nothing."""

    def __init__(self, directory, zookeeper):
        super().__init__(directory, zookeeper)
        self.secrets = Secrets(directory / "secrets")
        stores = self.secrets.key_store(self.secrets.certificates.broker_file)
        stores |= self.secrets.trust_store()
        self.settings |= {
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"{SECURED}.{MECHANISM.lower()}.sasl.jaas.config": in_properties(
                jaas(MECHANISM, "admin", PASSWORDS["admin"])
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            **{f"{SECURED}.{name}": in_properties(value) for name, value in stores.items()},
        }
        self._ports = {}

    def make_users(self):
        """Store the passwords as an administrator does before the first broker starts."""
        for name, password in PASSWORDS.items():
            apache_kafka.run_tool(
                "kafka.admin.ConfigCommand", "--zookeeper", self.zookeeper, "--alter",
                "--entity-type", "users", "--entity-name", name,
                "--add-config", f"{MECHANISM}=[password={password}]",
            )  # fmt: skip

    def settings_of(self, broker_id):
        ports = self._ports.setdefault(broker_id, (free_port(), free_port()))
        listeners = f"SASL_SSL://127.0.0.1:{ports[0]},PLAINTEXT://127.0.0.1:{ports[1]}"
        return self.settings | {"broker.id": broker_id, "listeners": listeners}

    def _start_kctl(self, broker_id, home, settings):
        settings = settings | {"zookeeper.connect": self.zookeeper}
        return ConfiguredKctlBroker(home, settings).start()

    def _start_apache(self, broker_id, home, settings):
        port = self._ports[broker_id][1]
        broker = ApacheBroker(
            home, self.zookeeper, broker_id=broker_id, settings=settings, port=port
        )
        return self._until_ready(broker)

    def address_of(self, broker_id):
        return f"127.0.0.1:{self._ports[broker_id][0]}"

    def client_settings(self, user="admin"):
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": self.secrets.ca_file,
        }
