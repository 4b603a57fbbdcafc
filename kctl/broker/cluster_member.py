"""ClusterMember: what ties a broker to the others: it follows leaders elsewhere, keeps the ISRs of
what it leads, asks the controller, and takes its leave.

Kafka 2.7: parts of kafka.server.{KafkaServer (controlledShutdown), ReplicaManager, QuotaFactory}.
"""

from typing import Any

from kctl.broker.config import BrokerConfig
from kctl.broker.controller_channel import ControllerChannel
from kctl.broker.dynamic_config import BROKERS
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.alter_isr import (
    AlterIsrManager,
    ControllerIsrWriter,
    IsrWriter,
    StoreIsrWriter,
)
from kctl.broker.replication.fetcher_manager import FetcherManager
from kctl.broker.replication.replica_fetcher import FetcherOptions
from kctl.broker.services import Services
from kctl.errors import KctlError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.runtime.future import sleep


class ClusterMember:
    """Made with the broker's services; `start` before the controller first speaks to it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        config = services.config
        listener = config.inter_broker_listener
        cache = services.metadata_cache
        services.replica_manager.leader_quota = _quota(
            services, "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
        )
        services.alter_log_dirs.quota = _log_dirs_quota(services)
        self.fetchers = FetcherManager(
            services.runtime,
            services.replica_manager,
            fetcher_options(services.broker_id, config),
            lambda broker_id: cache.broker_endpoint(broker_id, listener),
            _quota(
                services,
                "follower.replication.throttled.rate",
                "follower.replication.throttled.replicas",
            ),
        )
        self._controller = ControllerChannel(
            services.runtime,
            services.broker_id,
            cache,
            listener,
            services.controller.ask,
            lambda: services.controller.is_active,
            timeout_ms=config.controller_socket_timeout_ms,
        )
        self._alter_isr = AlterIsrManager(
            services.runtime,
            services.replica_manager,
            self._isr_writer(),
            config.replica_lag_time_max_ms,
        )

    def _isr_writer(self) -> IsrWriter:
        services = self._services
        if not services.config.is_at_least("2.7-IV2"):
            return StoreIsrWriter(services.cluster_store)
        return ControllerIsrWriter(
            services.broker_id, lambda: services.controller.broker_epoch, self._controller.ask
        )

    def start(self) -> None:
        """Follow and lead as the controller says."""
        alter_log_dirs = self._services.alter_log_dirs
        for listener in (self.fetchers.on_role_change, alter_log_dirs.on_role_change):
            self._services.leadership.on_role_change(listener)
        alter_log_dirs.on_log_replaced(self.fetchers.on_log_replaced)
        self._alter_isr.start()

    async def leave(self) -> None:
        """Have the controller find other leaders, while this broker still serves (controlled
        shutdown)."""
        services, config = self._services, self._services.config
        if not config.controlled_shutdown_enable:
            return
        for attempt in range(1 + config.controlled_shutdown_max_retries):
            if len(services.metadata_cache.alive_brokers()) <= 1:
                return  # Nobody is left to lead.
            if attempt:
                delay_ms = config.controlled_shutdown_retry_backoff_ms
                await sleep(services.runtime.scheduler, delay_ms)
            request = ControlledShutdownRequest(
                broker_id=services.broker_id, broker_epoch=services.controller.broker_epoch
            )
            try:
                answer: Any = await self._controller.ask(request)
            except KctlError as error:
                trace = services.runtime.trace
                trace.warning(f"the controller cannot be told of the stop: {error}")
                continue
            if answer.error_code == ErrorCode.NONE and not answer.remaining_partitions:
                return

    def shutdown(self) -> None:
        """Follow nobody, ask nobody."""
        self._alter_isr.shutdown()
        self._controller.close()
        self._services.alter_log_dirs.shutdown()
        self.fetchers.shutdown()


def _quota(services: Services, rate_key: str, replicas_key: str) -> ReplicationQuota:
    """A bound on copying between brokers that follows these settings of brokers and topics."""
    config = services.config
    quota = ReplicationQuota(
        services.broker_id,
        replicas_key,
        services.dynamic_configs.topic,
        window_ms=config.replication_quota_window_size_seconds * 1000,
        window_count=config.replication_quota_window_num,
    )
    _follow_rate(services, quota, rate_key)
    return quota


def _log_dirs_quota(services: Services) -> ReplicationQuota:
    """A bound on copying between log directories, which holds for all replicas."""
    config = services.config
    quota = ReplicationQuota(
        services.broker_id,
        "",
        services.dynamic_configs.topic,
        window_ms=config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        window_count=config.alter_log_dirs_replication_quota_window_num,
    )
    _follow_rate(services, quota, "replica.alter.log.dirs.io.max.bytes.per.second")
    return quota


def _follow_rate(services: Services, quota: ReplicationQuota, rate_key: str) -> None:
    configs = services.dynamic_configs

    def take_rate(entity_type: str = BROKERS, _name: str = "") -> None:
        if entity_type == BROKERS:
            own = configs.overrides(BROKERS, str(services.broker_id))
            quota.set_rate(own.get(rate_key))

    take_rate()
    configs.on_change(take_rate)


def fetcher_options(broker_id: int, config: BrokerConfig) -> FetcherOptions:
    """How a broker fetches as a follower."""
    return FetcherOptions(
        broker_id=broker_id,
        wait_ms_max=config.replica_fetch_wait_max_ms,
        bytes_min=config.replica_fetch_min_bytes,
        response_bytes_max=config.replica_fetch_response_max_bytes,
        partition_bytes_max=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        truncates_on_fetch=config.is_at_least("2.7-IV1"),
    )
