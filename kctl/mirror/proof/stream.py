"""SideStream: what one side of a proof has read and not compared yet, decoded or not.

A stream begins at an offset and is read in chunks, in order. Its undecoded batches come after its
decoded records. Memory is bounded: one chunk is asked for only when no batch is left, and at most
`WINDOW_BYTES` of batches are decoded ahead.
"""

from collections import deque
from dataclasses import field

import numpy as np

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.raw import Batches
from kctl.mirror.proof.records import Identity, Records, RecordView, decode
from kctl.records.columnar_batches import BatchDamage
from kctl.records.memory_records import CURRENT_MAGIC

# Stored bytes of batches that are decoded ahead on one side, to find where both sides meet again.
WINDOW_BYTES = 8 * 1024 * 1024
# Stored bytes of compared batches that are kept to recognize records that come twice.
RECENT_BYTES_MAX = 8 * 1024 * 1024
# Above every offset.
END_OF_LOG = 2**63 - 1


@dataclass(slots=True)
class Chunk:
    """A part of a partition: batches of committed records, none empty, and what is unreadable."""

    batches: Batches
    damages: list[BatchDamage]
    # Where the next chunk begins.
    next_offset: int
    # Stored bytes, also those of batches that do not count.
    size: int
    # Whether nothing follows.
    is_last: bool = False


@dataclass(slots=True)
class SideStream:
    """One side; `first` and `end` limit the offsets that are compared (end exclusive)."""

    first: int
    end: int
    ignores_timestamps: bool = False
    # What is compared of the records; None: all of them, and batches may be compared as bytes.
    view: RecordView | None = None
    # Where the next chunk begins.
    position: int = 0
    is_read: bool = False
    size: int = 0
    records: Records = field(default_factory=Records.none)
    damages: list[BatchDamage] = field(default_factory=list)
    _waiting: Batches | None = None
    _decoded_bytes: int = 0
    _recent: "deque[_RecentBatches]" = field(default_factory=deque)
    _recent_bytes: int = 0

    def __post_init__(self) -> None:
        """Begin at `first`."""
        self.position = self.first
        self.is_read = self.first >= self.end

    def add(self, chunk: Chunk) -> None:
        """Take the chunk that begins at `position`."""
        self.position = chunk.next_offset
        self.is_read = chunk.is_last or self.position >= self.end
        self.size += chunk.size
        self.damages += chunk.damages
        if len(chunk.batches.columns):
            self._waiting = chunk.batches
            self.remember(chunk.batches)

    def restart(self, offset: int) -> None:
        """Forget what was read, and read again from `offset` on."""
        self.first = self.position = offset
        self.is_read = offset >= self.end
        self.records, self._waiting, self._decoded_bytes = Records.none(), None, 0

    @property
    def waiting(self) -> Batches | None:
        """Return the batches that were read and not decoded; None if there are none."""
        return self._waiting

    @property
    def needs_chunk(self) -> bool:
        """Return whether a chunk must be read to have more batches."""
        return self._waiting is None and not self.is_read

    @property
    def is_exhausted(self) -> bool:
        """Return whether no batch is left to decode, and none will come."""
        return self._waiting is None and self.is_read

    @property
    def is_at_end(self) -> bool:
        """Return whether everything was compared."""
        return self.is_exhausted and not len(self.records)

    @property
    def is_window_full(self) -> bool:
        """Return whether no more may be decoded before something is compared."""
        return self._decoded_bytes >= WINDOW_BYTES

    def skip_batches(self, count: int) -> int:
        """Pass `count` waiting batches as compared; return how many records they have."""
        assert self._waiting is not None
        columns = self._waiting.columns
        records = int(columns.record_counts[:count].sum())
        self._set_waiting(count)
        return records

    def skip_records(self, count: int) -> None:
        """Pass `count` decoded records as compared."""
        before = len(self.records)
        self.records = self.records.drop(count)
        self._decoded_bytes = self._decoded_bytes * len(self.records) // max(1, before)

    def decode_records(self, count: int) -> None:
        """Decode waiting batches until there are `count` more records, at least one batch.

        A wrapper of v0 or v1, which does not say how many records it has, counts as one. It stops
        at the end of the chunk, and at `WINDOW_BYTES`.
        """
        assert self._waiting is not None
        columns = self._waiting.columns
        totals = np.cumsum(np.maximum(columns.record_counts, 1))
        number = int(np.searchsorted(totals, count)) + 1
        sizes = np.cumsum(columns.sizes)
        number = min(number, int(np.searchsorted(sizes, WINDOW_BYTES)) + 1, len(columns))
        records, damages = decode(
            self._waiting.part(slice(number)), self.first, self.end,
            ignores_timestamps=self.ignores_timestamps, view=self.view,
        )  # fmt: skip
        self.records = self.records.plus(records)
        self.damages += damages
        self._decoded_bytes += int(sizes[number - 1])
        self._set_waiting(number)

    def _set_waiting(self, from_index: int) -> None:
        waiting = self._waiting
        assert waiting is not None
        is_left = from_index < len(waiting.columns)
        self._waiting = waiting.part(slice(from_index, None)) if is_left else None

    @property
    def next_offset(self) -> int | None:
        """Return the offset of the next record to compare, or one before it; None if it is not
        known: the first offset of a compressed message of an old format is not in its header."""
        if len(self.records):
            return int(self.records.offsets[0])
        if self._waiting is None:
            return self.position
        if int(self._waiting.columns.magics[0]) != CURRENT_MAGIC:
            return None
        return max(self.first, int(self._waiting.columns.base_offsets[0]))

    @property
    def recent_offset(self) -> int:
        """Return the first offset of the batches that are kept, the beginning without any."""
        if not self._recent:
            return self.first
        return max(0, int(self._recent[0].batches.columns.base_offsets[0]))

    def remember(self, batches: Batches) -> None:
        """Keep batches that were compared, to recognize records that come twice."""
        self._recent.append(_RecentBatches(batches))
        self._recent_bytes += batches.size
        while len(self._recent) > 1 and self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= self._recent.popleft().batches.size

    def recent(self, identity: Identity, below: int) -> int | None:
        """Return an offset below `below` at which the batches read last have a record."""
        for each in self._recent:
            offset = each.offset_of(identity, self)
            if offset is not None and offset < below:
                return offset
        return None


@dataclass(slots=True)
class _RecentBatches:
    """Batches that may have been compared as bytes; decoded if a record of theirs is looked for."""

    batches: Batches
    _offsets: dict[Identity, int] | None = None

    def offset_of(self, identity: Identity, side: SideStream) -> int | None:
        """Return the first offset of a record; None if these batches do not have it."""
        if self._offsets is None:
            found, _ = decode(
                self.batches, 0, END_OF_LOG, ignores_timestamps=side.ignores_timestamps,
                view=side.view,
            )  # fmt: skip
            self._offsets = {}
            for each, offset in zip(found.identities, found.offsets.tolist(), strict=True):
                self._offsets.setdefault(each, offset)
        return self._offsets.get(identity)
