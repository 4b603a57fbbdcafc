"""Broker: starts the parts of a Kafka 2.7 broker in order, and stops them in reverse.

Start: the metadata store and the cluster id; configs from the store; the logs (recovering after a
crash); replicas, coordinators, controller; the listeners; the registration in the store; the
controller's election. The broker is ready once its metadata contains the controller and itself.

Stop: the listeners; controller and coordinators; the logs (flushed, checkpointed, marked clean);
the session with the store, which removes the registration.

Kafka 2.7: kafka.server.KafkaServer.
"""

import base64
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kctl import __version__
from kctl.broker.adoption import adopt_topics, check_is_new, known_identity
from kctl.broker.assembly import Foundation, assemble
from kctl.broker.broker_listeners import BrokerListeners
from kctl.broker.cluster_member import ClusterMember
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.config.live_configs import LiveConfigs
from kctl.broker.config.stored_passwords import StoredPasswords
from kctl.broker.configured_security import AccessControl, access_control
from kctl.broker.fast_paths import fast_paths
from kctl.broker.handlers import HANDLERS
from kctl.broker.log.log_cleaner import CleanerSettings
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager, LogManagerOptions
from kctl.broker.loggers import AUTHORIZER, LOGS, NETWORK, SERVER, broker_levels
from kctl.broker.network.server import SocketServer
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.request import Request, RequestContext
from kctl.broker.request_log import RequestLog
from kctl.broker.seed_topics import create_seed_topics
from kctl.broker.services import Services
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.model import BrokerInfo, Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message
from kctl.runtime.future import Future, wait_at_most
from kctl.runtime.log_levels import Loggers, TraceSink
from kctl.runtime.polling import poll_until
from kctl.runtime.runtime import Runtime
from kctl.runtime.undo import UndoStack
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import StoppingError
from kctl.store.interface import MetadataStore, SessionState

if TYPE_CHECKING:
    from kctl.broker.metering.metering import Metering

CLUSTER_ID_BYTES = 16
NO_ID = -1
READY_TIMEOUT_MS = 60_000
READY_POLL_MS = 5
# How long a start waits for the controller to send the topics that the store has.
TOPICS_KNOWN_TIMEOUT_MS = 10_000
# Maximum time at shutdown for the controller to find other leaders (Kafka's limit, by its configs,
# is above two minutes), and for any other step that depends on other processes.
CONTROLLED_SHUTDOWN_MS_MAX = 30_000
STOP_STEP_MS_MAX = 5_000

# Takes a request and its handler; calls that, now or later, or replies itself.
Interceptor = Callable[[Request, Callable[[Request], None]], None]


class Broker:
    """One broker in this process; several can run side by side."""

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
        metering: "Metering | None" = None,
        loggers: Loggers | None = None,
        slow_request_ms: int | None = None,
    ) -> None:
        """Create a broker.

        `store_directory` holds the embedded store; None: the store at `zookeeper.connect`. At
        `store_listener` other processes can use the embedded store like a ZooKeeper. `metering`
        measures the broker and serves what it measures. `loggers` are where it logs (default: the
        trace of `runtime`), also requests that take its loop for `slow_request_ms`.

        For tests: `store` replaces the store (the broker closes this session); `served` limits the
        APIs to a first and last version each; `interceptor` takes every request of a connection,
        and the function that would handle it.
        """
        self.runtime = runtime
        self._served = served or {key: (key.min_version, key.max_version) for key in HANDLERS}
        self._interceptor = interceptor
        self.metering = metering
        self.loggers = loggers or Loggers(TraceSink(runtime.trace), broker_levels())
        self._slow_request_ms = slow_request_ms
        self.config = config
        self.services: Services | None = None
        # None: access is not controlled.
        self._access: AccessControl | None = None
        # Requests received before the broker is registered: without its epoch it cannot recognize
        # those of a controller that still means its previous registration (KIP-380).
        self._early: list[Request] | None = []
        # Fails when the broker can no longer serve.
        self.failed: Future[None] = runtime.scheduler.future()
        self._store_directory = store_directory
        # Has the bound port once it listens.
        self.store_listener = store_listener
        self._store = store
        self._cluster_store: ClusterStore | None = None
        self.server: SocketServer | None = None
        self._listeners = BrokerListeners(self.loggers.runtime(runtime, NETWORK), config)
        # Its connections to other brokers; set by `start`.
        self.member: ClusterMember | None = None
        # The steps of the shutdown, in reverse order.
        self._undo = UndoStack(runtime.trace)

    # --- start -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part and return when it is ready to serve; raise KctlError with the cause."""
        metering = self.metering
        if metering is not None:
            metering.start()
            self._undo.push(metering.close)
        store = self._store = await self._open_store()
        self._undo.push(store.close)
        store.on_session_state(self._session_state_changed)
        self._serve_store(store)
        cluster_store = self._cluster_store = ClusterStore(store)
        known = known_identity(self.runtime.disk, self.config.log_dir_list)
        stored_id = await cluster_store.get_cluster_id()
        if self._store_directory is None and stored_id is None:
            check_is_new(known, self.config)
        await cluster_store.ensure_persistent_paths()
        # The owner of the log directories matters only if nothing else records it.
        is_new = self._store_directory is not None and stored_id is None
        cluster_id = (known.cluster_id if known and is_new else None) or self._new_cluster_id()
        if not is_new:
            cluster_id = await cluster_store.create_or_get_cluster_id(cluster_id)
        broker_id = await self._broker_id(cluster_store, known.broker_id if known else NO_ID)
        passwords = StoredPasswords(self.runtime, self.config, broker_id)
        await passwords.encode_again(cluster_store)
        server_runtime = self.loggers.runtime(self.runtime, SERVER)
        dynamic_configs = DynamicConfigs(server_runtime, cluster_store, passwords)
        await dynamic_configs.start()
        access_runtime = self.loggers.runtime(self.runtime, AUTHORIZER)
        self._access = await access_control(access_runtime, cluster_store, self.config)
        live_configs = LiveConfigs(self.config, broker_id, dynamic_configs, self.runtime.trace)
        log_manager = self._open_logs(broker_id, cluster_id, live_configs)
        if is_new:
            await self._adopt(cluster_store, log_manager, broker_id)
            await cluster_store.create_or_get_cluster_id(cluster_id)
        opened = Foundation(
            self.runtime, self.config, broker_id, cluster_id, cluster_store,
            dynamic_configs, live_configs, self._listeners, log_manager,
            None if self._access is None else self._access.acl_cache, self.loggers,
            ReplicaManager if metering is None else metering.make_replica_manager,
        )  # fmt: skip
        services = assemble(opened, self._served, self._broker_info, self._deliver)
        self.services = services
        log_manager.failure_channel.on_failure(lambda _log_dir, _why: self._log_dir_failed())
        self._start_coordinators(services)
        member = self.member = ClusterMember(services)
        member.start()
        self._undo.push(member.shutdown)
        await self._listen(live_configs, services)
        await services.controller.register_broker()
        early, self._early = self._early or [], None
        # One by one, because there may be many.
        for request in early:
            self.runtime.scheduler.call_soon(self._handle_early, request)
        services.controller.start()
        self._undo.push(
            partial(self._at_most, STOP_STEP_MS_MAX, "stepping down", services.controller.shutdown)
        )
        await self._until_ready(services)
        if metering is not None:
            metering.readiness.is_running = True
        self._undo.push(
            partial(self._at_most, CONTROLLED_SHUTDOWN_MS_MAX, "controlled shutdown", member.leave)
        )
        self.runtime.trace.event(
            "broker_started", broker_id=broker_id, cluster_id=cluster_id, version=__version__
        )

    async def _open_store(self) -> MetadataStore:
        if self._store is not None:
            return self._store
        if self._store_directory is not None:
            is_durable = self.config.log_flush_interval_messages == 1
            return EmbeddedStore.open(self.runtime, self._store_directory, fsync=is_durable)
        if not self.config.zookeeper_connect:
            raise UsageError("zookeeper.connect is not set")
        # kazoo takes 70 ms to import, so only brokers that need it do.
        from kctl.store.zookeeper import ZooKeeperStore

        return await ZooKeeperStore.open(
            self.runtime,
            self.config.zookeeper_connect,
            session_timeout_ms=self.config.zookeeper_session_timeout_ms,
            connection_timeout_ms=self.config.zookeeper_connection_timeout_ms or 18_000,
            creates_chroot=True,
        )

    def _serve_store(self, store: MetadataStore) -> None:
        listener, directory = self.store_listener, self._store_directory
        if listener is None or directory is None or not isinstance(store, EmbeddedStore):
            return
        from kctl.store.zookeeper_server import serve_store

        server, self.store_listener = serve_store(self.runtime, store.database, directory, listener)
        self._undo.push(server.close)

    def _new_cluster_id(self) -> str:
        raw = self.runtime.entropy.random_bytes(CLUSTER_ID_BYTES)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    async def _broker_id(self, cluster_store: ClusterStore, known_id: int) -> int:
        """Return broker.id or, if it is not set, the id in the log directories, or a new one."""
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

    def _open_logs(self, broker_id: int, cluster_id: str, live_configs: LiveConfigs) -> LogManager:
        config = self.config
        manager = LogManager(
            self.loggers.runtime(self.runtime, LOGS),
            config.log_dir_list,
            LogConfig.from_values(live_configs.broker.topic_defaults()),
            broker_id=broker_id,
            cluster_id=cluster_id,
            topic_config=lambda topic: LogConfig.from_values(live_configs.topic_values(topic)),
            options=LogManagerOptions(
                retention_check_interval_ms=config.log_retention_check_interval_ms,
                checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
                high_watermark_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
                producer_expiration_ms=config.transactional_id_expiration_ms,
                cleaner=lambda: _cleaner_settings(live_configs.broker),
            ),
        )
        self._undo.push(manager.close)
        manager.start()
        live_configs.on_topic_change(manager.refresh_configs)
        return manager

    def _start_coordinators(self, services: Services) -> None:
        for coordinator in (services.group_coordinator, services.transaction_coordinator):
            coordinator.start()
            self._undo.push(coordinator.shutdown)

    async def _listen(self, live_configs: LiveConfigs, services: Services) -> None:
        self._undo.push(self._listeners.close)
        # An interceptor must receive every request.
        is_direct = self._interceptor is None
        handle = self._handle if is_direct else self._intercept
        paths = fast_paths(services) if is_direct else {}
        metering = self.metering
        self.server = await self._listeners.start(
            services,
            live_configs,
            handle,
            paths if metering is None else metering.fast_paths(paths),
            None if self._access is None else partial(self._access.may_be_decoded, services),
        )

        if metering is not None:
            metering.attach(services, self.server)
        now_ms = self.runtime.clock.monotonic_ms
        RequestLog(self.loggers, now_ms, self._slow_request_ms).attach(self.server)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Return the listening endpoints with the bound ports; none before the start."""
        return [] if self.server is None else self.server.endpoints

    async def _until_ready(self, services: Services) -> None:
        """Wait for an UpdateMetadata with a controller and this broker, then for the topics, so
        that early clients do not get UNKNOWN_TOPIC_OR_PARTITION."""
        cache = services.metadata_cache

        def is_ready() -> bool:
            return cache.controller_id is not None and cache.is_broker_alive(services.broker_id)

        if not await poll_until(self.runtime, is_ready, READY_TIMEOUT_MS, READY_POLL_MS):
            raise TimedOutError(
                f"no controller has contacted this broker for {READY_TIMEOUT_MS // 1000} s",
                hint="check the log of the broker that /controller names",
            )
        store = services.cluster_store
        topics = set(await store.get_all_topics()) - set(await store.get_topic_deletions())
        # A topic may be deleted meanwhile: the broker is ready in any case.
        await poll_until(
            self.runtime,
            lambda: all(map(cache.contains, topics)),
            TOPICS_KNOWN_TIMEOUT_MS,
            READY_POLL_MS,
        )

    # --- running -----------------------------------------------------------------------------

    def _handle(self, request: Request) -> None:
        services = self.services
        assert services is not None
        if self._early is not None:
            self._early.append(request)
            return
        access = self._access
        allowed = request if access is None else access.authorized(services, request)
        if allowed is not None:
            HANDLERS[request.api_key](services, allowed)

    def _handle_early(self, request: Request) -> None:
        if request.is_abandoned:
            return
        try:
            self._handle(request)
        except Exception as error:  # noqa: BLE001 - corrupt, or a bug: it must not stop the start
            request.fail(error)

    def _intercept(self, request: Request) -> None:
        assert self._interceptor is not None
        self._interceptor(request, self._handle)

    def _deliver(self, message: Message) -> Future[Message]:
        """Handle a request of the controller in this process as if it arrived over a socket."""
        answer: Future[Message] = self.runtime.scheduler.future()

        def failed(_request: Request, error: Exception) -> None:
            # The sender retries, as after a closed connection.
            if not answer.done:
                answer.set_error(UnreachableError(f"the request was not handled: {error!r}"))
            if not isinstance(error, StoppingError):
                raise error

        key = message.api
        assert isinstance(key, ApiKey)
        self._handle(
            Request(
                api_key=key,
                api_version=key.max_version,
                correlation_id=0,
                client_id=None,
                body=message,
                context=RequestContext(
                    "controller", "", self.config.inter_broker_listener, is_internal=True
                ),
                received_ms=self.runtime.clock.monotonic_ms(),
                send=answer.set_result,  # type: ignore[arg-type]  # the controller is answered
                close=lambda: None,
                failed=failed,
            )
        )
        return answer

    def _broker_info(self) -> BrokerInfo:
        assert self.services is not None
        return BrokerInfo(
            self.services.broker_id, tuple(self.advertised_endpoints()), self.config.broker_rack
        )

    def advertised_endpoints(self) -> list[Endpoint]:
        """Return the advertised listeners, with the bound port for 0 and this host for an empty
        host."""
        return self._listeners.advertised()

    def _session_state_changed(self, state: SessionState) -> None:
        """Fail the broker when its client of the metadata store has failed."""
        if self.metering is not None:
            self.metering.readiness.session = state
        if state is SessionState.FAILED and not self.failed.done:
            failure = self._store.failure if self._store is not None else None
            self.failed.set_error(failure or UnreachableError("the metadata store's client ended"))

    def _log_dir_failed(self) -> None:
        """Notify the controller of a failed log directory (KIP-112); fail the broker without any
        left."""
        services = self.services
        assert services is not None
        channel = services.log_manager.failure_channel
        if services.log_manager.live_log_dirs:
            self.runtime.scheduler.spawn(self._notify_controller(services), "log-dir-event")
        elif not self.failed.done:
            self.failed.set_error(channel.error("all log directories failed"))

    async def _notify_controller(self, services: Services) -> None:
        try:
            await services.cluster_store.propagate_log_dir_event(services.broker_id)
        except KctlError as error:
            self.runtime.trace.warning(f"cannot notify the controller of the failure: {error}")

    async def create_topics(self, topics: Iterable[tuple[str, int]]) -> None:
        """Create those of `topics` (name, partitions) that do not exist; raise KctlError."""
        assert self.services is not None
        await create_seed_topics(self.services, topics)

    async def set_passwords(self, users: Mapping[str, str]) -> None:
        """Store SCRAM credentials of `users`, name -> password; KctlError."""
        # A local import: brokers without users do not need it.
        from kctl.broker.credentials import store_passwords

        services = self.services
        assert services is not None
        await store_passwords(self.runtime, services.cluster_store, services.dynamic_configs, users)

    # --- stop --------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Stop everything that was started, in reverse order; safe to call if nothing was.

        Bounded by CONTROLLED_SHUTDOWN_MS_MAX, STOP_STEP_MS_MAX, the server's DRAIN_MS and the
        store's CLOSE_MS_MAX, plus the time that the disk needs to flush the logs.
        """
        if self.metering is not None:
            self.metering.readiness.is_stopping = True
        if self._cluster_store is not None:
            self._cluster_store.stop_waiting()
        services = self.services
        if services is not None:
            self.runtime.trace.event("broker_stopping", broker_id=services.broker_id)
        await self._undo.run()
        if services is not None:
            self.runtime.trace.event("broker_stopped", broker_id=services.broker_id)

    async def _at_most(
        self, limit_ms: int, what: str, step: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        """Wait for a step of the shutdown for at most `limit_ms`; raise TimedOutError."""
        scheduler = self.runtime.scheduler
        too_long = TimedOutError(f"{what} took longer than {limit_ms} ms")
        await wait_at_most(scheduler, scheduler.spawn(step(), what), limit_ms, too_long)


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """Return the current settings of the cleaner, which calls this for every log."""
    return CleanerSettings(
        is_enabled=config.log_cleaner_enable,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=config.log_cleaner_io_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )
