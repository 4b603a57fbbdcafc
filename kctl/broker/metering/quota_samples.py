"""The samples of client quotas: what the clients that have one use, and how they are throttled.

Kafka 2.7: kafka.server.ClientQuotaManager (clientRateMetricName, throttleMetricName); KIP-13,
KIP-599
"""

from kctl.broker.client_throttling import ClientQuotas, QuotaKind, Usage
from kctl.metrics import broker_families as f
from kctl.metrics.family import Family, Number, Sample, Samples

# With more clients that have quotas, the series of each are left out, unless they are asked for.
QUOTA_CLIENTS_MAX = 1_000
_S = 1_000
_KINDS = {
    QuotaKind.PRODUCE: (f.PRODUCE_RATE, f.THROTTLE_TIMES["Produce"]),
    QuotaKind.FETCH: (f.FETCH_RATE, f.THROTTLE_TIMES["Fetch"]),
    QuotaKind.REQUEST: (f.REQUEST_TIME, f.THROTTLE_TIMES["Request"]),
    QuotaKind.MUTATION: (f.MUTATION_TOKENS, f.THROTTLE_TIMES["ControllerMutation"]),
}


def quota_samples(quotas: ClientQuotas, now_ms: int, *, with_each: bool | None) -> Samples:
    """Yield the samples of all quotas; `with_each` None: those of single clients if there are at
    most QUOTA_CLIENTS_MAX."""
    count = quotas.bucket_count
    if with_each is None:
        with_each = count <= QUOTA_CLIENTS_MAX
    yield Sample(f.QUOTA_SERIES_OMITTED, (), 0 if with_each else count)
    if not with_each:
        return
    # Those of a family one after the other.
    by_family: dict[Family, list[Sample]] = {}
    for usage in quotas.usage(now_ms):
        yield None
        if usage is not None:
            for family, labels, value in _of(usage):
                by_family.setdefault(family, []).append(Sample(family, labels, value))
    for samples in by_family.values():
        yield from samples


def _of(usage: Usage) -> list[tuple[Family, tuple[str, ...], Number]]:
    names = (usage.share.user, usage.share.client_id)
    rate, throttle_time = _KINDS[usage.kind]
    labels = (usage.kind.value, *names)
    return [
        (rate, names, usage.used),
        (throttle_time, names, usage.throttle_ms),
        (f.QUOTA_LIMIT, labels, usage.share.limit),
        (f.QUOTA_THROTTLED, labels, usage.throttled),
        (f.QUOTA_PAUSED, labels, usage.paused_ms / _S),
    ]
