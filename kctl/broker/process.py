"""Runs a broker as a process until SIGTERM or SIGINT, and reports when it is ready."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.broker.broker import Broker
from kctl.broker.event_log import EventLog
from kctl.broker.handlers import load_handlers
from kctl.broker.loggers import LogSettings, broker_levels
from kctl.configs.broker_config import BrokerConfig
from kctl.metrics.metrics_port import MetricsPort
from kctl.model import Endpoint
from kctl.records.compression import load_codecs
from kctl.runtime.log_levels import Loggers
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.serving import Serving
from kctl.runtime.real.signals import on_hang_up
from kctl.runtime.real.trace import LineTrace, LogFile

if TYPE_CHECKING:
    from kctl.broker.metering.metering import Metering
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
    metrics: MetricsPort | None = None,
    log: LogSettings | None = None,
) -> None:
    """Start a broker, create missing `seed_topics` (name, partitions), store the passwords of
    `users` for SCRAM and add `acls`, call `on_ready`, and serve until a signal; then shut down
    cleanly. A second signal ends the process at once.

    `attach` takes, before anything starts, the runtime, a function that stops the broker, and the
    broker. `store_directory` holds the embedded metadata store, which `store_listener` also serves;
    None: a real one at `zookeeper.connect`. With `metrics` the broker is measured and answers HTTP
    there. `log` is what it logs and where: a file is opened again on SIGHUP. Raise KctlError if the
    broker cannot start; nothing is left running then.
    """
    settings = log or LogSettings()
    file = None if settings.path is None else LogFile(settings.path, settings.size_max)
    sink = LineTrace(file, as_json=settings.as_json)
    loggers = Loggers(sink, broker_levels(settings.levels))
    # The runtime comes later, as it is made with this trace.
    events = EventLog(loggers, lambda: runtime.clock.monotonic_ms())  # noqa: PLW0108
    runtime = make_runtime(loggers.trace(events=events))
    metering = None if metrics is None else _metering(runtime, metrics)
    broker = Broker(
        runtime if metering is None else metering.runtime,
        config,
        store_directory,
        store_listener=store_listener,
        metering=metering,
        loggers=loggers,
        slow_request_ms=settings.slow_request_ms,
    )
    serving = Serving(runtime, broker)
    _reload_on_hang_up(runtime, config, broker, file)

    if attach is not None:
        attach(runtime, serving.stop, broker)

    async def start() -> None:
        await broker.start()
        await broker.create_topics(seed_topics)
        if users:
            await broker.set_passwords(users)
        if broker.services is not None and broker.services.acl_cache is not None:
            await broker.services.acl_cache.add(acls)
        # Nothing waits for them: a client that comes first loads what it needs itself.
        runtime.scheduler.run_aside(load_codecs, "codecs")
        runtime.scheduler.run_aside(load_handlers, "handlers")

    try:
        serving.run(start, lambda: on_ready(broker))
    finally:
        if file is not None:
            file.close()


def _metering(runtime: RealRuntime, endpoint: MetricsPort) -> "Metering":
    """Return what measures a broker and answers at `endpoint`."""
    # Local imports: brokers without metrics do not need them.
    from kctl.broker.metering.metering import Metering
    from kctl.runtime.real.process_facts import precise_seconds, process_facts

    return Metering(runtime, endpoint, precise_seconds, process_facts)


def _reload_on_hang_up(
    runtime: RealRuntime, config: BrokerConfig, broker: Broker, log_file: LogFile | None
) -> None:
    """Open the log file again on SIGHUP, and read the key and trust stores again once the broker
    listens, and those of the metrics."""

    def reload() -> None:
        if log_file is not None:
            log_file.reopen()
        if broker.server is not None and config.tls_listeners:
            broker.server.reload_tls()
        if metering is not None and metering.has_tls:
            metering.reload_tls()

    metering = broker.metering
    if config.tls_listeners or log_file is not None or (metering and metering.has_tls):
        on_hang_up(runtime.scheduler, reload)
