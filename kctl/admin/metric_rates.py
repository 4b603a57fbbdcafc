"""Rates of topics and brokers from two readings of brokers' counters at /metrics.

A counter that is lower than before belongs to a broker that was restarted: it has no rate.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from kctl.admin.broker_metrics import BrokerScrape

_TOPICS = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_requests_total"
# Fetch requests are counted as Fetch, and again as one of these.
_FETCHES = frozenset({"FetchConsumer", "FetchFollower"})
# Column -> counter with the label `topic`.
_OF_TOPICS = {"bytes_s": f"{_TOPICS}bytesin_total", "out_s": f"{_TOPICS}bytesout_total"}
_BUSY = "kctl_loop_busy_ratio"
# Of Apache Kafka, whose request handlers are what is short first.
_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"

Rates = dict[str, float]
K = TypeVar("K")


class Reading(Protocol):
    """Counters by URL, and when they were read (ms)."""

    scraped_ms: int

    @property
    def scrapes(self) -> "Mapping[str, BrokerScrape]":
        """Return what brokers served."""
        ...


def topic_rates(before: Reading, now: Reading) -> dict[str, Rates]:
    """Return topic -> column -> bytes per second, of all brokers together."""
    found: dict[str, Rates] = {}
    for earlier, later in _pairs(before, now):
        for column, name in _OF_TOPICS.items():
            grown = _grown(earlier, later, name)
            for labels, amount in grown.items():
                topic = dict(labels).get("topic")
                if topic is not None:
                    rates = found.setdefault(topic, {})
                    rates[column] = rates.get(column, 0.0) + amount
    return _per_second(found, before, now)


def broker_rates(before: Reading, now: Reading) -> dict[int, Rates]:
    """Return broker -> column -> bytes and requests per second, and its share of busy time."""
    found: dict[int, Rates] = {}
    for earlier, later in _pairs(before, now):
        if later.broker_id is None:
            continue
        rates = found.setdefault(later.broker_id, {})
        for column, name in _OF_TOPICS.items():
            grown = _grown(earlier, later, name)
            if grown:
                total = sum(it for labels, it in grown.items() if not dict(labels).get("topic"))
                rates[column] = total
        requests = _grown(earlier, later, _REQUESTS)
        if requests:
            rates["requests_s"] = sum(
                amount
                for labels, amount in requests.items()
                if dict(labels).get("request") not in _FETCHES
            )
    result = _per_second(found, before, now)
    for scrape in now.scrapes.values():
        busy = scrape.metrics.value(_BUSY)
        idle = scrape.metrics.value(_IDLE)
        share = busy if busy is not None else None if idle is None else 1 - idle
        if scrape.broker_id in result and share is not None:
            result[scrape.broker_id]["busy"] = share
    return result


def _pairs(before: Reading, now: Reading) -> "Iterator[tuple[BrokerScrape, BrokerScrape]]":
    for url, later in now.scrapes.items():
        earlier = before.scrapes.get(url)
        if earlier is not None:
            yield earlier, later


def _grown(
    earlier: "BrokerScrape", later: "BrokerScrape", name: str
) -> dict[tuple[tuple[str, str], ...], float]:
    """Return labels -> by how much each series has grown; one that is new has grown by all."""
    known = {tuple(it.labels.items()): it.value for it in earlier.metrics.of(name)}
    grown = {
        (labels := tuple(it.labels.items())): it.value - known.get(labels, 0.0)
        for it in later.metrics.of(name)
    }
    return {labels: amount for labels, amount in grown.items() if amount >= 0}


def _per_second(found: dict[K, Rates], before: Reading, now: Reading) -> dict[K, Rates]:
    elapsed_ms = now.scraped_ms - before.scraped_ms
    if elapsed_ms <= 0:
        return {}
    return {
        key: {column: amount * 1000 / elapsed_ms for column, amount in rates.items()}
        for key, rates in found.items()
    }
