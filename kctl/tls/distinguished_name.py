"""Distinguished names as Java prints them, which is what principals are made of.

Java's X500Principal.getName() follows RFC 2253: the last RDN comes first, without blanks between.
Nine attributes have keywords; every other is its OID, and its value `#` and the hexadecimal DER.
The attributes of an RDN with several are joined by `+`, in the order of the certificate.

Java: sun.security.x509.X500Name, RDN, AVA
"""

from kctl.tls.der import Der, children, object_identifier, values

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# The string types of ASN.1. Java takes the bytes of all of them for UTF-8.
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_ESCAPED = ',=+<>#;"\\'


def java_name(name: bytes) -> str:
    """Return a Name in DER as Java prints it; raise CorruptDataError."""
    rdns = [
        "+".join(_attribute(attribute) for attribute in values(rdn.content))
        for rdn in children(name)
    ]
    return ",".join(reversed(rdns))


def _attribute(attribute: Der) -> str:
    kind, value = values(attribute.content)[:2]
    oid = object_identifier(kind.content)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """Return `text` with special characters and outer blanks escaped."""
    inner = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    trail = len(text) - lead - len(inner)
    escaped = "".join(f"\\{it}" if it in _ESCAPED else it for it in inner)
    return "\\ " * lead + escaped.replace("\0", "\\00") + "\\ " * trail
