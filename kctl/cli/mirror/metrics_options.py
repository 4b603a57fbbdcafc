"""The options of `kctl mirror run` about its metrics."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.mirror.run import MirrorReport, MirrorRun


@dataclass(frozen=True)
class MetricsOptions:
    """Where a worker serves its metrics, and to whom."""

    metrics_port: Annotated[
        str | None,
        Option(
            "--metrics-port",
            metavar="[HOST:]N",
            help="Serve /metrics, /healthz and /readyz there, by HTTP. [default host: 127.0.0.1]",
        ),
    ] = None
    metrics_tls: Annotated[
        str | None,
        Option(
            "--metrics-tls",
            metavar="FILE",
            help="Serve metrics by https, with the key and the certificates in this PEM file.",
        ),
    ] = None
    metrics_token_file: Annotated[
        str | None,
        Option(
            "--metrics-token-file",
            metavar="FILE",
            help="Serve /metrics only to those who send this bearer token.",
        ),
    ] = None

    def port(self) -> "MetricsPort | None":
        """Return where metrics are served; raise UsageError for an address or a file that is not
        valid."""
        from kctl.cli.serve.monitoring_options import metrics_port
        from kctl.cli.serve.settings import parse_address

        if self.metrics_port is None:
            if self.metrics_tls or self.metrics_token_file:
                raise UsageError("--metrics-tls and --metrics-token-file need --metrics-port")
            return None
        endpoint = parse_address(self.metrics_port, "--metrics-port 9405")
        return metrics_port(endpoint, self.metrics_tls, self.metrics_token_file)


def run_with_metrics(
    it: "MirrorRun", port: "MetricsPort | None", say: Callable[[str], object]
) -> "Coroutine[Any, Any, MirrorReport]":
    """Run a mirror, and serve its metrics meanwhile if there is a port."""
    if port is None:
        return it.run()
    from kctl.mirror.metering import run_metered

    return run_metered(
        it, port, lambda at: say(f"metrics on {port.scheme}://{at.host}:{at.port}/metrics")
    )
