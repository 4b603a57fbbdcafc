"""Statistics of logs: counts, sizes, codecs, histograms of sizes and times, the most common keys.

A log is read a window at a time, and memory does not grow with it: histograms have fixed buckets,
and only the most common keys of each window are kept. The count of a key is a lower bound; it is
exact as long as no window has more than WINDOW_KEYS_KEPT different keys.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kctl.lazy_dataclass import dataclass

KEYS_KEPT = 100_000
WINDOW_KEYS_KEPT = 2_000
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")
SIZE_BUCKETS = 32
MINUTE_MS = 60_000


_SUMS = (
    "files", "size", "batches", "records", "control_batches", "transactional_batches",
    "damaged_places", "null_keys", "null_values", "key_bytes", "value_bytes",
)  # fmt: skip
_BOUNDS: dict[str, Any] = {
    "first_offset": min, "last_offset": max, "min_timestamp": min, "max_timestamp": max,
}  # fmt: skip
_BOUND_NAMES = {
    "offset": ("first_offset", "last_offset"),
    "timestamp": ("min_timestamp", "max_timestamp"),
}


@dataclass(slots=True)
class CodecStats:
    """Batches of one codec: their bytes in the file, and those of their keys and values."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    data_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Return the number of bytes of data per stored byte."""
        return self.data_bytes / self.stored_bytes if self.stored_bytes else 0.0


@dataclass(slots=True)
class LogStats:
    """Statistics of .log files; offsets and times include those of control records."""

    files: int = 0
    size: int = 0
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    damaged_places: int = 0
    null_keys: int = 0
    null_values: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    by_codec: dict[str, CodecStats] = field(default_factory=dict)
    # Batches of up to 2^i bytes.
    batch_sizes: list[int] = field(default_factory=lambda: [0] * SIZE_BUCKETS)
    # Records by minute since 1970.
    minutes: Counter[int] = field(default_factory=Counter)
    keys: Counter[bytes] = field(default_factory=Counter)

    def add(self, other: "LogStats") -> None:
        """Add the figures of other files."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, choose in _BOUNDS.items():
            both = [it for it in (getattr(self, name), getattr(other, name)) if it is not None]
            setattr(self, name, choose(both, default=None))
        for codec, facts in other.by_codec.items():
            mine = self.by_codec.setdefault(codec, CodecStats())
            for name in CodecStats.__slots__:
                setattr(mine, name, getattr(mine, name) + getattr(facts, name))
        self.batch_sizes = [a + b for a, b in zip(self.batch_sizes, other.batch_sizes, strict=True)]
        self.minutes.update(other.minutes)
        self.keys.update(other.keys)
        self.forget_rare_keys()

    def add_bounds(self, name: str, low: int, high: int) -> None:
        """Extend the bounds of `name` ("offset" or "timestamp") to those of more records."""
        lows, highs = _BOUND_NAMES[name]
        for bound, value in ((lows, low), (highs, high)):
            known = getattr(self, bound)
            setattr(self, bound, value if known is None else _BOUNDS[bound](known, value))

    def add_minutes(self, minutes: Mapping[int, int]) -> None:
        """Add the numbers of records by minute; of a log of very many minutes, the first."""
        if len(self.minutes) < KEYS_KEPT:
            self.minutes.update(minutes)

    def add_keys(self, keys: Mapping[bytes, int]) -> None:
        """Add the most common keys of a window."""
        self.keys.update(keys)
        self.forget_rare_keys()

    def forget_rare_keys(self) -> None:
        """Keep the KEYS_KEPT most common keys if there are twice as many."""
        if len(self.keys) > 2 * KEYS_KEPT:
            self.keys = Counter(dict(self.keys.most_common(KEYS_KEPT)))
