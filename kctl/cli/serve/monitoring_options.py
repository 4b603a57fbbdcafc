"""The options of `kctl serve` about its metrics and its log."""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from kctl.cli.declaration.declarations import Option
from kctl.cli.metrics_options import MetricsOptions
from kctl.cli.units import parse_duration_ms, parse_size
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.broker.loggers import LogSettings


class LogFormat(StrEnum):
    """The values of `--log-format`."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class MonitoringOptions(MetricsOptions):
    """Where metrics are served; what is logged, and where."""

    example_port: ClassVar[int] = 9404

    metrics_port: Annotated[
        str | None,
        Option(
            "--metrics-port",
            metavar="[HOST:]N",
            help="Serve /metrics, /healthz and /readyz there, by HTTP; brokers of a cluster from"
            " port N on. [default host: 127.0.0.1]",
        ),
    ] = None
    log_level: Annotated[
        list[str] | None,
        Option(
            "--log-level",
            metavar="[LOGGER=]LEVEL",
            help="TRACE, DEBUG, INFO, WARN, ERROR or FATAL; may be repeated. [default: INFO]",
        ),
    ] = None
    log_format: Annotated[LogFormat, Option("--log-format", help="How to write the log.")] = (
        LogFormat.TEXT
    )
    log_file: Annotated[
        str | None,
        Option(
            "--log-file",
            metavar="FILE",
            help="Log there, and open it again on SIGHUP; brokers of a cluster to FILE.ID.",
        ),
    ] = None
    log_file_size: Annotated[
        str | None,
        Option(
            "--log-file-size", metavar="SIZE", help="Move a file that has grown so far to FILE.1."
        ),
    ] = None
    slow_requests: Annotated[
        str | None,
        Option(
            "--slow-requests",
            metavar="DURATION",
            help="Log requests that keep the broker busy for longer.",
        ),
    ] = None

    def given(self) -> dict[str, object]:
        """Return the options by name; those that are not given are false."""
        return {
            "--metrics-port": self.metrics_port,
            "--metrics-tls": self.metrics_tls,
            "--metrics-token-file": self.metrics_token_file,
            "--log-level": self.log_level,
            "--log-format json": self.log_format is LogFormat.JSON,
            "--log-file": self.log_file,
            "--log-file-size": self.log_file_size,
            "--slow-requests": self.slow_requests,
        }

    def log(self) -> "LogSettings":
        """Return the settings of a broker's log; raise UsageError for values that are not valid."""
        from kctl.broker.loggers import LogSettings, broker_levels
        from kctl.runtime.log_levels import ROOT, LogLevel

        levels = {}
        for text in self.log_level or ():
            name, equals, level = text.rpartition("=")
            levels[name if equals else ROOT] = LogLevel.of(level)
        unknown = [name for name in levels if name not in broker_levels()]
        if unknown:
            raise UsageError(
                f"No logger {unknown[0]}", hint="kctl config describe logger ID lists them"
            )
        if self.log_file_size is not None and self.log_file is None:
            raise UsageError("--log-file-size needs --log-file")
        return LogSettings(
            levels=levels,
            as_json=self.log_format is LogFormat.JSON,
            path=self.log_file,
            size_max=None if self.log_file_size is None else parse_size(self.log_file_size),
            slow_request_ms=None
            if self.slow_requests is None
            else parse_duration_ms(self.slow_requests),
        )


def of_broker(settings: "LogSettings", broker_id: int) -> "LogSettings":
    """Return the settings of one broker of a cluster, which has a file of its own."""
    path = settings.path
    return settings if path is None else replace(settings, path=f"{path}.{broker_id}")
