"""The three replication quotas of a broker, each of which follows its configs.

The rate is an override of this broker, applied when it changes. The throttled replicas are an
override of their topic, read for each partition (`ReplicationQuota.is_throttled`).

Kafka 2.7: kafka.server.QuotaFactory, kafka.server.BrokerConfigHandler; KIP-73, KIP-113.
"""

from kctl.broker.config.config_entries import valid_overrides
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.quotas import ReplicationQuota
from kctl.configs.broker_config import BrokerConfig
from kctl.store.znodes import BROKER_CONFIGS


def leader_quota(
    config: BrokerConfig, broker_id: int, dynamic_configs: DynamicConfigs
) -> ReplicationQuota:
    """Return the limit for data sent to followers that catch up."""
    return _replication_quota(
        config,
        broker_id,
        dynamic_configs,
        "leader.replication.throttled.rate",
        "leader.replication.throttled.replicas",
    )


def follower_quota(
    config: BrokerConfig, broker_id: int, dynamic_configs: DynamicConfigs
) -> ReplicationQuota:
    """Return the limit for data fetched as a follower that catches up."""
    return _replication_quota(
        config,
        broker_id,
        dynamic_configs,
        "follower.replication.throttled.rate",
        "follower.replication.throttled.replicas",
    )


def log_dirs_quota(
    config: BrokerConfig, broker_id: int, dynamic_configs: DynamicConfigs
) -> ReplicationQuota:
    """Return the limit for copying between log directories, which applies to all replicas."""
    quota = ReplicationQuota(
        broker_id,
        "",
        dynamic_configs.topic,
        window_ms=config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        window_count=config.alter_log_dirs_replication_quota_window_num,
    )
    rate_key = "replica.alter.log.dirs.io.max.bytes.per.second"
    _follow_rate(quota, rate_key, broker_id, dynamic_configs)
    return quota


def _replication_quota(
    config: BrokerConfig,
    broker_id: int,
    dynamic_configs: DynamicConfigs,
    rate_key: str,
    replicas_key: str,
) -> ReplicationQuota:
    quota = ReplicationQuota(
        broker_id,
        replicas_key,
        dynamic_configs.topic,
        window_ms=config.replication_quota_window_size_seconds * 1000,
        window_count=config.replication_quota_window_num,
    )
    _follow_rate(quota, rate_key, broker_id, dynamic_configs)
    return quota


def _follow_rate(
    quota: ReplicationQuota, rate_key: str, broker_id: int, dynamic_configs: DynamicConfigs
) -> None:
    def apply_rate(entity_type: str = BROKER_CONFIGS, _name: str = "") -> None:
        if entity_type == BROKER_CONFIGS:
            own = valid_overrides(dynamic_configs.overrides(BROKER_CONFIGS, str(broker_id)))
            quota.set_rate(own.get(rate_key))

    apply_rate()
    dynamic_configs.on_change(apply_rate)
