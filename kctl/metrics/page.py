"""The pages of a metrics endpoint: samples in the format that is asked for, and its health."""

import json
from collections.abc import Callable, Sequence

from kctl.metrics.family import Samples
from kctl.metrics.http_server import MakePage, Page, PageRequest
from kctl.metrics.text import OPEN_METRICS, PROMETHEUS, render
from kctl.work import Work

_JSON = "application/json"
UNAVAILABLE = 503


def metrics_page(samples: Samples, accept: str) -> Work[Page]:
    """Return the page of /metrics; `accept` is the header that names the formats wanted."""
    is_open_metrics = "application/openmetrics-text" in accept
    body = yield from render(samples, is_open_metrics=is_open_metrics)
    return Page(body, OPEN_METRICS if is_open_metrics else PROMETHEUS)


def health_page(reasons: Sequence[str]) -> Page:
    """Return the page of /readyz: 200 without reasons against it."""
    if not reasons:
        return Page([b'{"status": "ok"}\n'], _JSON)
    text = json.dumps({"status": "not ready", "reasons": reasons})
    return Page([f"{text}\n".encode()], _JSON, UNAVAILABLE)


def health_pages(reasons: Callable[[], Sequence[str]]) -> dict[str, MakePage]:
    """Return the pages about health, by path.

    /healthz and /livez answer 200 as long as the event loop turns: a process that does not answer
    should be restarted. /readyz answers 200 unless there are `reasons()` against it, else 503.
    """

    def healthz(_request: PageRequest) -> Work[Page]:
        yield from ()
        return health_page(())

    def readyz(_request: PageRequest) -> Work[Page]:
        yield from ()
        return health_page(reasons())

    return {"/healthz": healthz, "/livez": healthz, "/readyz": readyz}
