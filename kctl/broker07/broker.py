"""Broker07: starts the parts of a broker of Kafka 0.7 in order, and stops them in reverse.

Start: the logs (recovered after a crash), the metadata store, the listener, the registration. Stop:
the listener, once the requests in flight are over; the session with the store, which removes the
registration; the logs, flushed and marked clean.

Kafka 0.7: kafka.server.KafkaServer
"""

from dataclasses import replace
from typing import NamedTuple

from kctl.broker07.config import Broker07Config
from kctl.broker07.handlers import Handlers07
from kctl.broker07.log_manager import LogManager07
from kctl.broker07.registration import Registration
from kctl.broker07.server import Server07
from kctl.errors import UnreachableError, UsageError
from kctl.model import Endpoint
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.undo import UndoStack
from kctl.store.embedded import EmbeddedStore
from kctl.store.interface import MetadataStore, SessionState


class Places(NamedTuple):
    """Where a broker listens and what it registers in."""

    listener: Endpoint
    # The host that is registered.
    advertised_host: str
    # Of kctl's own store, which `store_listener` serves; None: a ZooKeeper, or none at all.
    store_directory: str | None = None
    store_listener: Endpoint | None = None


class Broker07:
    """One broker in this process."""

    def __init__(
        self,
        runtime: Runtime,
        config: Broker07Config,
        places: Places,
        *,
        store: MetadataStore | None = None,
    ) -> None:
        """Create a broker. Tests pass the `store`, which the broker closes."""
        self._runtime = runtime
        self._config = config
        self._places = places
        self._store = store
        self._undo = UndoStack(runtime.trace)
        self.logs = LogManager07(runtime, config)
        self.server = Server07(
            runtime, Handlers07(runtime, config, self.logs), config.request_bytes_max
        )
        # With the bound ports, once it listens.
        self.endpoint = places.listener
        self.store_listener = places.store_listener
        # Fails when the broker can no longer serve.
        self.failed: Future[None] = runtime.scheduler.future()
        self._registration: Registration | None = None

    async def start(self) -> None:
        """Start every part; return when the broker serves and is registered. KctlError."""
        self._undo.push(self.logs.stop)
        await self.logs.start()
        store = await self._open_store()
        self._undo.push(self.server.close)
        self.endpoint = self.server.start(self._places.listener.host, self._places.listener.port)
        if store is not None:
            await self._register(store)

    async def _open_store(self) -> MetadataStore | None:
        config, places = self._config, self._places
        store = self._store
        if store is None and places.store_directory is not None:
            store = EmbeddedStore.open(self._runtime, places.store_directory)
            self._undo.push(store.close)
            self._serve_store(store, places.store_directory)
        elif store is None and config.uses_zookeeper:
            if not config.zookeeper_connect:
                raise UsageError("zk.connect is not set")
            # kazoo takes 70 ms to import, so only brokers that need it do.
            from kctl.store.zookeeper import ZooKeeperStore

            store = await ZooKeeperStore.open(
                self._runtime,
                config.zookeeper_connect,
                session_timeout_ms=config.session_timeout_ms,
                connection_timeout_ms=config.connection_timeout_ms or config.session_timeout_ms,
                creates_chroot=True,
            )
            self._undo.push(store.close)
        elif store is not None:
            self._undo.push(store.close)
        self._store = store
        return store

    def _serve_store(self, store: EmbeddedStore, directory: str) -> None:
        from kctl.store.zookeeper_server import serve_store

        listener = self._places.store_listener
        if listener is not None:
            server, self.store_listener = serve_store(
                self._runtime, store.database, directory, listener
            )
            self._undo.push(server.close)

    async def _register(self, store: MetadataStore) -> None:
        store.on_session_state(self._session_state_changed)
        advertised = replace(self.endpoint, host=self._places.advertised_host)
        registration = Registration(self._runtime, self._config, store, advertised)
        for topic in self.logs.topics:
            registration.add_topic(topic)
        self.logs.on_topic = registration.add_topic
        registration.start()
        self._registration = registration
        self._undo.push(registration.stop)
        await registration.ready

    def _session_state_changed(self, state: SessionState) -> None:
        if state is SessionState.FAILED and not self.failed.done:
            failure = self._store.failure if self._store is not None else None
            self.failed.set_error(failure or UnreachableError("the client of ZooKeeper ended"))

    async def shutdown(self) -> None:
        """Stop everything that was started, in reverse order; safe to call if nothing was."""
        await self._undo.run()
