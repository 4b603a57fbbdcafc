"""BrokerListeners: a broker's listeners, and their changes while it runs.

The overrides in the store may ask for other key and trust stores, limits and listeners. Listeners
are added and removed by name: one that stays keeps its address and protocol until a restart.

A change is checked when a client asks for it, and again when it is applied, since tools may write
to the store directly and files may change meanwhile. Changes are applied one after another, the
last state of the configs wins, and one that fails is logged and changes nothing.

Kafka 2.7: kafka.server.{DynamicBrokerConfig, DynamicListenerConfig},
org.apache.kafka.common.network.SslChannelBuilder; KIP-226
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.broker.config.config_changes import is_other_listeners
from kctl.broker.config.live_configs import LiveConfigs
from kctl.broker.configured_security import credentials
from kctl.broker.network.connection_host import FastPath
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.server import SocketServer
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError, UsageError
from kctl.model import Endpoint
from kctl.runtime.runtime import Runtime
from kctl.store.errors import NoNodeError

if TYPE_CHECKING:
    from kctl.broker.credentials import Credentials
    from kctl.tls.settings import TlsSettings


class BrokerListeners:
    """The listeners of a broker and the configs that they follow."""

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        """Take the configs that the broker starts with."""
        self._runtime = runtime
        # Connections to other brokers are made with its TLS settings (see `substitute_tls`).
        self._static = config
        # The configs whose listeners are open.
        self._applied = config
        self._server: SocketServer | None = None
        self._credentials: Credentials | None = None
        self._services: Services | None = None
        self._wanted: BrokerConfig | None = None
        self._is_applying = False

    async def start(
        self,
        services: Services,
        live_configs: LiveConfigs,
        on_request: Callable[[Request], object],
        fast_paths: Mapping[bytes, FastPath],
        may_be_decoded: Callable[[Request, int], bool] | None = None,
    ) -> SocketServer:
        """Listen; return the server, or raise KctlError. The arguments are those of a server."""
        config = live_configs.broker
        if is_other_listeners(self._static, config):
            self._runtime.trace.info(f"The store overrides listeners: {_names(config)}")
        self._applied = config
        self._services = services
        await self._use_stores_between_brokers(config.inter_broker_tls)
        await self._accept_logins(config)
        server = SocketServer(
            self._runtime,
            config.listener_list,
            {int(key): versions for key, versions in services.served.items()},
            on_request,
            NetworkLimits.of(config),
            fast_paths,
            config.sasl_listeners,
            self._credentials,
            config.tls_listeners,
            may_be_decoded,
        )
        quotas = services.client_quotas
        quotas.on_switch(lambda is_on: server.use_client_quotas(quotas if is_on else None))
        server.start()
        self._server = server
        live_configs.on_broker_change(self._configs_changed)
        return server

    def advertised(self) -> list[Endpoint]:
        """Return the advertised listeners, with the bound port for 0 and this host for an empty
        host."""
        assert self._server is not None
        ports = {it.listener_name: it.port for it in self._server.endpoints}
        return [
            replace(
                it,
                host=it.host or self._runtime.network.local_host_name(),
                port=it.port or ports[it.listener_name],
            )
            for it in self._applied.advertised_listener_list
        ]

    async def close(self) -> None:
        """Close the listeners and all connections."""
        if self._server is not None:
            await self._server.close()
        if self._credentials is not None:
            self._credentials.close()

    async def check(self, after: BrokerConfig) -> None:
        """Raise UsageError if the listeners cannot follow `after`."""
        if self._server is None:
            return
        tls_listeners = self._server.tls_listeners
        for name in tls_listeners:
            try:
                await self._server.replace_tls(name, after.tls_listeners, validate_only=True)
            except UsageError as error:
                raise UsageError(
                    f"Invalid dynamic configuration: listener {name}: {error}"
                ) from None
        open_now = {it.listener_name for it in self._applied.listener_list}
        for endpoint in after.listener_list:
            if endpoint.listener_name not in open_now:
                await self._check_new(endpoint, after)

    async def _check_new(self, endpoint: Endpoint, after: BrokerConfig) -> None:
        """Raise UsageError if a listener that is not open yet cannot be opened."""
        network, name = self._runtime.network, endpoint.listener_name
        ours = {it.port for it in self._applied.listener_list}
        try:
            if name in after.tls_listeners:
                await network.load_tls(after.tls_listeners[name].settings)
            if endpoint.port not in ours:
                network.listen(endpoint.host, endpoint.port, lambda _transport: None).close()
        except KctlError as error:
            raise UsageError(f"Invalid dynamic configuration: listener {name}: {error}") from None

    def apply(self, after: BrokerConfig) -> None:
        """Begin to follow `after`; also reads stores again whose files have changed."""
        self._wanted = after
        if not self._is_applying and self._server is not None:
            self._runtime.scheduler.spawn(self._apply(self._server), "listener-changes")

    def _configs_changed(self, now: BrokerConfig) -> None:
        if self._server is not None:
            self._server.apply_limits(NetworkLimits.of(now))
        self.apply(now)

    async def _accept_logins(self, config: BrokerConfig) -> "Credentials | None":
        """Return the credentials of clients, ready for the listeners of `config`; None if they need
        none. Raise KctlError."""
        services = self._services
        assert services is not None
        if self._credentials is None:
            found = credentials(
                self._runtime, config, services.dynamic_configs, services.delegation_tokens
            )
            if found is None:
                return None
            await found.start(lambda: services.controller.is_active)
            self._credentials = found
        await self._credentials.serve(config.sasl_listeners.values())
        return self._credentials

    async def _use_stores_between_brokers(self, settings: "TlsSettings | None") -> None:
        """Connect to other brokers with the stores of `settings`; raise UsageError."""
        given = self._static.inter_broker_tls
        if given is not None and settings is not None:
            await self._runtime.network.substitute_tls(given, settings)

    async def _apply(self, server: SocketServer) -> None:
        self._is_applying = True
        try:
            while self._wanted is not None:
                after, self._wanted = self._wanted, None
                await self._change_listeners(server, after)
                for name in server.tls_listeners:
                    await self._replace_stores(server, name, after)
        finally:
            self._is_applying = False

    async def _change_listeners(self, server: SocketServer, after: BrokerConfig) -> None:
        """Open and close listeners, then advertise what `after` names."""
        before, trace = self._applied, self._runtime.trace
        if not is_other_listeners(before, after):
            return
        assert self._services is not None
        try:
            found = await self._accept_logins(after)
            if found is not None:
                server.use_credentials(found)
            await server.change_listeners(
                after.listener_list, after.sasl_listeners, after.tls_listeners
            )
        except KctlError as error:
            trace.warning(f"The listeners stay as they are, {_names(before)}: {error}")
            return
        self._applied = after
        trace.info(f"The broker listens at {_names(after)}")
        try:
            await self._services.controller.update_registration()
        except NoNodeError:
            # Its session has ended: the next registration has the new listeners.
            pass
        except KctlError as error:
            trace.warning(f"The new listeners are not announced: {error}")

    async def _replace_stores(self, server: SocketServer, name: str, after: BrokerConfig) -> None:
        trace = self._runtime.trace
        try:
            settings = await server.replace_tls(name, after.tls_listeners)
            if settings is None:
                return
            if name == self._static.inter_broker_listener:
                await self._use_stores_between_brokers(settings)
        except UsageError as error:
            trace.warning(f"The stores of listener {name} cannot be replaced: {error}")
        else:
            trace.info(f"Listener {name} uses its changed key and trust stores")


def _names(config: BrokerConfig) -> str:
    return ", ".join(f"{it.listener_name}://{it.host}:{it.port}" for it in config.listener_list)
