"""kctl serve --brokers N: several brokers and their metadata store, supervised, until stopped."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from kctl.broker.loggers import LogSettings
from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.cli.serve.monitoring_options import of_broker
from kctl.cli.serve.settings import given_settings, warn_of_settings
from kctl.errors import UsageError
from kctl.imports import without_searches
from kctl.lazy_dataclass import dataclass
from kctl.local_cluster.control import STATE_FILE, ControlAddress, ControlServer
from kctl.local_cluster.plan import (
    BrokerPlan,
    ClusterPlan,
    check_own_settings,
    cluster_defaults,
    plan_brokers,
)
from kctl.local_cluster.processes import serve_broker
from kctl.local_cluster.running import run_supervised
from kctl.local_cluster.supervisor import Supervisor
from kctl.metrics.metrics_port import MetricsPort
from kctl.model import Endpoint
from kctl.runtime.future import Future
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.children import Children, Line
from kctl.runtime.real.signals import StopSignals

# Loaded before the first fork, so that the brokers share them in memory.
_SHARED_MODULES = ("kctl.broker.process", "kctl.store.zookeeper")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of the command line."""

    brokers: int
    racks: list[str]
    data_dir: str
    first_port: int
    store: Endpoint | None
    seed_topics: list[tuple[str, int]]
    ready_file: str | None
    is_durable: bool
    metrics: MetricsPort | None = None
    log: LogSettings | None = None


def serve_cluster(
    options: ClusterOptions, flags: Mapping[str, str], properties_file: str | None, output: Output
) -> int:
    """Run the cluster until SIGTERM or Ctrl-C; all brokers get the settings of the file and
    `flags`."""
    from kctl.configs.broker_config import BrokerConfig

    given = given_settings(flags, properties_file)
    directory = Path(options.data_dir)
    if (directory / "logs").exists():
        raise UsageError(
            f"{directory} contains a single broker's data",
            hint="choose another --data-dir, or serve it without --brokers",
        )
    check_own_settings(given)
    is_elsewhere = bool(given.get("zookeeper.connect"))
    plan = ClusterPlan(
        plan_brokers(options.brokers, str(directory), options.first_port, options.racks),
        None if is_elsewhere else str(directory / "metadata"),
        store_host=options.store.host if options.store else "127.0.0.1",
        store_port=options.store.port if options.store else 0,
        is_durable=options.is_durable,
        seed_topics=tuple(options.seed_topics),
    )
    defaults = cluster_defaults(options.brokers)

    def configure(broker: BrokerPlan, port: int, zookeeper: str) -> BrokerConfig:
        connect = given["zookeeper.connect"] if is_elsewhere else zookeeper
        settings = {**defaults, **given, **broker.settings(port, connect)}
        return BrokerConfig.from_properties(settings, strict=flags)

    # Invalid settings are reported before anything starts.
    warn_of_settings(configure(plan.brokers[0], 0, "127.0.0.1:1"), properties_file, output)

    def make_broker(broker: BrokerPlan, port: int, zookeeper: str) -> Callable[[Line], int]:
        return lambda line: serve_broker(
            line,
            lambda: configure(broker, port, zookeeper),
            plan.seed_topics,
            _metrics_of(broker.broker_id, options.metrics),
            None if options.log is None else of_broker(options.log, broker.broker_id),
        )

    with without_searches():
        for module in _SHARED_MODULES:
            __import__(module)
    directory.mkdir(parents=True, exist_ok=True)
    runtime = make_runtime()
    supervisor = Supervisor(runtime, Children(runtime.scheduler), plan, make_broker)
    return _Run(runtime, supervisor, options, output).run()


def _metrics_of(broker_id: int, first: MetricsPort | None) -> MetricsPort | None:
    """Return where a broker serves its metrics: broker 1 at the port given, others after it."""
    if first is None:
        return None
    port = first.endpoint.port
    return first.at(port and port + broker_id - 1)


class _Run:
    """A cluster from its start to its stop."""

    def __init__(
        self, runtime: RealRuntime, supervisor: Supervisor, options: ClusterOptions, output: Output
    ) -> None:
        self._runtime = runtime
        self._supervisor = supervisor
        self._options = options
        self._output = output
        self._state_file = Path(options.data_dir) / STATE_FILE
        # Whether the state file is this run's.
        self._is_ready = False

    def run(self) -> int:
        """Return the exit status."""
        scheduler = self._runtime.scheduler
        stopping: Future[None] = scheduler.future()

        def stop() -> None:
            if not stopping.done:
                stopping.set_result(None)

        StopSignals(scheduler, stop, self._supervisor.kill_all)
        try:
            work = run_supervised(
                self._runtime, self._supervisor, stopping, self._report_ready, self._remove_files
            )
            scheduler.run_until(scheduler.spawn(work, "cluster"))
        finally:
            scheduler.close()
        return DONE

    def _remove_files(self) -> None:
        for path in (self._options.ready_file, self._state_file if self._is_ready else None):
            if path is not None:
                Path(path).unlink(missing_ok=True)

    def _report_ready(self, control: ControlServer) -> None:
        self._is_ready = True
        address = ControlAddress(os.getpid(), control.port, control.token)
        _write_private(self._state_file, address.encode())
        bootstrap = ",".join(self._supervisor.bootstrap)
        if self._options.ready_file is not None:
            _write_private(Path(self._options.ready_file), f"{bootstrap}\n", mode=0o644)
        where = self._supervisor.zookeeper
        metadata = f"; ZooKeeper on {where}" if where else ""
        self._output.write(f"kctl ready on {bootstrap} (in {self._options.data_dir}{metadata})\n")


def _write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write the file atomically, with `mode` from the first byte on."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
