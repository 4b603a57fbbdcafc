"""Finds transactions whose end is lost: their control batch was damaged, removed or is missing.

Without its marker a transaction stays open: readers of committed data stop before it, or, if the
producer has begun another one, get its records with the outcome of that one. Files written before
the damage still record the end:

- A `.txnindex` entry names producer, first offset and marker of an aborted transaction. If it names
  a later first offset than the batches suggest, the transaction before had ended.
- A producer snapshot records at an offset whether the producer's transaction was open, and the
  coordinator epoch and timestamp of the last marker. A transaction that had ended and that no
  .txnindex lists as aborted was committed.
- `__transaction_state` in the same log directory records how the transactions of a producer ended;
  its records that name this partition are aligned with the transactions in the log, the last with
  the last, and used only if all known ends agree.

Invariant: a marker is restored only into unused offsets, and only if its outcome is known.

Kafka 2.7: kafka.log.ProducerStateManager, kafka.log.TransactionIndex; KIP-98
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import pairwise
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.internal.transaction_state import TransactionLogValue, TransactionState
from kctl.protocol.internal.versioned import decode_versioned
from kctl.records.control import ControlRecordType, EndTransactionMarker
from kctl.records.memory_records import batch_at
from kctl.records.record_batch import HEADER
from kctl.repair.batch_table import BatchTable
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.file_records import FileRecords
from kctl.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.transaction_index import AbortedTransaction, decode_entries
from kctl.verify.producer_replay import marker_in
from kctl.verify.segment_walk import Window, walk

_NEVER = 2**63
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_TRANSACTION_STATE = "__transaction_state"
_ENDINGS = {
    TransactionState.PREPARE_COMMIT: True,
    TransactionState.PREPARE_ABORT: False,
}


class TransactionalBatch(NamedTuple):
    """A batch of a transaction, or the marker that ends one, in the order of the log."""

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    max_timestamp: int
    leader_epoch: int
    # None: the batch contains records.
    marker: EndTransactionMarker | None


@dataclass(frozen=True, slots=True)
class LostMarker:
    """The end of a transaction whose marker is lost."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    # Of the last known batch of the transaction. Inclusive.
    last_offset: int
    # The marker's offset and outcome; None: unproven.
    offset: int | None = None
    is_commit: bool | None = None
    coordinator_epoch: int = 0
    timestamp: int = -1
    leader_epoch: int = 0
    source: str = ""

    @property
    def marker(self) -> EndTransactionMarker:
        kind = ControlRecordType.COMMIT if self.is_commit else ControlRecordType.ABORT
        return EndTransactionMarker(kind, self.coordinator_epoch)


@dataclass(slots=True)
class TransactionEvidence:
    """What files besides the batches prove about transactions."""

    # By producer id.
    aborted: dict[int, list[AbortedTransaction]] = field(default_factory=dict)
    # By offset, ascending; each with the producers by id.
    snapshots: dict[int, dict[int, ProducerSnapshotEntry]] = field(default_factory=dict)
    # By producer id, in order: whether each transaction that touched the partition was committed.
    endings: dict[int, list[bool]] = field(default_factory=dict)
    # Producers whose transaction in this partition had not ended when the state was written.
    ongoing: set[int] = field(default_factory=set)


def read_evidence(
    disk: Disk, directory: str, topic_partition: TopicPartition | None
) -> TransactionEvidence:
    """Read all readable files; invalid ones contribute nothing."""
    found = TransactionEvidence()
    for name in sorted(disk.list(directory)):
        parsed = layout.parse_file_name(name)
        path = f"{directory}/{name}"
        if parsed is None:
            continue
        with suppress(CorruptDataError):
            if parsed[1] == layout.TXN_INDEX_SUFFIX:
                for entry in decode_entries(disk.read_file(path), path, parsed[0]):
                    found.aborted.setdefault(entry.producer_id, []).append(entry)
            elif parsed[1] == layout.SNAPSHOT_SUFFIX:
                entries = decode_snapshot(disk.read_file(path), path)
                found.snapshots[parsed[0]] = {entry.producer_id: entry for entry in entries}
    if topic_partition is not None:
        _read_endings(disk, directory.rpartition("/")[0] or ".", topic_partition, found)
    return found


def _read_endings(
    disk: Disk, log_directory: str, tp: TopicPartition, found: TransactionEvidence
) -> None:
    for name in sorted(disk.list(log_directory)):
        parsed = layout.parse_directory_name(name)
        if parsed is None or parsed.topic_partition.topic != _TRANSACTION_STATE:
            continue
        if parsed.is_delete or parsed.is_future:
            continue
        for value in _state_values(disk, f"{log_directory}/{name}"):
            state = value.transaction_status
            is_here = any(
                it.topic == tp.topic and tp.partition in it.partition_ids
                for it in value.transaction_partitions or ()
            )
            if state in _ENDINGS and is_here:
                endings = found.endings.setdefault(value.producer_id, [])
                endings.append(_ENDINGS[TransactionState(state)])
            if state == TransactionState.ONGOING and is_here:
                found.ongoing.add(value.producer_id)
            elif state != TransactionState.ONGOING:
                found.ongoing.discard(value.producer_id)


def _state_values(disk: Disk, directory: str) -> Iterator[TransactionLogValue]:
    for base in segment_base_offsets(disk, directory):
        path = f"{directory}/{layout.file_name(base, layout.LOG_SUFFIX)}"
        records = FileRecords.open(disk, path)
        try:
            for item in walk(records, base):
                if not isinstance(item, Window):
                    continue
                for walked in item.batches:
                    if walked.is_control:
                        continue
                    with suppress(CorruptDataError):
                        batch = batch_at(item.buffer, walked.position - item.position)
                        for record in batch.records():
                            if record.value is not None:
                                yield decode_versioned(TransactionLogValue, record.value)
        finally:
            records.close()


def transactional_batches(
    disk: Disk, table: BatchTable, order: Sequence[tuple[int, int]]
) -> list[TransactionalBatch]:
    """Return the batches of transactions and their markers, in the new order of the log."""
    found = []
    attributes = table.attributes
    for first, i in order:
        if not attributes[i] & _TRANSACTIONAL or table[i].magic != 2:
            continue
        row = table[i]
        marker = None
        if row.attributes & _CONTROL:
            file = disk.open(table.paths[row.file], read_only=True)
            marker = marker_in(memoryview(file.pread(row.size, row.position)), 0)
            file.close()
            if marker is None:
                continue
        last = first + row.last_offset - row.first_offset
        found.append(
            TransactionalBatch(
                first, last, row.producer_id, row.producer_epoch, row.max_timestamp,
                row.leader_epoch, marker,
            )
        )  # fmt: skip
    return found


def holes_between(
    spans: Sequence[tuple[int, int]], evidence: TransactionEvidence
) -> list[tuple[int, int]]:
    """Return the unused offsets, up to the last offset at which a snapshot was written."""
    found = [(last + 1, first - 1) for (_, last), (first, _) in pairwise(spans) if last + 1 < first]
    end = spans[-1][1] + 1 if spans else 0
    beyond = max(evidence.snapshots, default=0)
    return [*found, (end, beyond - 1)] if end < beyond else found


def find_lost_markers(
    batches: Sequence[TransactionalBatch],
    holes: Sequence[tuple[int, int]],
    evidence: TransactionEvidence,
) -> list[LostMarker]:
    """Return the transactions without an end, with the ends that are proven.

    `holes` are ranges of unused offsets, ascending, both ends inclusive.
    """
    return _Search(holes, evidence).run(batches)


@dataclass(slots=True)
class _Open:
    first: TransactionalBatch
    last: TransactionalBatch


def _is_fenced(now: _Open, batch: TransactionalBatch) -> bool:
    """Return whether the producer has a new epoch: its transaction ended, but not how."""
    return batch.producer_epoch != now.last.producer_epoch


class _Search:
    def __init__(self, holes: Sequence[tuple[int, int]], evidence: TransactionEvidence) -> None:
        self._holes = holes
        self._hole_starts = [first for first, _ in holes]
        self._evidence = evidence
        # For each producer, how its transactions ended so far; None: unknown.
        self._endings: dict[int, list[bool | None]] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._taken: set[int] = set()

    def run(self, batches: Sequence[TransactionalBatch]) -> list[LostMarker]:
        cut_short: list[tuple[_Open, int, int, bool]] = []
        open_: dict[int, _Open] = {}
        for batch in batches:
            producer_id = batch.producer_id
            known = self._endings.setdefault(producer_id, [])
            now = open_.get(producer_id)
            if batch.marker is not None:
                self._coordinator_epochs[producer_id] = batch.marker.coordinator_epoch
                if open_.pop(producer_id, None) is not None:
                    known.append(batch.marker.is_commit)
            elif now is None:
                open_[producer_id] = _Open(batch, batch)
            elif (ended := self._ended_between(now, batch)) or _is_fenced(now, batch):
                cut_short.append((now, batch.first_offset, len(known), ended))
                known.append(None)
                open_[producer_id] = _Open(batch, batch)
            else:
                now.last = batch
        for producer_id, now in open_.items():
            known = self._endings[producer_id]
            cut_short.append((now, _NEVER, len(known), False))
            known.append(None)
        found = [self._judge(*it) for it in cut_short]
        return sorted(
            (it for it in found if it is not None), key=lambda it: (it.first_offset, it.producer_id)
        )

    def _ended_between(self, now: _Open, batch: TransactionalBatch) -> bool:
        """Return whether the open transaction ended before `batch`, by the same producer, began."""
        producer_id, last = now.last.producer_id, now.last.last_offset
        if not any(self._holes_between(last, batch.first_offset)):
            return False
        for entry in self._evidence.aborted.get(producer_id, ()):
            is_next = entry.first_offset == batch.first_offset
            is_this = entry.first_offset == now.first.first_offset
            if is_next or (is_this and last < entry.last_offset < batch.first_offset):
                return True
        for offset, entries in self._evidence.snapshots.items():
            known = entries.get(producer_id)
            if known is None or offset <= last:
                continue
            first = known.current_txn_first_offset
            if first == batch.first_offset or (first < 0 and offset <= batch.first_offset):
                return True
        return False

    def _holes_between(self, after: int, end: int) -> Iterator[tuple[int, int]]:
        at = bisect_left(self._hole_starts, after + 1)
        while at < len(self._holes) and self._holes[at][0] < end:
            yield self._holes[at]
            at += 1

    def _judge(self, now: _Open, end: int, number: int, ended: bool) -> LostMarker | None:
        """Return how transaction `number` of its producer ended, whose marker was before `end`.

        `ended`: an index or a snapshot proves that it ended. None: the transaction is merely open.
        """
        first, last = now.first, now.last
        lost = LostMarker(
            first.producer_id, last.producer_epoch, first.first_offset, last.last_offset,
            timestamp=last.max_timestamp, leader_epoch=last.leader_epoch,
            coordinator_epoch=self._coordinator_epochs.get(first.producer_id, 0),
        )  # fmt: skip
        holes = list(self._holes_between(last.last_offset, end))
        if not holes:
            return None
        for entry in self._evidence.aborted.get(first.producer_id, ()):
            is_here = any(a <= entry.last_offset <= b for a, b in holes)
            if entry.first_offset == first.first_offset and is_here:
                proven = replace(lost, is_commit=False, source="the transaction index")
                return self._restored(proven, entry.last_offset)
        snapshot = self._snapshot_after(first.producer_id, first.first_offset, last.last_offset)
        is_committed = self._ending(first.producer_id, number)
        if snapshot is not None:
            offset, known = snapshot
            holes = [hole for hole in holes if hole[0] < offset] or holes
            lost = replace(
                lost,
                producer_epoch=max(lost.producer_epoch, known.producer_epoch),
                timestamp=known.timestamp,
                coordinator_epoch=max(0, known.coordinator_epoch),
            )
        if is_committed is None and (snapshot is not None or ended):
            # It ended, and the indexes list all aborted transactions.
            if self._knows_all_aborts():
                source = "a producer snapshot" if snapshot is not None else "what follows it"
                source = f"{source} and the transaction index"
                return self._restored(replace(lost, is_commit=True, source=source), holes[-1][1])
        elif is_committed is not None:
            proven = replace(lost, is_commit=is_committed, source=_TRANSACTION_STATE)
            return self._restored(proven, holes[-1][1])
        return lost

    def _restored(self, lost: LostMarker, offset: int) -> LostMarker:
        """Return the marker with its offset: `offset`, or before others that are restored there;
        None as offset if there is no room."""
        while offset in self._taken:
            offset -= 1
        if not any(first <= offset <= last for first, last in self._holes):
            return replace(lost, is_commit=None)
        self._taken.add(offset)
        return replace(lost, offset=offset)

    def _snapshot_after(
        self, producer_id: int, first_offset: int, last_offset: int
    ) -> tuple[int, ProducerSnapshotEntry] | None:
        """Return the first snapshot after which the transaction had ended."""
        for offset, entries in sorted(self._evidence.snapshots.items()):
            entry = entries.get(producer_id)
            if offset > last_offset and entry is not None:
                is_same = entry.current_txn_first_offset == first_offset
                return None if is_same else (offset, entry)
        return None

    def _ending(self, producer_id: int, number: int) -> bool | None:
        """Return how the producer's transaction `number` ended, according to the
        transaction state."""
        known = self._endings[producer_id]
        if producer_id in self._evidence.ongoing and known and known[-1] is None:
            known = known[:-1]
        endings = self._evidence.endings.get(producer_id, [])
        count = min(len(known), len(endings))
        mine, theirs = known[len(known) - count :], endings[len(endings) - count :]
        if any(a is not None and a != b for a, b in zip(mine, theirs, strict=True)):
            return None
        at = number - (len(known) - count)
        return theirs[at] if 0 <= at < count else None

    def _knows_all_aborts(self) -> bool:
        """Return whether every known aborted transaction is in a transaction index."""
        listed = {
            producer_id: len(entries) for producer_id, entries in self._evidence.aborted.items()
        }
        return all(
            sum(ending is False for ending in endings) <= listed.get(producer_id, 0)
            for producer_id, endings in self._endings.items()
        )


def damaged_markers(disk: Disk, table: BatchTable) -> list[str]:
    """Return a line for every damaged batch whose header marks it as a transaction marker."""
    found = []
    for stretch in table.stretches:
        path = table.paths[stretch.file]
        if stretch.end - stretch.position < HEADER.size:
            continue
        file = disk.open(path, read_only=True)
        head = HEADER.unpack(file.pread(HEADER.size, stretch.position))
        file.close()
        magic, attributes, producer_id, producer_epoch = head[3], head[5], head[9], head[10]
        is_marker = attributes & _CONTROL and attributes & _TRANSACTIONAL and producer_id >= 0
        if magic == 2 and is_marker:
            found.append(
                f"{path}: the damaged batch at {stretch.position} was a marker of producer "
                f"{producer_id} epoch {producer_epoch}: unless it is restored, the transaction "
                "that it ended is hidden until the producer's next marker, and has its outcome"
            )
    return found


def describe(lost: LostMarker) -> str:
    """Describe the marker's effect."""
    whose = (
        f"the transaction of producer {lost.producer_id} epoch {lost.producer_epoch} with offsets "
        f"{lost.first_offset} to {lost.last_offset}"
    )
    if lost.offset is None:
        return (
            f"the end of {whose} is lost, and no file shows whether it was committed: readers of "
            f"committed data get nothing from offset {lost.first_offset} on until the producer's "
            "next marker, and then with that outcome"
        )
    verb = "COMMIT" if lost.is_commit else "ABORT"
    return f"{verb} marker at offset {lost.offset} for {whose}, known from {lost.source}"
