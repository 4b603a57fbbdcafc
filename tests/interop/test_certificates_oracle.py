"""T13, T14: whom a listener lets in by its certificate, and whom a client trusts, as Apache Kafka
2.7.2 does with the same certificates."""

import socket
import ssl

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.errors import AuthenticationError
from kctl.protocol.messages.api_versions import ApiVersionsRequest
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support import apache_kafka
from tests.support.apache_kafka import apache_broker, free_port, run_tool
from tests.support.kctl_process import ConfiguredKctlBroker
from tests.support.raw_requests import RequestWriter
from tests.support.zookeeper import running_zookeeper

pytest.importorskip("cryptography")

from tests.support.odd_certificates import (
    CLIENT,
    PASSWORD,
    SERVER,
    Authority,
    self_signed,
    write_pem,
    write_pkcs12,
)

pytestmark = pytest.mark.kafka
TIMEOUT_S = 120
AUTH = ("none", "requested", "required")
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
TRUSTED, OTHER = Authority("CA"), Authority("another CA")
INTERMEDIATE = Authority("below", TRUSTED)


def client_certificates():
    """Kind -> key and chain; None: the client has no certificate."""
    below = INTERMEDIATE.issue("alice")
    return {
        "none": None,
        "good": TRUSTED.issue("alice"),
        "for clients": TRUSTED.issue("alice", usage=CLIENT),
        "for servers": TRUSTED.issue("alice", usage=SERVER),
        "expired": TRUSTED.issue("alice", begins=-9, ends=-1),
        "not yet valid": TRUSTED.issue("alice", begins=1),
        "of another CA": OTHER.issue("alice"),
        "self-signed": self_signed("alice"),
        "chain of 3": (*below, INTERMEDIATE.certificate),
        "chain with a gap": below,
    }


def server_certificates():
    """Kind -> key and chain of a listener that clients know as localhost."""
    below = INTERMEDIATE.issue("broker", names=["localhost"])
    local = {"names": ["localhost"]}
    return {
        "good": TRUSTED.issue("broker", **local),
        "for servers": TRUSTED.issue("broker", usage=SERVER, **local),
        "for clients": TRUSTED.issue("broker", usage=CLIENT, **local),
        "expired": TRUSTED.issue("broker", begins=-9, ends=-1, **local),
        "not yet valid": TRUSTED.issue("broker", begins=1, **local),
        "of another CA": OTHER.issue("broker", **local),
        "self-signed": self_signed("broker", names=["localhost"]),
        "another host": TRUSTED.issue("localhost", names=["broker.example.com"]),
        "an address only": TRUSTED.issue("broker", addresses=["127.0.0.1"]),
        "a common name only": TRUSTED.issue("localhost"),
        "a wildcard of another domain": TRUSTED.issue("broker", names=["*.example.com"]),
        "chain of 3": (*below, INTERMEDIATE.certificate),
        "chain with a gap": below,
    }


def listener_settings(ports, stores, auth="none"):
    """Listeners A0, A1, ... at `ports`, with key stores `stores`, beside PLAINTEXT."""
    settings = {"ssl.truststore.type": "PEM"}
    for number, (port, (store, kind)) in enumerate(zip(ports, stores, strict=True)):
        del port
        prefix = f"listener.name.a{number}."
        settings[f"{prefix}ssl.keystore.location"] = store
        settings[f"{prefix}ssl.keystore.type"] = "PKCS12"
        settings[f"{prefix}ssl.keystore.password"] = PASSWORD
        settings[f"{prefix}ssl.key.password"] = PASSWORD
        settings[f"{prefix}ssl.client.auth"] = kind or auth
    plain = free_port()
    named = [f"A{number}://127.0.0.1:{port}" for number, port in enumerate(ports)]
    settings["listeners"] = ",".join([f"PLAINTEXT://127.0.0.1:{plain}", *named])
    settings["advertised.listeners"] = settings["listeners"].replace("127.0.0.1", "localhost")
    settings["listener.security.protocol.map"] = ",".join(
        ["PLAINTEXT:PLAINTEXT", *(f"A{number}:SSL" for number in range(len(ports)))]
    )
    return plain, settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ca_file(folder):
    path = folder / "ca.pem"
    path.write_text(TRUSTED.pem)
    return str(path)


@pytest.fixture(scope="module")
def ports_of(folder, ca_file):
    """Server -> client authentication -> port."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    store = write_pkcs12(folder / "broker.p12", *TRUSTED.issue("broker", names=["localhost"]))
    ports = {server: [free_port() for _ in AUTH] for server in ("kctl", "apache")}
    stores = [(store, auth) for auth in AUTH]
    trust = {"ssl.truststore.location": ca_file}
    _, ours = listener_settings(ports["kctl"], stores)
    plain, theirs = listener_settings(ports["apache"], stores)
    for name in ("zookeeper", "kctl"):
        (folder / name).mkdir()
    with (
        ConfiguredKctlBroker(folder / "kctl", ours | trust),
        running_zookeeper(folder / "zookeeper") as zookeeper,
        apache_broker(folder / "apache", zookeeper.address, port=plain, settings=theirs | trust),
    ):
        yield {server: dict(zip(AUTH, it, strict=True)) for server, it in ports.items()}


def is_served(port, ca_file, file, version):
    """Whether a client with the certificates in `file` gets an answer."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = context.maximum_version = version
    if file is not None:
        context.load_cert_chain(file)
    writer = RequestWriter()
    frame = writer.frame(ApiVersionsRequest(), 0)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            tls.sendall(frame)
            return len(tls.recv(1)) == 1
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("version", VERSIONS, ids=lambda it: it.name)
def test_a_listener_lets_in_whom_apache_kafka_lets_in(ports_of, folder, ca_file, version):
    files = {
        kind: None if chain is None else write_pem(folder / f"client {kind}.pem", *chain)
        for kind, chain in client_certificates().items()
    }
    got = {
        server: {
            (auth, kind): is_served(ports[auth], ca_file, file, version)
            for auth in AUTH
            for kind, file in files.items()
        }
        for server, ports in ports_of.items()
    }
    assert got["kctl"] == got["apache"]
    assert got["kctl"]["required", "good"]
    assert not got["kctl"]["required", "of another CA"]
    assert got["kctl"]["none", "of another CA"]


def test_a_client_trusts_whom_apache_kafkas_client_trusts(folder, ca_file):
    kinds = server_certificates()
    stores = [
        (write_pkcs12(folder / f"server {kind}.p12", *chain), "none")
        for kind, chain in kinds.items()
    ]
    ports = [free_port() for _ in stores]
    _, settings = listener_settings(ports, stores)
    (folder / "of-servers").mkdir()
    properties = folder / "client.properties"
    trust = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca_file,
    }
    properties.write_text("".join(f"{name}={it}\n" for name, it in trust.items()))
    ours, theirs = {}, {}
    with ConfiguredKctlBroker(folder / "of-servers", settings):
        for kind, port in zip(kinds, ports, strict=True):
            ours[kind] = is_trusted(f"localhost:{port}", trust)
            theirs[kind] = is_trusted_by_java(f"localhost:{port}", properties)
    assert ours == theirs
    assert ours["good"]
    assert not any(ours[kind] for kind in ("expired", "of another CA", "another host"))


def is_trusted(address, settings):
    host, _, port = address.rpartition(":")
    runtime = make_runtime(NullTrace())

    async def ask():
        where = [(host, int(port))]
        client = AdminClient.connect(runtime, where, properties=settings, timeout_ms=60_000)
        try:
            await client.topics.list_topics()
        except AuthenticationError:
            return False
        else:
            return True
        finally:
            client.close()

    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(ask()))
    finally:
        runtime.scheduler.close()


def is_trusted_by_java(address, properties):
    tool = "kafka.admin.BrokerApiVersionsCommand"
    arguments = ("--bootstrap-server", address, "--command-config", properties)
    ended = run_tool(tool, *arguments, check=False, timeout_s=TIMEOUT_S)
    assert ("SslAuthenticationException" in ended.stdout + ended.stderr) == bool(ended.returncode)
    return ended.returncode == 0
