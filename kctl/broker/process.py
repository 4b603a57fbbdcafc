"""Runs a broker as a process until SIGTERM or SIGINT, and reports when it is ready."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kctl.broker.broker import Broker
from kctl.configs.broker_config import BrokerConfig
from kctl.model import Endpoint
from kctl.runtime.future import CancelledError, Future
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.heap_freezer import HeapFreezer
from kctl.runtime.real.signals import StopSignals, on_hang_up

if TYPE_CHECKING:
    from kctl.protocol.acl import AclBinding


def run_broker(
    config: BrokerConfig,
    *,
    store_directory: str | None,
    store_listener: Endpoint | None = None,
    seed_topics: Sequence[tuple[str, int]] = (),
    users: Mapping[str, str] | None = None,
    acls: "Sequence[AclBinding]" = (),
    on_ready: Callable[[Broker], object],
    attach: Callable[[RealRuntime, Callable[[], None], Broker], object] | None = None,
) -> None:
    """Start a broker, create missing `seed_topics` (name, partitions), store the passwords of
    `users` for SCRAM and add `acls`, call `on_ready`, and serve until a signal; then shut down
    cleanly. A second signal ends the process at once.

    `attach` takes, before anything starts, the runtime, a function that stops the broker, and the
    broker. `store_directory` holds the embedded metadata store, which `store_listener` also serves;
    None: a real one at `zookeeper.connect`. Raise KctlError if the broker cannot start; nothing is
    left running then.
    """
    runtime = make_runtime()
    broker = Broker(runtime, config, store_directory, store_listener=store_listener)
    stopping: Future[None] = runtime.scheduler.future()

    def stop() -> None:
        if not stopping.done:
            stopping.set_result(None)

    StopSignals(runtime.scheduler, stop)
    _reload_on_hang_up(runtime, config, broker)

    freezer = HeapFreezer(runtime.scheduler)

    if attach is not None:
        attach(runtime, stop, broker)

    async def start() -> None:
        await broker.start()
        await broker.create_topics(seed_topics)
        if users:
            await broker.set_passwords(users)
        if broker.services is not None and broker.services.acl_cache is not None:
            await broker.services.acl_cache.add(acls)
        freezer.start()
        on_ready(broker)

    broker.failed.add_done_callback(lambda _: stop())
    try:
        runtime.scheduler.run_until(
            runtime.scheduler.spawn(_serve(runtime, broker, start, stopping), "broker")
        )
    finally:
        freezer.stop()
        runtime.scheduler.close()


async def _serve(
    runtime: RealRuntime,
    broker: Broker,
    start: Callable[[], Coroutine[Any, Any, None]],
    stopping: Future[None],
) -> None:
    """Start the broker and shut it down once `stopping` is done; raise the error that ended it."""
    starting = runtime.scheduler.spawn(start(), "start")
    stopping.add_done_callback(lambda _: starting.cancel())
    try:
        await starting
        await stopping
    except CancelledError:
        # Stopped before everything was started.
        pass
    finally:
        await broker.shutdown()
    if broker.failed.done:
        broker.failed.result()


def _reload_on_hang_up(runtime: RealRuntime, config: BrokerConfig, broker: Broker) -> None:
    """Read the key and trust stores of a broker again on SIGHUP, once it listens."""

    def reload() -> None:
        if broker.server is not None:
            broker.server.reload_tls()

    if config.tls_listeners:
        on_hang_up(runtime.scheduler, reload)
