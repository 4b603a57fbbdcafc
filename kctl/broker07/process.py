"""Runs a broker of Kafka 0.7 as a process until SIGTERM or SIGINT, and reports when it is ready."""

from collections.abc import Callable

from kctl.broker07.broker import Broker07, Places
from kctl.broker07.config import Broker07Config
from kctl.runtime.real import make_runtime
from kctl.runtime.real.serving import Serving


def run_broker07(
    config: Broker07Config, places: Places, on_ready: Callable[[Broker07], object]
) -> None:
    """Start a broker, call `on_ready`, and serve until a signal; then stop cleanly. A second signal
    ends the process at once. Raise KctlError if the broker cannot start or go on."""
    runtime = make_runtime()
    broker = Broker07(runtime, config, places)
    Serving(runtime, broker).run(broker.start, lambda: on_ready(broker))
