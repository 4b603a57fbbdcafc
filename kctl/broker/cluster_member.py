"""ClusterMember: a broker's work with other brokers: replication, ISR changes, controlled shutdown.

Kafka 2.7: parts of kafka.server.{KafkaServer (controlledShutdown), ReplicaManager, QuotaFactory}.
"""

from typing import Any

from kctl.broker.controller_channel import ControllerChannel
from kctl.broker.replication.alter_isr import (
    AlterIsrManager,
    ControllerIsrWriter,
    IsrWriter,
    StoreIsrWriter,
)
from kctl.broker.replication.fetcher_manager import FetcherManager
from kctl.broker.replication.quotas_by_config import follower_quota
from kctl.broker.replication.replica_fetcher import FetcherOptions
from kctl.broker.services import Services
from kctl.client.security import security_between_brokers
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.runtime.future import sleep


class ClusterMember:
    """Created with the broker's services; call `start` before the controller's first request."""

    def __init__(self, services: Services) -> None:
        self._services = services
        config = services.config
        listener = config.inter_broker_listener
        security = security_between_brokers(config)
        cache = services.metadata_cache
        self.fetchers = FetcherManager(
            services.runtime,
            services.replica_manager,
            fetcher_options(services.broker_id, config),
            lambda broker_id: cache.broker_endpoint(broker_id, listener),
            follower_quota(config, services.broker_id, services.dynamic_configs),
            security,
        )
        self._controller = ControllerChannel(
            services.runtime,
            services.broker_id,
            cache,
            listener,
            services.controller.ask,
            lambda: services.controller.is_active,
            timeout_ms=config.controller_socket_timeout_ms,
            security=security,
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
        """Begin to apply role changes and to propose ISR changes."""
        alter_log_dirs = self._services.alter_log_dirs
        for listener in (self.fetchers.on_role_change, alter_log_dirs.on_role_change):
            self._services.leadership.on_role_change(listener)
        links = self._services.links
        alter_log_dirs.on_log_replaced(self.fetchers.on_log_replaced)
        alter_log_dirs.on_log_replaced(links.on_log_replaced)
        self._alter_isr.start()

    async def leave(self) -> None:
        """Have the controller move leaderships away while this broker still serves (controlled
        shutdown)."""
        services, config = self._services, self._services.config
        if not config.controlled_shutdown_enable:
            return
        for attempt in range(1 + config.controlled_shutdown_max_retries):
            if len(services.metadata_cache.alive_brokers()) <= 1:
                return  # no other broker can lead
            if not services.cluster_store.is_connected:
                services.runtime.trace.warning(
                    "leaderships were not moved before shutdown: the metadata store is unreachable"
                )
                return
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
                trace.warning(f"cannot notify the controller of the shutdown: {error}")
                continue
            if answer.error_code == ErrorCode.NONE and not answer.remaining_partitions:
                return

    def shutdown(self) -> None:
        """Stop following leaders and close the connection to the controller."""
        self._alter_isr.shutdown()
        self._controller.close()
        self._services.alter_log_dirs.shutdown()
        self.fetchers.shutdown()
        self._services.links.close()


def fetcher_options(broker_id: int, config: BrokerConfig) -> FetcherOptions:
    """Return the settings of a broker's fetchers."""
    return FetcherOptions(
        broker_id=broker_id,
        wait_ms_max=config.replica_fetch_wait_max_ms,
        bytes_min=config.replica_fetch_min_bytes,
        response_bytes_max=config.replica_fetch_response_max_bytes,
        partition_bytes_max=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        truncates_on_fetch=config.is_at_least("2.7-IV1"),
    )
