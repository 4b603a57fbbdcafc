"""The certificates of `kctl serve --tls`, in the data directory, and what clients need of them."""

import os
from datetime import UTC, datetime
from pathlib import Path

CA_FILE = "ca.pem"
BROKER_FILE = "broker.pem"
_OWNER_ONLY = 0o600
_DIRECTORY_MODE = 0o700


def development_tls(data_dir: str) -> dict[str, str]:
    """Return the `ssl.*` settings of a broker, with certificates that are made once.

    They are in DATA_DIR/tls; only the owner can read the key. UsageError without cryptography.
    """
    # A local import: `kctl serve` without --tls does not need it.
    from kctl.tls.settings import PEM

    directory = Path(data_dir).absolute() / "tls"
    ca_file, broker_file = directory / CA_FILE, directory / BROKER_FILE
    if not (ca_file.exists() and broker_file.exists()):
        from kctl.tls.development_ca import development_certificates

        certificates = development_certificates(datetime.now(UTC))
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        _write(broker_file, certificates.key + certificates.certificate)
        _write(ca_file, certificates.ca)
    return {
        "ssl.keystore.type": PEM,
        "ssl.keystore.location": str(broker_file),
        "ssl.truststore.type": PEM,
        "ssl.truststore.location": str(ca_file),
    }


def client_lines(protocol: str, ca_file: str) -> list[str]:
    """Return one line of settings for each family of clients."""
    java = f"security.protocol={protocol} ssl.truststore.type=PEM ssl.truststore.location={ca_file}"
    return [
        f"Java:       {java}",
        f"librdkafka: security.protocol={protocol} ssl.ca.location={ca_file}",
        f'Python:     security_protocol="{protocol}", ssl_cafile="{ca_file}"',
    ]


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
    with os.fdopen(fd, "w") as file:
        file.write(text)
