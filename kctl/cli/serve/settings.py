"""The settings passed to `kctl serve`: flags and a properties file."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.cli.output import Output
from kctl.cli.text_files import read_text
from kctl.counts import is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.configs.broker_config import BrokerConfig
    from kctl.model import Endpoint

# Hosts of a listener at all addresses of this machine; clients cannot connect to them by name.
_WILDCARD_HOSTS = ("0.0.0.0", "[::]", "::")
_ADVERTISING = ("advertised.listeners", "advertised.host.name")


def advertised_instead(listeners: Sequence[str], given: Mapping[str, str]) -> str | None:
    """Return `advertised.listeners` for the values of --listener; None: as the broker decides.

    A listener at all addresses is advertised without a host, and so, as in Apache Kafka, with this
    machine's name.
    """
    if any(name in given for name in _ADVERTISING):
        return None
    items = [item.strip() for value in listeners for item in value.split(",")]
    advertised = [_without_wildcard(item) for item in items]
    return ",".join(advertised) if advertised != items else None


def _without_wildcard(listener: str) -> str:
    name, _, address = listener.partition("://")
    host, _, port = address.rpartition(":")
    return f"{name}://:{port}" if host in _WILDCARD_HOSTS else listener


def parse_address(text: str, example: str = "--zookeeper-port 2181") -> "Endpoint":
    """Parse `2181` or `0.0.0.0:2181`; raise UsageError with an `example`."""
    from kctl.model import Endpoint

    host, _, port = text.rpartition(":")
    if not is_whole_number(port, 65_535):
        raise UsageError(f"Not a port: {text}", hint=f"e.g. {example}")
    return Endpoint(host or "127.0.0.1", int(port))


def warn_of_settings(settings: "BrokerConfig", properties_file: str | None, output: Output) -> None:
    """Warn of given settings that are unknown or have no effect."""
    for name in settings.unknown:
        output.say(f"warning: {properties_file}: unknown setting {name}")
    idle = settings.idle()
    if idle:
        output.say(f"warning: settings without effect (docs/compatibility.md): {', '.join(idle)}")


def given_settings(flags: Mapping[str, str], properties_file: str | None) -> dict[str, str]:
    """Return the settings of the file and of `flags`, which take precedence."""
    from kctl.configs.broker_config import parse_properties

    given: dict[str, str] = {}
    if properties_file is not None:
        given.update(parse_properties(read_text(properties_file)))
    given.update(flags)
    return given
