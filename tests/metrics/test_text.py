"""The text of metrics: both formats, hostile labels, and what prometheus_client reads of it."""

import math
import random  # noqa: TID251 - seeded

import pytest

from kctl.errors import CorruptDataError
from kctl.metrics.family import Kind, Sample, counter, gauge, histogram
from kctl.metrics.histogram import (
    QUANTILES,
    WINDOW_MS,
    Histogram,
    Window,
    joined,
    quantile,
    summarized,
)
from kctl.metrics.parse import parse_metrics
from kctl.metrics.text import LABEL_CHARS_MAX, SERIES_PER_TURN, label_value, render
from kctl.work import at_once
from tools.metrics import CATALOGUE, sample_names

SCRAPES = 1_000
HOSTILE = 'ab"\\\n\r\t\x00\x1b\x7f\x85\u202e\u2066\u200b\ud800é☃{}=,#~'
REQUESTS = counter("kctl_requests_total", 'Requests, with a \\ and a\nnew line, and a ".', "api")
LAG = gauge("kctl_lag", "Lag.", "group", "topic")
SECONDS = histogram("kctl_seconds", "Seconds.", "api")


def text_of(samples, *, is_open_metrics=False):
    return b"".join(at_once(render(iter(samples), is_open_metrics=is_open_metrics))).decode()


def test_a_counter_has_its_help_its_type_and_a_line_per_series():
    text = text_of([Sample(REQUESTS, ("Produce",), 3), Sample(REQUESTS, (None,), 2.5)])
    assert text == (
        '# HELP kctl_requests_total Requests, with a \\\\ and a\\nnew line, and a ".\n'
        "# TYPE kctl_requests_total counter\n"
        'kctl_requests_total{api="Produce"} 3\n'
        "kctl_requests_total 2.5\n"
    )


def test_openmetrics_names_a_counter_without_its_suffix_and_ends_with_eof():
    text = text_of([Sample(REQUESTS, ("Produce",), 3)], is_open_metrics=True)
    assert "# TYPE kctl_requests counter\n" in text
    assert 'kctl_requests_total{api="Produce"} 3\n# EOF\n' in text


def test_buckets_are_cumulative_and_their_bounds_inclusive():
    seconds = Histogram((0.1, 1.0))
    for value in (0.1, 0.5, 1.0, 7.0):
        seconds.observe(value)
    parsed = parse_metrics(text_of([Sample(SECONDS, ("Fetch",), seconds.value())]))
    buckets = {it.labels["le"]: it.value for it in parsed.of("kctl_seconds_bucket")}
    assert buckets == {"0.1": 1, "1.0": 3, "+Inf": 4}
    assert parsed.value("kctl_seconds_sum", api="Fetch") == 8.6
    assert parsed.value("kctl_seconds_count", api="Fetch") == 4


def test_quantiles_are_of_the_last_minutes_and_counts_of_all_time():
    seconds, window = Histogram((0.1, 1.0, 10.0)), Window(4)
    assert window.recent(seconds.counts, 0) == [0, 0, 0, 0]
    for _ in range(10):
        seconds.observe(5.0)
    assert window.recent(seconds.counts, WINDOW_MS) == [0, 0, 10, 0]
    assert window.recent(seconds.counts, 2 * WINDOW_MS) == [0, 0, 0, 0]
    seconds.observe(0.05)
    recent = window.recent(seconds.counts, 2 * WINDOW_MS + 1)
    value = summarized(seconds.value(), recent, 1_000)
    assert value.observed == 11
    assert dict(value.quantiles)[0.5] == pytest.approx(50)


def test_a_quantile_beyond_all_bounds_is_the_last_bound():
    assert quantile((1.0, 2.0), (0, 0, 5), 0.99) == 2.0
    assert quantile((1.0, 2.0), (0, 0, 0), 0.99) == 0.0
    both = joined([_with(Histogram(), 0.01), _with(Histogram(), 3)])
    assert sum(both.counts) == 2


def _with(seconds, value):
    seconds.observe(value)
    return seconds


def test_a_label_of_a_client_is_one_line_without_control_characters():
    for raw in ("a\nb", 'a"b', "a\\b", "a\u202eb", "a\x1b[2Jb", "a\x85b", "\ud800", "x" * 5_000):
        line = text_of([Sample(LAG, (raw, "t"), 1)]).splitlines()[2]
        assert line.isprintable()
        assert len(line) < 2 * LABEL_CHARS_MAX
        assert parse_metrics(line).of("kctl_lag")[0].value == 1
    assert label_value("orders") == "orders"
    assert label_value("ünï☃") == "ünï☃"


def test_labels_that_are_changed_or_cut_stay_different():
    raw = ["a\nb", "a\\nb", "a\x1bb", "a\\x1bb", "x" * 5_000, "x" * 4_999 + "y", "\ud800", "\ud801"]
    assert len({label_value(each) for each in raw}) == len(raw)


def test_a_long_text_is_made_in_parts():
    samples = [Sample(LAG, ("g", str(n)), n) for n in range(4 * SERIES_PER_TURN)]
    work = render(iter(samples))
    assert sum(1 for _ in work) == 4
    # Work without a sample counts as well.
    assert sum(1 for _ in render(iter([None] * (3 * SERIES_PER_TURN)))) == 3


def test_what_is_no_text_of_metrics_is_refused():
    for line in ("<html>", "kctl_lag{", 'kctl_lag{a="b"', "kctl_lag", 'kctl_lag{a="b"} many'):
        with pytest.raises(CorruptDataError):
            parse_metrics(line)


def test_names_of_the_catalogue_are_unique():
    names = [name for family in CATALOGUE for name in sample_names(family)]
    assert len(names) == len(set(names))
    for family in CATALOGUE:
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER), family.name
        assert family.help.endswith("."), family.name


def random_samples(rng):
    """Some families of the catalogue in some state, with labels of clients."""
    for family in rng.sample(CATALOGUE, 8):
        seen = set()
        for _ in range(rng.randrange(5)):
            labels = tuple(
                None if rng.random() < 0.1 else "".join(rng.choices(HOSTILE, k=rng.randrange(9)))
                for _ in family.labels
            )
            # An absent label is an empty one.
            key = tuple(label or "" for label in labels)
            if key not in seen:
                seen.add(key)
                yield Sample(family, labels, random_value(rng, family.kind))


def random_value(rng, kind):
    if kind in (Kind.HISTOGRAM, Kind.SUMMARY):
        seconds = Histogram()
        for _ in range(rng.randrange(20)):
            seconds.observe(rng.expovariate(100))
        value = seconds.value()
        return value if kind is Kind.HISTOGRAM else summarized(value, seconds.counts)
    number = rng.choice([0, 1, 2**63, rng.random() * 1e9, 1e-9])
    return number if kind is Kind.COUNTER else rng.choice([number, -1, math.inf])


def test_prometheus_reads_scrapes_of_random_states_as_they_are_meant():
    prometheus = pytest.importorskip("prometheus_client.parser")
    open_metrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    rng = random.Random(19)
    for number in range(SCRAPES):
        is_open = number % 2 == 1
        samples = list(random_samples(rng))
        text = text_of(samples, is_open_metrics=is_open)
        reader = open_metrics if is_open else prometheus
        read = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in reader.text_string_to_metric_families(text)
            for sample in family.samples
        }
        ours = {
            (it.name, tuple(sorted(it.labels.items()))): it.value
            for found in parse_metrics(text).samples.values()
            for it in found
        }
        assert read == ours
        assert len(ours) == sum(map(series_of, samples))


def series_of(sample):
    if sample.family.kind is Kind.HISTOGRAM:
        return len(sample.value.counts) + 2
    return len(QUANTILES) + 2 if sample.family.kind is Kind.SUMMARY else 1
