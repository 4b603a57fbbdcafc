"""request_samples: the samples of requests: how many, their errors, and where their time goes."""

from kctl.broker.metering.meter import BrokerMeter
from kctl.broker.metering.request_parts import (
    FETCH_NAMES,
    PARTS,
    RequestParts,
    part_values,
)
from kctl.metrics import broker_families as f
from kctl.metrics.family import Sample, Samples
from kctl.metrics.histogram import HistogramValue, joined, summarized
from kctl.protocol.error_codes import ErrorCode

_MS = 1_000
_TOTAL = "total"


def request_samples(meter: BrokerMeter, now_ms: int) -> Samples:
    """Yield the samples of the requests that `meter` has counted."""
    by_api = [
        (api_key, [(version, it) for version, it in enumerate(versions) if it is not None])
        for api_key, versions in sorted(meter.requests.items())
    ]
    by_api = [each for each in by_api if each[1]]
    for api_key, versions in by_api:
        for version, histogram in versions:
            yield Sample(f.REQUESTS, (api_key.title, str(version)), histogram.count)
    for name, fetches in _fetches(meter):
        for version, count in sorted(fetches.versions.items()):
            yield Sample(f.REQUESTS, (name, str(version)), count)
    for (api_key, code), count in sorted(meter.error_counts().items()):
        yield Sample(f.ERRORS, (api_key.title, _error_name(code)), count)
    # In one turn, so that the parts are of the same requests as the totals.
    meter.settle()
    totals = [(key, joined([it for _, it in versions])) for key, versions in by_api]
    times = {key.title: (value, meter.parts_of(key)) for key, value in totals}
    times |= {
        name: (joined([fetches.total, fetches.at_once]), [fetches])
        for name, fetches in _fetches(meter)
    }
    for name, (value, _) in times.items():
        yield _times(meter, now_ms, name, _TOTAL, value)
    values = {name: part_values(*each) for name, each in times.items()}
    for part in PARTS:
        for name, by_part in values.items():
            yield _times(meter, now_ms, name, part, by_part[part])
    for api_key, value in totals:
        yield Sample(f.REQUEST_SECONDS, (api_key.title,), value)


_FAMILIES = {
    _TOTAL: f.TOTAL_TIME,
    "request_queue": f.REQUEST_QUEUE_TIME,
    "local": f.LOCAL_TIME,
    "remote": f.REMOTE_TIME,
    "throttle": f.THROTTLE_TIME,
    "response_queue": f.RESPONSE_QUEUE_TIME,
    "send": f.RESPONSE_SEND_TIME,
}


def _times(meter: BrokerMeter, now_ms: int, name: str, part: str, value: HistogramValue) -> Sample:
    recent = meter.window(name, part).recent(value.counts, now_ms)
    return Sample(_FAMILIES[part], (name,), summarized(value, recent, _MS))


def _fetches(meter: BrokerMeter) -> list[tuple[str, RequestParts]]:
    return [(name, meter.parts[name]) for name in FETCH_NAMES if name in meter.parts]


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
