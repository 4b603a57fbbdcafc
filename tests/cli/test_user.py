"""kctl user: users are created, listed and deleted; passwords never stand on the command line."""

import io
import json

import pytest
from confluent_kafka import Producer

from kctl.testing.kafka_broker import KafkaBroker

TIMEOUT_S = 120


@pytest.fixture
def user(kctl, address):
    """Run `kctl user ...`."""
    return lambda *arguments, **options: kctl("user", *arguments, "-b", address, **options)


def listed(user, *names):
    return {it["user"]: it for it in json.loads(user("list", *names, "-o", "json").out)}


def test_users_come_and_go(user, tmp_path):
    secret = tmp_path / "alice.txt"
    secret.write_text("alice's secret\n")
    created = user("create", "alice", "--password-file", str(secret), "-o", "json")
    assert json.loads(created.out)[0]["status"] == "password set"
    user("create", "bob", "--password-file", str(secret), "--mechanism", "scram-sha-512")
    found = listed(user)
    assert found["alice"]["SCRAM-SHA-256"] == 8192
    assert found["bob"]["SCRAM-SHA-256"] is None
    assert user("delete", "alice", "bob", "-n").status == 0
    assert {"alice", "bob"} <= set(listed(user))
    assert user("delete", "alice", "bob", "--yes").status == 0
    assert not {"alice", "bob"} & set(listed(user))


def test_a_user_that_exists_keeps_its_password(user, tmp_path):
    secret = tmp_path / "dora.txt"
    secret.write_text("dora's secret\n")
    words = ["create", "dora", "--password-file", str(secret)]
    assert user(*words, "--mechanism", "SCRAM-SHA-256").status == 0
    try:
        ran = user(*words, "--iterations", "4096")
        assert ran.status == 1
        assert "kctl user passwd" in ran.out + ran.err
        assert listed(user)["dora"] == {**listed(user)["dora"], "SCRAM-SHA-256": 8192}
        assert listed(user)["dora"]["SCRAM-SHA-512"] is None
        # Another mechanism changes nothing of the first.
        assert user(*words, "--mechanism", "SCRAM-SHA-512").status == 0
        assert listed(user)["dora"]["SCRAM-SHA-512"] == 8192
    finally:
        user("delete", "dora", "--yes")


def test_password_of_an_existing_user_changes(kctl, tmp_path):
    secret = tmp_path / "new.txt"
    secret.write_text("the new one\n")
    with KafkaBroker(topics=["t"], users={"admin": "x"}) as broker:
        login = [f"-X{key}={value}" for key, value in broker.client_config("admin").items()]
        where = [*login, "-b", broker.bootstrap_servers, "--password-file", str(secret)]
        assert kctl("user", "passwd", "admin", *where, "-n").status == 0
        ran = kctl("user", "passwd", "admin", *where)
        assert ran.status == 0, ran.err
        assert "the new one" not in ran.out + ran.err
        unknown = kctl("user", "passwd", "nobody", *where)
        assert unknown.status == 1
        assert "does not exist" in unknown.out + unknown.err
        config = broker.client_config("admin", mechanism="SCRAM-SHA-512")
        producer = Producer({**config, "sasl.password": "the new one"})
        producer.produce("t", b"x")
        assert producer.flush(TIMEOUT_S) == 0


def test_password_of_standard_input_logs_in(kctl, monkeypatch):
    with KafkaBroker(topics=["t"], users={"admin": "x"}) as broker:
        login = [f"-X{key}={value}" for key, value in broker.client_config("admin").items()]
        monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
        ran = kctl("user", "create", "carol", "--password-file", "-", *login,
                   "-b", broker.bootstrap_servers)  # fmt: skip
        assert ran.status == 0, ran.err
        config = broker.client_config("admin", mechanism="SCRAM-SHA-256")
        producer = Producer({**config, "sasl.username": "carol", "sasl.password": "from a pipe"})
        producer.produce("t", b"x")
        assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["create", "x"], "no terminal to ask"),
        (["create", "x", "--password-file", "/no/such/file"], "Cannot read"),
        (["create", "x", "--password-file", "/dev/null"], "must not be empty"),
        (["create", "x", "--mechanism", "GSSAPI"], "not a SCRAM mechanism"),
        (["create", "x", "--password-file", __file__, "--iterations", "1"], "4096 to 16384"),
    ],
)
def test_misuse_is_named(user, arguments, line, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ran = user(*arguments)
    assert (ran.status, line in ran.err) == (2, True), ran.err


def test_unknown_users_are_failures(user):
    ran = user("list", "nobody")
    assert (ran.status, "does not exist" in ran.out) == (1, True), ran.out
    assert user("delete", "nobody", "--yes").status == 1
