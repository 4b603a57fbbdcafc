"""Listeners are added and removed while a broker runs, and advertised to clients and brokers."""

import socket
import ssl
from contextlib import suppress

import pytest

from kctl.client.router import Router
from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.errors import AuthenticationError, KctlError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsRequest
from kctl.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kctl.store.znodes import BROKER_CONFIGS
from tests.support.apache_kafka import free_port
from tests.support.broker_cluster import running_brokers

BROKER_RESOURCE = 4
DELETE = 1
MAP = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,SECURE:SSL,LOGIN:SASL_PLAINTEXT"
BOTH = "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0"


@pytest.fixture
def cluster(tmp_path):
    with running_brokers(tmp_path) as cluster:
        yield cluster.start(1, 2, listener_security_protocol_map=MAP)


def alter(cluster, **changes):
    """Change configs of broker 1 (None: delete); return the answer's error code and message."""
    configs = [
        AlterableConfig(
            name=name.replace("__", "-").replace("_", "."),
            config_operation=DELETE if value is None else 0,
            value=value,
        )
        for name, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=configs)
        ]
    )
    router = cluster.router()
    (answer,) = cluster.run(router.send_to_broker(1, request)).responses
    router.close()
    return answer.error_code, answer.error_message


def altered(cluster, **changes):
    assert alter(cluster, **changes) == (ErrorCode.NONE, None)


def names(cluster, broker_id=1):
    return [it.listener_name for it in cluster.brokers[broker_id].endpoints]


def port_of(cluster, name):
    (endpoint,) = [it for it in cluster.brokers[1].endpoints if it.listener_name == name]
    return endpoint.port


def address_at(cluster, broker_id, name):
    """Where broker `broker_id` believes listener `name` of broker 1 to be; None: nowhere."""
    cache = cluster.brokers[broker_id].services.metadata_cache
    try:
        endpoint = cache.broker_endpoint(1, name)
    except KctlError:
        return None
    return endpoint and endpoint.port


def served(cluster, port, security=NO_SECURITY):
    """Return whether a broker answers at `port`."""
    router = Router(cluster.runtime, [("127.0.0.1", port)], security=security)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    try:
        return cluster.run(router.send_to_any(request)).error_code == ErrorCode.NONE
    finally:
        router.close()


def test_a_listener_is_added_and_advertised_by_every_broker(cluster):
    altered(cluster, listeners=BOTH)
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OUTSIDE"], "the listener is open")
    port = port_of(cluster, "OUTSIDE")
    assert served(cluster, port)
    for broker_id in (1, 2):
        cluster.until(
            lambda b=broker_id: address_at(cluster, b, "OUTSIDE") == port, "it is advertised"
        )
    assert names(cluster, 2) == ["PLAINTEXT"]


def test_a_listener_is_removed_and_its_clients_get_their_answers_first(cluster):
    altered(cluster, listeners=BOTH)
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OUTSIDE"], "the listener is open")
    port = port_of(cluster, "OUTSIDE")
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(0)
        counters = cluster.brokers[1].server.counters
        before = counters.connections_accepted
        cluster.until(lambda: counters.connections_accepted > before, "the client is connected")
        altered(cluster, listeners=None)
        cluster.until(lambda: names(cluster) == ["PLAINTEXT"], "the listener is closed")

        def is_closed():
            try:
                return client.recv(1) == b""
            except BlockingIOError:
                return False

        cluster.until(is_closed, "its connections are closed")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    cluster.until(lambda: address_at(cluster, 2, "OUTSIDE") is None, "it is not advertised")
    # Under the same name it counts its connections from the beginning.
    altered(cluster, listeners=BOTH)
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OUTSIDE"], "the listener is open")
    assert served(cluster, port_of(cluster, "OUTSIDE"))


def test_a_new_listener_takes_the_port_of_the_one_that_it_replaces(cluster):
    port = free_port()
    first = f"PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:{port}"
    altered(cluster, listeners=first)
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OUTSIDE"], "the listener is open")
    altered(
        cluster,
        listeners=first.replace("OUTSIDE", "OTHER"),
        listener_security_protocol_map=f"{MAP},OTHER:PLAINTEXT",
    )
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OTHER"], "the port has a new listener")
    assert port_of(cluster, "OTHER") == port
    assert served(cluster, port)


def test_only_what_is_advertised_changes(cluster):
    altered(cluster, advertised_listeners="PLAINTEXT://localhost:0")
    host = "localhost"
    cache = cluster.brokers[2].services.metadata_cache
    cluster.until(lambda: cache.broker_endpoint(1, "PLAINTEXT").host == host, "it is advertised")
    assert cache.broker_endpoint(1, "PLAINTEXT").port == port_of(cluster, "PLAINTEXT")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"listeners": "OUTSIDE://127.0.0.1:0"}, "inter.broker.listener.name must be a listener"),
        (
            {"advertised.listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0"},
            "advertised.listeners listener names must be equal to or a subset",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:0,NEW://127.0.0.1:0"},
            "No security protocol defined for listener NEW",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:9"},
            "The address of listener PLAINTEXT cannot be updated dynamically",
        ),
        (
            {"listeners": BOTH, "listener.name.plaintext.max.connections": "7"},
            "Configs cannot be updated dynamically for existing listener PLAINTEXT",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0"},
            "Listener SECURE: no key and certificate",
        ),
    ],
)
def test_what_a_running_broker_cannot_follow_is_refused(cluster, changes, reason):
    code, message = alter(cluster, **{name.replace(".", "_"): it for name, it in changes.items()})
    assert code == ErrorCode.INVALID_REQUEST
    assert reason in message
    assert names(cluster) == ["PLAINTEXT"]


def test_the_protocol_of_a_listener_that_stays_is_refused(cluster):
    altered(cluster, listeners=BOTH)
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OUTSIDE"], "the listener is open")
    code, message = alter(
        cluster,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
    )
    assert code == ErrorCode.INVALID_REQUEST
    assert "Security protocol cannot be updated for existing listener OUTSIDE" in message


def test_a_port_that_another_process_uses_is_refused(cluster):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, message = alter(
            cluster, listeners=f"PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:{port}"
        )
    assert code == ErrorCode.INVALID_REQUEST
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in message


def test_listeners_of_the_store_that_cannot_be_opened_are_logged(cluster):
    """Tools of ZooKeeper may write what no broker has checked."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        listeners = f"PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:{port}"
        store = cluster.brokers[2].services.cluster_store
        cluster.run(
            store.update_entity_config(BROKER_CONFIGS, "1", lambda _: {"listeners": listeners})
        )
        cluster.until(
            lambda: any("The listeners stay as they are" in it for it in cluster.trace.warnings),
            "the broker logs it",
        )
        assert names(cluster) == ["PLAINTEXT"]


def test_a_restarted_broker_has_the_listeners_of_the_store(cluster):
    altered(cluster, listeners=BOTH)
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "OUTSIDE"], "the listener is open")
    cluster.stop(1)
    cluster.start(1, listener_security_protocol_map=MAP)
    assert names(cluster) == ["PLAINTEXT", "OUTSIDE"]
    port = port_of(cluster, "OUTSIDE")
    cluster.until(lambda: address_at(cluster, 2, "OUTSIDE") == port, "it is advertised")


def test_a_listener_with_tls_is_added(cluster, tmp_path):
    pytest.importorskip("cryptography")
    from tests.support.certificates import TestCertificates

    certificates = TestCertificates(tmp_path)
    settings = {
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": certificates.issue("b", "localhost"),
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
    }
    altered(cluster, **{name.replace(".", "_"): it for name, it in settings.items()})
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "SECURE"], "the listener is open")
    context = ssl.create_default_context(cafile=certificates.ca_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", port_of(cluster, "SECURE"))) as raw:
        raw.settimeout(0)

        def is_secured():
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            raw.sendall(to_server.read())
            with suppress(BlockingIOError):
                to_client.write(raw.recv(65536))
            return tls.cipher() is not None

        cluster.until(is_secured, "the handshake ends")


def test_the_first_listener_with_sasl_is_added(cluster):
    cluster.run(cluster.brokers[1].set_passwords({"alice": "secret"}))
    altered(
        cluster,
        listener_name_login_sasl_enabled_mechanisms="SCRAM-SHA-256",
        listeners="PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
    )
    cluster.until(lambda: names(cluster) == ["PLAINTEXT", "LOGIN"], "the listener is open")
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    port = port_of(cluster, "LOGIN")
    assert served(cluster, port, ClientSecurity.of(settings))
    with pytest.raises(AuthenticationError):
        served(cluster, port, ClientSecurity.of({**settings, "sasl.password": "wrong"}))
