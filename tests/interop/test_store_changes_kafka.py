"""kafka-configs changes the stores of a listener of kctl and of Apache Kafka 2.7.2: both accept and
refuse the same changes, and each reads the passwords that the other has encoded."""

import socket
import ssl

import pytest

from tests.support.apache_kafka import ApacheBroker, free_port
from tests.support.certificates import TestCertificates
from tests.support.java_tools import JavaTools
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka]

BROKER_ID = 1
PREFIX = "listener.name.secure."


class Stores:
    """PKCS12 key stores of one CA, each with a password of its own."""

    def __init__(self, directory):
        pkcs12 = pytest.importorskip("cryptography.hazmat.primitives.serialization.pkcs12")
        self._serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
        self._x509 = pytest.importorskip("cryptography.x509")
        self._pkcs12 = pkcs12
        self.certificates = TestCertificates(directory)
        self.directory = directory

    def make(self, name, *identities, unit="brokers", ca=None):
        """Return the ssl.* settings of a new store."""
        leaf = (ca or self.certificates.ca).issue_cert(
            *(identities or ("localhost", "127.0.0.1")), organization_unit_name=unit
        )
        key = self._serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = [self._x509.load_pem_x509_certificate(it.bytes()) for it in leaf.cert_chain_pems]
        data = self._pkcs12.serialize_key_and_certificates(
            b"broker",
            key,
            chain[0],
            chain[1:],
            self._serialization.BestAvailableEncryption(f"{name}-secret".encode()),
        )
        path = self.directory / f"{name}.p12"
        path.write_bytes(data)
        return {
            f"{PREFIX}ssl.keystore.location": str(path),
            f"{PREFIX}ssl.keystore.password": f"{name}-secret",
            f"{PREFIX}ssl.key.password": f"{name}-secret",
        }


class Configured(KctlBroker):
    """A `kctl serve` with these settings."""

    def __init__(self, directory, settings, port):
        super().__init__(directory, port=port)
        self._settings = settings

    def _where(self):
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={it}\n" for key, it in self._settings.items()))
        return ["--config", str(path)]


class World:
    """One broker at a time, of either kind, with the same settings on the same ZooKeeper."""

    def __init__(self, directory, zookeeper, tools):
        self.directory, self.zookeeper, self.tools = directory, zookeeper, tools
        self.stores = Stores(directory)
        self.port, self.tls_port = free_port(), free_port()
        ca = self.stores.certificates.ca_file
        self.settings = {
            "broker.id": BROKER_ID,
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": 3000,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SECURE://127.0.0.1:{self.tls_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
            "inter.broker.listener.name": "SECURE",
            "password.encoder.secret": "encoder-secret",
            # Each of Apache Kafka's changes its store on its own.
            "num.network.threads": 1,
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.type": "PEM",
            f"{PREFIX}ssl.truststore.location": ca,
            **self.stores.make("first"),
        }
        self.broker = None

    def start(self, kind):
        if kind == "kctl":
            home = self.directory / "kctl"
            settings = {**self.settings, "log.dirs": home / "logs"}
            self.broker = Configured(home, settings, self.port).start()
        else:
            home = self.directory / "apache"
            self.broker = ApacheBroker(home, self.zookeeper, port=self.port, settings=self.settings)
            self.broker.launch().wait_until_ready()

    def stop(self):
        self.broker.stop()

    def alter(self, change):
        """kafka-configs: its exit status and what it printed."""
        added = ",".join(f"{name}={value}" for name, value in change.items() if value is not None)
        deleted = ",".join(name for name, value in change.items() if value is None)
        words = ["--add-config", added] if added else []
        words += ["--delete-config", deleted] if deleted else []
        result = self.tools.run(
            "kafka.admin.ConfigCommand", "--bootstrap-server", f"127.0.0.1:{self.port}",
            "--entity-type", "brokers", "--entity-name", BROKER_ID, "--alter", *words, status=None,
        )  # fmt: skip
        return result.status, result.out + result.err

    def described(self):
        """kafka-configs --describe: the dynamic configs, without the order of their synonyms."""
        result = self.tools.run(
            "kafka.admin.ConfigCommand", "--bootstrap-server", f"127.0.0.1:{self.port}",
            "--entity-type", "brokers", "--entity-name", BROKER_ID, "--describe",
        )  # fmt: skip
        return sorted(result.lines)

    def served(self):
        """The certificate that a new connection gets."""
        context = ssl.create_default_context(cafile=self.stores.certificates.ca_file)
        with (
            socket.create_connection(("127.0.0.1", self.tls_port), 30) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as sock,
        ):
            return sock.getpeercert(binary_form=True)

    def until_served(self, before):
        wait_for(lambda: self.served() != before, lambda: "the certificate did not change")
        return self.served()


def test_both_brokers_accept_refuse_and_read_the_same_changes(tmp_path):
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper, JavaTools("2.7.2") as tools:
        world = World(tmp_path, zookeeper.address, tools)
        # kafka-configs wants all passwords with every change.
        current = {
            it: text for it, text in world.settings.items() if "keystore" in it or "key." in it
        }
        current.pop("ssl.keystore.type")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        make = world.stores.make
        refused = {
            "another subject": make("unit", unit="others"),
            "fewer names": make("names", "127.0.0.1"),
            "another CA": make("ca", ca=TestCertificates(elsewhere).ca),
            "no such file": {f"{PREFIX}ssl.keystore.location": "/nowhere.p12"},
            "a wrong password": {f"{PREFIX}ssl.keystore.password": "wrong"},
            "without the prefix": {"ssl.keystore.location": str(tmp_path / "unit.p12")},
            "a limit of 0": {f"{PREFIX}max.connections": "0"},
            "a limit that is no number": {f"{PREFIX}max.connections": "few"},
        }
        certificate, outcomes, descriptions = None, {}, {}
        for turn, kind in enumerate(["kctl", "apache", "kctl"]):
            world.start(kind)
            try:
                # The change that the other kind of broker has stored.
                if certificate is not None:
                    assert world.served() == certificate, kind
                before = world.served()
                if turn < 2:
                    descriptions[kind, "before"] = world.described()
                    outcomes[kind] = {
                        name: world.alter({**current, **it}) for name, it in refused.items()
                    }
                    assert world.served() == before, kind
                current = make(f"turn{turn}")
                status, text = world.alter({**current, f"{PREFIX}max.connections": "100"})
                assert status == 0, text
                certificate = world.until_served(before)
                descriptions[kind, "after"] = world.described()
            finally:
                world.stop()
        for name in refused:
            for kind in ("kctl", "apache"):
                status, text = outcomes[kind][name]
                assert status == 1, (kind, name, text)
                assert "InvalidRequestException" in text, (kind, name, text)
        with_passwords = [line for line in descriptions["kctl", "after"] if "password" in line]
        assert len(with_passwords) == 2
        assert not any("-secret" in line for line in with_passwords)
        names = {
            kind: [line.split("=")[0] for line in descriptions[kind, "after"]]
            for kind in ("kctl", "apache")
        }
        assert names["kctl"] == names["apache"]
