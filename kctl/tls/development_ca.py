"""Development certificates: a CA and a broker's certificate, for tests and `kctl serve --tls`.

Keys are ECDSA on P-256. The CA's own key is not kept: it signs one certificate.
"""

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from kctl.errors import missing_extra
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from cryptography import x509

VALID_DAYS = 3_650
HOSTS = ("localhost", "127.0.0.1", "::1")
# Clocks of containers may be behind.
_BACKDATED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class DevelopmentCertificates:
    """A CA's certificate, and a broker's key and certificate, in PEM."""

    ca: str
    key: str = field(repr=False)
    certificate: str


def development_certificates(
    now: datetime, hosts: Sequence[str] = HOSTS
) -> DevelopmentCertificates:
    """Return new certificates for a broker at `hosts`; UsageError without cryptography."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise missing_extra(
            "Certificates are made with the library cryptography", "security"
        ) from None
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = _name("kctl development CA")

    def builder(
        name: "x509.Name", public_key: ec.EllipticCurvePublicKey
    ) -> "x509.CertificateBuilder":
        return (
            x509.CertificateBuilder(ca_name, name, public_key, x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + timedelta(days=VALID_DAYS))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )

    ca = (
        builder(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    leaf = (
        builder(_name(hosts[0]), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(it) for it in hosts]), critical=False)
    )
    pem = serialization.Encoding.PEM
    return DevelopmentCertificates(
        ca.sign(ca_key, hashes.SHA256()).public_bytes(pem).decode(),
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem).decode(),
    )


def _name(text: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host(text: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
