"""kctl profile login: a password is tried, and its profile keeps no more than a reference."""

import logging
import sys
import tomllib
from types import ModuleType, SimpleNamespace

import pytest

from kctl.cli.connect import ConnectOptions, resolve
from kctl.testing.kafka_broker import KafkaBroker

PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def secured():
    """A broker that alice can log in to, by PLAIN and SCRAM."""
    with KafkaBroker(users={"alice": PASSWORD}) as broker:
        yield broker


class FakeKeyring(ModuleType):
    """The functions of the library `keyring` that kctl uses."""

    def __init__(self, priority=5):
        super().__init__("keyring")
        error = type("KeyringError", (Exception,), {})
        kinds = {"KeyringError": error, "NoKeyringError": type("NoKeyringError", (error,), {})}
        self.errors = SimpleNamespace(**kinds)
        self.entries = {}
        self._priority = priority
        self.is_locked = False

    def get_keyring(self):
        return SimpleNamespace(priority=self._priority)

    def _check(self):
        if self.is_locked:
            raise self.errors.KeyringError(f"cannot store {PASSWORD}")
        if not self._priority:
            raise self.errors.NoKeyringError("none")

    def get_password(self, service, user):
        self._check()
        return self.entries.get((service, user))

    def set_password(self, service, user, password):
        self._check()
        self.entries[service, user] = password

    def delete_password(self, service, user):
        self._check()
        del self.entries[service, user]


@pytest.fixture
def keyring(monkeypatch):
    """A keyring in memory."""
    made = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", made)
    return made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "xdg" / "kctl" / "config.toml"


@pytest.fixture
def login(kctl, secured, tmp_path, monkeypatch):
    """Log in with a profile `prod` that has a user but no password."""
    added = kctl(
        "profile", "add", "prod", "-b", secured.bootstrap_servers, "--timeout", "60s",
        "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256",
        "-X", "sasl.username=alice",
    )  # fmt: skip
    assert added.status == 0, added.err

    def run(*words, typed=PASSWORD, profile="prod"):
        (tmp_path / "typed").write_text(f"{typed}\n")
        with monkeypatch.context() as patch, (tmp_path / "typed").open() as stdin:
            patch.setattr(sys, "stdin", stdin)
            return kctl("profile", "login", profile, *words)

    return run


def resolved(tmp_path, name="prod"):
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    return resolve(ConnectOptions(profile=name), environment)


def test_a_password_goes_to_the_keyring_and_commands_find_it(kctl, login, keyring, path):
    ran = login("--password-file", "-")

    assert ran.status == 0, ran.err
    assert keyring.entries == {("kctl", "prod"): PASSWORD}
    assert "password-keyring = kctl/prod" in ran.err
    assert PASSWORD not in path.read_text() + ran.err + ran.out
    profile = tomllib.loads(path.read_text())["profiles"]["prod"]
    assert profile["password-keyring"] == "kctl/prod"
    assert kctl("topic", "list", "-C", "prod").status == 0

    assert kctl("profile", "remove", "prod").status == 0
    assert keyring.entries == {}


def test_the_terminal_asks_without_echo(kctl, login, keyring, monkeypatch):
    asked = []
    monkeypatch.setattr("kctl.cli.passwords.getpass", lambda it: asked.append(it) or PASSWORD)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))

    assert kctl("profile", "login", "prod").status == 0

    assert asked == ["Password of alice: "]
    assert keyring.entries[("kctl", "prod")] == PASSWORD


def test_a_password_goes_to_a_private_file_on_request(kctl, login, tmp_path, path):
    file = tmp_path / "prod.password"

    ran = login("--password-file", "-", "--save-in", file)

    assert ran.status == 0, ran.err
    assert file.read_text() == f"{PASSWORD}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    assert kctl("topic", "list", "-C", "prod").status == 0
    # The profile's own file may be replaced, any other not.
    assert login("--password-file", "-", "--save-in", file).status == 0
    (tmp_path / "other").write_text("precious")
    refused = login("--password-file", "-", "--save-in", tmp_path / "other")
    assert (refused.status, (tmp_path / "other").read_text()) == (2, "precious")


@pytest.mark.parametrize("form", ["file", "command", "env", "keyring"])
def test_a_reference_is_tried_and_stored_as_it_is(
    kctl, login, keyring, tmp_path, path, monkeypatch, form
):
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("MY_PASSWORD", PASSWORD)
    keyring.entries["kafka", "alice"] = PASSWORD
    value = {
        "file": tmp_path / "password",
        "command": f"cat {tmp_path / 'password'}",
        "env": "MY_PASSWORD",
        "keyring": "kafka/alice",
    }[form]

    ran = login(f"--password-{form}", value)

    assert ran.status == 0, ran.err
    profile = tomllib.loads(path.read_text())["profiles"]["prod"]
    assert profile[f"password-{form}"] == str(value)
    assert list(keyring.entries) == [("kafka", "alice")]
    # Another login replaces the reference.
    assert login("--password-file", "-").status == 0
    profile = tomllib.loads(path.read_text())["profiles"]["prod"]
    assert [key for key in profile if "password" in key] == ["password-keyring"]


def test_a_rejected_password_changes_nothing(login, keyring, path):
    before = path.read_text()

    ran = login("--password-file", "-", typed="wrong-secret")

    assert ran.status == 1
    assert "alice" in ran.err
    assert "wrong-secret" not in ran.err + ran.out
    assert (path.read_text(), keyring.entries) == (before, {})


def test_a_password_in_plain_text_is_taken_out_of_the_profile(kctl, login, keyring, path, tmp_path):
    path.write_text(
        "# mine\n" + path.read_text() + "\n[profiles.prod.properties] # more\n"
        '"client.id" = "me"\n"sasl.password" = "old-secret"  # the old one\n[other]\nx = 1\n'
    )

    ran = login("--password-file", "-", "--username", "alice")

    assert ran.status == 0, ran.err
    text = path.read_text()
    assert "old-secret" not in text
    assert text.startswith("# mine\n")
    assert '"client.id" = "me"' in text
    assert tomllib.loads(text)["other"] == {"x": 1}
    found = resolved(tmp_path).properties
    assert (found["sasl.password"], found["client.id"]) == (PASSWORD, "me")
    assert "-secret" not in repr(resolved(tmp_path))
    assert PASSWORD not in repr(resolved(tmp_path))


def test_without_the_package_the_error_names_it_and_the_alternatives(login, path, monkeypatch):
    # None in sys.modules makes an import fail.
    monkeypatch.setitem(sys.modules, "keyring", None)

    ran = login("--password-file", "-")

    assert ran.status == 2
    assert "needs the package keyring" in ran.err
    assert "pip install 'kctl-kafka[keyring]'" in ran.err
    assert "password-keyring" not in path.read_text()


def test_a_machine_without_a_keyring_is_found_before_the_password_is_asked_for(login, monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", FakeKeyring(priority=0))

    ran = login()

    assert (ran.status, "no keyring that kctl can use" in ran.err) == (2, True)


def test_a_keyring_that_fails_shows_no_secret_and_leaves_the_profile(login, keyring, path, caplog):
    keyring.is_locked = True
    before = path.read_text()

    with caplog.at_level(logging.DEBUG):
        ran = login("--password-file", "-")

    assert ran.status == 2
    assert "The keyring failed: KeyringError" in ran.err
    assert PASSWORD not in ran.err + ran.out + caplog.text
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("settings", "words", "message"),
    [
        ((), (), "has no login"),
        (("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN"), (), "has no user name"),
        (("security.protocol=SASL_SSL", "sasl.username=u"), (), "sasl.mechanism=(none)"),
        (
            ("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER"),
            ("--username", "u"),
            "takes no password",
        ),
        (
            ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.jaas.config=x required;"),
            ("--username", "u"),
            "logs in by sasl.jaas.config",
        ),
        (
            ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN"),
            ("--username", "u", "--password-command", "true", "--save-in", "f"),
            "not a reference",
        ),
        (
            ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN"),
            ("--username", "u", "--password-keyring", "nothing"),
            "SERVICE/USER",
        ),
    ],
)
def test_profiles_that_cannot_log_in_by_password_are_refused(
    kctl, keyring, settings, words, message
):
    properties = [word for it in settings for word in ("-X", it)]
    kctl("profile", "add", "p", "-b", "127.0.0.1:1", *properties)

    ran = kctl("profile", "login", "p", *words)

    assert ran.status == 2, ran.err
    assert message in ran.err
    assert keyring.entries == {}


def test_the_library_keeps_what_kctl_stores():
    keyring = pytest.importorskip("keyring")
    backend = pytest.importorskip("keyring.backend")
    from kctl.runtime.real import os_keyring

    class InMemory(backend.KeyringBackend):
        priority = 1

        def __init__(self):
            super().__init__()
            self.entries = {}

        def get_password(self, service, username):
            return self.entries.get((service, username))

        def set_password(self, service, username, password):
            self.entries[service, username] = password

        def delete_password(self, service, username):
            del self.entries[service, username]

    former = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    try:
        os_keyring.check_keyring()
        os_keyring.store_secret("kctl", "p", PASSWORD)
        assert os_keyring.read_secret("kctl", "p") == PASSWORD
        os_keyring.delete_secret("kctl", "p")
        with pytest.raises(Exception, match="has no password kctl/p"):
            os_keyring.read_secret("kctl", "p")
    finally:
        keyring.set_keyring(former)
