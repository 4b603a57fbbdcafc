"""assemble: makes the services of a broker from what it has opened, and connects them.

Controller, coordinators and replication do not import each other. They meet here: a change of
roles reaches the coordinators, transaction markers reach other brokers, and the controller reaches
this broker without a socket.

Kafka 2.7: kafka.server.KafkaServer.startup.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.broker.auto_topic_creation import AutoTopicCreator
from kctl.broker.client_quotas import entity_of_path, quotas_in
from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.config.live_configs import LiveConfigs
from kctl.broker.configured_security import delegation_tokens
from kctl.broker.controller.broker_link import ChannelLink
from kctl.broker.controller.channel_manager import LocalLink
from kctl.broker.controller.controller import Controller
from kctl.broker.controller.state_transitions import UNCLEAN_CONFIG
from kctl.broker.coordinator.group_coordinator_service import GroupCoordinatorService
from kctl.broker.coordinator.marker_sender import MarkerLink
from kctl.broker.coordinator.transaction_coordinator_service import TransactionCoordinatorService
from kctl.broker.fetch_session import FetchSessionCache
from kctl.broker.links.link_manager import LinkManager, read_only
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager
from kctl.broker.loggers import CONTROLLER, GROUPS, REPLICAS, TRANSACTIONS
from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.producer_ids import ProducerIdManager
from kctl.broker.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from kctl.broker.replication.leadership import Leadership, RoleChange
from kctl.broker.replication.partition import Role
from kctl.broker.replication.partition_writer import ReplicatedPartitionWriter
from kctl.broker.replication.quotas_by_config import leader_quota, log_dirs_quota
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.replication.replica_selector import replica_selector
from kctl.broker.sampled_rate import Windows
from kctl.broker.services import ListenerChanges, Services
from kctl.broker.topic_creation import TopicCreator
from kctl.broker.topic_waits import TopicWaits
from kctl.client.security import security_between_brokers
from kctl.configs.broker_config import BrokerConfig
from kctl.lazy_dataclass import dataclass
from kctl.model import BrokerInfo, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kctl.protocol.schema import Message
from kctl.runtime.future import Future
from kctl.runtime.log_levels import Loggers
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.znodes import CLIENT_CONFIGS, USER_CONFIGS

if TYPE_CHECKING:
    from kctl.broker.security.acl_cache import AclCache

# The default of quota.producer.default and quota.consumer.default.
LONG_MAX = 2**63 - 1

# Handles a request of this process as if it had arrived over a socket.
Deliver = Callable[[Message], Future[Message]]


@dataclass(frozen=True, slots=True)
class Foundation:
    """What a broker opens before it makes its services: its identity, the store, configs, logs."""

    runtime: Runtime
    config: BrokerConfig
    broker_id: int
    cluster_id: str
    cluster_store: ClusterStore
    dynamic_configs: DynamicConfigs
    live_configs: LiveConfigs
    listeners: ListenerChanges
    log_manager: LogManager
    # None: access is not controlled.
    acl_cache: "AclCache | None"
    loggers: Loggers
    make_replica_manager: Callable[..., ReplicaManager] = ReplicaManager


def assemble(
    opened: Foundation,
    served: Mapping[ApiKey, tuple[int, int]],
    broker_info: Callable[[], BrokerInfo],
    deliver: Deliver,
) -> Services:
    """Return the services of a broker; nothing is started.

    `served` limits the APIs to a first and last version each, `broker_info` is what the broker
    registers, and `deliver` handles the requests that its controller and its transaction
    coordinator send to itself.
    """
    runtime, config, cluster_store = opened.runtime, opened.config, opened.cluster_store
    metadata_cache = MetadataCache(opened.broker_id)
    topic_creator = TopicCreator(cluster_store, metadata_cache, config, runtime)
    loggers = opened.loggers
    replica_manager = opened.make_replica_manager(
        loggers.runtime(runtime, REPLICAS), config, opened.broker_id, opened.log_manager,
        leader_quota=leader_quota(config, opened.broker_id, opened.dynamic_configs),
        select_replica=replica_selector(config.replica_selector_class, metadata_cache.rack),
        is_alive=metadata_cache.is_broker_alive,
    )  # fmt: skip
    controller = Controller(
        loggers.runtime(runtime, CONTROLLER), cluster_store, opened.broker_id, broker_info, config,
        deliver, opened.cluster_id,
    )  # fmt: skip
    _follow_unclean_elections(opened.live_configs, controller)
    leadership = _leadership(opened, replica_manager, controller)
    producer_ids = ProducerIdManager(runtime.scheduler, cluster_store, opened.broker_id)
    slots = config.max_incremental_fetch_session_cache_slots
    services = Services(
        runtime=runtime,
        config=config,
        broker_id=opened.broker_id,
        cluster_id=opened.cluster_id,
        metadata_cache=metadata_cache,
        replica_manager=replica_manager,
        log_manager=opened.log_manager,
        cluster_store=cluster_store,
        controller=controller,
        group_coordinator=_group_coordinator(opened, replica_manager, metadata_cache),
        transaction_coordinator=TransactionCoordinatorService(
            loggers.runtime(runtime, TRANSACTIONS), config,
            ReplicatedPartitionWriter(replica_manager, config.request_timeout_ms),
            metadata_cache, producer_ids, lambda leader_id: _link_to(leader_id, services, deliver),
            cluster_store.topic_stays,
            lambda tp: _leads(services, tp),
        ),
        auto_topics=AutoTopicCreator(runtime, topic_creator, metadata_cache, config),
        topic_creator=topic_creator,
        topic_waits=TopicWaits(runtime, metadata_cache),
        producer_ids=producer_ids,
        dynamic_configs=opened.dynamic_configs,
        listeners=opened.listeners,
        fetch_sessions=FetchSessionCache(slots, runtime.entropy.random_below),
        delegation_tokens=delegation_tokens(runtime, config, cluster_store),
        leadership=leadership,
        alter_log_dirs=ReplicaAlterLogDirsManager(
            runtime, replica_manager, metadata_cache.partition,
            log_dirs_quota(config, opened.broker_id, opened.dynamic_configs),
        ),
        acl_cache=opened.acl_cache,
        client_quotas=_client_quotas(opened),
        links=_links(opened, replica_manager, metadata_cache, topic_creator, leadership),
        loggers=opened.loggers,
        served=served,
    )  # fmt: skip
    services.leadership.on_role_change(lambda changes: _notify_coordinators(services, changes))
    return services


def _follow_unclean_elections(live_configs: LiveConfigs, controller: Controller) -> None:
    """Have the controller follow unclean.leader.election.enable of the brokers and of topics."""

    def of_brokers(config: BrokerConfig) -> None:
        controller.follow_unclean_default(is_enabled=config.unclean_leader_election_enable)

    def of_topic(topic: str | None) -> None:
        if topic is not None and live_configs.topic_values(topic)[UNCLEAN_CONFIG]:
            controller.elect_where_unclean_is_enabled()

    of_brokers(live_configs.broker)
    live_configs.on_broker_change(of_brokers)
    live_configs.on_topic_change(of_topic)


def _client_quotas(opened: Foundation) -> ClientQuotas:
    """Return the quotas of clients, which follow the store."""
    config, dynamic_configs = opened.config, opened.dynamic_configs
    quotas = ClientQuotas(
        Windows(config.quota_window_size_seconds * 1000, config.quota_window_num),
        Windows(
            config.controller_quota_window_size_seconds * 1000, config.controller_quota_window_num
        ),
        produce_default=_static_quota(config.quota_producer_default),
        fetch_default=_static_quota(config.quota_consumer_default),
    )

    def apply(entity_type: str, name: str) -> None:
        if entity_type in (USER_CONFIGS, CLIENT_CONFIGS):
            found = quotas_in(dynamic_configs.overrides(entity_type, name))
            quotas.change(entity_of_path(entity_type, name), found)

    for entity_type in (USER_CONFIGS, CLIENT_CONFIGS):
        for name in dynamic_configs.entities(entity_type):
            apply(entity_type, name)
    dynamic_configs.on_change(apply)
    return quotas


def _static_quota(value: int) -> float | None:
    """Return quota.producer.default or quota.consumer.default; None: their default, no limit."""
    return None if value == LONG_MAX else value


def _group_coordinator(
    opened: Foundation, replica_manager: ReplicaManager, metadata_cache: MetadataCache
) -> GroupCoordinatorService:
    config = opened.config
    return GroupCoordinatorService(
        opened.loggers.runtime(opened.runtime, GROUPS),
        config,
        ReplicatedPartitionWriter(replica_manager, config.offsets_commit_timeout_ms),
        lambda: (
            metadata_cache.partition_count(GROUP_METADATA_TOPIC)
            or config.offsets_topic_num_partitions
        ),
    )


def _leadership(
    opened: Foundation, replica_manager: ReplicaManager, controller: Controller
) -> Leadership:
    live_configs = opened.live_configs
    return Leadership(
        replica_manager,
        opened.runtime.clock,
        lambda topic: LogConfig.from_values(live_configs.topic_values(topic)),
        lambda: controller.broker_epoch,
        opened.config.replica_lag_time_max_ms,
        lambda topic: read_only(topic, opened.dynamic_configs.topic(topic)),
    )


def _links(
    opened: Foundation,
    replica_manager: ReplicaManager,
    metadata_cache: MetadataCache,
    topic_creator: TopicCreator,
    leadership: Leadership,
) -> LinkManager:
    """Return the links of topics to other clusters, which follow roles and configs."""
    links = LinkManager(
        opened.loggers.runtime(opened.runtime, REPLICAS),
        opened.config,
        replica_manager,
        opened.cluster_store,
        opened.dynamic_configs,
        metadata_cache,
        topic_creator,
    )
    leadership.on_role_change(links.on_role_change)
    opened.live_configs.on_topic_change(links.on_topic_change)
    return links


def _link_to(broker_id: int, services: Services, deliver: Deliver) -> MarkerLink | None:
    """Return the link for transaction markers to a broker, or None if its endpoint is
    unknown."""
    if broker_id == services.broker_id:
        return LocalLink(services.runtime, deliver)
    listener = services.config.inter_broker_listener
    endpoint = services.metadata_cache.broker_endpoint(broker_id, listener)
    if endpoint is None:
        return None
    return ChannelLink(
        services.runtime,
        BrokerInfo(broker_id, (endpoint,)),
        listener,
        controller_id=services.broker_id,
        timeout_ms=services.config.request_timeout_ms,
        security=security_between_brokers(services.config),
    )


async def _leads(services: Services, tp: TopicPartition) -> bool:
    """Return whether the store has this broker as leader of `tp`, in the epoch that it knows; raise
    StoreError. A leader that is elected again stays, in a newer epoch."""
    partition = services.replica_manager.partitions.get(tp)
    if partition is None or partition.role is not Role.LEADER:
        return False
    return await services.cluster_store.is_leader(tp, services.broker_id, partition.leader_epoch)


def _notify_coordinators(services: Services, changes: Sequence[RoleChange]) -> None:
    """Notify the coordinators: the leader of a partition of __consumer_offsets coordinates the
    groups in it, and likewise for __transaction_state."""
    coordinators: dict[str, GroupCoordinatorService | TransactionCoordinatorService] = {
        GROUP_METADATA_TOPIC: services.group_coordinator,
        TRANSACTION_STATE_TOPIC: services.transaction_coordinator,
    }
    for change in changes:
        topic, partition = change.topic_partition
        coordinator = coordinators.get(topic)
        if coordinator is not None:
            if change.role is Role.LEADER:
                coordinator.on_elected(partition, change.leader_epoch)
            else:
                gone = change.role is Role.NONE
                coordinator.on_resigned(partition, None if gone else change.leader_epoch)
