"""TransactionSettings: what of the broker's configuration the transaction coordinator's core needs.

Kafka 2.7: kafka.coordinator.transaction.TransactionConfig.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Bounds and intervals; the defaults are Kafka's."""

    # The longest timeout that a producer may ask for.
    timeout_max_ms: int = 15 * 60 * 1000
    # How long a transactional id is remembered after its last transaction.
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    # How often transactions that hang, and ids that are no longer used, are looked for.
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 60 * 60 * 1000
