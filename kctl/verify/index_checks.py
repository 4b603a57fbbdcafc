"""Check .index, .timeindex and .txnindex of a segment against its batches, in one pass.

An offset index entry points at the start of an append. It names the last offset of the append, or
the first if Kafka before 2.0 wrote it: so it must point at a batch and name that batch's first
offset, or the last offset of a batch before the next entry. A time index entry (t, o) states that t
is the largest timestamp up to the batch with o; where that is a message of format v0, t may be
larger, as Kafka 0.10 indexed the timestamps that conversion to v0 then removed. kafka-dump-log
demands more (that the entry names the very batch it points at) and raises false alarms on
followers.

Kafka 2.7: kafka.log.LogSegment.append, OffsetIndex, TimeIndex, TransactionIndex
"""

from collections.abc import Sequence

from kctl.counts import are, counted
from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk
from kctl.storage import offset_index, time_index
from kctl.storage.offset_index import INDEX_INTERVAL_BYTES, OffsetIndex
from kctl.storage.time_index import TimeIndex
from kctl.storage.transaction_index import ENTRY_BYTES, AbortedTransaction, TransactionIndex
from kctl.verify.findings import Findings
from kctl.verify.rules import Finding, Rule
from kctl.verify.segment_walk import WalkedBatch

# Kafka's segment.index.bytes is 10 MiB by default.
INDEX_BYTES_MAX = 256 * 1024 * 1024
# The factor over the usual distance that may be without an entry at the end.
_SHORT_FACTOR = 16
_NEVER = 2**63 - 1


class IndexFileData:
    """The bytes of an index without partial entries and padding, and what is wrong
    with its size."""

    def __init__(self, disk: Disk, path: str, entry_size: int) -> None:
        self.path = path
        self.size = disk.size(path)
        self.is_too_big = self.size > INDEX_BYTES_MAX
        data = b"" if self.is_too_big else disk.read_file(path)
        self.excess = self.size % entry_size
        used = len(data.rstrip(b"\0"))
        whole = (len(data) - self.excess) // entry_size * entry_size
        end = min(-(-used // entry_size) * entry_size, whole)
        # The first entry of a segment may be all NULs: offset and position 0.
        self.padding = whole - end if whole - end >= 2 * entry_size else 0
        if not self.padding:
            end = whole
        self.data = data[:end]


def size_findings(
    index: IndexFileData, size_rule: Rule, padded_rule: Rule, *, may_be_padded: bool
) -> list[Finding]:
    """Return what is wrong with the file's length."""
    path = index.path
    if index.is_too_big:
        return [Finding(path, size_rule, f"{index.size} bytes are too many for an index")]
    found = []
    if index.excess:
        end = index.size - index.excess
        message = (
            f"{counted(index.excess, 'byte')} after the last entry {are(index.excess)} not an entry"
        )
        found.append(Finding(path, size_rule, message, end, length=index.excess))
    if index.padding and not may_be_padded:
        message = f"{counted(index.padding, 'byte')} of NULs after the last entry"
        found.append(Finding(path, padded_rule, message, len(index.data), length=index.padding))
    return found


class OffsetIndexCheck:
    """Checks an .index: `on_batch` takes each valid batch in order, `on_damage` each bad range."""

    def __init__(
        self, disk: Disk, path: str, base_offset: int, findings: Findings, *, may_be_padded: bool
    ) -> None:
        self._path = path
        self._base = base_offset
        self._findings = findings
        index = IndexFileData(disk, path, OffsetIndex.entry_size)
        for finding in size_findings(
            index, Rule.INDEX_SIZE, Rule.INDEX_PADDED, may_be_padded=may_be_padded
        ):
            findings.add(finding)
        self._offsets, self._positions = offset_index.decode_columns(index.data)
        self._is_ordered = self._check_order()
        self._slot = 0
        # Where the next entry points; the offset that the last one names and waits for.
        self.next_position = self._positions[0] if self._is_usable else _NEVER
        self._wanted: int | None = None
        # Where the last entry points; with no entry, before every batch.
        self.last_position = self._positions[-1] if self._is_usable else -1
        self._distance_max = 0
        self._tail_distance = 0

    @property
    def _is_usable(self) -> bool:
        return self._is_ordered and len(self._positions) > 0

    def _check_order(self) -> bool:
        offset, position = -1, -1
        for slot, (next_offset, next_position) in enumerate(
            zip(self._offsets, self._positions, strict=True)
        ):
            # The first append may be indexed at position 0 with offset 0.
            if next_offset <= offset or next_position <= position:
                self._add(
                    Rule.INDEX_ORDER, slot,
                    f"entry {slot} (offset {self._base + next_offset}, position {next_position}) "
                    f"does not follow the one before (offset {self._base + offset}, position "
                    f"{position})",
                )  # fmt: skip
                return False
            offset, position = next_offset, next_position
        return True

    def on_batch(self, batch: WalkedBatch, first_offset: int) -> None:
        """Check the entries up to a valid batch whose first record has `first_offset`."""
        if batch.position >= self.next_position:
            self._pass_entries(batch.position)
            if self._names_start(batch, first_offset):
                self._wanted = None
        else:
            self._note_distance(batch.position)
        wanted = self._wanted
        if wanted is not None and batch.last_offset >= wanted:
            if batch.last_offset != wanted:
                self._mismatch(wanted, batch)
            self._wanted = None

    def _names_start(self, batch: WalkedBatch, first_offset: int) -> bool:
        """Return whether the entry names the first offset of its batch, as before 2.0."""
        wanted = self._wanted
        if wanted is None or not batch.is_wrapper:
            return wanted == first_offset
        return first_offset <= wanted <= batch.last_offset

    def _pass_entries(self, position: int) -> None:
        if self._wanted is not None:
            slot = self._slot - 1
            self._add(
                Rule.INDEX_ENTRY, slot,
                f"entry {slot} names offset {self._wanted} at position {self._positions[slot]}: no "
                f"batch before the next entry's ends with it",
            )  # fmt: skip
            self._wanted = None
        while self.next_position <= position:
            if self.next_position == position:
                self._wanted = self._base + self._offsets[self._slot]
            else:
                self._add(
                    Rule.INDEX_ENTRY, self._slot,
                    f"entry {self._slot} (offset {self._base + self._offsets[self._slot]}) points "
                    f"at position {self.next_position}, where no batch begins",
                )  # fmt: skip
            self._next_entry()

    def _next_entry(self) -> None:
        self._slot += 1
        is_more = self._slot < len(self._positions)
        self.next_position = self._positions[self._slot] if is_more else _NEVER

    def _mismatch(self, wanted: int, batch: WalkedBatch) -> None:
        slot = self._slot - 1
        self._add(
            Rule.INDEX_ENTRY, slot,
            f"entry {slot} names offset {wanted} at position {self._positions[slot]}: no batch "
            f"there ends with it, one ends with {batch.last_offset}",
        )  # fmt: skip

    def _note_distance(self, position: int) -> None:
        last = self._positions[self._slot - 1] if self._slot else 0
        if self.next_position == _NEVER:
            self._tail_distance = position - last
        elif position - last > self._distance_max:
            self._distance_max = position - last

    def on_damage(self, end: int) -> None:
        """Skip the entries that point below `end`, as there is no valid batch."""
        self._wanted = None
        while self.next_position < end:
            self._next_entry()

    def finish(self, log_size: int, last_offset: int, *, is_last: bool) -> None:
        """Check the remaining entries when the segment ends with `last_offset` and `log_size`
        bytes."""
        if self._wanted is not None:
            slot = self._slot - 1
            self._add(
                Rule.INDEX_ENTRY, slot,
                f"entry {slot} names offset {self._wanted} at position {self._positions[slot]}: "
                f"the segment ends with {last_offset}",
            )  # fmt: skip
        while self.next_position != _NEVER:
            self._add(
                Rule.INDEX_ENTRY, self._slot,
                f"entry {self._slot} points at position {self.next_position}, the segment ends at "
                f"{log_size}",
            )  # fmt: skip
            self._next_entry()
        usual = max(self._distance_max, INDEX_INTERVAL_BYTES)
        if self._is_ordered and not is_last and self._tail_distance > _SHORT_FACTOR * usual:
            self._findings.add(
                Finding(
                    self._path, Rule.INDEX_SHORT,
                    f"no entry for the last {self._tail_distance} bytes of the segment",
                )
            )  # fmt: skip

    def _add(self, rule: Rule, slot: int, message: str) -> None:
        self._findings.add(
            Finding(
                self._path,
                rule,
                message,
                slot * OffsetIndex.entry_size,
                length=OffsetIndex.entry_size,
            )
        )


class TimeIndexCheck:
    """Checks a .timeindex in the same way.

    A broker adds an entry with each entry of the offset index, and one more when it closes the
    segment. Kafka before 2.0 leaves the last one out when it recovers a segment, so an index that
    lacks only that is a note. `indexed_position` is where the last offset index entry points."""

    def __init__(
        self, disk: Disk, path: str, base_offset: int, findings: Findings, *, may_be_padded: bool,
        indexed_position: int = _NEVER,
    ) -> None:  # fmt: skip
        self._indexed_position = indexed_position
        self._indexed_timestamp = -1
        self._path = path
        self._base = base_offset
        self._findings = findings
        index = IndexFileData(disk, path, TimeIndex.entry_size)
        for finding in size_findings(
            index, Rule.TIME_INDEX_SIZE, Rule.TIME_INDEX_PADDED, may_be_padded=may_be_padded
        ):
            findings.add(finding)
        self._timestamps, self._offsets = time_index.decode_columns(index.data)
        self._is_ordered = self._check_order()
        self._slot = 0
        self.next_offset = self._offset_at(0)
        self.max_timestamp = -1
        # Whether every batch so far was readable, so that the largest timestamp is known.
        self._is_whole = True

    def _offset_at(self, slot: int) -> int:
        is_there = self._is_ordered and slot < len(self._offsets)
        return self._base + self._offsets[slot] if is_there else _NEVER

    def _check_order(self) -> bool:
        timestamp, offset = -1, -1
        for slot, next_offset in enumerate(self._offsets):
            next_timestamp = self._timestamps[slot]
            if next_timestamp <= timestamp or next_offset < offset or next_offset < 0:
                self._add(
                    Rule.TIME_INDEX_ORDER, slot,
                    f"entry {slot} (timestamp {next_timestamp}, offset {self._base + next_offset}) "
                    f"does not follow the one before (timestamp {timestamp}, offset "
                    f"{self._base + offset})",
                )  # fmt: skip
                return False
            timestamp, offset = next_timestamp, next_offset
        return True

    def on_batch(self, batch: WalkedBatch) -> None:
        """Check the entries up to a valid batch."""
        before = self.max_timestamp
        if batch.max_timestamp > before:
            self.max_timestamp = batch.max_timestamp
        if batch.position <= self._indexed_position:
            self._indexed_timestamp = self.max_timestamp
        if batch.last_offset >= self.next_offset:
            self._pass_entries(batch, before)

    def _pass_entries(self, batch: WalkedBatch, before: int) -> None:
        while self.next_offset <= batch.last_offset:
            timestamp = self._timestamps[self._slot]
            is_here = batch.base_offset <= self.next_offset or batch.is_wrapper
            largest = self.max_timestamp if is_here else before
            is_larger = batch.max_timestamp < 0 and timestamp > largest
            if self._is_whole and timestamp != largest and not is_larger:
                self._add(
                    Rule.TIME_INDEX_ENTRY, self._slot,
                    f"entry {self._slot} claims that {timestamp} is the largest timestamp up to "
                    f"offset {self.next_offset}, but {largest} is",
                )  # fmt: skip
            self._slot += 1
            self.next_offset = self._offset_at(self._slot)

    def on_damage(self) -> None:
        """Note that the largest timestamp is not known from here on."""
        self._is_whole = False

    def finish(self, last_offset: int, *, is_last: bool) -> None:
        """Check the last entries when the segment ends with `last_offset`."""
        if not self._is_ordered:
            return
        if self.next_offset != _NEVER and self._is_whole:
            self._add(
                Rule.TIME_INDEX_ENTRY, self._slot,
                f"entry {self._slot} names offset {self.next_offset}, the segment ends with "
                f"{last_offset}",
            )  # fmt: skip
            return
        count = len(self._offsets)
        last = self._timestamps[count - 1] if count else -1
        if not is_last and self._is_whole and last < self.max_timestamp:
            is_open = last >= self._indexed_timestamp
            rule = Rule.TIME_INDEX_OPEN if is_open else Rule.TIME_INDEX_SHORT
            self._findings.add(
                Finding(
                    self._path, rule,
                    f"its last timestamp is {last}, the segment's largest {self.max_timestamp}",
                )
            )  # fmt: skip

    def _add(self, rule: Rule, slot: int, message: str) -> None:
        self._findings.add(
            Finding(
                self._path, rule, message, slot * TimeIndex.entry_size, length=TimeIndex.entry_size
            )
        )


def check_transaction_index(
    disk: Disk,
    path: str,
    base_offset: int,
    aborted: Sequence[AbortedTransaction],
    end_offset: int,
    findings: Findings,
    *,
    is_complete: bool,
) -> None:
    """Compare the .txnindex with the transactions whose ABORT the segment holds.

    `end_offset` is the segment's. `is_complete` states that every transaction was replayed and
    none was removed by compaction."""
    try:
        entries = TransactionIndex(disk, path, base_offset).entries()
    except CorruptDataError as error:
        findings.add(Finding(path, Rule.TXN_INDEX_SIZE, _without_path(path, error)))
        return
    known = {entry.last_offset: entry for entry in aborted}
    there = {entry.last_offset for entry in entries}
    for slot, entry in enumerate(entries):
        expected = known.get(entry.last_offset)
        if expected == entry:
            continue
        is_within = entry.first_offset <= entry.last_offset < end_offset
        if not is_complete and is_within and (expected is None or _is_close(entry, expected)):
            continue
        should_be = "no such transaction was aborted" if expected is None else f"it is {expected}"
        if entry.last_offset >= end_offset:
            should_be = f"the segment ends before offset {end_offset}"
        findings.add(
            Finding(
                path, Rule.TXN_INDEX_ENTRY, f"entry {slot} is {entry}: {should_be}",
                slot * ENTRY_BYTES, entry.first_offset, entry.last_offset, ENTRY_BYTES,
            )
        )  # fmt: skip
    for entry in aborted:
        if entry.last_offset not in there:
            findings.add(
                Finding(
                    path, Rule.TXN_INDEX_SHORT,
                    f"producer {entry.producer_id}'s transaction was aborted at offset "
                    f"{entry.last_offset}, which the index lacks",
                    None, entry.first_offset, entry.last_offset,
                )
            )  # fmt: skip


def _is_close(entry: AbortedTransaction, expected: AbortedTransaction) -> bool:
    return entry.producer_id == expected.producer_id and entry.first_offset <= expected.first_offset


def _without_path(path: str, error: Exception) -> str:
    return str(error).removeprefix(f"{path}: ")
