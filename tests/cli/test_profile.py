"""kctl profile: the file that it edits, and the secrets that it never shows."""

import tomllib

import pytest

from kctl.cli.connect import ConnectOptions, resolve
from kctl.cli.profile import editing
from kctl.errors import UsageError

BY_HAND = """# My clusters.
default_profile = "dev"  # at home

[profiles.dev]
bootstrap_servers = ["localhost:9092"]

[profiles.prod]  # careful
bootstrap_servers = ["a:1", "b:2"]
[profiles.prod.properties]
"client.id" = "ops"

[other]
x = 1
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "xdg" / "kctl" / "config.toml"


@pytest.fixture
def environment(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}


def settings(name, environment, **more):
    return resolve(ConnectOptions(profile=name), {**environment, **more})


def test_a_profile_is_added_used_listed_shown_and_removed(kctl, path, environment):
    added = kctl(
        "profile", "add", "prod", "-b", "a:1,b:2", "--timeout", "7s", "--read-only",
        "--confirm", "by-name", "--expect-cluster", "X1", "-X", "client.id=ops",
    )  # fmt: skip

    assert added.status == 0, added.err
    assert path.stat().st_mode & 0o777 == 0o600
    found = settings("prod", environment)
    assert found.bootstrap_servers == [("a", 1), ("b", 2)]
    assert (found.timeout_ms, found.properties) == (7_000, {"client.id": "ops"})
    assert found.guard.is_read_only
    assert found.guard.asks_by_name
    assert found.guard.cluster_id == "X1"

    assert kctl("profile", "use", "prod").status == 0
    assert settings(None, environment).guard.profile == "prod"
    [row] = kctl("profile", "list", "-o", "json").documents
    assert row == {
        "profile": "prod", "default": True, "bootstrap_servers": "a:1,b:2", "read_only": True,
        "confirm": "by-name", "expect_cluster": "X1",
    }  # fmt: skip
    assert kctl("profile", "show", "prod", "-o", "json").documents["client.id"] == "ops"

    assert kctl("profile", "remove", "prod").status == 0
    assert tomllib.loads(path.read_text()) in ({}, {"profiles": {}})


def test_a_profile_of_that_name_is_replaced_only_on_request(kctl, environment):
    kctl("profile", "add", "dev", "-b", "a:1", "--read-only")

    assert kctl("profile", "add", "dev", "-b", "b:2").status == 2
    assert kctl("profile", "add", "dev", "-b", "b:2", "--replace").status == 0
    assert settings("dev", environment).bootstrap_servers == [("b", 2)]
    assert not settings("dev", environment).guard.is_read_only


def test_edits_leave_what_the_user_wrote():
    added = editing.with_profile(BY_HAND, "a.b", {"bootstrap_servers": ["c:3"], "read-only": True})
    removed = editing.without_profile(added, "prod")
    default = editing.with_default(removed, "a.b")

    assert BY_HAND.rstrip("\n") in added
    assert tomllib.loads(default) == {
        "default_profile": "a.b",
        "profiles": {
            "dev": {"bootstrap_servers": ["localhost:9092"]},
            "a.b": {"bootstrap_servers": ["c:3"], "read-only": True},
        },
        "other": {"x": 1},
    }
    assert default.splitlines()[1] == "# My clusters."


@pytest.mark.parametrize(
    "text",
    ['profiles = {dev = {timeout = "1s"}}\n', '[profiles]\ndev.timeout = "1s"\n'],
)
def test_a_form_that_cannot_be_edited_is_left_alone(text):
    with pytest.raises(UsageError, match="cannot edit"):
        editing.without_profile(text, "dev")


@pytest.mark.parametrize("form", ["file", "command", "env"])
def test_a_password_is_a_reference_that_is_read_on_connecting(
    kctl, tmp_path, environment, path, form
):
    (tmp_path / "password").write_text("s3cret\nmore\n")
    value = {
        "file": tmp_path / "password",
        "command": f"cat {tmp_path / 'password'}",
        "env": "MY_PASSWORD",
    }[form]
    kctl("profile", "add", "p", "-b", "a:1", f"--password-{form}", value)

    found = settings("p", environment, MY_PASSWORD="s3cret")

    assert found.properties == {"sasl.password": "s3cret"}
    assert "s3cret" not in path.read_text()
    assert "s3cret" not in kctl("profile", "show", "p").out


def test_a_secret_in_the_file_is_hidden_and_needs_a_private_file(kctl, path, environment):
    kctl("profile", "add", "p", "-b", "a:1", "-X", "sasl.password=s3cret")

    shown = kctl("profile", "show", "p", "-o", "json")
    assert shown.documents["sasl.password"] == "(hidden)"
    assert settings("p", environment).properties == {"sasl.password": "s3cret"}

    path.chmod(0o644)
    with pytest.raises(UsageError, match="open to other users") as caught:
        settings("p", environment)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value.hint).startswith("chmod 600")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--password-file", "/no/such/file", "Cannot read /no/such/file"),
        ("--password-command", "exit 3", "failed with status 3"),
        ("--password-command", "true", "returned no password"),
        ("--password-env", "NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error_of_one_line(kctl, option, value, message):
    kctl("profile", "add", "p", "-b", "127.0.0.1:1", option, value)

    ran = kctl("topic", "list", "-C", "p")

    assert ran.status == 2
    assert message in ran.err
