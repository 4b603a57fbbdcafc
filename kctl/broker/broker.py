"""Broker: builds every part of a Kafka 2.7 broker, starts them in order, stops them in reverse.

Start: the metadata store and the cluster's id; settings from the store; the logs (recovering what
a crash left); replicas, coordinators, controller; the listeners; the registration in the store;
the controller's election. It is ready once it knows the controller and has been told of itself.

Stop: the listeners; controller and coordinators; the logs (flushed, checkpointed, marked clean);
the session with the store, which takes the registration with it.

Kafka 2.7: kafka.server.KafkaServer.
"""

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kctl.broker.adoption import adopt_topics, known_identity
from kctl.broker.auto_topic_creation import AutoTopicCreator
from kctl.broker.cluster_member import ClusterMember
from kctl.broker.config import BrokerConfig
from kctl.broker.config_entries import BrokerConfigView
from kctl.broker.controller.broker_link import ChannelLink
from kctl.broker.controller.channel_manager import LocalLink
from kctl.broker.controller.controller import Controller
from kctl.broker.coordinator.group_coordinator_service import (
    GROUP_METADATA_TOPIC,
    GroupCoordinatorService,
)
from kctl.broker.coordinator.marker_sender import MarkerLink
from kctl.broker.coordinator.transaction_coordinator_service import (
    TRANSACTION_STATE_TOPIC,
    TransactionCoordinatorService,
)
from kctl.broker.dynamic_config import BROKERS, DEFAULT, TOPICS, DynamicConfigs
from kctl.broker.fetch_session import FetchSessionCache
from kctl.broker.handlers import HANDLERS
from kctl.broker.handlers.plain_commits import PlainCommits
from kctl.broker.handlers.plain_produce import PlainProduce
from kctl.broker.log.log_cleaner import CleanerSettings
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager, LogManagerOptions
from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.server import ShortRoad, SocketServer
from kctl.broker.network.server_connection import API_KEY_BYTES
from kctl.broker.producer_ids import ProducerIdManager
from kctl.broker.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from kctl.broker.replication.leadership import Leadership, RoleChange
from kctl.broker.replication.partition import Role
from kctl.broker.replication.partition_writer import ReplicatedPartitionWriter
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.replication.replica_selector import replica_selector
from kctl.broker.request import Request, RequestContext
from kctl.broker.services import Services
from kctl.broker.topic_configs import TOPIC_CONFIGS
from kctl.broker.topic_creation import NewTopic, TopicCreator
from kctl.broker.topic_waits import TopicWaits
from kctl.errors import KctlError, StorageError, TimedOutError, UsageError
from kctl.model import BrokerInfo, Endpoint, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.schema import Message
from kctl.runtime.future import Future, sleep
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from kctl.store.interface import MetadataStore

CLUSTER_ID_BYTES = 16
NO_ID = -1
READY_TIMEOUT_MS = 60_000
READY_POLL_MS = 5
# How long topics that were asked for wait for the brokers that shall hold them.
OTHERS_TIMEOUT_MS = 5_000
SEED_TOPIC_TIMEOUT_MS = 30_000

# Gets a request and what handles it: calls that, now or later, or answers itself.
Interceptor = Callable[[Request, Callable[[Request], None]], None]


class Broker:
    """One broker in this process; a runtime's worth of them can live side by side."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        store_directory: str | None,
        *,
        store_listener: Endpoint | None = None,
        store: MetadataStore | None = None,
        served: Mapping[ApiKey, tuple[int, int]] | None = None,
        interceptor: Interceptor | None = None,
    ) -> None:
        """`store_directory` holds the embedded store; None: `zookeeper.connect` is asked. At
        `store_listener` other processes may use the embedded store as if it were ZooKeeper.

        For tests: `store` is used instead, a session that is the broker's to close; `served`
        narrows the APIs to first and last version each; `interceptor` gets every request of a
        connection, and the function that would handle it.
        """
        self.runtime = runtime
        self._served = served or {key: (key.min_version, key.max_version) for key in HANDLERS}
        self._interceptor = interceptor
        self.config = config
        self.services: Services | None = None
        self.endpoints: list[Endpoint] = []
        # `config` with the overrides that the store holds for it.
        self._effective = config
        # Requests that came before the broker is registered: without its epoch it cannot tell those
        # of a controller that still means its previous self (KIP-380).
        self._early: list[Request] | None = []
        # Ends with an error when the broker can serve no longer.
        self.failed: Future[None] = runtime.scheduler.future()
        self._store_directory = store_directory
        # With the port in fact bound, once it listens.
        self.store_listener = store_listener
        self._store = store
        self._server: SocketServer | None = None
        # Its ties to other brokers; there from `start` on.
        self.member: ClusterMember | None = None
        # What to do at shutdown, the last first.
        self._undo: list[Callable[[], Awaitable[object] | None]] = []

    # --- start -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part; ready to serve when it returns. KctlError names what is wrong."""
        store = self._store = await self._open_store()
        self._undo.append(store.close)
        self._serve_store(store)
        cluster_store = ClusterStore(store)
        await cluster_store.ensure_persistent_paths()
        # Whose the log directories are counts where nothing else remembers it.
        is_new = self._store_directory is not None and await cluster_store.get_cluster_id() is None
        known = known_identity(self.runtime.disk, self.config.log_dir_list)
        cluster_id = (known.cluster_id if known and is_new else None) or self._new_cluster_id()
        if not is_new:
            cluster_id = await cluster_store.create_or_get_cluster_id(cluster_id)
        dynamic_configs = DynamicConfigs(self.runtime, cluster_store)
        await dynamic_configs.start()
        broker_id = await self._broker_id(cluster_store, known.broker_id if known else NO_ID)
        self._effective = self._with_overrides(broker_id, dynamic_configs)
        log_manager = self._open_logs(broker_id, cluster_id, dynamic_configs)
        if is_new:
            await self._adopt(cluster_store, log_manager, broker_id)
            await cluster_store.create_or_get_cluster_id(cluster_id)
        services = self._build(broker_id, cluster_store, cluster_id, dynamic_configs, log_manager)
        self.services = services
        member = self.member = ClusterMember(services)
        member.start()
        self._undo.append(member.shutdown)
        self._listen()
        await services.controller.register_broker()
        early, self._early = self._early or [], None
        for request in early:
            self._handle(request)
        services.controller.start()
        self._undo.append(services.controller.shutdown)
        await self._until_ready(services)
        self._undo.append(member.leave)

    async def _open_store(self) -> MetadataStore:
        if self._store is not None:
            return self._store
        if self._store_directory is not None:
            is_durable = self.config.log_flush_interval_messages == 1
            return EmbeddedStore.open(self.runtime, self._store_directory, fsync=is_durable)
        if not self.config.zookeeper_connect:
            raise UsageError("zookeeper.connect is not set")
        # kazoo takes 70 ms to load: only who needs it pays.
        from kctl.store.zookeeper import ZooKeeperStore

        return await ZooKeeperStore.open(
            self.runtime,
            self.config.zookeeper_connect,
            session_timeout_ms=self.config.zookeeper_session_timeout_ms,
            connection_timeout_ms=self.config.zookeeper_connection_timeout_ms or 18_000,
        )

    def _serve_store(self, store: MetadataStore) -> None:
        listener, directory = self.store_listener, self._store_directory
        if listener is None or directory is None or not isinstance(store, EmbeddedStore):
            return
        from kctl.store.zookeeper_server import ZooKeeperServer, session_passwords

        runtime = self.runtime
        passwords = session_passwords(runtime.disk, runtime.entropy, directory)
        server = ZooKeeperServer(runtime, store.database, passwords)
        port = server.start(listener.host, listener.port)
        self.store_listener = replace(listener, port=port)
        self._undo.append(server.close)

    def _new_cluster_id(self) -> str:
        raw = self.runtime.entropy.random_bytes(CLUSTER_ID_BYTES)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    async def _broker_id(self, cluster_store: ClusterStore, known_id: int) -> int:
        """broker.id; if it is not set, the one that the log directories know, or a new one."""
        config = self.config
        if config.broker_id >= 0:
            return config.broker_id
        if known_id >= 0:
            return known_id
        if not config.broker_id_generation_enable:
            raise UsageError("broker.id is not set and broker.id.generation.enable is false")
        return config.reserved_broker_max_id + await cluster_store.generate_broker_sequence_id()

    async def _adopt(
        self, cluster_store: ClusterStore, log_manager: LogManager, broker_id: int
    ) -> None:
        adoption = await adopt_topics(
            self.runtime.disk, cluster_store, log_manager, broker_id, self.config
        )
        if adoption.topics:
            self.runtime.trace.info(str(adoption))

    def _open_logs(
        self, broker_id: int, cluster_id: str, dynamic_configs: DynamicConfigs
    ) -> LogManager:
        config = self.config
        manager = LogManager(
            self.runtime,
            config.log_dir_list,
            LogConfig.from_values(self._effective.topic_defaults()),
            broker_id=broker_id,
            cluster_id=cluster_id,
            topic_config=lambda topic: self._log_config(dynamic_configs, topic),
            options=LogManagerOptions(
                retention_check_interval_ms=config.log_retention_check_interval_ms,
                checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
                high_watermark_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
                producer_expiration_ms=config.transactional_id_expiration_ms,
                cleaner=lambda: _cleaner_settings(self._effective),
            ),
        )
        self._undo.append(manager.close)
        manager.start()
        return manager

    def _build(
        self,
        broker_id: int,
        cluster_store: ClusterStore,
        cluster_id: str,
        dynamic_configs: DynamicConfigs,
        log_manager: LogManager,
    ) -> Services:
        runtime, config = self.runtime, self.config
        metadata_cache = MetadataCache(broker_id)
        topic_creator = TopicCreator(cluster_store, metadata_cache, config, runtime.entropy)
        replica_manager = ReplicaManager(runtime, config, broker_id, log_manager)
        replica_manager.select_replica = replica_selector(
            config.replica_selector_class, metadata_cache.rack
        )
        controller = Controller(
            runtime, cluster_store, broker_id, self._broker_info, config, self._deliver
        )
        group_coordinator = GroupCoordinatorService(
            runtime,
            config,
            ReplicatedPartitionWriter(replica_manager, config.offsets_commit_timeout_ms),
            lambda: (
                metadata_cache.partition_count(GROUP_METADATA_TOPIC)
                or config.offsets_topic_num_partitions
            ),
        )
        producer_ids = ProducerIdManager(runtime.scheduler, cluster_store, broker_id)
        transaction_coordinator = TransactionCoordinatorService(
            runtime, config, ReplicatedPartitionWriter(replica_manager, config.request_timeout_ms),
            metadata_cache, producer_ids, lambda leader_id: self._link_to(leader_id, services),
            cluster_store.topic_stays,
        )  # fmt: skip
        leadership = Leadership(
            replica_manager, runtime.clock, lambda topic: self._log_config(dynamic_configs, topic),
            lambda: controller.broker_epoch, config.replica_lag_time_max_ms,
        )  # fmt: skip
        services = Services(
            runtime=runtime,
            config=config,
            broker_id=broker_id,
            cluster_id=cluster_id,
            metadata_cache=metadata_cache,
            replica_manager=replica_manager,
            log_manager=log_manager,
            cluster_store=cluster_store,
            controller=controller,
            group_coordinator=group_coordinator,
            transaction_coordinator=transaction_coordinator,
            auto_topics=AutoTopicCreator(runtime, topic_creator, metadata_cache, config),
            topic_creator=topic_creator,
            topic_waits=TopicWaits(runtime, metadata_cache),
            producer_ids=producer_ids,
            dynamic_configs=dynamic_configs,
            fetch_sessions=FetchSessionCache(
                config.max_incremental_fetch_session_cache_slots, runtime.entropy.random_below
            ),
            leadership=leadership,
            alter_log_dirs=ReplicaAlterLogDirsManager(
                runtime, replica_manager, metadata_cache.partition
            ),
            served=self._served,
        )
        leadership.on_role_change(lambda changes: _tell_coordinators(services, changes))
        dynamic_configs.on_change(self._config_changed)
        log_manager.failure_channel.on_failure(lambda _log_dir, _why: self._log_dir_failed())
        for coordinator in (group_coordinator, transaction_coordinator):
            coordinator.start()
            self._undo.append(coordinator.shutdown)
        return services

    def _link_to(self, broker_id: int, services: Services) -> MarkerLink | None:
        """How transaction markers get to a broker; None if nobody knows where it is."""
        if broker_id == services.broker_id:
            return LocalLink(self.runtime, self._deliver)
        listener = self.config.inter_broker_listener
        endpoint = services.metadata_cache.broker_endpoint(broker_id, listener)
        if endpoint is None:
            return None
        return ChannelLink(
            self.runtime,
            BrokerInfo(broker_id, (endpoint,)),
            listener,
            controller_id=services.broker_id,
            timeout_ms=self.config.request_timeout_ms,
        )

    def _listen(self) -> None:
        config = self.config
        self._server = SocketServer(
            self.runtime,
            config.listener_list,
            {int(key): versions for key, versions in self._served.items()},
            self._handle if self._interceptor is None else self._intercept,
            NetworkLimits.of(self._effective),
            self._short_roads(),
        )
        self.endpoints = self._server.start()
        self._undo.append(self._server.close)

    def _short_roads(self) -> dict[bytes, ShortRoad]:
        """What is answered without a Request; none where each Request is to be seen."""
        services = self.services
        if services is None or self._interceptor is not None:
            return {}
        produce = PlainProduce(services.replica_manager, self._served[ApiKey.PRODUCE][1])
        commit = PlainCommits(services, self._served[ApiKey.OFFSET_COMMIT][1])
        return {
            int(ApiKey.PRODUCE).to_bytes(API_KEY_BYTES, "big"): produce.answer,
            int(ApiKey.OFFSET_COMMIT).to_bytes(API_KEY_BYTES, "big"): commit.answer,
        }

    async def _until_ready(self, services: Services) -> None:
        """Wait for the first UpdateMetadata that names a controller and this broker."""
        cache = services.metadata_cache

        def is_ready() -> bool:
            return cache.controller_id is not None and cache.is_broker_alive(services.broker_id)

        if not await self._until(is_ready, READY_TIMEOUT_MS):
            raise TimedOutError(
                f"no controller has spoken to this broker in {READY_TIMEOUT_MS // 1000} s",
                hint="look at the log of the broker that /controller names",
            )

    async def _until(self, holds: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until `holds()`, which is asked again and again; whether it did in time."""
        clock = self.runtime.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while not holds():
            if clock.monotonic_ms() > deadline_ms:
                return False
            await sleep(self.runtime.scheduler, READY_POLL_MS)
        return True

    # --- running -----------------------------------------------------------------------------

    def _handle(self, request: Request) -> None:
        services = self.services
        assert services is not None
        if self._early is not None:
            self._early.append(request)
            return
        HANDLERS[request.api_key](services, request)

    def _intercept(self, request: Request) -> None:
        assert self._interceptor is not None
        self._interceptor(request, self._handle)

    def _deliver(self, message: Message) -> Future[Message]:
        """The controller of this very process speaks to its broker: as if by a socket."""
        answer: Future[Message] = self.runtime.scheduler.future()
        key = message.api
        assert key is not None
        self._handle(
            Request(
                api_key=key,
                api_version=key.max_version,
                correlation_id=0,
                client_id=None,
                body=message,
                context=RequestContext("controller", "", self.config.inter_broker_listener),
                received_ms=self.runtime.clock.monotonic_ms(),
                send=answer.set_result,  # type: ignore[arg-type]  # the controller is answered
                close=lambda: None,
            )
        )
        return answer

    def _broker_info(self) -> BrokerInfo:
        assert self.services is not None
        return BrokerInfo(
            self.services.broker_id, tuple(self.advertised_endpoints()), self.config.broker_rack
        )

    def advertised_endpoints(self) -> list[Endpoint]:
        """What clients are told: a port 0 is the one in fact bound, no host is this machine."""
        bound = {endpoint.listener_name: endpoint for endpoint in self.endpoints}
        advertised = []
        for wanted in self.config.advertised_listener_list:
            port = wanted.port or bound[wanted.listener_name].port
            advertised.append(
                Endpoint(
                    wanted.host or self.runtime.network.local_host_name(),
                    port,
                    wanted.listener_name,
                    wanted.security_protocol,
                )
            )
        return advertised

    def _with_overrides(self, broker_id: int, dynamic_configs: DynamicConfigs) -> BrokerConfig:
        return BrokerConfigView(
            self.config,
            dynamic_configs.overrides(BROKERS, str(broker_id)),
            dynamic_configs.overrides(BROKERS, DEFAULT),
        ).effective()

    def _log_config(self, dynamic_configs: DynamicConfigs, topic: str) -> LogConfig:
        values = self._effective.topic_defaults()
        for name, text in dynamic_configs.topic(topic).items():
            if name in TOPIC_CONFIGS:
                values[name] = TOPIC_CONFIGS[name].key.parse(text)
        return LogConfig.from_values(values)

    def _config_changed(self, entity_type: str, entity_name: str) -> None:
        """Logs and listeners take their new settings at once."""
        services, server = self.services, self._server
        assert services is not None
        is_ours = entity_type == BROKERS and entity_name in (DEFAULT, str(services.broker_id))
        if is_ours:
            self._effective = self._with_overrides(services.broker_id, services.dynamic_configs)
            if server is not None:
                server.limits = NetworkLimits.of(self._effective)
        for log in services.log_manager.all_logs():
            topic = log.topic_partition.topic
            if is_ours or (entity_type == TOPICS and topic == entity_name):
                log.config = self._log_config(services.dynamic_configs, topic)

    def _log_dir_failed(self) -> None:
        """KIP-112: the controller finds other leaders for what is lost; without a directory left
        there is no broker."""
        services = self.services
        assert services is not None
        offline = services.log_manager.failure_channel.offline
        if services.log_manager.live_log_dirs:
            self.runtime.scheduler.spawn(self._tell_controller(services), "log-dir-event")
        elif not self.failed.done:
            reasons = "; ".join(offline.values())
            self.failed.set_error(StorageError(f"all log directories failed: {reasons}"))

    async def _tell_controller(self, services: Services) -> None:
        try:
            await services.cluster_store.propagate_log_dir_event(services.broker_id)
        except KctlError as error:
            self.runtime.trace.warning(f"the controller cannot be told of the failure: {error}")

    async def create_topics(self, topics: Iterable[tuple[str, int]]) -> None:
        """Create those of `topics` (name, partitions) that are not there; KctlError."""
        services = self.services
        assert services is not None
        # In vain is found out by who creates them.
        brokers = self.config.default_replication_factor
        cache = services.metadata_cache
        await self._until(lambda: len(cache.alive_brokers()) >= brokers, OTHERS_TIMEOUT_MS)
        wanted = []
        for name, partitions in topics:
            count = partitions
            try:
                await services.topic_creator.create(
                    NewTopic(name, partitions, self.config.default_replication_factor)
                )
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise UsageError(f"seed topic {name}: {error}") from None
                count = await self._partitions_there(services, name)
                if count != partitions:
                    self.runtime.trace.warning(f"seed topic {name}: has {count} partitions already")
            wanted.append((name, self._partitions_to_come(services, name, count)))
        await services.topic_waits.wait(
            [name for name, _ in wanted],
            lambda: all(not cache.missing_leader_count(name, come) for name, come in wanted),
            SEED_TOPIC_TIMEOUT_MS,
        )

    async def _partitions_there(self, services: Services, topic: str) -> int:
        found = await services.cluster_store.get_topic_assignments([topic])
        return len(found.get(topic, ()))

    def _partitions_to_come(self, services: Services, topic: str, count: int) -> list[int]:
        """Those of a topic's partitions that will have a leader: not what was found damaged, or
        may be in a directory that is offline."""
        manager = services.log_manager
        if manager.offline_log_dirs:
            return []
        damaged = manager.damaged
        return [number for number in range(count) if TopicPartition(topic, number) not in damaged]

    # --- stop --------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Stop what was started, the last first; harmless when nothing was."""
        while self._undo:
            try:
                result = self._undo.pop()()
                if result is not None:
                    await result
            except KctlError as error:
                # What can still be closed, is.
                self.runtime.trace.warning(f"while stopping: {error}")


def _tell_coordinators(services: Services, changes: Sequence[RoleChange]) -> None:
    """Who leads a partition of __consumer_offsets coordinates the groups kept there; so with
    __transaction_state and transactions."""
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


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """As they are now: the cleaner asks anew for every log."""
    return CleanerSettings(
        is_enabled=config.log_cleaner_enable,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=config.log_cleaner_io_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )
