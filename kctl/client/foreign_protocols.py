"""Recognizes, by the first bytes received, a port that does not speak Kafka's protocol."""

# How a server of another protocol answers a Kafka request: its first bytes -> its protocol.
_FIRST_BYTES = (
    (b"HTTP", "HTTP"),
    (b"<htm", "HTTP"),
    (b"<!DO", "HTTP"),
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
    (b"SSH-", "SSH"),
    (b"-ERR", "the protocol of Redis"),
    (b"220 ", "SMTP or FTP"),
)
_HINTS = {
    "HTTP": "use the port of a Kafka listener: this one is of a REST proxy, a schema registry or a "
    "console",
    "TLS": "the listener speaks TLS: set security.protocol to SSL or SASL_SSL",
}


def foreign_protocol(first_bytes: bytes) -> str | None:
    """Return the protocol of a server that answered with `first_bytes`, or None if unknown."""
    return next((name for start, name in _FIRST_BYTES if first_bytes.startswith(start)), None)


def foreign_request(first_bytes: bytes, listener_name: str, protocol: str) -> str | None:
    """Return why a listener that speaks `protocol` cannot serve a client that sent `first_bytes`,
    or None if those are of no other protocol."""
    found = foreign_protocol(first_bytes)
    if found is None:
        return None
    return f"the client speaks {found}, and listener {listener_name} speaks {protocol}"


def hint_for(protocol: str) -> str:
    """Return how the user can proceed with a port that speaks `protocol`."""
    return _HINTS.get(protocol, "use the port of a Kafka listener")
