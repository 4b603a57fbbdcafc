"""The processes of a local cluster: one serves the metadata, the others are brokers.

Each reports to its parent over its line when it is ready (`ready HOST:PORT`) or why it ends
(`failed WHY`), and stops cleanly on SIGTERM or when the connection breaks, as nothing else could
stop it then.
"""

import signal
from collections.abc import Callable, Sequence

from kctl.broker.broker import Broker
from kctl.broker.loggers import LogSettings
from kctl.broker.process import run_broker
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError
from kctl.local_cluster.plan import ClusterPlan
from kctl.metrics.metrics_port import MetricsPort
from kctl.runtime.future import Future
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.children import Line
from kctl.store.database import ZnodeDatabase
from kctl.store.znodes import broker_path
from kctl.store.zookeeper_server import ZooKeeperServer, session_passwords

READY = "ready"
FAILED = "failed"
# Sent to a broker to create the requested topics, and its response.
SEED = "seed"
SEEDED = "seeded"

# How long the store waits for brokers to disconnect.
LEAVE_MS = 20_000
_ENDED_BADLY = 1


def serve_store(
    line: Line, plan: ClusterPlan, directory: str, port: int, gone_brokers: Sequence[int]
) -> int:
    """Serve the metadata in `directory` until stopped; return the exit status.

    Sessions of `gone_brokers` end at once instead of expiring: their processes are known to have
    ended.
    """
    runtime = make_runtime()
    stopping: Future[None] = runtime.scheduler.future()

    def stop() -> None:
        if not stopping.done:
            stopping.set_result(None)

    runtime.scheduler.on_signal(signal.SIGTERM, stop)
    line.listen(runtime.scheduler, lambda _message: None, stop)

    async def serve() -> None:
        database = ZnodeDatabase.open(runtime, directory, fsync=plan.is_durable)
        _end_sessions(database, gone_brokers)
        passwords = session_passwords(runtime.disk, runtime.entropy, directory)
        server = ZooKeeperServer(runtime, database, passwords)
        try:
            bound_port = server.start(plan.store_host, port)
            line.say(f"{READY} {plan.store_host}:{bound_port}")
            await stopping
            await _until_left(runtime, server)
        finally:
            server.close()
            await database.close()

    return _run(line, lambda: runtime.scheduler.run_until(runtime.scheduler.spawn(serve())))


def _end_sessions(database: ZnodeDatabase, broker_ids: Sequence[int]) -> None:
    for broker_id in broker_ids:
        node = database.tree.nodes.get(broker_path(broker_id))
        if node is not None and node.ephemeral_owner:
            database.close_session(node.ephemeral_owner)


async def _until_left(runtime: RealRuntime, server: ZooKeeperServer) -> None:
    """Wait, for a limited time, for brokers that are stopping: they still write."""
    left: Future[None] = runtime.scheduler.future()

    def done(*_: object) -> None:
        if not left.done:
            left.set_result(None)

    timer = runtime.scheduler.call_later(LEAVE_MS, done)
    server.until_empty().add_done_callback(done)
    await left
    timer.cancel()


def serve_broker(
    line: Line,
    make_config: Callable[[], BrokerConfig],
    seed_topics: tuple[tuple[str, int], ...],
    metrics: MetricsPort | None = None,
    log: LogSettings | None = None,
) -> int:
    """Run a broker until asked to stop; return the exit status."""

    def attach(runtime: RealRuntime, stop: Callable[[], None], broker: Broker) -> None:
        async def seed() -> None:
            try:
                await broker.create_topics(seed_topics)
            except KctlError as error:
                line.say(f"{FAILED} {error}")
            else:
                line.say(SEEDED)

        def on_message(message: str) -> None:
            if message == SEED:
                runtime.scheduler.spawn(seed(), "seed")

        line.listen(runtime.scheduler, on_message, stop)

    def on_ready(broker: Broker) -> None:
        endpoint = broker.advertised_endpoints()[0]
        line.say(f"{READY} {endpoint.host}:{endpoint.port}")

    return _run(
        line,
        lambda: run_broker(
            make_config(),
            store_directory=None,
            on_ready=on_ready,
            attach=attach,
            metrics=metrics,
            log=log,
        ),
    )


def _run(line: Line, work: Callable[[], object]) -> int:
    try:
        work()
    except KctlError as error:
        line.say(f"{FAILED} {error}")
        return _ENDED_BADLY
    return 0
