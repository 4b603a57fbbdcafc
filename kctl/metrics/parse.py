"""Reads Prometheus' text: what brokers and exporters serve at /metrics. Pure.

Both formats, without timestamps and exemplars. A line that is not a sample is an error: the peer is
no metrics endpoint.
"""

import re
from dataclasses import field

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")
_UNESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class ParsedSample:
    """One line: its name (with `_total`, `_bucket` ...), labels and value."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class ParsedMetrics:
    """The samples of one scrape, by name."""

    samples: dict[str, list[ParsedSample]] = field(default_factory=dict)
    # Family -> "counter", "gauge" ...
    kinds: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, **labels: str) -> list[ParsedSample]:
        """Return the samples called `name` that have these labels, among others."""
        found = self.samples.get(name, [])
        return [it for it in found if labels.items() <= it.labels.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the sample with exactly these labels, or None."""
        return next((it.value for it in self.samples.get(name, []) if it.labels == labels), None)


def parse_metrics(text: str) -> ParsedMetrics:
    """Return the samples of `text`; raise CorruptDataError that quotes the line."""
    parsed = ParsedMetrics()
    for line in text.split("\n"):
        if line.startswith("#"):
            parts = line.split(None, 3)
            if len(parts) == 4 and parts[1] == "TYPE":
                parsed.kinds[parts[2]] = parts[3].strip()
        elif line.strip():
            sample = _sample(line)
            parsed.samples.setdefault(sample.name, []).append(sample)
    return parsed


def _sample(line: str) -> ParsedSample:
    name = _NAME.match(line)
    if name is None:
        raise CorruptDataError(f"not a line of metrics: {line[:80]!r}")
    position = name.end()
    labels: dict[str, str] = {}
    if line[position : position + 1] == "{":
        position += 1
        while (match := _LABEL.match(line, position)) is not None:
            position = match.end()
            labels[match[1]] = _unescaped(match[2])
        if line[position : position + 1] != "}":
            raise CorruptDataError(f"labels without an end: {line[:80]!r}")
        position += 1
    try:
        value = float(line[position:].split()[0])
    except (ValueError, IndexError):
        raise CorruptDataError(f"a sample without a number: {line[:80]!r}") from None
    return ParsedSample(name[0], labels, value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _UNESCAPED.get(match[1], match[0]), text)
