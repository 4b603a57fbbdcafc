"""kctl metrics: the metrics of any Kafka cluster, for Prometheus."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import STREAMS, remote_command
from kctl.cli.declaration.declarations import CommandGroup, Option
from kctl.cli.metrics_options import MetricsTokenFileOption, announce, metrics_port
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
ProbeTopicOption = Annotated[
    str | None,
    Option(
        "--probe-topic",
        metavar="TOPIC",
        help="Measure how long records take to be written and read, with this topic of its own.",
    ),
]
ProbeIntervalOption = Annotated[
    str,
    Option(
        "--probe-interval",
        metavar="DURATION",
        help="Time between two records of a partition, at least 100 ms.",
    ),
]
CreateOption = Annotated[
    bool,
    Option(
        "--create-probe-topic",
        help="Create the topic if it does not exist; without this, show what would be created.",
    ),
]
TlsOption = Annotated[
    str | None,
    Option(
        "--metrics-tls",
        metavar="FILE",
        help="Serve by https, with the key and the certificates in this PEM file, which"
        " SIGHUP reads again.",
    ),
]


@remote_command(app, "serve", STREAMS)
def serve(
    session: Session,
    port: PortOption = DEFAULT_PORT,
    interval: IntervalOption = "15s",
    probe_topic: ProbeTopicOption = None,
    probe_interval: ProbeIntervalOption = "1s",
    create_probe_topic: CreateOption = False,
    tls: TlsOption = None,
    token_file: MetricsTokenFileOption = None,
) -> int:
    """Serve offsets, replicas, lag of groups and sizes on disk, until Ctrl-C or SIGTERM.

    The cluster must be reachable at the start; later the command waits for one that is not.
    Names and rules are those of kafka_exporter. Everything is collected in the background: a scrape
    gets the last figures and their age (`kctl_collector_age_seconds`), and never waits for the
    cluster. /readyz answers 503, with reasons, while there are none, or only old ones.

    With --probe-topic a record of some 40 bytes is written to each partition of a topic, and read
    back: histograms of both, and failures (`kctl_probe_*`). A topic with other records is refused.

    \b
    Examples:
      kctl metrics serve -b kafka:9092
      kctl metrics serve --port 0.0.0.0:9308 --interval 30s
      kctl metrics serve -b kafka:9092 --probe-topic kctl-probe --create-probe-topic
      kctl metrics serve --port 0.0.0.0:9308 --metrics-tls me.pem --metrics-token-file token
    """
    from kctl.admin.latency_probe import INTERVAL_MS_MIN
    from kctl.admin.metrics_collector import ProbeSettings, serve_metrics
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.serve.settings import parse_address
    from kctl.runtime.real.process_facts import process_facts

    address = parse_address(port, f"--port {DEFAULT_PORT}")
    endpoint = metrics_port(address, tls, token_file)
    interval_ms = parse_duration_ms(interval)
    if interval_ms < 1:
        raise UsageError("--interval must be positive", hint="e.g. --interval 15s")

    probe_ms = parse_duration_ms(probe_interval)
    if probe_ms < INTERVAL_MS_MIN:
        raise UsageError("--probe-interval must be at least 100 ms", hint="e.g. 1s")
    if probe_topic is None and create_probe_topic:
        raise UsageError("--create-probe-topic needs --probe-topic")
    session.writes = probe_topic is not None
    say = session.output.say

    probe = None
    if probe_topic is not None:
        probe = ProbeSettings(probe_topic, probe_ms, create_probe_topic)

    def collect(admin: "AdminClient") -> Coroutine[Any, Any, None]:
        return serve_metrics(
            admin, process_facts, endpoint, lambda server: announce(server, interrupt, say),
            interval_ms=interval_ms, say=say, probe=probe,
        )  # fmt: skip

    interrupt = Interrupt(session.runtime.scheduler)
    interrupt.run(lambda: session.run(collect, interrupt.guard))
    return interrupt.status
