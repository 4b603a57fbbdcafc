"""T32: secrets that stand out, in every place where kctl takes one, and a search for them in all
that it prints, logs, stores and shows of its objects."""

import json
import os
from contextlib import contextmanager

import pytest

from kctl.cli.connect import ConnectOptions, resolve
from kctl.client.security import ClientSecurity
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.broker_configs import BrokerSettings
from kctl.configs.config_key import ConfigType
from kctl.errors import UsageError
from kctl.export.spark.brokers import Connection
from kctl.export.spark.options import SourceOptions
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.secured_brokers import USERS, SaslKctl, jaas

MARK = "planted"
PASSWORDS = [key.name for key in BrokerSettings.KEYS.values() if key.type is ConfigType.PASSWORD]
LISTENER = "listener.name.sasl_plaintext."


def planted(place):
    """A secret that is found nowhere else; it needs no quotes."""
    return f"{MARK}-{place}-9Zq4"


def check(text, *, but=()):
    """Fail if `text` has a planted secret; `but` are those that are meant to be there."""
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    for meant in but:
        text = text.replace(meant, "")
    found = text.find(MARK)
    assert found < 0, f"a secret is shown: ...{text[max(found - 200, 0) : found + 60]}..."


@pytest.fixture(scope="module")
def users():
    """The users of the brokers have planted passwords."""
    before = dict(USERS)
    USERS.update(admin=planted("plain-admin"), alice=planted("plain-alice"))
    yield
    USERS.update(before)


@pytest.fixture(scope="module")
def broker(tmp_path_factory, users):
    settings = {
        "delegation.token.master.key": planted("master-key"),
        "password.encoder.secret": planted("encoder"),
        "ssl.key.password": planted("key-password"),
        "sasl.jaas.config": jaas("PLAIN", "admin", planted("global-jaas")),
    }
    broker = SaslKctl(tmp_path_factory.mktemp("broker"))
    broker._settings = {**broker._settings, **settings}
    with broker:
        yield broker


def login(mechanism, user, password, **options):
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    more = "".join(f" {name}={value}" for name, value in options.items())
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{kind}LoginModule required"
        f' username="{user}" password="{password}"{more};',
    }


def as_options(properties):
    return [part for name, value in properties.items() for part in ("-X", f"{name}={value}")]


@contextmanager
def private_profile(tmp_path, text):
    path = tmp_path / "xdg" / "kctl" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    yield path
    path.unlink()


def test_commands_show_no_secret(kctl, broker, tmp_path, monkeypatch):
    where = ["-b", broker.address]
    right = login("PLAIN", "admin", planted("plain-admin"))
    wrong = login("PLAIN", "admin", planted("wrong"))
    scram = login("SCRAM-SHA-256", "alice", planted("scram-alice"))
    passwords = tmp_path / "password.txt"
    passwords.write_text(planted("scram-alice") + "\n")
    passwords.chmod(0o600)
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in right.items()))
    lines = []

    def run(*argv, but=(), status=0):
        ran = kctl(*argv)
        assert ran.status == status, ran.err
        check(ran.out, but=but)
        check(ran.err)
        lines.append(ran.out)
        return ran

    for debug in ("0", "1"):
        monkeypatch.setenv("KCTL_DEBUG", debug)
        run("topic", "list", *where, *as_options(right))
        run("topic", "list", *where, "--command-config", properties)
        run("topic", "list", *where, *as_options(wrong), status=1)
        # Mistakes around a secret: what was typed is not repeated.
        run("topic", "list", *where, "-X", f"sasl.password:{planted('colon')}", status=2)
        run("topic", "list", *where, *as_options(right | {"sasl.mechanism": "NO"}), status=2)
        unfinished = {"sasl.jaas.config": f'X required password="{planted("unfinished")}'}
        run("topic", "list", *where, *as_options(right | unfinished), status=2)
        pem = {"security.protocol": "SSL", "ssl.keystore.type": "PEM"}
        pem |= {"ssl.keystore.key": planted("pem"), "ssl.keystore.certificate.chain": "none"}
        pem |= {"ssl.key.password": planted("pem-password")}
        assert kctl("topic", "list", *where, *as_options(pem)).status
    admin = ["--command-config", str(properties)]
    run("user", "create", "alice", "--password-file", passwords, *where, *admin)
    run("topic", "list", *where, *as_options(scram))
    monkeypatch.setenv("PLANTED", planted("plain-admin"))
    profile = """
        [profiles.it]
        bootstrap_server = "%s"
        [profiles.it.properties]
        "security.protocol" = "SASL_PLAINTEXT"
        "sasl.mechanism" = "PLAIN"
        "sasl.username" = "admin"
        "%s" = "%s"
        "%s" = "%s"
    """
    forms = {"password-env": "PLANTED", "sasl.password": planted("plain-admin")}
    keys = {key: planted(key) for key in ("ssl.keystore.key", "ssl.key.pem")}
    for login_, key in zip(forms.items(), keys.items(), strict=True):
        with private_profile(tmp_path, profile % (broker.address, *login_, *key)):
            run("topic", "list", "-C", "it")
            run("profile", "show", "it")
            run("profile", "list", "-o", "json")
            settings = resolve(ConnectOptions(profile="it"), os.environ)
            check(repr(settings))
    run("user", "list", *where, *admin)
    run("--help-json")


def test_settings_are_not_repeated_when_they_change(kctl, broker, tmp_path):
    """What was typed is on the terminal anyway, but output is often kept."""
    login_ = as_options(login("PLAIN", "admin", planted("plain-admin")))

    def run(*argv):
        ran = kctl(*argv, "-b", broker.address, *login_)
        assert ran.status == 0, ran.err
        check(ran.out + ran.err)
        return ran

    (found,) = json.loads(run("broker", "describe", "-o", "json").out)
    broker_id = str(found["broker"])
    password = f"{LISTENER}ssl.key.password={planted('altered')}"
    assert "(hidden)" in run("config", "alter", "broker", broker_id, "-c", password).out
    run("config", "describe", "broker", broker_id, "--all")
    wanted = tmp_path / "wanted.yaml"
    setting = f"{LISTENER}ssl.keystore.password: {planted('applied')}"
    wanted.write_text(f'brokers: {{"{broker_id}": {{{setting}}}}}')
    assert "(hidden)" in run("apply", wanted, "-n").out


def test_tokens_are_shown_once(kctl, broker):
    admin = ["-b", broker.address, *as_options(login("PLAIN", "admin", planted("plain-admin")))]
    created = kctl("token", "create", *admin, "-o", "json")
    assert created.status == 0, created.err
    (row,) = json.loads(created.out)
    secret = row["secret"]
    as_token = login("SCRAM-SHA-512", row["token"], secret, tokenauth="true")
    for arguments in (("token", "list"), ("token", "list", "-o", "json"), ("topic", "list")):
        ran = kctl(*arguments, "-b", broker.address, *as_options(as_token)[:], "--timeout", "10s")
        assert secret not in ran.out + ran.err
    assert secret not in repr(ClientSecurity.of(as_token))
    assert secret not in broker.errors
    assert secret.encode() not in stored(broker)


def stored(broker):
    """Every byte below the data directory: logs, znodes and their journal."""
    files = (broker.directory / "data").rglob("*")
    return b"".join(path.read_bytes() for path in files if path.is_file())


def test_neither_the_log_nor_the_store_has_a_password(broker):
    """After the commands above; what authenticates a SCRAM user is derived from his password."""
    check((broker.directory / "stderr.log").read_bytes())
    check(stored(broker))


def test_settings_of_a_broker_are_hidden():
    """Each setting that is a password, for the broker and for one listener."""
    assert len(PASSWORDS) > 10
    given = {
        f"{prefix}{name}": planted(name)
        for name in PASSWORDS
        for prefix in ("", LISTENER, f"{LISTENER}plain.")
        if not name.startswith("sasl.jaas")
    }
    users = {"admin": planted("jaas"), "bob": planted("jaas-bob")}
    given[f"{LISTENER}plain.sasl.jaas.config"] = jaas("PLAIN", "admin", planted("own"), **users)
    base = {"listeners": "SASL_PLAINTEXT://localhost:9092", "sasl.enabled.mechanisms": "PLAIN"}
    base |= {"sasl.mechanism.inter.broker.protocol": "PLAIN", "broker.id": "1"}
    base |= {"security.inter.broker.protocol": "SASL_PLAINTEXT"}
    config = BrokerConfig({**base, **given})
    for shown in (config, config.sasl_listeners, config.inter_broker_login, config.tls_listeners):
        check(repr(shown))
        check(str(shown))


def client_settings():
    password = login("PLAIN", "alice", planted("client"))
    yield password
    yield login("SCRAM-SHA-512", "alice", planted("client"), tokenauth="true")
    yield {
        "security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "alice", "sasl.password": planted("rdkafka"),
        "ssl.key.pem": planted("pem"), "ssl.certificate.pem": "chain",
        "ssl.key.password": planted("key"),
    }  # fmt: skip
    yield {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://localhost/token",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        f' required clientId="c" clientSecret="{planted("client-secret")}";',
    }  # fmt: skip
    yield {
        "security.protocol": "SSL", "ssl.keystore.location": "/k.jks",
        "ssl.keystore.password": planted("store"), "ssl.truststore.location": "/t.jks",
        "ssl.truststore.password": planted("trust"), "ssl.key.password": planted("key"),
    }  # fmt: skip


@pytest.mark.parametrize("settings", list(client_settings()))
def test_objects_of_clients_show_no_secret(settings):
    security = ClientSecurity.of(settings)
    for shown in (security, security.login, security.tls):
        check(repr(shown))
        check(str(shown))
    pairs = tuple(f"{name}={value}" for name, value in settings.items())
    options = ConnectOptions(properties=pairs)
    check(repr(options))
    check(repr(resolve(options, {})))
    check(repr(Connection((("localhost", 9092),), 1_000, tuple(settings.items()))))
    spark = {f"kafka.{name}": value for name, value in settings.items()}
    spark |= {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    check(repr(SourceOptions(spark)))


def test_the_test_broker_shows_no_password(users):
    broker = KafkaBroker(users={"alice": planted("plugin")})
    check(repr(broker))
    with broker:
        with pytest.raises(UsageError) as refused:
            broker.client_config("mallory")
        check(str(refused.value))
        check("\n".join(map(str, broker.log_lines)))
