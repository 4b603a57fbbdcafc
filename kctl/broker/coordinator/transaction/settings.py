"""TransactionSettings: the broker configs that the transaction coordinator's core uses.

Kafka 2.7: kafka.coordinator.transaction.TransactionConfig.
"""

from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits and intervals; the defaults are Kafka's."""

    # The longest timeout that a producer may request.
    timeout_max_ms: int = 15 * 60 * 1000
    # How long a transactional id is kept after its last transaction.
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    # How often hanging transactions, and unused ids, are searched for.
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 60 * 60 * 1000
