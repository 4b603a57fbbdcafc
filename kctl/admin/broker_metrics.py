"""MetricsSource: reads what brokers serve at /metrics, for figures that Kafka's API does not have.

A place is a URL, HOST:PORT, or :PORT, which stands for that port on each broker of the cluster.
Both kctl's brokers and the JMX exporter of Apache Kafka serve the names that are read here.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.metrics.parse import ParsedMetrics, parse_metrics

if TYPE_CHECKING:
    from kctl.runtime.web import Web


class BrokerAddress(Protocol):
    """A broker and its host."""

    @property
    def broker_id(self) -> int:
        """Return its id."""
        ...

    @property
    def host(self) -> str:
        """Return its host."""
        ...


@dataclass(slots=True)
class BrokerScrape:
    """What one broker served."""

    url: str
    # None: it does not say, and its host has none or several of the cluster's brokers.
    broker_id: int | None
    metrics: ParsedMetrics


@dataclass(slots=True)
class Scrapes:
    """What was read, by URL, and what could not be."""

    by_url: dict[str, BrokerScrape] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where the metrics of brokers are, and how to be let in."""

    places: Sequence[str]
    # The value of the header; it must not be shown.
    authorization: str = field(default="", repr=False)
    ca_file: str = ""

    def urls(self, brokers: Sequence[BrokerAddress]) -> dict[str, int | None]:
        """Return each URL, and the broker whose it is if that is known."""
        scheme = "https" if self.ca_file else "http"
        hosts = [it.host for it in brokers]
        found: dict[str, int | None] = {}
        for place in self.places:
            if place.startswith(":"):
                for broker in brokers:
                    found[f"{scheme}://{_in_url(broker.host)}{place}/metrics"] = (
                        broker.broker_id if hosts.count(broker.host) == 1 else None
                    )
                continue
            url = place if "://" in place else f"{scheme}://{place}"
            parts = urlsplit(url)
            if parts.path in ("", "/"):
                url = f"{parts.scheme}://{parts.netloc}/metrics"
            here = [it.broker_id for it in brokers if it.host == parts.hostname]
            found[url] = here[0] if len(here) == 1 else None
        return found

    async def read(self, web: "Web", brokers: Sequence[BrokerAddress]) -> Scrapes:
        """Return what brokers serve; those that do not answer are notes. Raise UsageError for a
        URL that cannot be one of metrics."""
        wanted = self.urls(brokers)
        # All at once.
        reading = {url: web.metrics(url, self.authorization, self.ca_file) for url in wanted}
        scrapes = Scrapes()
        for url, future in reading.items():
            try:
                metrics = parse_metrics((await future).decode("utf-8", "replace"))
            except KctlError as error:
                scrapes.notes.append(str(error))
                continue
            broker_id = metrics.value("kctl_broker_id")
            scrapes.by_url[url] = BrokerScrape(
                url, wanted[url] if broker_id is None else int(broker_id), metrics
            )
        return scrapes


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
