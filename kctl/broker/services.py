"""Services: the parts of a running broker that request handlers work with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kctl.broker.auto_topic_creation import AutoTopicCreator
from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.controller.controller import Controller
from kctl.broker.coordinator.group_coordinator_service import GroupCoordinatorService
from kctl.broker.coordinator.transaction_coordinator_service import TransactionCoordinatorService
from kctl.broker.fetch_session import FetchSessionCache
from kctl.broker.links.link_manager import LinkManager
from kctl.broker.log.log_manager import LogManager
from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.producer_ids import ProducerIdManager
from kctl.broker.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from kctl.broker.replication.leadership import Leadership
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.topic_creation import TopicCreator
from kctl.broker.topic_waits import TopicWaits
from kctl.configs.broker_config import BrokerConfig
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.runtime.log_levels import Loggers
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore

if TYPE_CHECKING:
    from kctl.broker.delegation_tokens import DelegationTokens
    from kctl.broker.security.acl_cache import AclCache


class ListenerChanges(Protocol):
    """The listeners, as far as changes of configs concern them (`BrokerListeners`)."""

    async def check(self, after: BrokerConfig) -> None:
        """Raise UsageError if the listeners cannot follow `after`."""
        ...

    def apply(self, after: BrokerConfig) -> None:
        """Begin to follow `after`; also reads stores again whose files have changed."""
        ...


@dataclass(slots=True)
class Services:
    """The parts of one broker; made by `kctl.broker.assembly`, never changed afterwards."""

    runtime: Runtime
    config: BrokerConfig
    broker_id: int
    cluster_id: str
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    log_manager: LogManager
    cluster_store: ClusterStore
    controller: Controller
    group_coordinator: GroupCoordinatorService
    transaction_coordinator: TransactionCoordinatorService
    auto_topics: AutoTopicCreator
    topic_creator: TopicCreator
    topic_waits: TopicWaits
    producer_ids: ProducerIdManager
    dynamic_configs: DynamicConfigs
    listeners: ListenerChanges
    fetch_sessions: FetchSessionCache
    # None: delegation tokens are not configured.
    delegation_tokens: "DelegationTokens | None"
    leadership: Leadership
    alter_log_dirs: ReplicaAlterLogDirsManager
    # None: access is not controlled.
    acl_cache: "AclCache | None"
    client_quotas: ClientQuotas
    # Topics that follow those of other clusters.
    links: LinkManager
    # Its logs, by name, and their levels.
    loggers: Loggers
    # The content of ApiVersions: API -> (first, last) version.
    served: Mapping[ApiKey, tuple[int, int]]
