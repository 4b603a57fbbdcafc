"""Runs a mirror of `kctl mirror run`, with its metrics if there is a port."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.cli.interrupt import Interrupt
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.mirror.run import MirrorReport, MirrorRun


def run_with_metrics(
    it: "MirrorRun",
    port: "MetricsPort | None",
    interrupt: "Interrupt",
    say: Callable[[str], object],
) -> "Coroutine[Any, Any, MirrorReport]":
    """Run a mirror, and serve its metrics meanwhile if there is a port."""
    if port is None:
        return it.run()
    from kctl.cli.metrics_options import announce
    from kctl.mirror.metering import run_metered

    return run_metered(it, port, lambda server: announce(server, interrupt, say))
