"""Parses the addresses of brokers in the form of Apache Kafka's clients: `host:port,host:port`."""

from kctl.counts import is_whole_number
from kctl.errors import UsageError

DEFAULT_PORT = 9092
_PORTS = range(1, 65536)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Return (host, port) of each item of `host[:port],...`. The default port is 9092; IPv6
    addresses are in brackets."""
    servers = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        address = item.split("://", 1)[-1]
        if address.startswith("["):
            host, _, rest = address[1:].partition("]")
            port = rest.removeprefix(":")
        else:
            host, _, port = address.partition(":")
        if not host or (port and not (is_whole_number(port) and int(port) in _PORTS)):
            raise UsageError(f"Not an address: {item}", hint="e.g. localhost:9092")
        servers.append((host, int(port or DEFAULT_PORT)))
    if not servers:
        raise UsageError("No bootstrap server given", hint="e.g. -b localhost:9092")
    return servers
