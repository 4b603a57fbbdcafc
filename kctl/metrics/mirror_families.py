"""The metrics of a mirror's worker: what it copied, what is left to copy, and what stopped.

Those of MirrorMaker 2 have the names that Strimzi's rules for the JMX exporter give them.
"""

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
LAG_BYTES = _gauge(
    "lag_bytes",
    "The lag in bytes: offsets after the position, by the mean size of the topic's copied records.",
)
LAG_SECONDS = _gauge(
    "lag_seconds",
    "Age of the oldest record that is not copied, at most; 0: all are. Without unknown ages.",
)
SINCE_COPY = _gauge("last_copy_age_seconds", "Seconds since a record of the topic was copied.")
STOPPED = gauge(
    "kctl_mirror_partition_stopped",
    "1 for each partition that is no longer copied, and why.",
    *("mirror", "topic", "target", "partition", "reason"),
)
TOPIC_ERRORS = gauge(
    "kctl_mirror_topic_errors", "Topics that are refused, or that could not be created.", "mirror"
)

TRANSACTIONS = counter(
    "kctl_mirror_transactions_total",
    "Transactions of the target that were committed, and given up after a failure.",
    *("mirror", "result"),
)
FAILURES = counter(
    "kctl_mirror_failures_total", "Turns that failed and were repeated from what is committed.",
    "mirror",
)  # fmt: skip

_MM2 = "kafka_connect_mirror_mirror"
_SOURCE_MBEAN = "kafka.connect.mirror:type=MirrorSourceConnector"


def _mm2(attribute: str, text: str) -> Family:
    name = f"{_MM2}sourceconnector_{attribute.replace('-', '_')}"
    return gauge(name, text, "target", "topic", "partition", jmx=f"{_SOURCE_MBEAN} {attribute}")


def _extremes(attribute: str, what: str) -> tuple[Family, Family, Family]:
    parts = (("min", "least"), ("max", "largest"), ("avg", "mean"))
    return tuple(  # type: ignore[return-value]
        _mm2(f"{attribute}-{part}", f"The {word} {what} of the last minute, in milliseconds.")
        for part, word in parts
    )


MM2_RECORD_COUNT = _mm2("record-count", "Records that this worker copied since it started.")
MM2_BYTE_COUNT = _mm2("byte-count", "Bytes of batches that this worker copied, as compressed.")
MM2_RECORD_RATE = _mm2("record-rate", "Records per second, in the last minute.")
MM2_BYTE_RATE = _mm2("byte-rate", "Bytes of batches per second, in the last minute.")
MM2_AGE = _mm2("record-age-ms", "Age of the last record when it was read, in milliseconds.")
MM2_LATENCY = _mm2(
    "replication-latency-ms", "Age of the last record when its copy was committed, in milliseconds."
)
MM2_AGES = _extremes("record-age-ms", "age of a record when it was read")
MM2_LATENCIES = _extremes("replication-latency-ms", "age of a record when its copy was committed")
MM2_CHECKPOINT = gauge(
    f"{_MM2}checkpointconnector_checkpoint_latency_ms",
    "From reading the offsets of groups until their last checkpoints were written, in milliseconds;"
    " the same for all partitions of a group.",
    *("source", "target", "group"),
    jmx="kafka.connect.mirror:type=MirrorCheckpointConnector checkpoint-latency-ms",
)

MIRROR = (
    RECORDS, BYTES, RAW_BATCHES, REBUILT_BATCHES, LOSSES, PARTITIONS, LAG, LAG_BYTES, LAG_SECONDS,
    SINCE_COPY, STOPPED, TOPIC_ERRORS, TRANSACTIONS, FAILURES, MM2_RECORD_COUNT, MM2_BYTE_COUNT,
    MM2_RECORD_RATE, MM2_BYTE_RATE, MM2_AGE, *MM2_AGES, MM2_LATENCY, *MM2_LATENCIES, MM2_CHECKPOINT,
)  # fmt: skip
