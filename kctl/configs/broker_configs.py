"""BrokerSettings: every setting of an Apache Kafka 2.7 broker, with its name, type and default.

Attributes are named like the settings, with underscores for dots. An instance has the values as
given (None: not set and no default); values that follow from several settings are in
`kctl.configs.broker_config`.

Kafka 2.7: kafka.server.KafkaConfig.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kctl.configs.api_version import api_version_complaint
from kctl.configs.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = (
    ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT, ConfigType.LONG,
    ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD,
)  # fmt: skip


def _key(
    name: str,
    kind: ConfigType,
    default: Any,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
    complaint: Callable[[Any], str | None] | None = None,
) -> Any:
    return ConfigKey(name, kind, default, minimum, maximum, choices, dynamic, complaint)


class BrokerSettings:
    """The values of one server.properties, by attribute."""

    # Name of the setting -> name of the attribute, in the order of this file.
    ATTRIBUTES: ClassVar[dict[str, str]]
    # Name of the setting -> ConfigKey.
    KEYS: ClassVar[dict[str, ConfigKey]]

    # Identity and listeners
    advertised_host_name: str | None = _key("advertised.host.name", STRING, None)
    advertised_listeners: str | None = _key("advertised.listeners", STRING, None, dynamic=True)
    advertised_port: int | None = _key("advertised.port", INT, None)
    background_threads: int = _key("background.threads", INT, 10, minimum=1, dynamic=True)
    broker_id: int = _key("broker.id", INT, -1)
    broker_id_generation_enable: bool = _key("broker.id.generation.enable", BOOLEAN, True)
    broker_rack: str | None = _key("broker.rack", STRING, None)
    connection_failed_authentication_delay_ms: int = _key(
        "connection.failed.authentication.delay.ms", INT, 100, minimum=0
    )
    connections_max_idle_ms: int = _key("connections.max.idle.ms", LONG, 600000)
    connections_max_reauth_ms: int = _key("connections.max.reauth.ms", LONG, 0)
    control_plane_listener_name: str | None = _key("control.plane.listener.name", STRING, None)
    host_name: str = _key("host.name", STRING, "")
    inter_broker_listener_name: str | None = _key("inter.broker.listener.name", STRING, None)
    inter_broker_protocol_version: str = _key(
        "inter.broker.protocol.version", STRING, "2.7-IV2", complaint=api_version_complaint
    )
    listener_security_protocol_map: str = _key(
        "listener.security.protocol.map",
        STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        dynamic=True,
    )
    listeners: str | None = _key("listeners", STRING, None, dynamic=True)
    max_connection_creation_rate: int = _key(
        "max.connection.creation.rate", INT, INT_MAX, minimum=0, dynamic=True
    )
    max_connections: int = _key("max.connections", INT, INT_MAX, minimum=0, dynamic=True)
    max_connections_per_ip: int = _key(
        "max.connections.per.ip", INT, INT_MAX, minimum=0, dynamic=True
    )
    max_connections_per_ip_overrides: str = _key(
        "max.connections.per.ip.overrides", STRING, "", dynamic=True
    )
    num_io_threads: int = _key("num.io.threads", INT, 8, minimum=1, dynamic=True)
    num_network_threads: int = _key("num.network.threads", INT, 3, minimum=1, dynamic=True)
    port: int = _key("port", INT, 9092)
    queued_max_request_bytes: int = _key("queued.max.request.bytes", LONG, -1)
    queued_max_requests: int = _key("queued.max.requests", INT, 500, minimum=1)
    request_timeout_ms: int = _key("request.timeout.ms", INT, 30000)
    reserved_broker_max_id: int = _key("reserved.broker.max.id", INT, 1000, minimum=0)
    security_inter_broker_protocol: str = _key(
        "security.inter.broker.protocol", STRING, "PLAINTEXT"
    )
    security_providers: str | None = _key("security.providers", STRING, None)
    socket_connection_setup_timeout_max_ms: int = _key(
        "socket.connection.setup.timeout.max.ms", LONG, 127000
    )
    socket_connection_setup_timeout_ms: int = _key(
        "socket.connection.setup.timeout.ms", LONG, 10000
    )
    socket_receive_buffer_bytes: int = _key("socket.receive.buffer.bytes", INT, 102400)
    socket_request_max_bytes: int = _key("socket.request.max.bytes", INT, 104857600, minimum=1)
    socket_send_buffer_bytes: int = _key("socket.send.buffer.bytes", INT, 102400)

    # Topics and the log
    alter_config_policy_class_name: str | None = _key("alter.config.policy.class.name", CLASS, None)
    auto_create_topics_enable: bool = _key("auto.create.topics.enable", BOOLEAN, True)
    compression_type: str = _key("compression.type", STRING, "producer", dynamic=True)
    create_topic_policy_class_name: str | None = _key("create.topic.policy.class.name", CLASS, None)
    default_replication_factor: int = _key("default.replication.factor", INT, 1)
    delete_records_purgatory_purge_interval_requests: int = _key(
        "delete.records.purgatory.purge.interval.requests", INT, 1
    )
    delete_topic_enable: bool = _key("delete.topic.enable", BOOLEAN, True)
    log_cleaner_backoff_ms: int = _key(
        "log.cleaner.backoff.ms", LONG, 15000, minimum=0, dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = _key(
        "log.cleaner.dedupe.buffer.size", LONG, 134217728, dynamic=True
    )
    log_cleaner_delete_retention_ms: int = _key(
        "log.cleaner.delete.retention.ms", LONG, 86400000, dynamic=True
    )
    log_cleaner_enable: bool = _key("log.cleaner.enable", BOOLEAN, True)
    log_cleaner_io_buffer_load_factor: float = _key(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, dynamic=True
    )
    log_cleaner_io_buffer_size: int = _key(
        "log.cleaner.io.buffer.size", INT, 524288, minimum=0, dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = _key(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = _key(
        "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = _key(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = _key(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, dynamic=True
    )
    log_cleaner_threads: int = _key("log.cleaner.threads", INT, 1, minimum=0, dynamic=True)
    log_cleanup_policy: list[str] = _key(
        "log.cleanup.policy",
        LIST,
        ["delete"],
        choices=(
            "compact",
            "delete",
        ),
        dynamic=True,
    )
    log_dir: str = _key("log.dir", STRING, "/tmp/kafka-logs")
    log_dirs: str | None = _key("log.dirs", STRING, None)
    log_flush_interval_messages: int = _key(
        "log.flush.interval.messages", LONG, LONG_MAX, minimum=1, dynamic=True
    )
    log_flush_interval_ms: int | None = _key("log.flush.interval.ms", LONG, None, dynamic=True)
    log_flush_offset_checkpoint_interval_ms: int = _key(
        "log.flush.offset.checkpoint.interval.ms", INT, 60000, minimum=0
    )
    log_flush_scheduler_interval_ms: int = _key("log.flush.scheduler.interval.ms", LONG, LONG_MAX)
    log_flush_start_offset_checkpoint_interval_ms: int = _key(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60000, minimum=0
    )
    log_index_interval_bytes: int = _key(
        "log.index.interval.bytes", INT, 4096, minimum=0, dynamic=True
    )
    log_index_size_max_bytes: int = _key(
        "log.index.size.max.bytes", INT, 10485760, minimum=4, dynamic=True
    )
    log_message_downconversion_enable: bool = _key(
        "log.message.downconversion.enable", BOOLEAN, True, dynamic=True
    )
    log_message_format_version: str = _key(
        "log.message.format.version", STRING, "2.7-IV2", complaint=api_version_complaint
    )
    log_message_timestamp_difference_max_ms: int = _key(
        "log.message.timestamp.difference.max.ms", LONG, LONG_MAX, dynamic=True
    )
    log_message_timestamp_type: str = _key(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        choices=(
            "CreateTime",
            "LogAppendTime",
        ),
        dynamic=True,
    )
    log_preallocate: bool = _key("log.preallocate", BOOLEAN, False, dynamic=True)
    log_retention_bytes: int = _key("log.retention.bytes", LONG, -1, dynamic=True)
    log_retention_check_interval_ms: int = _key(
        "log.retention.check.interval.ms", LONG, 300000, minimum=1
    )
    log_retention_hours: int = _key("log.retention.hours", INT, 168)
    log_retention_minutes: int | None = _key("log.retention.minutes", INT, None)
    log_retention_ms: int | None = _key("log.retention.ms", LONG, None, dynamic=True)
    log_roll_hours: int = _key("log.roll.hours", INT, 168, minimum=1)
    log_roll_jitter_hours: int = _key("log.roll.jitter.hours", INT, 0, minimum=0)
    log_roll_jitter_ms: int | None = _key("log.roll.jitter.ms", LONG, None, dynamic=True)
    log_roll_ms: int | None = _key("log.roll.ms", LONG, None, dynamic=True)
    log_segment_bytes: int = _key("log.segment.bytes", INT, 1073741824, minimum=14, dynamic=True)
    log_segment_delete_delay_ms: int = _key(
        "log.segment.delete.delay.ms", LONG, 60000, minimum=0, dynamic=True
    )
    message_max_bytes: int = _key("message.max.bytes", INT, 1048588, minimum=0, dynamic=True)
    min_insync_replicas: int = _key("min.insync.replicas", INT, 1, minimum=1, dynamic=True)
    num_partitions: int = _key("num.partitions", INT, 1, minimum=1)
    num_recovery_threads_per_data_dir: int = _key(
        "num.recovery.threads.per.data.dir", INT, 1, minimum=1, dynamic=True
    )
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable", BOOLEAN, False, dynamic=True
    )

    # Replication and the controller
    alter_log_dirs_replication_quota_window_num: int = _key(
        "alter.log.dirs.replication.quota.window.num", INT, 11, minimum=1
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = _key(
        "alter.log.dirs.replication.quota.window.size.seconds", INT, 1, minimum=1
    )
    auto_leader_rebalance_enable: bool = _key("auto.leader.rebalance.enable", BOOLEAN, True)
    controlled_shutdown_enable: bool = _key("controlled.shutdown.enable", BOOLEAN, True)
    controlled_shutdown_max_retries: int = _key("controlled.shutdown.max.retries", INT, 3)
    controlled_shutdown_retry_backoff_ms: int = _key(
        "controlled.shutdown.retry.backoff.ms", LONG, 5000
    )
    controller_quota_window_num: int = _key("controller.quota.window.num", INT, 11, minimum=1)
    controller_quota_window_size_seconds: int = _key(
        "controller.quota.window.size.seconds", INT, 1, minimum=1
    )
    controller_socket_timeout_ms: int = _key("controller.socket.timeout.ms", INT, 30000)
    leader_imbalance_check_interval_seconds: int = _key(
        "leader.imbalance.check.interval.seconds", LONG, 300
    )
    leader_imbalance_per_broker_percentage: int = _key(
        "leader.imbalance.per.broker.percentage", INT, 10
    )
    num_replica_alter_log_dirs_threads: int | None = _key(
        "num.replica.alter.log.dirs.threads", INT, None
    )
    num_replica_fetchers: int = _key("num.replica.fetchers", INT, 1, dynamic=True)
    replica_fetch_backoff_ms: int = _key("replica.fetch.backoff.ms", INT, 1000, minimum=0)
    replica_fetch_max_bytes: int = _key("replica.fetch.max.bytes", INT, 1048576, minimum=0)
    replica_fetch_min_bytes: int = _key("replica.fetch.min.bytes", INT, 1)
    replica_fetch_response_max_bytes: int = _key(
        "replica.fetch.response.max.bytes", INT, 10485760, minimum=0
    )
    replica_fetch_wait_max_ms: int = _key("replica.fetch.wait.max.ms", INT, 500)
    replica_high_watermark_checkpoint_interval_ms: int = _key(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000
    )
    replica_lag_time_max_ms: int = _key("replica.lag.time.max.ms", LONG, 30000)
    replica_selector_class: str | None = _key("replica.selector.class", STRING, None)
    replica_socket_receive_buffer_bytes: int = _key(
        "replica.socket.receive.buffer.bytes", INT, 65536
    )
    replica_socket_timeout_ms: int = _key("replica.socket.timeout.ms", INT, 30000)
    replication_quota_window_num: int = _key("replication.quota.window.num", INT, 11, minimum=1)
    replication_quota_window_size_seconds: int = _key(
        "replication.quota.window.size.seconds", INT, 1, minimum=1
    )

    # Produce and fetch
    fetch_max_bytes: int = _key("fetch.max.bytes", INT, 57671680, minimum=1024)
    fetch_purgatory_purge_interval_requests: int = _key(
        "fetch.purgatory.purge.interval.requests", INT, 1000
    )
    max_incremental_fetch_session_cache_slots: int = _key(
        "max.incremental.fetch.session.cache.slots", INT, 1000, minimum=0
    )
    producer_purgatory_purge_interval_requests: int = _key(
        "producer.purgatory.purge.interval.requests", INT, 1000
    )

    # Coordinators
    group_initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", INT, 3000)
    group_max_session_timeout_ms: int = _key("group.max.session.timeout.ms", INT, 1800000)
    group_max_size: int = _key("group.max.size", INT, INT_MAX, minimum=1)
    group_min_session_timeout_ms: int = _key("group.min.session.timeout.ms", INT, 6000)
    offset_metadata_max_bytes: int = _key("offset.metadata.max.bytes", INT, 4096)
    offsets_commit_required_acks: int = _key("offsets.commit.required.acks", SHORT, -1)
    offsets_commit_timeout_ms: int = _key("offsets.commit.timeout.ms", INT, 5000, minimum=1)
    offsets_load_buffer_size: int = _key("offsets.load.buffer.size", INT, 5242880, minimum=1)
    offsets_retention_check_interval_ms: int = _key(
        "offsets.retention.check.interval.ms", LONG, 600000, minimum=1
    )
    offsets_retention_minutes: int = _key("offsets.retention.minutes", INT, 10080, minimum=1)
    offsets_topic_compression_codec: int = _key("offsets.topic.compression.codec", INT, 0)
    offsets_topic_num_partitions: int = _key("offsets.topic.num.partitions", INT, 50, minimum=1)
    offsets_topic_replication_factor: int = _key(
        "offsets.topic.replication.factor", SHORT, 3, minimum=1
    )
    offsets_topic_segment_bytes: int = _key(
        "offsets.topic.segment.bytes", INT, 104857600, minimum=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, minimum=1
    )
    transaction_max_timeout_ms: int = _key("transaction.max.timeout.ms", INT, 900000, minimum=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3600000, minimum=1
    )
    transaction_state_log_load_buffer_size: int = _key(
        "transaction.state.log.load.buffer.size", INT, 5242880, minimum=1
    )
    transaction_state_log_min_isr: int = _key("transaction.state.log.min.isr", INT, 2, minimum=1)
    transaction_state_log_num_partitions: int = _key(
        "transaction.state.log.num.partitions", INT, 50, minimum=1
    )
    transaction_state_log_replication_factor: int = _key(
        "transaction.state.log.replication.factor", SHORT, 3, minimum=1
    )
    transaction_state_log_segment_bytes: int = _key(
        "transaction.state.log.segment.bytes", INT, 104857600, minimum=1
    )
    transactional_id_expiration_ms: int = _key(
        "transactional.id.expiration.ms", INT, 604800000, minimum=1
    )

    # Quotas and metrics
    client_quota_callback_class: str | None = _key("client.quota.callback.class", CLASS, None)
    kafka_metrics_polling_interval_secs: int = _key(
        "kafka.metrics.polling.interval.secs", INT, 10, minimum=1
    )
    kafka_metrics_reporters: list[str] = _key("kafka.metrics.reporters", LIST, [])
    metric_reporters: list[str] = _key("metric.reporters", LIST, [], dynamic=True)
    metrics_num_samples: int = _key("metrics.num.samples", INT, 2, minimum=1)
    metrics_recording_level: str = _key("metrics.recording.level", STRING, "INFO")
    metrics_sample_window_ms: int = _key("metrics.sample.window.ms", LONG, 30000, minimum=1)
    quota_consumer_default: int = _key("quota.consumer.default", LONG, LONG_MAX, minimum=1)
    quota_producer_default: int = _key("quota.producer.default", LONG, LONG_MAX, minimum=1)
    quota_window_num: int = _key("quota.window.num", INT, 11, minimum=1)
    quota_window_size_seconds: int = _key("quota.window.size.seconds", INT, 1, minimum=1)

    # The metadata store
    zookeeper_client_cnxn_socket: str | None = _key("zookeeper.clientCnxnSocket", STRING, None)
    zookeeper_connect: str = _key("zookeeper.connect", STRING, None)
    zookeeper_connection_timeout_ms: int | None = _key("zookeeper.connection.timeout.ms", INT, None)
    zookeeper_max_in_flight_requests: int = _key(
        "zookeeper.max.in.flight.requests", INT, 10, minimum=1
    )
    zookeeper_session_timeout_ms: int = _key("zookeeper.session.timeout.ms", INT, 18000)
    zookeeper_set_acl: bool = _key("zookeeper.set.acl", BOOLEAN, False)
    zookeeper_ssl_cipher_suites: list[str] | None = _key("zookeeper.ssl.cipher.suites", LIST, None)
    zookeeper_ssl_client_enable: bool = _key("zookeeper.ssl.client.enable", BOOLEAN, False)
    zookeeper_ssl_crl_enable: bool = _key("zookeeper.ssl.crl.enable", BOOLEAN, False)
    zookeeper_ssl_enabled_protocols: list[str] | None = _key(
        "zookeeper.ssl.enabled.protocols", LIST, None
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = _key(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS"
    )
    zookeeper_ssl_keystore_location: str | None = _key(
        "zookeeper.ssl.keystore.location", STRING, None
    )
    zookeeper_ssl_keystore_password: str | None = _key(
        "zookeeper.ssl.keystore.password", PASSWORD, None
    )
    zookeeper_ssl_keystore_type: str | None = _key("zookeeper.ssl.keystore.type", STRING, None)
    zookeeper_ssl_ocsp_enable: bool = _key("zookeeper.ssl.ocsp.enable", BOOLEAN, False)
    zookeeper_ssl_protocol: str = _key("zookeeper.ssl.protocol", STRING, "TLSv1.2")
    zookeeper_ssl_truststore_location: str | None = _key(
        "zookeeper.ssl.truststore.location", STRING, None
    )
    zookeeper_ssl_truststore_password: str | None = _key(
        "zookeeper.ssl.truststore.password", PASSWORD, None
    )
    zookeeper_ssl_truststore_type: str | None = _key("zookeeper.ssl.truststore.type", STRING, None)
    zookeeper_sync_time_ms: int = _key("zookeeper.sync.time.ms", INT, 2000)

    # Security
    authorizer_class_name: str = _key("authorizer.class.name", STRING, "")
    delegation_token_expiry_check_interval_ms: int = _key(
        "delegation.token.expiry.check.interval.ms", LONG, 3600000, minimum=1
    )
    delegation_token_expiry_time_ms: int = _key(
        "delegation.token.expiry.time.ms", LONG, 86400000, minimum=1
    )
    delegation_token_master_key: str | None = _key("delegation.token.master.key", PASSWORD, None)
    delegation_token_max_lifetime_ms: int = _key(
        "delegation.token.max.lifetime.ms", LONG, 604800000, minimum=1
    )
    password_encoder_cipher_algorithm: str = _key(
        "password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding"
    )
    password_encoder_iterations: int = _key("password.encoder.iterations", INT, 4096, minimum=1024)
    password_encoder_key_length: int = _key("password.encoder.key.length", INT, 128, minimum=8)
    password_encoder_keyfactory_algorithm: str | None = _key(
        "password.encoder.keyfactory.algorithm", STRING, None
    )
    password_encoder_old_secret: str | None = _key("password.encoder.old.secret", PASSWORD, None)
    password_encoder_secret: str | None = _key("password.encoder.secret", PASSWORD, None)
    principal_builder_class: str | None = _key("principal.builder.class", CLASS, None, dynamic=True)
    sasl_client_callback_handler_class: str | None = _key(
        "sasl.client.callback.handler.class", CLASS, None
    )
    sasl_enabled_mechanisms: list[str] = _key(
        "sasl.enabled.mechanisms", LIST, ["GSSAPI"], dynamic=True
    )
    sasl_jaas_config: str | None = _key("sasl.jaas.config", PASSWORD, None, dynamic=True)
    sasl_kerberos_kinit_cmd: str = _key(
        "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", dynamic=True
    )
    sasl_kerberos_min_time_before_relogin: int = _key(
        "sasl.kerberos.min.time.before.relogin", LONG, 60000, dynamic=True
    )
    sasl_kerberos_principal_to_local_rules: list[str] = _key(
        "sasl.kerberos.principal.to.local.rules", LIST, ["DEFAULT"], dynamic=True
    )
    sasl_kerberos_service_name: str | None = _key(
        "sasl.kerberos.service.name", STRING, None, dynamic=True
    )
    sasl_kerberos_ticket_renew_jitter: float = _key(
        "sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, dynamic=True
    )
    sasl_kerberos_ticket_renew_window_factor: float = _key(
        "sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, dynamic=True
    )
    sasl_login_callback_handler_class: str | None = _key(
        "sasl.login.callback.handler.class", CLASS, None
    )
    sasl_login_class: str | None = _key("sasl.login.class", CLASS, None)
    sasl_login_refresh_buffer_seconds: int = _key(
        "sasl.login.refresh.buffer.seconds", SHORT, 300, dynamic=True
    )
    sasl_login_refresh_min_period_seconds: int = _key(
        "sasl.login.refresh.min.period.seconds", SHORT, 60, dynamic=True
    )
    sasl_login_refresh_window_factor: float = _key(
        "sasl.login.refresh.window.factor", DOUBLE, 0.8, dynamic=True
    )
    sasl_login_refresh_window_jitter: float = _key(
        "sasl.login.refresh.window.jitter", DOUBLE, 0.05, dynamic=True
    )
    sasl_mechanism_inter_broker_protocol: str = _key(
        "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", dynamic=True
    )
    sasl_server_callback_handler_class: str | None = _key(
        "sasl.server.callback.handler.class", CLASS, None
    )
    ssl_cipher_suites: list[str] = _key("ssl.cipher.suites", LIST, [], dynamic=True)
    ssl_client_auth: str = _key(
        "ssl.client.auth",
        STRING,
        "none",
        choices=(
            "required",
            "requested",
            "none",
        ),
        dynamic=True,
    )
    ssl_enabled_protocols: list[str] = _key(
        "ssl.enabled.protocols", LIST, ["TLSv1.2", "TLSv1.3"], dynamic=True
    )
    ssl_endpoint_identification_algorithm: str = _key(
        "ssl.endpoint.identification.algorithm", STRING, "https", dynamic=True
    )
    ssl_engine_factory_class: str | None = _key(
        "ssl.engine.factory.class", CLASS, None, dynamic=True
    )
    ssl_key_password: str | None = _key("ssl.key.password", PASSWORD, None, dynamic=True)
    ssl_keymanager_algorithm: str = _key(
        "ssl.keymanager.algorithm", STRING, "SunX509", dynamic=True
    )
    ssl_keystore_certificate_chain: str | None = _key(
        "ssl.keystore.certificate.chain", PASSWORD, None, dynamic=True
    )
    ssl_keystore_key: str | None = _key("ssl.keystore.key", PASSWORD, None, dynamic=True)
    ssl_keystore_location: str | None = _key("ssl.keystore.location", STRING, None, dynamic=True)
    ssl_keystore_password: str | None = _key("ssl.keystore.password", PASSWORD, None, dynamic=True)
    ssl_keystore_type: str = _key("ssl.keystore.type", STRING, "JKS", dynamic=True)
    ssl_principal_mapping_rules: str = _key("ssl.principal.mapping.rules", STRING, "DEFAULT")
    ssl_protocol: str = _key("ssl.protocol", STRING, "TLSv1.3", dynamic=True)
    ssl_provider: str | None = _key("ssl.provider", STRING, None, dynamic=True)
    ssl_secure_random_implementation: str | None = _key(
        "ssl.secure.random.implementation", STRING, None, dynamic=True
    )
    ssl_trustmanager_algorithm: str = _key(
        "ssl.trustmanager.algorithm", STRING, "PKIX", dynamic=True
    )
    ssl_truststore_certificates: str | None = _key(
        "ssl.truststore.certificates", PASSWORD, None, dynamic=True
    )
    ssl_truststore_location: str | None = _key(
        "ssl.truststore.location", STRING, None, dynamic=True
    )
    ssl_truststore_password: str | None = _key(
        "ssl.truststore.password", PASSWORD, None, dynamic=True
    )
    ssl_truststore_type: str = _key("ssl.truststore.type", STRING, "JKS", dynamic=True)


BrokerSettings.KEYS = {
    key.name: key for key in vars(BrokerSettings).values() if isinstance(key, ConfigKey)
}
BrokerSettings.ATTRIBUTES = {
    key.name: attribute
    for attribute, key in vars(BrokerSettings).items()
    if isinstance(key, ConfigKey)
}

# Settings of a broker that only the store may contain, never server.properties. As in Apache Kafka,
# they are listed only if they are set, and as read-only although they can be changed.
DYNAMIC_ONLY: Mapping[str, ConfigKey] = {
    name: ConfigKey(name, LONG, None, minimum=0)
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
