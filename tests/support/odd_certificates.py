"""Certificates that are not right, each in one way, beside those that are (T13)."""

import datetime
import ipaddress
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD = "secret"
DAY = datetime.timedelta(days=1)
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class Authority:
    """A CA; `issue` signs."""

    def __init__(self, name: str, parent: "Authority | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        signer = parent or self
        self.certificate = (
            _builder(self.name, self.key, signer.name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self, common_name, *, names=(), addresses=(), usage=None, begins=-1, ends=30
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Return a key and its certificate; `begins` and `ends` are days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name), key, self.name, begins, ends)
        alternatives = [x509.DNSName(it) for it in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(it)) for it in addresses]
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return key, builder.sign(self.key, hashes.SHA256())


def self_signed(common_name, *, names=()):
    """Return a key and a certificate that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = _builder(name, key, name)
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(it) for it in names])
        builder = builder.add_extension(alternatives, critical=False)
    return key, builder.sign(key, hashes.SHA256())


def write_pem(path: Path, key, *chain) -> str:
    """Write a key and its chain as PEM; return the path."""
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    data += b"".join(it.public_bytes(Encoding.PEM) for it in chain)
    path.write_bytes(data)
    return str(path)


def write_pkcs12(path: Path, key, certificate, *others) -> str:
    """Write a key and its chain as PKCS12 with PASSWORD; return the path."""
    encryption = BestAvailableEncryption(PASSWORD.encode())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"kafka", key, certificate, others, encryption)
    )
    return str(path)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject, key, issuer, begins=-1, ends=30) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + ends * DAY)
    )
