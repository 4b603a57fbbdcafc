"""The page /metrics: samples as text, in the format that is asked for."""

from kctl.metrics.family import Samples
from kctl.metrics.http_server import Page
from kctl.metrics.text import OPEN_METRICS, PROMETHEUS, render
from kctl.work import Work


def metrics_page(samples: Samples, accept: str) -> Work[Page]:
    """Return the page of /metrics; `accept` is the header that names the formats wanted."""
    is_open_metrics = "application/openmetrics-text" in accept
    body = yield from render(samples, is_open_metrics=is_open_metrics)
    return Page(body, OPEN_METRICS if is_open_metrics else PROMETHEUS)
