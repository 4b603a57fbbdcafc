"""The metrics of a mirror's worker: what it copied, what is left to copy, and what stopped."""

from kctl.metrics.family import Family, counter, gauge

_TOPIC = ("mirror", "topic", "target")


def _counter(name: str, text: str) -> Family:
    return counter(f"kctl_mirror_{name}_total", text, *_TOPIC)


def _gauge(name: str, text: str) -> Family:
    return gauge(f"kctl_mirror_{name}", text, *_TOPIC)


RECORDS = _counter("records", "Records that this worker copied since it started.")
BYTES = _counter("bytes", "Bytes of batches that this worker copied since it started.")
RAW_BATCHES = _counter("raw_batches", "Batches that were copied as they are.")
REBUILT_BATCHES = _counter("rebuilt_batches", "Batches that were decoded and built again.")
LOSSES = _counter("losses", "Losses at the source, passed over on request or not.")
PARTITIONS = _gauge("partitions", "Partitions that this worker has copied from.")
LAG = _gauge("lag_records", "Offsets of the source after the position; without unknown ends.")
SINCE_COPY = _gauge("last_copy_age_seconds", "Seconds since a record of the topic was copied.")
STOPPED = gauge(
    "kctl_mirror_partition_stopped",
    "1 for each partition that is no longer copied, and why.",
    *("mirror", "topic", "target", "partition", "reason"),
)
TOPIC_ERRORS = gauge(
    "kctl_mirror_topic_errors", "Topics that are refused, or that could not be created.", "mirror"
)

MIRROR = (
    RECORDS, BYTES, RAW_BATCHES, REBUILT_BATCHES, LOSSES, PARTITIONS, LAG, SINCE_COPY, STOPPED,
    TOPIC_ERRORS,
)  # fmt: skip
