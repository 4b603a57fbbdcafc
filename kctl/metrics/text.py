"""The text that Prometheus reads, in both of its formats: 0.0.4 and OpenMetrics 1.0.

Names of topics, groups and clients are text of other parties. A label is one line without control
characters or such that change the direction of writing: those become escapes like \\u202e. A label
that was changed or cut ends with a checksum of the original, so that two of them stay apart.

A summary is what the JMX exporter makes of a histogram of Kafka: a gauge by quantile, written
"0.50", and `_count`; here also `_sum`. These have no type, as names of counters end with `_total`.

The text is made in parts of SERIES_PER_TURN, between which others may run.
"""

import math
from zlib import crc32

from kctl.metrics.family import Family, Kind, Number, Sample, Samples
from kctl.metrics.histogram import HistogramValue, SummaryValue
from kctl.runtime.terminal_text import for_log_line
from kctl.work import Work

# About half a millisecond of work.
SERIES_PER_TURN = 100
LABEL_CHARS_MAX = 256
# "0.50", of Kafka's 50thPercentile; 0.999 is longer.
_QUANTILE_CHARS = 4
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def render(samples: Samples, *, is_open_metrics: bool = False) -> Work[list[bytes]]:
    """Return the text of `samples`, in pieces."""
    pieces: list[bytes] = []
    lines: list[str] = []
    totals = _Totals(is_open_metrics=is_open_metrics)
    family: Family | None = None
    work = 0
    for sample in samples:
        work += 1
        if sample is not None:
            if sample.family is not family:
                family = sample.family
                lines += totals.taken()
                lines += _head(family, is_open_metrics=is_open_metrics)
            before = len(lines)
            if isinstance(sample.value, SummaryValue):
                _add_quantiles(lines, sample, sample.value)
                totals.add(sample, sample.value)
            else:
                _add(lines, sample)
            work += (len(lines) - before) // 2
        if work >= SERIES_PER_TURN:
            work = 0
            pieces.append("".join(lines).encode())
            lines.clear()
            yield
    lines += totals.taken()
    if is_open_metrics:
        lines.append("# EOF\n")
    pieces.append("".join(lines).encode())
    return pieces


def _head(family: Family, *, is_open_metrics: bool) -> list[str]:
    name = family.name
    if is_open_metrics and family.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    kind = Kind.GAUGE if family.kind is Kind.SUMMARY else family.kind
    return _head_lines(name, kind.value, family.help)


def _head_lines(name: str, kind: str, text: str) -> list[str]:
    help_text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {help_text}\n", f"# TYPE {name} {kind}\n"]


class _Totals:
    """The counts and sums of a summary's series, which follow all of its quantiles."""

    def __init__(self, *, is_open_metrics: bool) -> None:
        self._kind = "unknown" if is_open_metrics else "untyped"
        self._counts: list[str] = []
        self._sums: list[str] = []

    def add(self, sample: Sample, value: SummaryValue) -> None:
        """Keep the totals of one series."""
        name, help_text = sample.family.name, sample.family.help
        text = label_text(sample.family.labels, sample.labels) if sample.labels else ""
        if not self._counts:
            self._counts += _head_lines(f"{name}_count", self._kind, f"How many. {help_text}")
        self._counts.append(f"{name}_count{text} {value.observed}\n")
        if value.total is not None:
            if not self._sums:
                self._sums += _head_lines(f"{name}_sum", self._kind, f"Their sum. {help_text}")
            self._sums.append(f"{name}_sum{text} {number(value.total)}\n")

    def taken(self) -> list[str]:
        """Return the lines of the last summary, once."""
        lines = self._counts + self._sums
        self._counts.clear()
        self._sums.clear()
        return lines


def _add_quantiles(lines: list[str], sample: Sample, value: SummaryValue) -> None:
    name = sample.family.name
    text = label_text(sample.family.labels, sample.labels) if sample.labels else ""
    for which, each in value.quantiles:
        label = str(which).ljust(_QUANTILE_CHARS, "0")
        lines.append(f"{name}{_with(text, 'quantile', label)} {number(each)}\n")


def _add(lines: list[str], sample: Sample) -> None:
    family, labels, value = sample
    name = family.name
    text = label_text(family.labels, labels) if labels else ""
    if isinstance(value, HistogramValue):
        _add_histogram(lines, name, text, value)
    elif not isinstance(value, SummaryValue):
        lines.append(f"{name}{text} {number(value)}\n")


def _add_histogram(lines: list[str], name: str, text: str, value: HistogramValue) -> None:
    so_far = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        so_far += count
        lines.append(f"{name}_bucket{_with(text, 'le', number(float(bound)))} {so_far}\n")
    lines.append(f"{name}_sum{text} {number(value.total)}\n")
    lines.append(f"{name}_count{text} {so_far}\n")


def _with(text: str, name: str, value: str) -> str:
    return f'{text[:-1]},{name}="{value}"}}' if text else f'{{{name}="{value}"}}'


def label_text(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the labels in braces, without those whose value is None; nothing without labels."""
    pairs = [
        f'{name}="{label_value(value)}"'
        for name, value in zip(names, values, strict=True)
        if value is not None
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def label_value(value: str) -> str:
    """Return the text of a label's value between its quotes.

    >>> label_value("orders")
    'orders'
    >>> print(label_value('a"b'))
    a\\"b
    """
    safe = for_log_line(value)
    if len(safe) > LABEL_CHARS_MAX or safe != value:
        checksum = crc32(value.encode("utf-8", "surrogatepass"))
        safe = f"{safe[:LABEL_CHARS_MAX]}~{checksum:08x}"
    if "\\" in safe or '"' in safe:
        safe = safe.replace("\\", "\\\\").replace('"', '\\"')
    return safe


def number(value: Number) -> str:
    """Return a number as both formats write it.

    >>> number(3), number(0.25), number(float("inf"))
    ('3', '0.25', '+Inf')
    """
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
