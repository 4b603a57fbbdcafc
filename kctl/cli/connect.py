"""Where to connect and how: the options every remote command shares, made into one value.

What the command line says wins over the environment, that over the profile, that over the file of
`--command-config`, that over localhost:9092. Keys are those of Apache Kafka's clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kctl.cli.text_files import read_text
from kctl.cli.units import parse_duration_ms
from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UsageError

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"
DEFAULT_TIMEOUT_MS = 30_000
BOOTSTRAP_VARIABLE = "KCTL_BOOTSTRAP_SERVER"
PROFILE_VARIABLE = "KCTL_PROFILE"


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The words of the command line, not yet understood."""

    bootstrap_server: str | None = None
    properties: Sequence[str] = ()
    profile: str | None = None
    command_config: str | None = None
    timeout: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """What they mean together."""

    bootstrap_servers: list[tuple[str, int]]
    timeout_ms: int
    # Apache's client settings, but for bootstrap.servers.
    properties: dict[str, str] = field(default_factory=dict)


def resolve(options: ConnectOptions, environment: Mapping[str, str]) -> ConnectSettings:
    """Read the profile and the properties file and put everything together.

    UsageError for a file that is not there, a profile that is not in it, nonsense in either.
    """
    properties: dict[str, str] = {}
    if options.command_config:
        properties.update(_read_properties(options.command_config))
    profile = _read_profile(options.profile or environment.get(PROFILE_VARIABLE), environment)
    properties.update(profile)
    if environment.get(BOOTSTRAP_VARIABLE):
        properties["bootstrap.servers"] = environment[BOOTSTRAP_VARIABLE]
    for pair in options.properties:
        key, value = parse_pair(pair, "-X")
        properties[key] = value
    if options.bootstrap_server is not None:
        # An empty one too, to be refused: `-b "$UNSET" topic delete` must not mean localhost.
        properties["bootstrap.servers"] = options.bootstrap_server
    servers = properties.pop("bootstrap.servers", DEFAULT_BOOTSTRAP_SERVER)
    timeout = options.timeout or properties.pop("timeout", None)
    properties.pop("timeout", None)
    timeout_ms = parse_duration_ms(timeout) if timeout else DEFAULT_TIMEOUT_MS
    if timeout_ms <= 0:
        raise UsageError("--timeout must be more than nothing", hint="e.g. --timeout 10s")
    return ConnectSettings(parse_servers(servers), timeout_ms, properties)


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """`key=value` of a repeated option."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{option} takes key=value, not {text!r}")
    return key.strip(), value


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Several `key=value`; a later one wins."""
    return dict(parse_pair(text, option) for text in texts)


def config_file(environment: Mapping[str, str]) -> Path:
    """Where profiles are kept: `$XDG_CONFIG_HOME/kctl/config.toml`, by default in ~/.config."""
    base = environment.get("XDG_CONFIG_HOME")
    directory = Path(base) if base else Path(environment.get("HOME", "~")).expanduser() / ".config"
    return directory / "kctl" / "config.toml"


def _read_properties(path: str) -> dict[str, str]:
    # Only here: it brings the broker's whole table of settings.
    from kctl.broker.config import parse_properties

    return parse_properties(read_text(path))


def read_config(path: Path) -> dict[str, Any]:
    """The file of profiles; UsageError if it cannot be understood."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _read_profile(name: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    path = config_file(environment)
    document = read_config(path) if path.exists() else {}
    profiles = document.get("profiles", {})
    name = name or document.get("default_profile")
    if name is None:
        return {}
    if not isinstance(profiles, dict) or not isinstance(profiles.get(name), dict):
        known = ", ".join(sorted(profiles)) if isinstance(profiles, dict) else ""
        raise UsageError(
            f"No profile {name} in {path}",
            hint=f"there are: {known}" if known else f"add a table [profiles.{name}] to it",
        )
    return _flatten(profiles[name])


def _flatten(profile: Mapping[str, object]) -> dict[str, str]:
    """A profile's keys as Kafka spells them: `bootstrap_servers` and nested tables too."""
    flat: dict[str, str] = {}
    for given, value in profile.items():
        is_bootstrap = given in ("bootstrap_server", "bootstrap_servers", "bootstrap-server")
        key = "bootstrap.servers" if is_bootstrap else given
        if isinstance(value, dict):
            prefix = "" if key == "properties" else f"{key}."
            flat.update({prefix + inner: text for inner, text in _flatten(value).items()})
        elif isinstance(value, list):
            flat[key] = ",".join(map(str, value))
        elif isinstance(value, bool):
            flat[key] = str(value).lower()
        else:
            flat[key] = str(value)
    return flat
