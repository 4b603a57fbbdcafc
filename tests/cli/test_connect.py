"""Connection settings: sources and their precedence."""

import pytest

from kctl.cli.connect import SOURCE, ConnectOptions, resolve
from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UsageError


@pytest.fixture
def environment(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def write_config(tmp_path):
    def write(text):
        (tmp_path / "kctl").mkdir(exist_ok=True)
        (tmp_path / "kctl" / "config.toml").write_text(text)

    return write


PROFILES = """
[profiles.prod]
bootstrap_servers = ["a:1", "b:2"]
timeout = "7s"
client.id = "ops"
[profiles.prod.properties]
"security.protocol" = "PLAINTEXT"
"""


def test_the_default_is_localhost(environment):
    settings = resolve(ConnectOptions(), environment)

    assert settings.bootstrap_servers == [("localhost", 9092)]
    assert settings.timeout_ms == 30_000


def test_a_profile_names_servers_and_settings(environment, write_config):
    write_config(PROFILES)

    settings = resolve(ConnectOptions(profile="prod"), environment)

    assert settings.bootstrap_servers == [("a", 1), ("b", 2)]
    assert settings.timeout_ms == 7_000
    assert settings.properties == {"client.id": "ops", "security.protocol": "PLAINTEXT"}


def test_a_default_profile_needs_no_option(environment, write_config):
    write_config('default_profile = "prod"\n' + PROFILES)

    assert resolve(ConnectOptions(), environment).bootstrap_servers[0] == ("a", 1)


def test_command_line_then_environment_then_profile_then_file(environment, write_config, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=from-file\n")
    options = {"command_config": str(file)}

    def server(**more):
        settings = resolve(ConnectOptions(**options, **more), environment)
        return settings.bootstrap_servers[0][0]

    assert server() == "file"
    write_config(PROFILES)
    assert server(profile="prod") == "a"
    environment["KCTL_BOOTSTRAP_SERVER"] = "variable:1"
    assert server(profile="prod") == "variable"
    assert server(properties=["bootstrap.servers=x:1"]) == "x"
    assert server(properties=["bootstrap.servers=x:1"], bootstrap_server="option:1") == "option"


def test_a_misspelt_variable_does_not_mean_localhost(environment):
    environment["KCTL_BOOTSTRAP_SERVERS"] = "broker:1"
    with pytest.raises(UsageError, match="KCTL_BOOTSTRAP_SERVERS is not read") as caught:
        resolve(ConnectOptions(), environment)
    assert "set KCTL_BOOTSTRAP_SERVER," in caught.value.hint
    settings = resolve(ConnectOptions(bootstrap_server="option:1"), environment)
    assert settings.bootstrap_servers == [("option", 1)]


@pytest.mark.parametrize("end", [SOURCE, "target"])
def test_what_names_one_cluster_is_neither_of_two(environment, write_config, tmp_path, end):
    """Else both would be the same cluster, and one's credentials would go to the other."""
    write_config('default_profile = "prod"\n' + PROFILES + '[profiles.west]\ntimeout = "3s"\n')
    environment |= {"KCTL_BOOTSTRAP_SERVER": "variable:1", "KCTL_PROFILE": "prod"}
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=from-file\n")
    in_file = {"command_config": str(file), "end": end}

    settings = resolve(ConnectOptions(**in_file), environment)
    assert settings.bootstrap_servers == [("file", 1)]
    assert settings.properties == {"client.id": "from-file"}
    assert settings.timeout_ms == 30_000
    settings = resolve(ConnectOptions(**in_file, bootstrap_server="option:1"), environment)
    assert settings.bootstrap_servers == [("option", 1)]
    assert settings.properties == {"client.id": "from-file"}
    settings = resolve(ConnectOptions(**in_file, profile="prod"), environment)
    assert settings.bootstrap_servers == [("a", 1), ("b", 2)]
    assert settings.properties["client.id"] == "ops"
    with pytest.raises(UsageError, match=f"Nothing names brokers of the {end} cluster"):
        resolve(ConnectOptions(profile="west", end=end), environment)


def test_of_two_clusters_the_expected_one_is_the_target(environment, write_config):
    """A profile that names a source keeps its own expectation."""
    write_config(PROFILES.replace('timeout = "7s"', 'expect-cluster = "of-prod"'))
    environment["KCTL_EXPECT_CLUSTER"] = "of-variable"

    def expected(**options):
        return resolve(ConnectOptions(**options), environment).guard.cluster_id

    assert expected(bootstrap_server="a:1", end="target") == "of-variable"
    assert expected(bootstrap_server="a:1", end=SOURCE) is None
    assert expected(profile="prod", end=SOURCE) == "of-prod"


def test_an_unknown_profile_lists_the_known_ones(environment, write_config):
    write_config(PROFILES)

    with pytest.raises(UsageError, match="No profile test") as caught:
        resolve(ConnectOptions(profile="test"), environment)
    assert caught.value.hint == "known profiles: prod"


@pytest.mark.parametrize("text", ["profiles = 3\n[", "[profiles]\nprod = 3"])
def test_a_malformed_config_file_is_invalid_usage(environment, write_config, text):
    write_config(text)

    with pytest.raises(UsageError):
        resolve(ConnectOptions(profile="prod"), environment)


def test_a_missing_properties_file_is_invalid_usage(environment, tmp_path):
    with pytest.raises(UsageError, match="Cannot read"):
        resolve(ConnectOptions(command_config=str(tmp_path / "none")), environment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", [("host", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_addresses_are_parsed(text, expected):
    assert parse_servers(text) == expected


@pytest.mark.parametrize("text", ["", ",", "host:port", "host:0", "host:65536", ":9092"])
def test_invalid_addresses_are_rejected(text):
    with pytest.raises(UsageError):
        parse_servers(text)


@pytest.mark.parametrize(
    "option", [{"properties": ["novalue"]}, {"timeout": "0s"}, {"bootstrap_server": ""}]
)
def test_malformed_options_are_invalid_usage(environment, option):
    with pytest.raises(UsageError):
        resolve(ConnectOptions(**option), environment)


def test_an_unknown_protocol_is_rejected_rather_than_ignored(kctl):
    ran = kctl("topic", "list", "-X", "security.protocol=SSH")

    assert ran.status == 2
    assert "security.protocol=SSH is not supported" in ran.err


def test_settings_without_an_effect_are_reported(on):
    ran = on("topic", "list", "-X", "fetch.max.bytes=5", "-X", "acks=all", "-X", "client.id=me")

    assert ran.status == 0
    assert ran.err.splitlines() == [
        "note: -X fetch.max.bytes has no effect in kctl",
        "note: -X acks has no effect in kctl; the option is --acks",
    ]


def test_credentials_without_a_protocol_that_uses_them_are_refused_at_once(kctl):
    # The address of nothing: no connection is tried.
    for protocol in ([], ["-X", "security.protocol=SSL"]):
        ran = kctl("topic", "list", "-b", "127.0.0.1:1", "-X", "sasl.username=alice", *protocol)

        assert ran.status == 2
        assert "-X sasl.username needs SASL" in ran.err
        assert "alice" not in ran.err
        assert "security.protocol=SASL_SSL" in ran.err


def test_unknown_names_in_the_file_of_command_config_are_reported(on, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("client.id=me\nclient.idd=secret\nlinger.ms=5\nssl.new.thing=1\n")
    ran = on("topic", "list", "--command-config", path)

    assert ran.status == 0
    assert ran.err.splitlines() == [
        f"warning: {path}: The configuration 'client.idd' was supplied but isn't a known config."
    ]
