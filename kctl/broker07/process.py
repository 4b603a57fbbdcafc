"""Runs a broker of Kafka 0.7 as a process until SIGTERM or SIGINT, and reports when it is ready."""

from collections.abc import Callable

from kctl.broker07.broker import Broker07, Places
from kctl.broker07.config import Broker07Config
from kctl.runtime.future import CancelledError, Future
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.heap_freezer import HeapFreezer
from kctl.runtime.real.signals import StopSignals


def run_broker07(
    config: Broker07Config, places: Places, on_ready: Callable[[Broker07], object]
) -> None:
    """Start a broker, call `on_ready`, and serve until a signal; then stop cleanly. A second signal
    ends the process at once. Raise KctlError if the broker cannot start or go on."""
    runtime = make_runtime()
    broker = Broker07(runtime, config, places)
    stopping: Future[None] = runtime.scheduler.future()

    def stop() -> None:
        if not stopping.done:
            stopping.set_result(None)

    StopSignals(runtime.scheduler, stop)
    freezer = HeapFreezer(runtime.scheduler)

    def ready(broker: Broker07) -> None:
        freezer.start()
        on_ready(broker)

    broker.failed.add_done_callback(lambda _: stop())
    try:
        serving = runtime.scheduler.spawn(_serve(runtime, broker, ready, stopping), "broker")
        runtime.scheduler.run_until(serving)
    finally:
        freezer.stop()
        runtime.scheduler.close()


async def _serve(
    runtime: RealRuntime,
    broker: Broker07,
    on_ready: Callable[[Broker07], object],
    stopping: Future[None],
) -> None:
    starting = runtime.scheduler.spawn(broker.start(), "start")
    stopping.add_done_callback(lambda _: starting.cancel())
    try:
        await starting
        on_ready(broker)
        await stopping
    except CancelledError:
        # Stopped before everything was started.
        pass
    finally:
        await broker.shutdown()
    if broker.failed.done:
        broker.failed.result()
