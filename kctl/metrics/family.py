"""Family: the name, type, labels and meaning of one metric; a catalogue is a sequence of them.

Names follow what monitors of Apache Kafka already know: those that Strimzi's rules for Prometheus'
JMX exporter make of the broker's MBeans, those of kafka_exporter, and `kctl_*` for the rest.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from kctl.lazy_dataclass import dataclass
from kctl.metrics.histogram import HistogramValue, SummaryValue


class Kind(Enum):
    """The type of a metric; the value is its name in the text formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    # A count, and gauges by quantile: what the JMX exporter makes of Kafka's histograms.
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric. The name of a counter is that of its samples, with `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    # The MBean (and attribute) of Apache Kafka; empty: Kafka has none.
    jmx: str = ""


Number = int | float


class Sample(NamedTuple):
    """One series of a family; a label whose value is None is left out."""

    family: Family
    labels: tuple[str | None, ...]
    value: "Number | HistogramValue | SummaryValue"


# Samples, those of a family one after the other. None stands for work that made no sample, so that
# a reader can count it.
Samples = Iterator[Sample | None]


def counter(name: str, help_text: str, *labels: str, jmx: str = "") -> Family:
    """Return a family of counters."""
    return Family(name, Kind.COUNTER, help_text, labels, jmx)


def gauge(name: str, help_text: str, *labels: str, jmx: str = "") -> Family:
    """Return a family of gauges."""
    return Family(name, Kind.GAUGE, help_text, labels, jmx)


def histogram(name: str, help_text: str, *labels: str, jmx: str = "") -> Family:
    """Return a family of histograms."""
    return Family(name, Kind.HISTOGRAM, help_text, labels, jmx)


def summary(name: str, help_text: str, *labels: str, jmx: str = "") -> Family:
    """Return a family of counts with quantiles."""
    return Family(name, Kind.SUMMARY, help_text, labels, jmx)
