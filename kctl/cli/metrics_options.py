"""The options of commands that serve their metrics while they run: brokers, mirrors, tables."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar

from kctl.cli.declaration.declarations import Option
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.cli.interrupt import Interrupt
    from kctl.metrics.http_server import MetricsServer
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.model import Endpoint

MetricsTokenFileOption = Annotated[
    str | None,
    Option(
        "--metrics-token-file",
        metavar="FILE",
        help="Serve /metrics only to those who send this bearer token.",
    ),
]


@dataclass(frozen=True)
class MetricsOptions:
    """Where a command serves its metrics, and to whom."""

    # For errors.
    example_port: ClassVar[int] = 9405

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
            help="Serve metrics by https, with the key and the certificates in this PEM file,"
            " which SIGHUP reads again.",
        ),
    ] = None
    metrics_token_file: MetricsTokenFileOption = None

    def port(self) -> "MetricsPort | None":
        """Return where metrics are served; raise UsageError for an address or a file that is not
        valid."""
        from kctl.cli.serve.settings import parse_address

        if self.metrics_port is None:
            if self.metrics_tls or self.metrics_token_file:
                raise UsageError("--metrics-tls and --metrics-token-file need --metrics-port")
            return None
        endpoint = parse_address(self.metrics_port, f"--metrics-port {self.example_port}")
        return metrics_port(endpoint, self.metrics_tls, self.metrics_token_file)


def announce(server: "MetricsServer", interrupt: "Interrupt", say: Callable[[str], object]) -> None:
    """Say where metrics are served, and read the files of https again on SIGHUP."""
    say(f"metrics on {server.url}")
    if server.has_tls:
        interrupt.on_hang_up(lambda: server.reload_tls(say))


def metrics_port(endpoint: "Endpoint", tls: str | None, token_file: str | None) -> "MetricsPort":
    """Return where metrics are served; `tls` and `token_file` are files, or None. Raise UsageError
    for one that cannot be read or has no token."""
    from kctl.cli.text_files import read_text, read_token
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.tls.settings import KeyStoreSettings, TlsSettings

    settings = None
    if tls is not None:
        read_text(tls)
        settings = TlsSettings(key_store=KeyStoreSettings(location=tls))
    return MetricsPort(endpoint, settings, read_token(token_file) if token_file else "")
