"""kctl metrics: the metrics of any Kafka cluster, for Prometheus."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import STREAMS, remote_command
from kctl.cli.declaration.declarations import CommandGroup, Option
from kctl.cli.session import Session
from kctl.cli.units import parse_duration_ms
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

app = CommandGroup()

# kafka_exporter's.
DEFAULT_PORT = "9308"

PortOption = Annotated[
    str, Option("--port", "-p", metavar="[HOST:]N", help="Listen there; the host is 127.0.0.1.")
]
IntervalOption = Annotated[
    str, Option("--interval", "-i", metavar="DURATION", help="Time between two collections.")
]
TlsOption = Annotated[
    str | None,
    Option(
        "--metrics-tls",
        metavar="FILE",
        help="Serve by https, with the key and the certificates in this PEM file.",
    ),
]
TokenOption = Annotated[
    str | None,
    Option(
        "--metrics-token-file",
        metavar="FILE",
        help="Serve /metrics only to those who send this bearer token.",
    ),
]


@remote_command(app, "serve", STREAMS)
def serve(
    session: Session,
    port: PortOption = DEFAULT_PORT,
    interval: IntervalOption = "15s",
    tls: TlsOption = None,
    token_file: TokenOption = None,
) -> int:
    """Serve offsets, replicas, lag of groups and sizes on disk, until Ctrl-C or SIGTERM.

    The cluster must be reachable at the start; later the command waits for one that is not.
    Names and rules are those of kafka_exporter. Everything is collected in the background: a scrape
    gets the last figures and their age (`kctl_collector_age_seconds`), and never waits for the
    cluster. /readyz answers 503, with reasons, while there are none, or only old ones.

    \b
    Examples:
      kctl metrics serve -b kafka:9092
      kctl metrics serve --port 0.0.0.0:9308 --interval 30s
      kctl metrics serve --port 0.0.0.0:9308 --metrics-tls me.pem --metrics-token-file token
    """
    from kctl.admin.metrics_collector import MetricsCollector
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.serve.monitoring_options import metrics_port
    from kctl.cli.serve.settings import parse_address
    from kctl.runtime.real.process_facts import process_facts

    address = parse_address(port, f"--port {DEFAULT_PORT}")
    endpoint = metrics_port(address, tls, token_file)
    interval_ms = parse_duration_ms(interval)
    if interval_ms < 1:
        raise UsageError("--interval must be positive", hint="e.g. --interval 15s")

    def collect(admin: "AdminClient") -> Coroutine[Any, Any, None]:
        collector = MetricsCollector(
            admin, process_facts, interval_ms=interval_ms, on_failure=session.output.say
        )
        return collector.run(
            endpoint,
            lambda at: session.output.say(
                f"metrics on {endpoint.scheme}://{at.host}:{at.port}/metrics"
            ),
        )

    interrupt = Interrupt(session.runtime.scheduler)
    interrupt.run(lambda: session.run(collect, interrupt.guard))
    return interrupt.status
