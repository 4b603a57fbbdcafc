"""kctl serve --brokers N: several brokers and their metadata store, supervised, until stopped."""

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.cli.serve import given_settings, warn_of_settings
from kctl.errors import UsageError
from kctl.local_cluster.control import STATE_FILE, ControlAddress, ControlServer
from kctl.local_cluster.plan import (
    BrokerPlan,
    ClusterPlan,
    check_own_settings,
    cluster_defaults,
    plan_brokers,
)
from kctl.local_cluster.processes import serve_broker
from kctl.local_cluster.supervisor import Supervisor
from kctl.runtime.future import CancelledError, Future
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.children import Children, Line

if TYPE_CHECKING:
    from kctl.model import Endpoint

# Loaded before the first fork: what brokers share need not be read once for each.
_SHARED_MODULES = ("kctl.broker.process", "kctl.store.zookeeper")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What the command line asks for."""

    brokers: int
    racks: list[str]
    data_dir: str
    first_port: int
    store: "Endpoint | None"
    seed_topics: list[tuple[str, int]]
    ready_file: str | None
    is_durable: bool


def serve_cluster(
    options: ClusterOptions, flags: Mapping[str, str], properties_file: str | None, output: Output
) -> int:
    """Run the cluster until SIGTERM or Ctrl-C; the settings of the file and `flags` are for all."""
    from kctl.broker.config import BrokerConfig

    given = given_settings(flags, properties_file)
    directory = Path(options.data_dir)
    if (directory / "logs").exists():
        raise UsageError(
            f"{directory} holds a single broker's data",
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

    # What is wrong with the settings is told before anything starts.
    warn_of_settings(configure(plan.brokers[0], 0, "127.0.0.1:1"), properties_file, output)

    def make_broker(broker: BrokerPlan, port: int, zookeeper: str) -> Callable[[Line], int]:
        return lambda line: serve_broker(
            line, lambda: configure(broker, port, zookeeper), plan.seed_topics
        )

    for module in _SHARED_MODULES:
        __import__(module)
    gc.freeze()
    directory.mkdir(parents=True, exist_ok=True)
    runtime = make_runtime()
    supervisor = Supervisor(runtime, Children(runtime.scheduler), plan, make_broker)
    return _Run(runtime, supervisor, options, output).run()


class _Run:
    """From the start to the stop."""

    def __init__(
        self, runtime: RealRuntime, supervisor: Supervisor, options: ClusterOptions, output: Output
    ) -> None:
        self._runtime = runtime
        self._supervisor = supervisor
        self._options = options
        self._output = output
        self._state_file = Path(options.data_dir) / STATE_FILE

    def run(self) -> int:
        """The exit status."""
        scheduler = self._runtime.scheduler
        stopping: Future[None] = scheduler.future()

        def stop() -> None:
            if not stopping.done:
                stopping.set_result(None)

        for number in (signal.SIGTERM, signal.SIGINT):
            scheduler.on_signal(number, stop)
        try:
            scheduler.run_until(scheduler.spawn(self._serve(stopping), "cluster"))
        finally:
            scheduler.close()
        return DONE

    async def _serve(self, stopping: Future[None]) -> None:
        supervisor = self._supervisor
        starting = self._runtime.scheduler.spawn(supervisor.start(), "start")
        stopping.add_done_callback(lambda _: starting.cancel())
        control: ControlServer | None = None
        try:
            await starting
            control = ControlServer(self._runtime, supervisor.handle)
            self._tell(control)
            await stopping
        except CancelledError:
            # Asked to stop before all was started.
            pass
        finally:
            for path in (self._options.ready_file, self._state_file if control else None):
                if path is not None:
                    Path(path).unlink(missing_ok=True)
            if control is not None:
                control.close()
            await supervisor.stop()

    def _tell(self, control: ControlServer) -> None:
        address = ControlAddress(os.getpid(), control.port, control.token)
        _write_private(self._state_file, address.encode())
        bootstrap = ",".join(self._supervisor.bootstrap)
        if self._options.ready_file is not None:
            _write_private(Path(self._options.ready_file), f"{bootstrap}\n", mode=0o644)
        where = self._supervisor.zookeeper
        metadata = f"; ZooKeeper on {where}" if where else ""
        self._output.write(f"kctl ready on {bootstrap} (in {self._options.data_dir}{metadata})\n")


def _write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Whole or not at all, with `mode` from the first byte on."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
