"""Which clients use how much of their quotas, and which are throttled: from brokers' metrics.

Kafka's API lists quotas, and nothing of what is used of them; each broker measures that for itself.
A client is throttled if it is paused now or was paused since the look before (kctl's brokers), or
if its average throttle time of the last windows is above 0 (Apache Kafka's, by the JMX exporter).
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kctl.admin.client_quotas import DEFAULT_ENTITY, QuotaEntity

if TYPE_CHECKING:
    from kctl.admin.broker_metrics import BrokerScrape
    from kctl.metrics.parse import ParsedMetrics

NO_METRICS = "Kafka's API does not say who is throttled: add --metrics URL"
NO_QUOTA_METRICS = "serves no metrics of quotas, or no client with a quota has come yet"
_MUTATIONS = "controller_mutation_rate"
# Quota -> MBean's type and its rate, in the names of metrics.
_METRICS = {
    "producer_byte_rate": ("produce", "byte_rate"),
    "consumer_byte_rate": ("fetch", "byte_rate"),
    "request_percentage": ("request", "request_time"),
    _MUTATIONS: ("controllermutation", "mutation_rate"),
}

Quotas = Mapping[QuotaEntity, Mapping[str, float]]
Row = dict[str, object]


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> float | None:
    """Return the quota that applies to the clients of a bucket; "" leaves a part out."""
    users = (user, unquote(user), DEFAULT_ENTITY) if user else (None,)
    clients = (client_id, unquote(client_id), DEFAULT_ENTITY) if client_id else (None,)
    for owner in users:
        for client in clients:
            limit = quotas.get(QuotaEntity(owner, client), {}).get(key)
            if limit is not None:
                return limit
    return None


def usage_rows(
    quotas: Quotas,
    before: "Mapping[str, BrokerScrape]",
    now: "Mapping[str, BrokerScrape]",
) -> list[Row]:
    """Return a row for each quota, client and broker, those nearest to their quota first; quotas
    that no broker measures have a row without figures."""
    rows = [row for url, scrape in now.items() for row in _rows_of(scrape, before.get(url), quotas)]
    if not rows:
        rows = [
            _row(str(entity), key, None, limit)
            for entity, values in quotas.items()
            for key, limit in values.items()
        ]
    rows.sort(key=lambda row: (-_number(row["share"]), str(row["client"]), str(row["quota"])))
    return rows


def notes_of(scrapes: "Iterable[BrokerScrape]") -> list[str]:
    """Return a note for each broker that reports no quotas."""
    names = [f"kafka_server_{kind}_{rate}" for kind, rate in _METRICS.values()]
    names.append("kafka_server_controllermutation_tokens")
    return [
        f"{it.url} {NO_QUOTA_METRICS}"
        for it in scrapes
        if not any(name in it.metrics.samples for name in names)
    ]


def _rows_of(
    scrape: "BrokerScrape", before: "BrokerScrape | None", quotas: Quotas
) -> Iterator[Row]:
    metrics = scrape.metrics
    for key, (kind, rate_name) in _METRICS.items():
        rates = _by_client(metrics, f"kafka_server_{kind}_{rate_name}")
        tokens = _by_client(metrics, f"kafka_server_{kind}_tokens")
        times = _by_client(metrics, f"kafka_server_{kind}_throttle_time")
        limits = _by_client(metrics, "kctl_quota_limit", quota=key)
        paused = _by_client(metrics, "kctl_quota_paused_seconds", quota=key)
        counts = _by_client(metrics, "kctl_quota_throttled_total", quota=key)
        earlier = (
            {}
            if before is None
            else _by_client(before.metrics, "kctl_quota_throttled_total", quota=key)
        )
        for user, client_id in {**rates, **tokens}:
            it = user, client_id
            entity = str(QuotaEntity(user or None, client_id or None))
            limit = limits.get(it)
            if limit is None:
                limit = limit_of(quotas, key, user, client_id)
            row = _row(entity, key, rates.get(it), limit)
            row["broker"] = scrape.url if scrape.broker_id is None else scrape.broker_id
            row["throttle_ms"] = times.get(it)
            if it in counts:
                more = before is not None and counts[it] > earlier.get(it, 0)
                row["throttled"] = more or paused.get(it, 0) > 0
            else:
                row["throttled"] = times.get(it, 0) > 0
            if it in tokens:
                row["throttled"] = row["throttled"] or tokens[it] < 0
            yield row


def _row(client: str, key: str, used: float | None, limit: float | None) -> Row:
    share = None if used is None or not limit else used / limit
    return {
        "client": client, "quota": key, "throttled": None, "used": used, "limit": limit,
        "share": share, "throttle_ms": None, "broker": None,
    }  # fmt: skip


def _by_client(metrics: "ParsedMetrics", name: str, **labels: str) -> dict[tuple[str, str], float]:
    """Return (user, client id) -> value; NaN, Kafka's value of nothing, is 0."""
    return {
        (it.labels.get("user", ""), it.labels.get("client_id", "")): (
            0.0 if math.isnan(it.value) else it.value
        )
        for it in metrics.of(name, **labels)
    }


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else -1.0
