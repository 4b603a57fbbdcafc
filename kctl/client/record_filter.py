"""Selects consumed records by key, value and headers, and parts of JSON values by path."""

import heapq
import json
import re
from collections.abc import Sequence
from dataclasses import field

from kctl.client.consumer import FetchedRecord
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

_PATH_STEP = re.compile(r"\.(\w[\w-]*)|\.?\[(-?\d+)\]|\.?\[?\"((?:[^\"\\]|\\.)*)\"\]?")

PathStep = str | int


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are selected; every condition that is given must hold."""

    keys: tuple[bytes, ...] = ()
    # Found anywhere in the value.
    pattern: re.Pattern[bytes] | None = None
    # (name, value); None matches any value.
    headers: tuple[tuple[str, bytes | None], ...] = ()
    path: tuple[PathStep, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether all records are selected."""
        return not (self.keys or self.pattern or self.headers or self.path)

    def matches(self, record: FetchedRecord) -> bool:
        """Return whether `record` is selected."""
        key, value = record.record.key, record.record.value
        if self.keys and (key is None or bytes(key) not in self.keys):
            return False
        if self.pattern is not None and (value is None or not self.pattern.search(value)):
            return False
        for name, wanted in self.headers:
            found = [content for it, content in record.record.headers if it == name]
            if not found or (wanted is not None and wanted not in found):
                return False
        return not self.path or json_at(value, self.path) is not None


def compile_pattern(text: str | None) -> re.Pattern[bytes] | None:
    """Return the compiled regular expression; raise UsageError if it is invalid."""
    if text is None:
        return None
    try:
        return re.compile(text.encode())
    except re.error as error:
        message = f"Not a regular expression: {text}: {error}"
        raise UsageError(message, hint="e.g. 'error|warn'") from None


def parse_path(text: str) -> tuple[PathStep, ...]:
    """Parse a path in jq's syntax, such as `.customer.id`, `.items[0]` or `.["a b"]`.

    Raise UsageError for anything else that jq can do.
    """
    steps: list[PathStep] = []
    position = 0
    while position < len(text):
        match = _PATH_STEP.match(text, position)
        if match is None:
            break
        name, index, quoted = match.groups()
        steps.append(int(index) if index else name if name is not None else quoted)
        position = match.end()
    if position < len(text) or not steps:
        raise UsageError(
            f"Not a path: {text}", hint='e.g. .customer.id, .items[0], .["a b"]; use jq for more'
        )
    return tuple(steps)


def json_at(value: bytes | memoryview | None, path: Sequence[PathStep]) -> str | None:
    """Return the part of a JSON document at `path`: a string as it is, anything else as JSON.

    Return None if `value` is not JSON or has no such part.
    """
    if value is None:
        return None
    try:
        found = json.loads(bytes(value))
    except (ValueError, RecursionError):
        return None
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return None
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


@dataclass(slots=True)
class LastRecords:
    """Keeps the last `count` of the records added, by timestamp and then by partition and
    offset."""

    count: int
    _heap: list[tuple[int, str, int, int]] = field(default_factory=list)
    _records: dict[tuple[str, int, int], FetchedRecord] = field(default_factory=dict)

    def write(self, records: Sequence[FetchedRecord]) -> None:
        """Add records."""
        for record in records:
            self.add(record)

    def add(self, record: FetchedRecord) -> None:
        """Add a record; the earliest one is dropped if there are too many."""
        place = (record.topic, record.partition, record.record.offset)
        self._records[place] = record
        heapq.heappush(self._heap, (record.record.timestamp, *place))
        if len(self._heap) > self.count:
            _, topic, partition, offset = heapq.heappop(self._heap)
            del self._records[(topic, partition, offset)]

    def take(self) -> list[FetchedRecord]:
        """Return the records, the earliest first."""
        ordered = sorted(self._heap)
        return [self._records[(topic, number, offset)] for _, topic, number, offset in ordered]
