"""The metrics of a broker: those of Kafka's MBeans under Strimzi's names, and kctl's own.

`BROKER` lists them in the order in which they are served. `PER_PARTITION` are those with a series
for each partition.
"""

from kctl.metrics.family import Family, counter, gauge, histogram, summary

_REPLICAS = "kafka.server:type=ReplicaManager,name="
_PARTITION = "kafka.cluster:type=Partition,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_TOPICS = "kafka.server:type=BrokerTopicMetrics,name="
_REQUESTS = "kafka.network:type=RequestMetrics,name="
_SOCKETS = "kafka.server:type=socket-server-metrics"
_LOG = "kafka.log:type=Log,name="
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
_SESSIONS = "kafka.server:type=FetchSessionCache,name="


def _replicas(name: str, text: str) -> Family:
    return gauge(f"kafka_server_replicamanager_{name.lower()}", text, jmx=_REPLICAS + name)


def _replicas_total(name: str, text: str) -> Family:
    return counter(
        f"kafka_server_replicamanager_{name.lower()}_total", text, jmx=f"{_REPLICAS}{name}PerSec"
    )


def _partition(name: str, text: str) -> Family:
    return gauge(
        f"kafka_cluster_partition_{name.lower()}", text, "topic", "partition", jmx=_PARTITION + name
    )


def _controller(name: str, text: str) -> Family:
    return gauge(f"kafka_controller_kafkacontroller_{name.lower()}", text, jmx=_CONTROLLER + name)


def _topic(name: str, text: str) -> Family:
    return counter(
        f"kafka_server_brokertopicmetrics_{name.lower()}_total",
        f"{text}; without a topic: of all topics.",
        "topic",
        jmx=f"{_TOPICS}{name}PerSec",
    )


def _sockets(name: str, text: str, *labels: str) -> Family:
    make = counter if name.endswith("total") else gauge
    return make(
        f"kafka_server_socket_server_metrics_{name.replace('-', '_')}",
        text,
        *labels,
        jmx=f"{_SOCKETS}[{name}]",
    )


def _time(name: str, text: str) -> Family:
    return summary(
        f"kafka_network_requestmetrics_{name.lower()}timems",
        text,
        "request",
        jmx=f"{_REQUESTS}{name}TimeMs",
    )


def _log(name: str, text: str) -> Family:
    return gauge(f"kafka_log_log_{name.lower()}", text, "topic", "partition", jmx=_LOG + name)


# Replicas on this broker.
PARTITION_COUNT = _replicas("PartitionCount", "Replicas on this broker.")
LEADER_COUNT = _replicas("LeaderCount", "Partitions that this broker leads.")
UNDER_REPLICATED = _replicas(
    "UnderReplicatedPartitions", "Partitions led here with fewer in-sync replicas than replicas."
)
UNDER_MIN_ISR = _replicas(
    "UnderMinIsrPartitionCount",
    "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
)
AT_MIN_ISR = _replicas(
    "AtMinIsrPartitionCount",
    "Partitions led here with just as many in-sync replicas as min.insync.replicas.",
)
OFFLINE_REPLICAS = _replicas("OfflineReplicaCount", "Replicas here in a failed log directory.")
ISR_SHRINKS = _replicas_total("IsrShrinks", "Times that a replica left the ISR of a partition.")
ISR_EXPANDS = _replicas_total("IsrExpands", "Times that a replica joined the ISR of a partition.")

# The controller: 0 on all brokers but the active one.
ACTIVE_CONTROLLER = _controller("ActiveControllerCount", "1 on the active controller, else 0.")
OFFLINE_PARTITIONS = _controller("OfflinePartitionsCount", "Partitions without a live leader.")
PREFERRED_IMBALANCE = _controller(
    "PreferredReplicaImbalanceCount", "Partitions that their preferred replica does not lead."
)
GLOBAL_TOPICS = _controller("GlobalTopicCount", "Topics of the cluster.")
GLOBAL_PARTITIONS = _controller("GlobalPartitionCount", "Partitions of the cluster.")
TOPICS_TO_DELETE = _controller("TopicsToDeleteCount", "Topics whose deletion is not complete.")
UNCLEAN_ELECTIONS = counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Leaders elected from outside the ISR: records may be lost.",
    jmx="kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)

# Topics, as this broker serves them.
MESSAGES_IN = _topic("MessagesIn", "Records appended for clients")
BYTES_IN = _topic("BytesIn", "Bytes of records appended for clients")
BYTES_OUT = _topic("BytesOut", "Bytes of records sent to consumers")
BYTES_REJECTED = _topic("BytesRejected", "Bytes of records rejected because they are too large")
REPLICATION_IN = _topic("ReplicationBytesIn", "Bytes of records received from leaders")
REPLICATION_OUT = _topic("ReplicationBytesOut", "Bytes of records sent to followers")
PRODUCE_REQUESTS = _topic("TotalProduceRequests", "Partitions in Produce requests")
FETCH_REQUESTS = _topic("TotalFetchRequests", "Partitions in Fetch requests")
FAILED_PRODUCE = _topic("FailedProduceRequests", "Partitions of Produce requests that failed")
FAILED_FETCH = _topic("FailedFetchRequests", "Partitions of Fetch requests that failed")

# Requests.
REQUESTS = counter(
    "kafka_network_requestmetrics_requests_total", "Requests answered.", "request", "version",
    jmx=f"{_REQUESTS}RequestsPerSec",
)  # fmt: skip
ERRORS = counter(
    "kafka_network_requestmetrics_errors_total",
    "Error codes in responses, one for each element that has one; NONE: no error.",
    "request", "error",
    jmx=f"{_REQUESTS}ErrorsPerSec",
)  # fmt: skip
TOTAL_TIME = _time(
    "Total",
    "Milliseconds from a whole request to the end of its response; quantiles of the last minute or "
    "two. Fetch is also counted as FetchConsumer or FetchFollower.",
)
REQUEST_QUEUE_TIME = _time(
    "RequestQueue", "Milliseconds that requests waited for their handler, which decoding includes."
)
LOCAL_TIME = _time("Local", "Milliseconds that handlers ran.")
REMOTE_TIME = _time(
    "Remote", "Milliseconds that requests waited: for replicas, records, a deadline or their turn."
)
THROTTLE_TIME = _time("Throttle", "Milliseconds that a quota made the client pause.")
RESPONSE_QUEUE_TIME = _time(
    "ResponseQueue", "Milliseconds between a response and its first byte, to encode it."
)
RESPONSE_SEND_TIME = _time(
    "ResponseSend", "Milliseconds until the last byte of a response was passed to the system."
)
NETWORK_IDLE = gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of time (0 to 1) in which the event loop waits; kctl has one thread for all.",
    jmx="kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
HANDLER_IDLE = gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same share: the event loop handles requests, too.",
    jmx="kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
CONNECTIONS = _sockets("connection-count", "Open connections.", "listener", "networkProcessor")
CONNECTIONS_MADE = _sockets(
    "connection-creation-total", "Connections accepted.", "listener", "networkProcessor"
)
_LISTENER = ("listener", "networkProcessor")
AUTHENTICATIONS = _sockets("successful-authentication-total", "Logins that succeeded.", *_LISTENER)
FAILED_AUTHENTICATIONS = _sockets("failed-authentication-total", "Logins that failed.", *_LISTENER)
REAUTHENTICATIONS = _sockets(
    "successful-reauthentication-total", "Renewed logins (KIP-368).", *_LISTENER
)
FAILED_REAUTHENTICATIONS = _sockets(
    "failed-reauthentication-total", "Renewals of logins that failed (KIP-368).", *_LISTENER
)
TLS_HANDSHAKES = counter(
    "kctl_tls_handshakes_total",
    "TLS handshakes that were completed.",
    "listener", "protocol", "cipher",
)  # fmt: skip

# Quotas: the clients of one bucket, which have a user, a client id, or both.
QUOTA_LABELS = ("user", "client_id")


def _quota(kind: str, name: str, text: str) -> Family:
    return gauge(
        f"kafka_server_{kind.lower()}_{name.replace('-', '_')}",
        text,
        *QUOTA_LABELS,
        jmx=f"kafka.server:type={kind},user=,client-id=[{name}]",
    )


PRODUCE_RATE = _quota("Produce", "byte-rate", "Bytes a second of clients with a produce quota.")
FETCH_RATE = _quota("Fetch", "byte-rate", "Bytes a second of clients with a consume quota.")
REQUEST_TIME = _quota(
    "Request",
    "request-time",
    "Percent of the thread's time that requests of clients with a request quota take.",
)
MUTATION_TOKENS = _quota(
    "ControllerMutation",
    "tokens",
    "Partitions that clients may create or delete at once; negative: they wait.",
)
THROTTLE_TIMES = {
    kind: _quota(kind, "throttle-time", "Milliseconds of an average pause of the last minute.")
    for kind in ("Produce", "Fetch", "Request", "ControllerMutation")
}
QUOTA_LIMIT = gauge(
    "kctl_quota_limit", "The quota of clients that have used it.", "quota", *QUOTA_LABELS
)
QUOTA_THROTTLED = counter(
    "kctl_quota_throttled_total", "Times that a quota paused a client.", "quota", *QUOTA_LABELS
)
QUOTA_PAUSED = gauge(
    "kctl_quota_paused_seconds", "How long clients are still paused.", "quota", *QUOTA_LABELS
)
QUOTA_SERIES_OMITTED = gauge(
    "kctl_metrics_quotas_omitted",
    "Clients with a quota left out of this text, because there are too many; "
    "/metrics?quotas=1 has them.",
)
BROKER_ID = gauge("kctl_broker_id", "The broker's id.")

# Logs and disks.
LOG_FLUSHES = summary(
    "kafka_log_logflushstats_logflushrateandtimems",
    "Milliseconds of each fsync of a log; quantiles of the last minute or two.",
    jmx="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
OFFLINE_DIRECTORIES = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "Log directories that have failed.",
    jmx="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
DIRECTORY_OFFLINE = gauge(
    "kafka_log_logmanager_logdirectoryoffline",
    "1 for a log directory that has failed, else 0.",
    "logDirectory",
    jmx="kafka.log:type=LogManager,name=LogDirectoryOffline",
)
DISK_READ = gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "Bytes that this process read from disks (Linux).",
    jmx="kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
)
DISK_WRITE = gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "Bytes that this process wrote to disks (Linux).",
    jmx="kafka.server:type=KafkaServer,name=linux-disk-write-bytes",
)

_CLEANER = "kafka.log:type=LogCleaner,name="
_CLEANER_MANAGER = "kafka.log:type=LogCleanerManager,name="
CLEANER_RECOPY = gauge(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "Bytes that the last cleaning of a log wrote, in percent of those that it read.",
    jmx=f"{_CLEANER}cleaner-recopy-percent",
)
CLEANER_TIME = gauge(
    "kafka_log_logcleaner_max_clean_time_secs",
    "Seconds that the last cleaning of a log took.",
    jmx=f"{_CLEANER}max-clean-time-secs",
)
CLEANER_BUFFER = gauge(
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "Percent of log.cleaner.dedupe.buffer.size that the keys of the last cleaning took.",
    jmx=f"{_CLEANER}max-buffer-utilization-percent",
)
CLEANER_OVERDUE = gauge(
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "Seconds by which the oldest uncleaned batch is older than max.compaction.lag.ms, as the "
    "cleaner last looked; 0: none is.",
    jmx=f"{_CLEANER}max-compaction-delay-secs",
)
CLEANER_DEAD = gauge(
    "kafka_log_logcleaner_deadthreadcount",
    "1 if the cleaner has ended while the broker runs: a bug.",
    jmx=f"{_CLEANER}DeadThreadCount",
)
CLEANER_DIRTY = gauge(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "The dirty share of the dirtiest compacted log, in percent, as the cleaner last looked.",
    jmx=f"{_CLEANER_MANAGER}max-dirty-percent",
)
CLEANER_LOOKED = gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "Milliseconds since the cleaner last looked for a log to clean.",
    jmx=f"{_CLEANER_MANAGER}time-since-last-run-ms",
)
UNCLEANABLE = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Logs that damage keeps from being cleaned.",
    "logDirectory",
    jmx=f"{_CLEANER_MANAGER}uncleanable-partitions-count,logDirectory=",
)
UNCLEANABLE_BYTES = gauge(
    "kafka_log_logcleanermanager_uncleanable_bytes",
    "Bytes that would be cleaned, in logs that damage keeps from being cleaned.",
    "logDirectory",
    jmx=f"{_CLEANER_MANAGER}uncleanable-bytes,logDirectory=",
)

# Waiting requests, sessions, coordinators.
PURGATORY = gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "Requests that wait for replicas, records or a deadline.",
    "delayedOperation",
    jmx="kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
)
FETCH_SESSIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "Fetch sessions (KIP-227).",
    jmx=f"{_SESSIONS}NumIncrementalFetchSessions",
)
GROUPS = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "Groups that this broker coordinates.",
    jmx=f"{_GROUPS}NumGroups",
)
GROUPS_BY_STATE = {
    state: gauge(
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
        f"Groups coordinated here in the state {state}.",
        jmx=f"{_GROUPS}NumGroups{state}",
    )
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
}
GROUP_OFFSETS = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numoffsets",
    "Offsets committed in groups that this broker coordinates.",
    jmx=f"{_GROUPS}NumOffsets",
)
BROKER_STATE = gauge(
    "kafka_server_kafkaserver_brokerstate",
    "1 starting, 3 running, 6 in controlled shutdown.",
    jmx="kafka.server:type=KafkaServer,name=BrokerState",
)

# A series for each partition.
PARTITION_UNDER_MIN_ISR = _partition("UnderMinIsr", "1 if the ISR is below min.insync.replicas.")
PARTITION_AT_MIN_ISR = _partition("AtMinIsr", "1 if the ISR is just min.insync.replicas.")
PARTITION_UNDER_REPLICATED = _partition("UnderReplicated", "1 if a replica is not in sync.")
PARTITION_ISR = _partition("InSyncReplicasCount", "In-sync replicas, at the leader, else 0.")
PARTITION_REPLICAS = _partition("ReplicasCount", "Replicas, at the leader, else 0.")
LOG_SIZE = _log("Size", "Bytes of the replica's segments.")
LOG_END = _log("LogEndOffset", "The offset after the last record.")
LOG_START = _log("LogStartOffset", "The offset of the first record.")
LOG_SEGMENTS = _log("NumLogSegments", "Segments of the replica.")

# Links: topics that follow one of another cluster. Each partition counts where it is led.
LINK_PARTITIONS = gauge(
    "kctl_link_partitions",
    "Partitions of links led here, by what they do.",
    "topic",
    "source",
    "phase",
)
LINK_LAG = gauge(
    "kctl_link_lag_records",
    "Offsets of the source that are not copied; without partitions whose source was not reached.",
    *("topic", "source"),
)
LINK_LAG_SECONDS = gauge(
    "kctl_link_lag_seconds",
    "The longest time since a partition had all that its source had; 0: all have.",
    *("topic", "source"),
)
LINK_PARTITION_LAG = gauge(
    "kctl_link_partition_lag_records",
    "Offsets of the source that are not copied.",
    *("topic", "partition"),
)
LINK_PARTITION_LAG_SECONDS = gauge(
    "kctl_link_partition_lag_seconds",
    "Time since the partition had all that its source had.",
    *("topic", "partition"),
)
LINK_PARTITION_PHASE = gauge(
    "kctl_link_partition_phase",
    "1 for what the leader of a link's partition does.",
    *("topic", "partition", "phase"),
)

# kctl's own.
REQUEST_SECONDS = histogram(
    "kctl_request_seconds", "Time from a whole request to its response.", "api"
)
TURN_SECONDS = histogram(
    "kctl_loop_turn_seconds", "Length of turns of the event loop: how long all clients wait."
)
FSYNC_SECONDS = histogram("kctl_fsync_seconds", "Time of each fsync of a log.")
LOOP_BUSY = gauge(
    "kctl_loop_busy_ratio", "Share of time (0 to 1) in which the event loop works; 1: no reserve."
)
LOOP_BUSY_SECONDS = counter(
    "kctl_loop_busy_seconds_total", "Seconds in which the event loop worked."
)
LONG_TURNS = counter("kctl_loop_long_turns_total", "Turns of the event loop over 20 ms.")
BAD_REQUESTS = counter(
    "kctl_bad_requests_total", "Connections closed because of what their client sent."
)
HANDLER_ERRORS = counter("kctl_handler_errors_total", "Requests that failed unexpectedly: a bug.")
REFUSED_CONNECTIONS = counter(
    "kctl_connections_refused_total", "Connections refused by max.connections.per.ip."
)
TLS_FAILURES = counter(
    "kctl_tls_failures_total", "Connections that ended because of TLS.", "listener"
)
REQUEST_MEMORY = gauge("kctl_request_memory_bytes", "Bytes of requests that are being handled.")
MEMORY_WAITS = counter(
    "kctl_request_memory_waits_total", "Times that a request waited for queued.max.request.bytes."
)
SERIES_OMITTED = gauge(
    "kctl_metrics_partitions_omitted",
    "Partitions left out of this text, because there are too many; /metrics?partitions=1 has them.",
)

# The process, under the names of Prometheus' clients.
CPU_SECONDS = counter("process_cpu_seconds_total", "CPU time of the process.")
RESIDENT_BYTES = gauge("process_resident_memory_bytes", "Resident memory of the process.")
OPEN_FILES = gauge("process_open_fds", "Open file descriptors.")
MAX_FILES = gauge("process_max_fds", "Limit of open file descriptors.")
START_SECONDS = gauge("process_start_time_seconds", "Start of the process, Unix time.")

PROCESS = (CPU_SECONDS, RESIDENT_BYTES, OPEN_FILES, MAX_FILES, START_SECONDS)
QUOTAS = (
    PRODUCE_RATE, FETCH_RATE, REQUEST_TIME, MUTATION_TOKENS, *THROTTLE_TIMES.values(),
    QUOTA_LIMIT, QUOTA_THROTTLED, QUOTA_PAUSED,
)  # fmt: skip
PER_PARTITION = (
    PARTITION_UNDER_MIN_ISR, PARTITION_AT_MIN_ISR, PARTITION_UNDER_REPLICATED, PARTITION_ISR,
    PARTITION_REPLICAS, LOG_SIZE, LOG_END, LOG_START, LOG_SEGMENTS,
    LINK_PARTITION_LAG, LINK_PARTITION_LAG_SECONDS, LINK_PARTITION_PHASE,
)  # fmt: skip
BROKER = (
    PARTITION_COUNT, LEADER_COUNT, UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, OFFLINE_REPLICAS,
    ISR_SHRINKS, ISR_EXPANDS,
    ACTIVE_CONTROLLER, OFFLINE_PARTITIONS, PREFERRED_IMBALANCE, GLOBAL_TOPICS, GLOBAL_PARTITIONS,
    TOPICS_TO_DELETE, UNCLEAN_ELECTIONS,
    MESSAGES_IN, BYTES_IN, BYTES_OUT, BYTES_REJECTED, REPLICATION_IN, REPLICATION_OUT,
    PRODUCE_REQUESTS, FETCH_REQUESTS, FAILED_PRODUCE, FAILED_FETCH,
    REQUESTS, ERRORS, TOTAL_TIME, REQUEST_QUEUE_TIME, LOCAL_TIME, REMOTE_TIME, THROTTLE_TIME,
    RESPONSE_QUEUE_TIME, RESPONSE_SEND_TIME, NETWORK_IDLE, HANDLER_IDLE, CONNECTIONS,
    CONNECTIONS_MADE,
    AUTHENTICATIONS, FAILED_AUTHENTICATIONS, REAUTHENTICATIONS, FAILED_REAUTHENTICATIONS,
    *QUOTAS, QUOTA_SERIES_OMITTED,
    LOG_FLUSHES, OFFLINE_DIRECTORIES, DIRECTORY_OFFLINE, DISK_READ, DISK_WRITE,
    CLEANER_RECOPY, CLEANER_TIME, CLEANER_BUFFER, CLEANER_OVERDUE, CLEANER_DEAD, CLEANER_DIRTY,
    CLEANER_LOOKED, UNCLEANABLE,
    UNCLEANABLE_BYTES,
    PURGATORY, FETCH_SESSIONS, GROUPS, *GROUPS_BY_STATE.values(), GROUP_OFFSETS,
    BROKER_STATE, BROKER_ID,
    REQUEST_SECONDS, TURN_SECONDS, FSYNC_SECONDS, LOOP_BUSY, LOOP_BUSY_SECONDS, LONG_TURNS,
    BAD_REQUESTS, HANDLER_ERRORS, REFUSED_CONNECTIONS, TLS_FAILURES, TLS_HANDSHAKES,
    REQUEST_MEMORY, MEMORY_WAITS, LINK_PARTITIONS, LINK_LAG, LINK_LAG_SECONDS,
    SERIES_OMITTED, *PROCESS, *PER_PARTITION,
)  # fmt: skip
