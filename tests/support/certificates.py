"""Certificates for tests: a CA by trustme, and the files that its certificates are in."""

from pathlib import Path

import pytest

trustme = pytest.importorskip("trustme")


class TestCertificates:
    """A CA, and certificates for a broker at localhost and for clients, as PEM files."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.ca_file = str(directory / "ca.pem")
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.broker_file = self.issue("broker", "localhost", "127.0.0.1")
        self.client_file = self.issue("client", "client@example.com", common_name="alice")

    def issue(self, name: str, *identities: str, **options) -> str:
        """Write a key and its certificates, signed by the CA, into a file; return its path."""
        path = self.directory / f"{name}.pem"
        leaf = self.ca.issue_cert(*identities, **options)
        leaf.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    def broker_settings(self, **changes: str) -> dict[str, str]:
        """Return the ssl.* settings of a listener."""
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.broker_file} | changes

    def client_settings(self, *, certificate: bool = False) -> dict[str, str]:
        """Return the ssl.* settings of a client, with a certificate of its own if wanted."""
        settings = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file}
        if certificate:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.client_file}
        return settings
