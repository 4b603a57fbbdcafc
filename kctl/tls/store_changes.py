"""check_replacement: whether a running listener may replace its stores by others. Pure.

A listener keeps its identity: clients that verified it once must go on to do so, and no change may
turn verification by a trust store into verification by the system's CAs, or the reverse.

Kafka 2.7: org.apache.kafka.common.security.ssl.SslFactory (`CertificateEntries`); KIP-226
"""

from kctl.errors import UsageError
from kctl.tls.certificate import Certificate
from kctl.tls.stores import LoadedStores


def check_replacement(old: LoadedStores, new: LoadedStores) -> None:
    """Raise UsageError if `new` may not replace `old` while a listener runs."""
    if len(new.entries) != len(old.entries):
        raise UsageError(
            f"Keystore entries do not match, existing store contains {len(old.entries)} entries,"
            f" new store contains {len(new.entries)} entries"
        )
    for before, after in zip(old.entries, new.entries, strict=True):
        _check_certificate(before, after)
    if old.trusted is None and new.trusted is not None:
        raise UsageError(
            "Cannot add SSL truststore to an existing listener for which no truststore was"
            " configured."
        )
    if old.trusted is not None and new.trusted is None:
        raise UsageError(
            "Cannot remove the SSL truststore from an existing listener for which a truststore was"
            " configured."
        )


def _check_certificate(before: Certificate, after: Certificate) -> None:
    if after.subject != before.subject:
        raise UsageError(
            f"Keystore DistinguishedName does not match: existing={before.subject},"
            f" new={after.subject}"
        )
    if not after.names >= before.names:
        raise UsageError(
            "Keystore SubjectAltNames do not match: the new certificate lacks"
            f" {len(before.names - after.names)} of the {len(before.names)} of the existing one"
        )
