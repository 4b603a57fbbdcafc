"""The metrics of a cluster's topics and groups, under kafka_exporter's names.

`kctl metrics serve` has them for any cluster; a broker with --metrics-port has those of the
partitions that it leads and of the groups that it coordinates.
"""

from kctl.metrics.family import Family, counter, gauge, histogram


def _topic(name: str, text: str, *labels: str) -> Family:
    return gauge(f"kafka_topic_{name}", text, "topic", *labels)


def _partition(name: str, text: str) -> Family:
    return _topic(f"partition_{name}", text, "partition")


def _group(name: str, text: str, *labels: str) -> Family:
    return gauge(f"kafka_consumergroup_{name}", text, "consumergroup", *labels)


BROKERS = gauge("kafka_brokers", "Brokers of the cluster.")
BROKER_INFO = gauge("kafka_broker_info", "1 for each broker.", "id", "address")
TOPIC_PARTITIONS = _topic("partitions", "Partitions of the topic.")
CURRENT_OFFSET = _partition("current_offset", "The offset after the last committed record.")
OLDEST_OFFSET = _partition("oldest_offset", "The offset of the first record.")
LEADER = _partition("leader", "Id of the leader; -1: none.")
REPLICAS = _partition("replicas", "Replicas of the partition.")
IN_SYNC_REPLICAS = _partition("in_sync_replica", "Replicas that are in sync.")
IS_PREFERRED = _partition("leader_is_preferred", "1 if the preferred replica leads.")
UNDER_REPLICATED = _partition("under_replicated_partition", "1 if a replica is not in sync.")

GROUP_OFFSET = _group("current_offset", "The committed offset.", "topic", "partition")
GROUP_OFFSET_SUM = _group("current_offset_sum", "The sum of a topic's committed offsets.", "topic")
GROUP_LAG = _group(
    "lag",
    "Records after the committed offset; -1: nothing is committed, or no end is known.",
    "topic",
    "partition",
)
GROUP_LAG_SUM = _group("lag_sum", "The sum of a topic's lags.", "topic")
GROUP_MEMBERS = _group("members", "Members of the group.")

LOG_DIR_BYTES = gauge(
    "kctl_log_dir_size_bytes", "Bytes of all replicas in a log directory.", "broker", "log_dir"
)
TOPIC_BYTES = gauge("kctl_topic_size_bytes", "Bytes of all replicas of a topic.", "topic")
COLLECTED_AGO = gauge(
    "kctl_collector_age_seconds", "Seconds since the figures of this kind were collected.", "kind"
)
COLLECT_SECONDS = gauge(
    "kctl_collector_seconds", "Duration of the last collection of this kind.", "kind"
)
COLLECT_ERRORS = gauge(
    "kctl_collector_errors", "Brokers, topics or groups without figures in the last round.", "kind"
)

# Of `--probe-topic`.
PROBE_SENT = counter("kctl_probe_sent_total", "Records that a probe has sent.", "partition")
PROBE_FAILURES = counter(
    "kctl_probe_failures_total",
    "Records of a probe that were not acknowledged (produce), or acknowledged and not read back "
    "within 10 s (consume).",
    "partition", "direction",
)  # fmt: skip
PROBE_PRODUCE = histogram(
    "kctl_probe_produce_seconds",
    "Seconds from sending a record to its acknowledgement by all replicas in sync.",
    "partition",
)
PROBE_END_TO_END = histogram(
    "kctl_probe_end_to_end_seconds", "Seconds from sending a record to reading it.", "partition"
)
PROBE = (PROBE_SENT, PROBE_FAILURES, PROBE_PRODUCE, PROBE_END_TO_END)

TOPIC_FAMILIES = (
    TOPIC_PARTITIONS, CURRENT_OFFSET, OLDEST_OFFSET, LEADER, REPLICAS, IN_SYNC_REPLICAS,
    IS_PREFERRED, UNDER_REPLICATED,
)  # fmt: skip
GROUP_FAMILIES = (GROUP_OFFSET, GROUP_OFFSET_SUM, GROUP_LAG, GROUP_LAG_SUM, GROUP_MEMBERS)
COLLECTOR = (COLLECTED_AGO, COLLECT_SECONDS, COLLECT_ERRORS)
CLUSTER = (
    BROKERS, BROKER_INFO, *TOPIC_FAMILIES, *GROUP_FAMILIES, LOG_DIR_BYTES, TOPIC_BYTES, *COLLECTOR,
    *PROBE,
)  # fmt: skip
