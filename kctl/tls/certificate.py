"""Certificate: the parts of an X.509 certificate that kctl looks at; RFC 5280."""

from datetime import UTC, datetime

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.tls.der import Der, children, object_identifier, octets, values
from kctl.tls.distinguished_name import java_name

_VERSION_TAG, _EXTENSIONS_TAG = 0xA0, 0xA3
_UTC_TIME = 0x17
_SUBJECT_ALTERNATIVE_NAMES = "2.5.29.17"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate's facts."""

    # As Java prints it by RFC 2253.
    subject: str
    not_before: datetime
    not_after: datetime
    # The subject alternative names, each in DER.
    names: frozenset[bytes]

    @classmethod
    def of(cls, der: bytes) -> "Certificate":
        """Parse a certificate; raise CorruptDataError."""
        try:
            fields = values(children(der)[0].content)
            if fields[0].tag == _VERSION_TAG:
                del fields[0]
            # serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo, ...
            not_before, not_after = (_time(it) for it in values(fields[3].content)[:2])
            return cls(java_name(fields[4].encoded), not_before, not_after, _names(fields[6:]))
        except (IndexError, ValueError) as error:
            raise CorruptDataError(f"not an X.509 certificate: {error}") from None


def _time(value: Der) -> datetime:
    text = value.content.decode("ascii").removesuffix("Z")
    if value.tag == _UTC_TIME:
        # Two digits of the year: 1950 to 2049.
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _names(fields: list[Der]) -> frozenset[bytes]:
    for field in fields:
        if field.tag != _EXTENSIONS_TAG:
            continue
        for extension in children(field.content):
            parts = values(extension.content)
            if object_identifier(parts[0].content) == _SUBJECT_ALTERNATIVE_NAMES:
                return frozenset(name.encoded for name in children(octets(parts[-1])))
    return frozenset()
