"""The certificates of a KafkaBroker with TLS; all brokers of a process have the same."""

from datetime import UTC, datetime
from functools import cache

from kctl.configs.sasl_settings import protocol_of
from kctl.errors import UsageError
from kctl.model import SecurityProtocol
from kctl.tls.development_ca import DevelopmentCertificates, development_certificates
from kctl.tls.settings import PEM

__all__ = ["certificates_for", "tls_settings"]


def certificates_for(security: str | None, *, has_users: bool) -> DevelopmentCertificates | None:
    """Return certificates if `security` names a protocol with TLS; UsageError."""
    if security is None:
        return None
    has_tls = security in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
    if security != protocol_of(has_users=has_users, has_tls=has_tls):
        known = ", ".join(SecurityProtocol)
        raise UsageError(
            f"security={security!r} {'with' if has_users else 'without'} users",
            hint=f"one of {known}; those with SASL need users={{...}}, the others have none",
        )
    return _certificates() if has_tls else None


def tls_settings(certificates: DevelopmentCertificates) -> dict[str, str]:
    """Return the `ssl.*` settings of a broker with `certificates`."""
    return {
        "ssl.keystore.type": PEM,
        "ssl.keystore.key": certificates.key,
        "ssl.keystore.certificate.chain": certificates.certificate,
        "ssl.truststore.type": PEM,
        "ssl.truststore.certificates": certificates.ca,
    }


@cache
def _certificates() -> DevelopmentCertificates:
    return development_certificates(datetime.now(UTC))
