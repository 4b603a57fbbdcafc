"""A broker as a process: runs one until SIGTERM or SIGINT, and says when it is ready."""

import gc
import signal
from collections.abc import Callable, Sequence

from kctl.broker.broker import Broker
from kctl.broker.config import BrokerConfig
from kctl.model import Endpoint
from kctl.runtime.future import CancelledError, Future
from kctl.runtime.real import RealRuntime, make_runtime

# New objects before the youngest are searched for cycles. Requests make none, and thousands of
# parked ones would be gone over again and again.
GC_THRESHOLD = 50_000


def run_broker(
    config: BrokerConfig,
    *,
    store_directory: str | None,
    store_listener: Endpoint | None = None,
    seed_topics: Sequence[tuple[str, int]] = (),
    on_ready: Callable[[Broker], object],
    attach: Callable[[RealRuntime, Callable[[], None], Broker], object] | None = None,
) -> None:
    """Start a broker, create `seed_topics` (name, partitions) that are not there, call
    `on_ready`, and serve until a signal asks to stop; then stop in good order.

    `attach` is given, before anything starts, the runtime, what stops the broker, and the broker.
    `store_directory` holds the embedded metadata store, which is served at `store_listener` too;
    None: `zookeeper.connect` names a real one. KctlError if the broker cannot start; nothing is
    left running then.
    """
    runtime = make_runtime()
    broker = Broker(runtime, config, store_directory, store_listener=store_listener)
    stopping: Future[None] = runtime.scheduler.future()

    def stop() -> None:
        if not stopping.done:
            stopping.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        runtime.scheduler.on_signal(number, stop)

    if attach is not None:
        attach(runtime, stop, broker)

    async def start() -> None:
        await broker.start()
        await broker.create_topics(seed_topics)
        # What is there now stays: no search for cycles need look at it again.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        on_ready(broker)

    async def serve() -> None:
        starting = runtime.scheduler.spawn(start(), "start")
        stopping.add_done_callback(lambda _: starting.cancel())
        broker.failed.add_done_callback(lambda _: stop())
        try:
            await starting
            await stopping
        except CancelledError:
            # Asked to stop before all was started.
            pass
        finally:
            await broker.shutdown()
        if broker.failed.done:
            broker.failed.result()

    try:
        runtime.scheduler.run_until(runtime.scheduler.spawn(serve(), "broker"))
    finally:
        runtime.scheduler.close()
