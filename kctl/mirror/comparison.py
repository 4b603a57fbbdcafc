"""Comparison: what `kctl mirror verify` compares of a partition."""

from enum import StrEnum


class Comparison(StrEnum):
    """What is compared of a partition."""

    # Last values where the topic is compacted on a side, otherwise records.
    AUTO = "auto"
    # Every record, and the order.
    RECORDS = "records"
    # The last record of each key.
    LAST_VALUES = "last-values"
