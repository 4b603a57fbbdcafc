"""TLS failures: why a handshake or a connection failed, and what its user can do.

The causes are OpenSSL's codes and reasons, never its texts.
"""

import ssl

from kctl.errors import AuthenticationError, KctlError, UnreachableError
from kctl.runtime.network import TlsError

_NAME_HINT = (
    "connect to a name of the certificate, or leave ssl.endpoint.identification.algorithm empty"
)
_TRUST_HINT = (
    "set ssl.truststore.location (ssl.ca.location) to a file with the CA of that certificate"
)
# X509_V_ERR_... -> what is wrong with the peer's certificate, and what to do.
_CERTIFICATE_CAUSES = {
    9: ("is not valid yet", "check the clocks of both machines"),
    10: ("has expired", "the certificate must be renewed"),
    18: ("is self-signed, and not trusted", _TRUST_HINT),
    19: ("is signed by a CA that is not trusted", _TRUST_HINT),
    20: ("is signed by a CA that is not trusted", _TRUST_HINT),
    21: ("is signed by a CA that is not trusted", _TRUST_HINT),
    26: ("is not meant for this use (extendedKeyUsage)", None),
    62: ("is for another host name", _NAME_HINT),
    64: ("is for another IP address", _NAME_HINT),
}
# What the peer reports about this side's certificate.
_ALERTS = {
    "ALERT_BAD_CERTIFICATE": "the peer rejects this side's certificate",
    "ALERT_CERTIFICATE_EXPIRED": "the peer says that this side's certificate has expired",
    "ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate",
    "ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept this side's certificate",
    "ALERT_UNKNOWN_CA": "the peer does not trust the CA of this side's certificate",
    "ALERT_UNSUPPORTED_CERTIFICATE": "the peer does not support this side's certificate",
}
_NOT_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"}
)
_KEY_STORE_HINT = "set ssl.keystore.location to a certificate that it trusts"


def server_error(error: Exception | None, is_handshake: bool) -> Exception:
    """Return the error of a broker whose connection to a client failed."""
    if error is None:
        return TlsError("the client closed the connection during the TLS handshake")
    if isinstance(error, ssl.SSLError) or is_handshake:
        return TlsError(f"TLS failed: {_cause(error)[0]}")
    return error


def is_not_tls(error: Exception) -> bool:
    """Return whether the peer's bytes are not TLS."""
    return isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS


def client_error(name: str, error: Exception | None, is_handshake: bool) -> KctlError:
    """Return the error of a client whose connection to the broker `name` failed."""
    if error is None or not isinstance(error, ssl.SSLError):
        why = "closed by the peer" if error is None else getattr(error, "strerror", None) or error
        if not is_handshake:
            return UnreachableError(f"lost the connection to {name}: {why}")
        return UnreachableError(
            f"lost the connection to {name} during the TLS handshake: {why}",
            hint="does the listener speak TLS? Otherwise set security.protocol to PLAINTEXT or"
            " SASL_PLAINTEXT",
        )
    if is_not_tls(error):
        return UnreachableError(
            f"{name} does not speak TLS",
            hint="set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
        )
    reason, hint, is_certificate = _cause(error)
    kind = AuthenticationError if is_certificate else UnreachableError
    return kind(f"TLS with {name} failed: {reason}", hint=hint)


def _cause(error: Exception) -> tuple[str, str | None, bool]:
    """Return the reason, a hint, and whether a certificate is the reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        what, hint = _CERTIFICATE_CAUSES.get(
            error.verify_code, (f"is invalid: {error.verify_message}", None)
        )
        return f"the peer's certificate {what}", hint, True
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "the peer sent no certificate, which is required", None, True
        for alert, text in _ALERTS.items():
            if reason.endswith(alert):
                return text, _KEY_STORE_HINT, True
        if is_not_tls(error):
            return "the peer does not speak TLS", None, False
        return reason.replace("_", " ").lower(), None, False
    return getattr(error, "strerror", None) or str(error), None, False
