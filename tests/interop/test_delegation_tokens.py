"""Delegation tokens on kctl and, marked `kafka`, on Apache Kafka 2.7.2: who may create, renew,
expire and describe them, and who logs in with them (T39 of the security design)."""

import base64
import json
import subprocess
import sys
import time

import pytest
from confluent_kafka import KafkaError, Producer

from kctl.admin.admin_client import AdminClient
from kctl.admin.tokens import DelegationToken
from kctl.errors import AuthenticationError
from kctl.model import SecurityProtocol
from kctl.protocol.acl import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
    ResourceType,
)
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kctl.protocol.sasl.jaas import jaas_text
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support import apache_kafka
from tests.support.identity_provider import now_s
from tests.support.secured_brokers import USERS, SaslApache, SaslKctl
from tests.support.zookeeper import running_zookeeper

TIMEOUT_S = 120
DAY_MS = 24 * 3600 * 1000
SETTINGS = {
    "delegation_token_master_key": "the key of all brokers",
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:admin;User:ANONYMOUS",
}
ALICE = {"username": "alice", "password": USERS["alice"]}
ADMIN = {"username": "admin", "password": USERS["admin"]}

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def kctl_with_tokens(tmp_path_factory):
    with SaslKctl(tmp_path_factory.mktemp("tokens"), **SETTINGS) as broker:
        yield broker.address, broker.plain_address


@pytest.fixture(scope="module")
def apache_with_tokens(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        broker = SaslApache(tmp_path_factory.mktemp("apache"), zookeeper.address, **SETTINGS)
        broker.launch()
        try:
            broker.wait_until_ready()
            yield broker.sasl_address, broker.address
        finally:
            broker.stop()


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="module")
def addresses(request):
    return request.getfixturevalue(f"{request.param}_with_tokens")


def properties_of(options, mechanism="PLAIN"):
    return {
        "security.protocol": SecurityProtocol.SASL_PLAINTEXT.value,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas_text(mechanism, options),
    }


def asked(address, properties, question):
    """The result of `question(admin)` on a loop of its own."""
    runtime = make_runtime(NullTrace())
    host, _, port = address.rpartition(":")
    admin = AdminClient.connect(runtime, [(host, int(port))], 120_000, properties)
    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(question(admin)))
    finally:
        admin.close()
        runtime.scheduler.close()


def code_of(address, properties, question):
    """The code of the ApiError that `question(admin)` raises."""
    with pytest.raises(ApiError) as raised:
        asked(address, properties, question)
    return raised.value.code


def login_with(token):
    return {"username": token.token_id, "password": token.password, "tokenauth": "true"}


def created(address, properties, max_lifetime_ms):
    return asked(address, properties, lambda admin: admin.tokens.create_token([], max_lifetime_ms))


def tokens_of(address, properties):
    found = asked(address, properties, lambda admin: admin.tokens.list_tokens())
    return {token.token_id: token for token in found}


def test_token_is_created_renewed_and_expired(addresses):
    """T39: the life of a token, by its owner."""
    address, _ = addresses
    alice = properties_of(ALICE)
    token = asked(address, alice, lambda admin: admin.tokens.create_token(["bob"], 2 * DAY_MS))
    assert (token.owner, token.renewers) == ("User:alice", ("User:bob",))
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 2 * DAY_MS
    assert len(token.token_id) == 22
    assert len(token.hmac) == 64
    assert tokens_of(address, alice)[token.token_id] == token
    renewed_ms = asked(address, alice, lambda admin: admin.tokens.renew_token(token, 9 * DAY_MS))
    assert renewed_ms == token.max_timestamp_ms
    soon_ms = asked(address, alice, lambda admin: admin.tokens.expire_token(token, 60_000))
    assert token.issue_timestamp_ms < soon_ms < token.expiry_timestamp_ms
    asked(address, alice, lambda admin: admin.tokens.expire_token(token))
    assert token.token_id not in tokens_of(address, alice)
    for question in (
        lambda admin: admin.tokens.renew_token(token),
        lambda admin: admin.tokens.expire_token(token),
    ):
        assert code_of(address, alice, question) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_lifetimes_are_limited(addresses):
    address, _ = addresses
    alice = properties_of(ALICE)
    for wanted_ms, got_ms in ((-1, 7 * DAY_MS), (0, 7 * DAY_MS), (99 * DAY_MS, 7 * DAY_MS)):
        token = created(address, alice, wanted_ms)
        assert token.max_timestamp_ms - token.issue_timestamp_ms == got_ms
    short = created(address, alice, 5_000)
    assert short.expiry_timestamp_ms == short.max_timestamp_ms


def test_other_users_do_not_own_a_token(addresses):
    """T39: DELEGATION_TOKEN_OWNER_MISMATCH; a renewer may."""
    address, _ = addresses
    alice, admin_user = properties_of(ALICE), properties_of(ADMIN)
    token = asked(address, alice, lambda admin: admin.tokens.create_token())
    for question in (
        lambda admin: admin.tokens.renew_token(token),
        lambda admin: admin.tokens.expire_token(token),
    ):
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert code_of(address, admin_user, question) == mismatch
    shared = asked(address, alice, lambda admin: admin.tokens.create_token(["admin"]))
    assert asked(address, admin_user, lambda admin: admin.tokens.renew_token(shared)) > 0


def test_expired_token_cannot_be_moved(addresses):
    """T39: DELEGATION_TOKEN_EXPIRED, but for others OWNER_MISMATCH; it is described until it is
    swept."""
    address, _ = addresses
    alice, admin_user = properties_of(ALICE), properties_of(ADMIN)
    token = created(address, alice, 1)
    deadline = time.monotonic() + TIMEOUT_S
    while now_s() * 1000 <= token.max_timestamp_ms + 1:
        assert time.monotonic() < deadline
    for question in (
        lambda admin: admin.tokens.renew_token(token),
        lambda admin: admin.tokens.expire_token(token, 60_000),
        lambda admin: admin.tokens.expire_token(token),
    ):
        assert code_of(address, alice, question) == ErrorCode.DELEGATION_TOKEN_EXPIRED
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert code_of(address, admin_user, question) == mismatch
    assert token.token_id in tokens_of(address, alice)


def test_acls_show_tokens_of_others(addresses):
    """T39: a user sees its own tokens, and those that it may describe; who sees a token may not
    therefore renew it."""
    address, plain = addresses
    alice, admin_user = properties_of(ALICE), properties_of(ADMIN)
    first, second = created(address, admin_user, -1), created(address, admin_user, -1)
    own = created(address, alice, -1)
    seen = tokens_of(address, alice).keys() & {first.token_id, second.token_id, own.token_id}
    assert seen == {own.token_id}
    assert own.token_id in tokens_of(address, admin_user)
    pattern = AclPattern(ResourceType.DELEGATION_TOKEN, first.token_id)
    entry = AclEntry("User:alice", "*", AclOperation.DESCRIBE, PermissionType.ALLOW)
    asked(plain, {}, lambda admin: admin.acls.create_acls([AclBinding(pattern, entry)]))
    shown = tokens_of(address, alice)
    assert shown[first.token_id] == first
    assert second.token_id not in shown
    code = code_of(address, alice, lambda admin: admin.tokens.renew_token(first))
    assert code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_renewers_are_users(addresses):
    address, _ = addresses

    async def create(admin):
        renewers = [CreatableRenewers(principal_type="Group", principal_name="x")]
        request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
        return (await admin.router.send_to_any(request)).error_code

    code = asked(address, properties_of(ALICE), create)
    assert code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_owners_filter(addresses):
    address, _ = addresses
    alice = properties_of(ALICE)
    token = asked(address, alice, lambda admin: admin.tokens.create_token(["carol"]))
    for owners, is_found in ((["alice"], True), (["carol"], True), (["admin"], False), ([], False)):
        found = asked(address, alice, lambda admin: admin.tokens.list_tokens(owners))  # noqa: B023
        assert (token.token_id in {it.token_id for it in found}) == is_found


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_token_logs_in_but_creates_no_other(addresses, mechanism):
    """T39: creation by a connection that a token authenticated is not allowed."""
    address, _ = addresses
    token = asked(address, properties_of(ALICE), lambda admin: admin.tokens.create_token())
    by_token = properties_of(login_with(token), mechanism)
    assert isinstance(asked(address, by_token, lambda admin: admin.topics.list_topics()), list)
    for question in (
        lambda admin: admin.tokens.create_token(),
        lambda admin: admin.tokens.renew_token(token),
        lambda admin: admin.tokens.list_tokens(),
    ):
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert code_of(address, by_token, question) == refused


def test_what_does_not_log_in(addresses):
    """T39: a wrong secret, no extension, an unknown token, a token that was expired."""
    address, _ = addresses
    alice = properties_of(ALICE)
    token = asked(address, alice, lambda admin: admin.tokens.create_token())
    good = login_with(token)
    other = base64.b64encode(bytes(64)).decode()
    logins = [
        {**good, "password": other},
        {**good, "tokenauth": "false"},
        {**good, "username": "unknown"},
    ]
    for options in logins:
        with pytest.raises(AuthenticationError):
            asked(
                address,
                properties_of(options, "SCRAM-SHA-256"),
                lambda admin: admin.topics.list_topics(),
            )
    asked(address, alice, lambda admin: admin.tokens.expire_token(token))
    with pytest.raises(AuthenticationError):
        asked(
            address,
            properties_of(good, "SCRAM-SHA-256"),
            lambda admin: admin.topics.list_topics(),
        )


def test_anonymous_clients_have_no_tokens(addresses):
    _, plain = addresses
    for question in (
        lambda admin: admin.tokens.create_token(),
        lambda admin: admin.tokens.list_tokens(),
    ):
        assert code_of(plain, {}, question) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_token_does_not_log_in_as_a_user(addresses, topic):
    """librdkafka does not send the extension: for the broker the token's id is a user's name."""
    address, _ = addresses
    token = asked(address, properties_of(ALICE), lambda admin: admin.tokens.create_token())
    errors, delivered = [], []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": SecurityProtocol.SASL_PLAINTEXT.value,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": token.token_id,
            "sasl.password": token.password,
            "error_cb": errors.append,
        }
    )
    producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
    deadline = time.monotonic() + TIMEOUT_S
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        assert time.monotonic() < deadline, errors
        producer.poll(0.1)
    assert delivered == []
    producer.purge()
    producer.flush(TIMEOUT_S)


@pytest.mark.kafka
def test_javas_clients_log_in_by_token(addresses, tmp_path):
    """kafka-delegation-tokens creates a token, with which kafka-topics logs in."""
    address, _ = addresses
    path = tmp_path / "alice.properties"
    text = "".join(f"{name}={it}\n" for name, it in properties_of(ALICE).items())
    path.write_text(text.replace("\\", "\\\\"))
    created = apache_kafka.run_tool(
        "kafka.admin.DelegationTokenCommand", "--bootstrap-server", address, "--create",
        "--max-life-time-period", "-1", "--command-config", path, "--renewer-principal", "User:bob",
    )  # fmt: skip
    token_id, hmac = created.stdout.splitlines()[-1].split()[:2]
    by_token = properties_of(
        {"username": token_id, "password": hmac, "tokenauth": "true"}, "SCRAM-SHA-512"
    )
    path.write_text("".join(f"{name}={it}\n" for name, it in by_token.items()))
    listed = apache_kafka.run_tool(
        "kafka.admin.TopicCommand", "--bootstrap-server", address, "--list",
        "--command-config", path,
    )  # fmt: skip
    assert listed.returncode == 0


@pytest.mark.kafka
def test_tokens_are_shared_with_apache(tmp_path):
    """Each broker of a mixed cluster knows the tokens of the other, with the same secret."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    (tmp_path / "zookeeper").mkdir()
    (tmp_path / "kctl").mkdir()
    (tmp_path / "apache").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        apache = SaslApache(tmp_path / "apache", zookeeper.address, **SETTINGS)
        apache.launch()
        try:
            apache.wait_until_ready()
            shared = {"zookeeper_connect": zookeeper.address, "broker_id": 1, **SETTINGS}
            with SaslKctl(tmp_path / "kctl", **shared) as kctl:
                alice = properties_of(ALICE)
                by_kctl = asked(kctl.address, alice, lambda admin: admin.tokens.create_token())
                by_apache = asked(
                    apache.sasl_address, alice, lambda admin: admin.tokens.create_token()
                )
                wanted = {by_kctl.token_id: by_kctl, by_apache.token_id: by_apache}
                eventually_has(kctl.address, alice, wanted)
                eventually_has(apache.sasl_address, alice, wanted)
        finally:
            apache.stop()


def eventually_has(address, properties, wanted):
    deadline = time.monotonic() + TIMEOUT_S
    while not wanted.items() <= tokens_of(address, properties).items():
        assert time.monotonic() < deadline


# --- commands


def run_kctl(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "kctl", *map(str, arguments)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_commands(addresses, tmp_path):
    address, _ = addresses
    path = tmp_path / "alice.properties"
    text = "".join(f"{name}={it}\n" for name, it in properties_of(ALICE).items())
    path.write_text(text.replace("\\", "\\\\"))
    where = ("-b", address, "--command-config", path)
    created = run_kctl("token", "create", "--renewer", "bob", *where, "-o", "json")
    assert created.returncode == 0, created.stderr
    (token,) = json.loads(created.stdout)
    assert len(base64.b64decode(token["secret"])) == 64
    listed = run_kctl("token", "list", *where)
    assert token["token"] in listed.stdout
    assert token["secret"] not in listed.stdout
    assert run_kctl("token", "renew", token["token"], "--for", "1h", *where).returncode == 0
    assert run_kctl("token", "expire", token["token"], "-n", *where).returncode == 0
    assert run_kctl("token", "expire", token["token"], "--yes", *where).returncode == 0
    missing = run_kctl("token", "renew", token["token"], *where)
    assert missing.returncode == 1
    assert "No delegation token" in missing.stderr


def test_secrets_are_not_shown():
    """T32."""
    token = DelegationToken("id", "User:a", (), 0, 0, 0, b"secret")
    assert "secret" not in repr(token)
