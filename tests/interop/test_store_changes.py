"""Key and trust stores of a running broker, replaced by changes of its configs."""

import socket
import ssl
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.apache_kafka import free_port
from tests.support.certificates import TestCertificates
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

TIMEOUT_S = 30
PREFIX = "listener.name.secure."


class TwoListeners(KctlBroker):
    """A `kctl serve` that brokers connect to by TLS, with a PLAINTEXT listener for its changes."""

    def __init__(self, directory, certificates, **settings):
        super().__init__(directory, port=free_port())
        self.tls_port = free_port()
        stores = certificates.broker_settings() | certificates.client_settings()
        self._settings = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SECURE://127.0.0.1:{self.tls_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
            "inter.broker.listener.name": "SECURE",
            "ssl.client.auth": "required",
            **{f"{PREFIX}{name}": value for name, value in stores.items()},
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def _where(self):
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={it}\n" for key, it in self._settings.items()))
        return ["--config", str(path)]

    def alter(self, **values):
        """Change configs of the TLS listener, or delete those that are None."""
        entries = [
            ConfigEntry(
                PREFIX + name.replace("_", "."),
                value,
                incremental_operation=AlterConfigOpType.DELETE
                if value is None
                else AlterConfigOpType.SET,
            )
            for name, value in values.items()
        ]
        admin = AdminClient({"bootstrap.servers": self.address})
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(TIMEOUT_S)

    def refusal(self, **values):
        with pytest.raises(KafkaException) as caught:
            self.alter(**values)
        assert caught.value.args[0].name() == "INVALID_REQUEST"
        return caught.value.args[0].str()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    certificates = TestCertificates(tmp_path_factory.mktemp("certificates"))
    certificates.broker_file = issued(certificates, "first")
    return certificates


@pytest.fixture(scope="module")
def broker(tmp_path_factory, certificates):
    directory = tmp_path_factory.mktemp("broker")
    with TwoListeners(directory, certificates, password_encoder_secret="encoder-secret") as it:
        yield it


def served(broker, certificates):
    """The certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=certificates.ca_file)
    context.load_cert_chain(certificates.client_file)
    with (
        socket.create_connection(("127.0.0.1", broker.tls_port), TIMEOUT_S) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as sock,
    ):
        return sock.getpeercert(binary_form=True)


def until_served(broker, certificates, before):
    wait_for(lambda: served(broker, certificates) != before, lambda: broker.errors)


def issued(certificates, name, *identities, unit="brokers"):
    """The file of a new key and certificate whose subject does not depend on its names."""
    identities = identities or ("localhost", "127.0.0.1")
    return certificates.issue(name, *identities, organization_unit_name=unit)


def test_a_key_store_is_replaced_and_survives_a_restart(broker, certificates):
    before = served(broker, certificates)
    broker.alter(ssl_keystore_location=issued(certificates, "second"))
    until_served(broker, certificates, before)
    second = served(broker, certificates)
    broker.kill()
    broker.start()
    assert served(broker, certificates) == second


def test_a_file_that_changed_under_its_name_is_read_again_with_the_next_change(
    broker, certificates
):
    path = issued(certificates, "third")
    before = served(broker, certificates)
    broker.alter(ssl_keystore_location=path)
    until_served(broker, certificates, before)
    third = served(broker, certificates)
    issued(certificates, "third")
    broker.alter(ssl_keystore_location=path)
    until_served(broker, certificates, third)


def test_an_encrypted_key_and_its_password_stay_out_of_sight(broker, certificates):
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    plain = Path(issued(certificates, "fourth")).read_bytes()
    key = serialization.load_pem_private_key(plain, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hidden-password"),
    )
    path = certificates.directory / "encrypted.pem"
    path.write_bytes(encrypted + plain[plain.index(b"-----BEGIN CERTIFICATE") :])
    before = served(broker, certificates)
    broker.alter(ssl_keystore_location=str(path), ssl_key_password="hidden-password")
    until_served(broker, certificates, before)
    files = [it.read_bytes() for it in broker.directory.rglob("*") if it.is_file()]
    assert any(b"encryptedPassword" in it for it in files)
    assert not any(b"hidden-password" in it for it in files)
    now = served(broker, certificates)
    assert "ssl.key.password" in broker.refusal(ssl_key_password="another-password")
    assert served(broker, certificates) == now
    broker.alter(ssl_keystore_location=certificates.broker_file, ssl_key_password=None)
    until_served(broker, certificates, now)


def test_stores_that_would_change_the_listeners_identity_are_refused(broker, certificates):
    before = served(broker, certificates)
    elsewhere = certificates.directory / "elsewhere"
    elsewhere.mkdir()
    junk = certificates.directory / "junk.pem"
    junk.write_text("not a store")
    stranger = issued(TestCertificates(elsewhere), "stranger")
    refusals = {
        "DistinguishedName does not match": issued(certificates, "unit", unit="others"),
        "SubjectAltNames do not match": issued(certificates, "names", "127.0.0.1"),
        "neither a key nor a certificate": str(junk),
        "cannot read /nowhere.pem": "/nowhere.pem",
        "do not fit together": stranger,
    }
    for reason, path in refusals.items():
        message = broker.refusal(ssl_keystore_location=path)
        assert "Invalid config value for resource" in message
        assert reason in message
    assert served(broker, certificates) == before


def test_a_password_needs_the_encoders_secret(tmp_path, certificates):
    with TwoListeners(tmp_path, certificates) as broker:
        message = broker.refusal(ssl_key_password="x")
        assert "Password encoder secret not configured" in message
