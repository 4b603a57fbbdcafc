"""Resolves where and how to connect, from the options that all remote commands share.

The command line takes precedence over the environment, the environment over the profile, the
profile over the file of `--command-config`, and that file over localhost:9092. Keys are those of
Apache Kafka's clients.

A command with two clusters names each by options of its own. A variable or default profile names
only one cluster: for such an end, neither counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from kctl.cli.profile.guard import ClusterGuard, take_guard
from kctl.cli.profile.secrets import check_file_is_private, resolve_secrets
from kctl.cli.text_files import read_text
from kctl.cli.units import parse_duration_ms
from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"
DEFAULT_TIMEOUT_MS = 30_000
BOOTSTRAP_VARIABLE = "KCTL_BOOTSTRAP_SERVER"
# What it is easily mistaken for: -b takes several servers.
_MISSPELT_VARIABLE = "KCTL_BOOTSTRAP_SERVERS"
PROFILE_VARIABLE = "KCTL_PROFILE"
EXPECT_VARIABLE = "KCTL_EXPECT_CLUSTER"
# The end of a command with two clusters that is only read.
SOURCE = "source"
# What only SASL uses, and the protocols without it.
_CREDENTIALS = ("sasl.username", "sasl.password", "sasl.jaas.config")
_WITHOUT_SASL = ("PLAINTEXT", "SSL")
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The connection options of a command line, unparsed."""

    bootstrap_server: str | None = None
    # May contain secrets.
    properties: Sequence[str] = field(default=(), repr=False)
    profile: str | None = None
    command_config: str | None = None
    timeout: str | None = None
    expect_cluster: str | None = None
    # SOURCE or "target" if options of its own name this cluster beside another one.
    end: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """Where and how to connect."""

    bootstrap_servers: list[tuple[str, int]]
    timeout_ms: int
    # Client settings of Apache Kafka, without bootstrap.servers; they contain secrets.
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    # What the profile and --expect-cluster allow.
    guard: ClusterGuard = field(default_factory=ClusterGuard)


def resolve(options: ConnectOptions, environment: Mapping[str, str]) -> ConnectSettings:
    """Return the settings that the options, the environment, the profile and the file result in.

    Raise UsageError for a missing or malformed file or profile, for an invalid option, and for an
    end without brokers.
    """
    # A local import: it is needed for -X only.
    from kctl.configs.client_configs import check_client_config

    properties: dict[str, str] = {}
    if options.command_config:
        properties.update(_read_properties(options.command_config))
    variables = _variables_for(options.end, environment)
    name, profile = _read_profile(
        options.profile or variables.get(PROFILE_VARIABLE),
        environment,
        has_default=options.end is None,
    )
    guard = take_guard(profile, name, options.expect_cluster, variables.get(EXPECT_VARIABLE))
    properties.update(profile)
    if variables.get(BOOTSTRAP_VARIABLE):
        properties["bootstrap.servers"] = variables[BOOTSTRAP_VARIABLE]
    for pair in options.properties:
        key, value = parse_pair(pair, "-X")
        check_client_config(key, "-X")
        properties[key] = value
    if options.bootstrap_server is not None:
        # An empty value is kept and rejected: `-b "$UNSET" topic delete` must not use localhost.
        properties["bootstrap.servers"] = options.bootstrap_server
    if "bootstrap.servers" not in properties:
        _check_default_is_meant(options, environment)
    return settings_of(properties, guard, options.timeout)


def _variables_for(end: str | None, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment without the variables that do not count for `end`."""
    if end is None:
        return environment
    hidden = {BOOTSTRAP_VARIABLE, PROFILE_VARIABLE}
    if end == SOURCE:
        # Two clusters cannot have the same id: the one that changes is checked.
        hidden.add(EXPECT_VARIABLE)
    return {name: value for name, value in environment.items() if name not in hidden}


def _check_default_is_meant(options: ConnectOptions, environment: Mapping[str, str]) -> None:
    """Raise UsageError if localhost would be used where the user has named something else."""
    if options.end is not None:
        raise UsageError(
            f"Nothing names brokers of the {options.end} cluster",
            hint="set bootstrap.servers in its own file or profile, as variables and the default"
            " profile do not count for one of two clusters",
        )
    if environment.get(_MISSPELT_VARIABLE):
        raise UsageError(
            f"{_MISSPELT_VARIABLE} is not read, and nothing else names a broker",
            hint=f"set {BOOTSTRAP_VARIABLE}, which takes several servers, too",
        )


def settings_of(
    properties: Mapping[str, str], guard: ClusterGuard, given_timeout: str | None = None
) -> ConnectSettings:
    """Return the settings of a profile's `properties`, after the guard's are taken; raise
    UsageError."""
    properties = dict(properties)
    servers = properties.pop("bootstrap.servers", DEFAULT_BOOTSTRAP_SERVER)
    timeout = given_timeout or properties.get("timeout")
    properties.pop("timeout", None)
    timeout_ms = parse_duration_ms(timeout) if timeout else DEFAULT_TIMEOUT_MS
    if timeout_ms <= 0:
        raise UsageError("--timeout must be greater than 0", hint="e.g. --timeout 10s")
    return ConnectSettings(parse_servers(servers), timeout_ms, properties, guard)


def check_sasl_is_used(options: ConnectOptions, properties: Mapping[str, str]) -> None:
    """Raise UsageError if the command line has credentials that the protocol does not use: the
    broker would close the connection without an error."""
    given = next((it for it in options.properties if it.startswith(_CREDENTIALS)), None)
    protocol = properties.get("security.protocol", "PLAINTEXT")
    if given is not None and protocol.upper() in _WITHOUT_SASL:
        raise UsageError(
            f"-X {given.partition('=')[0].strip()} needs SASL, and security.protocol is {protocol}",
            hint="add -X security.protocol=SASL_SSL, or SASL_PLAINTEXT for a broker without TLS",
        )


def warnings_of(options: ConnectOptions) -> list[str]:
    """Return a line about each `-X` that has no effect, and about each unknown name in the file of
    --command-config, which Apache Kafka's tools accept with the same warning."""
    from kctl.configs.client_configs import is_client_config, without_effect

    names = dict.fromkeys(parse_pair(pair, "-X")[0] for pair in options.properties)
    notes = [f"note: -X {text}" for name in names if (text := without_effect(name)) is not None]
    if options.command_config is None:
        return notes
    in_file = _read_properties(options.command_config)
    return notes + [
        f"warning: {options.command_config}: The configuration '{name}' was supplied but isn't a"
        " known config."
        for name in in_file
        if name != "timeout" and not is_client_config(name)
    ]


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """Split `key=value`, a value of `option`; raise UsageError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{option} takes key=value, not {_without_value(text)!r}")
    return key.strip(), value


def _without_value(text: str) -> str:
    """Return the name at the beginning of `text`; what follows may be a secret."""
    name = text[: len(text) - len(text.lstrip(_NAME_CHARACTERS))]
    return text if name == text else f"{name}..."


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse several `key=value`; the last value of a key is used."""
    return dict(parse_pair(text, option) for text in texts)


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the profiles, config.toml in `$XDG_CONFIG_HOME/kctl` or ~/.config/kctl."""
    base = environment.get("XDG_CONFIG_HOME")
    directory = Path(base) if base else Path(environment.get("HOME", "~")).expanduser() / ".config"
    return directory / "kctl" / "config.toml"


def _read_properties(path: str) -> dict[str, str]:
    # A local import: it loads the table of all broker configs.
    from kctl.configs.broker_config import parse_properties

    return parse_properties(read_text(path))


def read_config(path: Path) -> dict[str, Any]:
    """Return the parsed file of profiles; raise UsageError if it cannot be read or parsed."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _read_profile(
    name: str | None, environment: Mapping[str, str], *, has_default: bool
) -> tuple[str | None, dict[str, str]]:
    """Return the name of the profile in use and its settings; (None, {}) without a profile."""
    if name is None and not has_default:
        return None, {}
    path = config_file(environment)
    document = read_config(path) if path.exists() else {}
    profiles = document.get("profiles", {})
    name = name or document.get("default_profile")
    if name is None:
        return None, {}
    if not isinstance(profiles, dict) or not isinstance(profiles.get(name), dict):
        known = ", ".join(sorted(profiles)) if isinstance(profiles, dict) else ""
        raise UsageError(
            f"No profile {name} in {path}",
            hint=f"known profiles: {known}" if known else f"kctl profile add {name} -b HOST:PORT",
        )
    settings = flatten_profile(profiles[name])
    check_file_is_private(path, settings)
    return name, resolve_secrets(settings, environment)


def flatten_profile(profile: Mapping[str, object]) -> dict[str, str]:
    """Return a profile with Kafka's spelling of its keys: joins nested keys with dots."""
    flat: dict[str, str] = {}
    for given, value in profile.items():
        is_bootstrap = given in ("bootstrap_server", "bootstrap_servers", "bootstrap-server")
        key = "bootstrap.servers" if is_bootstrap else given
        if isinstance(value, dict):
            prefix = "" if key == "properties" else f"{key}."
            flat.update({prefix + inner: text for inner, text in flatten_profile(value).items()})
        elif isinstance(value, list):
            flat[key] = ",".join(map(str, value))
        elif isinstance(value, bool):
            flat[key] = str(value).lower()
        else:
            flat[key] = str(value)
    return flat
