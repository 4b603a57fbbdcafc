"""ProducerStateManager: the producers of a log, and the checks of their batches.

Idempotence: a repeated batch is detected and acknowledged with its original offsets; a batch that
does not follow the last one is rejected; an older epoch is fenced.

Transactions: a producer's first transactional batch opens one, a marker ends it. Two maps by first
offset determine the first unstable offset: `ongoing` transactions, and `unreplicated` ones whose
marker the high watermark has not passed.

Checks change nothing; `update` is called once the batch is in the log. Replicas and recovery call
`update` without checks: batches that a leader accepted are not checked again.

The state is saved as a snapshot when the log rolls and when it closes, and rebuilt from the latest
usable snapshot and the batches after it. A lost or damaged snapshot costs time, never correctness;
so it is written without fsync and made durable by the next flush.

Invariants: `map_end_offset` is the offset up to which batches are in the state; a snapshot of
offset N reflects exactly the batches below N.

Kafka 2.7: kafka.log.ProducerStateManager; KIP-98, KIP-360, KAFKA-5793 (sequence of a new epoch)
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from kctl.broker.log.packed_producers import PackedProducers
from kctl.broker.log.producer_state import BatchMetadata, ProducerBatch, ProducerState
from kctl.broker.log.unknown_producers import UnknownProducers
from kctl.broker.log.validation_rules import AppendOrigin
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.records.control import ControlRecordType
from kctl.records.record_batch import (
    NO_PRODUCER_EPOCH,
    RECORD_BATCH_OVERHEAD,
    SEQUENCE_MAX,
    read_header,
)
from kctl.runtime.disk import Disk, DiskFile
from kctl.runtime.trace import Trace
from kctl.storage.layout import SNAPSHOT_SUFFIX, file_name
from kctl.storage.producer_snapshot import (
    ENTRY_BYTES,
    ProducerSnapshotEntry,
    checked_entries,
    unpacked,
)
from kctl.work import Work, at_once, parts

# Producers of a snapshot that are loaded in one step.
PRODUCERS_PER_STEP: Final = 1_000
# Files of snapshots removed between two turns of the loop, each of which waits for the file system.
SNAPSHOTS_PER_STEP: Final = 8
# transactional.id.expiration.ms, which in 2.7 also governs producer ids.
DEFAULT_EXPIRATION_MS: Final = 7 * 24 * 60 * 60 * 1000


@dataclass(slots=True)
class OpenTransaction:
    """A transaction whose outcome readers of committed data must await."""

    producer_id: int
    first_offset: int
    # The marker's offset, once there is one.
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker has just ended."""

    producer_id: int
    first_offset: int
    # The marker's offset. Inclusive.
    last_offset: int
    is_aborted: bool


class ProducerStateManager:
    """The producers of one log and their snapshots."""

    def __init__(
        self,
        disk: Disk,
        trace: Trace,
        topic_partition: TopicPartition,
        directory: str,
        snapshot_offsets: Iterable[int] = (),
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Create an empty state; `snapshot_offsets` are those of the files in the directory."""
        self._disk = disk
        self._trace = trace
        self._topic_partition = topic_partition
        self._directory = directory
        self._expiration_ms = expiration_ms
        self.producers: dict[int, ProducerState] = {}
        self.packed_producers = PackedProducers()
        # While the log serves clients as a leader: those that are not in `producers`.
        self.unknown: UnknownProducers | None = None
        # By first offset, ascending.
        self._ongoing: OrderedDict[int, OpenTransaction] = OrderedDict()
        self._unreplicated: dict[int, OpenTransaction] = {}
        # Offsets of the snapshot files, ascending.
        self.snapshots: list[int] = sorted(snapshot_offsets)
        self._not_durable: list[int] = []
        self._last_snapshot_offset = 0
        self.map_end_offset = 0

    # --- checks ------------------------------------------------------------------------------

    def find_duplicate(self, batch: ProducerBatch) -> BatchMetadata | None:
        """Return the earlier batch that `batch` repeats, or None."""
        state = self.producers.get(batch.producer_id)
        return state.find_duplicate(batch) if state is not None else None

    def check(self, batch: ProducerBatch, origin: AppendOrigin) -> None:
        """Raise ApiError unless the batch may be appended; `batch` has the offsets it would get."""
        state = self.producers.get(batch.producer_id)
        if batch.is_control:
            if state is not None:
                self._check_marker(state, batch)
            return
        if state is None:
            if origin is AppendOrigin.CLIENT and self.unknown is not None:
                self._check_unknown(batch, self.unknown)
            return
        self._check_epoch(state, batch)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(state, batch)
        if state.current_txn_first_offset is not None and not batch.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {batch.producer_id} at offset "
                f"{batch.first_offset} in partition {self._topic_partition}",
            )

    def _check_unknown(self, batch: ProducerBatch, unknown: UnknownProducers) -> None:
        sequence = batch.base_sequence
        if not unknown.accepts(batch.producer_id, batch.producer_epoch, sequence):
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Sequence {sequence} of producerId {batch.producer_id} is the first that "
                f"partition {self._topic_partition} received: resend it after its predecessors",
            )

    def _check_epoch(self, state: ProducerState, batch: ProducerBatch) -> None:
        if batch.producer_epoch < state.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer's epoch at offset {batch.first_offset} in {self._topic_partition} is "
                f"{batch.producer_epoch}, which is smaller than the last seen epoch "
                f"{state.producer_epoch}",
            )

    def _check_sequence(self, state: ProducerState, batch: ProducerBatch) -> None:
        if state.producer_epoch == NO_PRODUCER_EPOCH:
            # All its records are gone from the log: any sequence may come next.
            return
        if batch.producer_epoch != state.producer_epoch:
            if batch.base_sequence != 0:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch at offset {batch.first_offset} in "
                    f"partition {self._topic_partition}: {batch.producer_epoch} (request epoch), "
                    f"{batch.base_sequence} (seq. number)",
                )
            return
        last = state.last_sequence
        is_next = batch.base_sequence == last + 1 or (
            batch.base_sequence == 0 and last == SEQUENCE_MAX
        )
        if not is_next:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producerId {batch.producer_id} at offset "
                f"{batch.first_offset} in partition {self._topic_partition}: "
                f"{batch.base_sequence} (incoming seq. number), {last} (current end sequence "
                f"number)",
            )

    def _check_marker(self, state: ProducerState, batch: ProducerBatch) -> None:
        self._check_epoch(state, batch)
        marker = batch.marker
        if marker is not None and state.coordinator_epoch > marker.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {batch.producer_id} at offset "
                f"{batch.first_offset} in partition {self._topic_partition}: "
                f"{marker.coordinator_epoch} (zombie), {state.coordinator_epoch} (current)",
            )

    # --- changes -----------------------------------------------------------------------------

    def begin_leading(self) -> None:
        """Serve clients, who send several batches at a time, as the leader of a new epoch."""
        self.unknown = UnknownProducers()

    def serve_like(self, other: "ProducerStateManager") -> None:
        """Serve the clients of `other`, whose log this one replaces."""
        self.unknown = other.unknown

    def note_rejected(self, records: Buffer) -> None:
        """Remember that a client's batch was rejected and may be resent."""
        if self.unknown is not None and len(records) >= RECORD_BATCH_OVERHEAD:
            header = read_header(records)
            if header.magic == 2 and header.producer_id not in self.producers:
                self.unknown.note_rejected(header)

    def update(self, batch: ProducerBatch) -> CompletedTransaction | None:
        """Apply a batch that is in the log; return the transaction that it ended, or None.

        The caller reads `last_stable_offset` for it and then calls `complete`.
        """
        if batch.is_control and batch.marker is None:
            return None
        state = self.producers.get(batch.producer_id)
        if state is None:
            if self.unknown is not None:
                self.unknown.forget(batch.producer_id)
            state = self.producers[batch.producer_id] = ProducerState(batch.producer_id)
        self.packed_producers.changed(state)
        if batch.marker is not None:
            return self._end_transaction(state, batch)
        state.add_batch(batch)
        if batch.is_transactional and state.current_txn_first_offset is None:
            first = batch.first_offset
            state.current_txn_first_offset = first
            self._ongoing[first] = OpenTransaction(batch.producer_id, first)
        return None

    def _end_transaction(
        self, state: ProducerState, batch: ProducerBatch
    ) -> CompletedTransaction | None:
        marker = batch.marker
        assert marker is not None
        first = state.current_txn_first_offset
        state.set_epoch(batch.producer_epoch)
        state.current_txn_first_offset = None
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = batch.timestamp
        if first is None:
            # A transaction without records in this log is not in the indexes.
            return None
        is_aborted = marker.control_type == ControlRecordType.ABORT
        return CompletedTransaction(batch.producer_id, first, batch.last_offset, is_aborted)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset after `completed`, for its index entry."""
        for transaction in self._ongoing.values():
            if transaction.producer_id != completed.producer_id:
                return transaction.first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """Mark the transaction as ended; it is stable once the high watermark passes its marker."""
        transaction = self._ongoing.pop(completed.first_offset, None)
        if transaction is None:
            raise CorruptDataError(
                f"{self._topic_partition}: transaction of producer {completed.producer_id} from "
                f"offset {completed.first_offset} ends at {completed.last_offset} but never began"
            )
        transaction.last_offset = completed.last_offset
        self._unreplicated[completed.first_offset] = transaction

    def on_high_watermark(self, high_watermark: int) -> None:
        """Remove transactions whose marker is replicated."""
        if self._unreplicated:
            self._unreplicated = {
                first: transaction
                for first, transaction in sorted(self._unreplicated.items())
                if transaction.last_offset is None or transaction.last_offset >= high_watermark
            }

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset that readers of committed data must not pass, or None."""
        if not self._ongoing and not self._unreplicated:
            return None
        first = min(self._unreplicated, default=None)
        ongoing = next(iter(self._ongoing), None)
        return min(it for it in (first, ongoing) if it is not None)

    def remove_expired(self, now_ms: int) -> Work[int]:
        """Remove producers that were inactive too long and have no open transaction, with a `yield`
        after PRODUCERS_PER_STEP of them; return how many were looked at since the last one."""
        looked = 0
        for part in parts(list(self.producers), PRODUCERS_PER_STEP):
            if looked:
                yield
            looked = len(part)
            for producer_id in part:
                # It may have gone meanwhile.
                state = self.producers.get(producer_id)
                if state is not None and self._is_expired(state, now_ms):
                    self.packed_producers.remove(self.producers.pop(producer_id))
        return looked

    def _is_expired(self, state: ProducerState, now_ms: int) -> bool:
        return (
            state.current_txn_first_offset is None
            and now_ms - state.last_timestamp >= self._expiration_ms
        )

    def _clear_producers(self) -> None:
        self.producers.clear()
        self.packed_producers = PackedProducers()

    def moved_to(self, directory: str) -> "ProducerStateManager":
        """Return this state, which continues in the directory's new name, snapshots included."""
        self._directory = directory
        return self

    # --- snapshots ---------------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Save the state as of `map_end_offset`, unless it is saved already."""
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return
        path = self._path(offset)
        file = self._disk.open(path, create=True)
        if file.size():
            file.truncate(0)
        file.append(self.packed_producers.file_parts())
        file.close()
        if offset not in self.snapshots:
            self.snapshots.append(offset)
            self.snapshots.sort()
        self._not_durable.append(offset)
        self._last_snapshot_offset = offset

    def add_to_flush(self, files: list[DiskFile], end: int) -> None:
        """Add the snapshots up to offset `end` that are not durable yet; the caller fsyncs their
        directory."""
        due = [offset for offset in self._not_durable if offset <= end]
        self._not_durable = [offset for offset in self._not_durable if offset > end]
        known = set(self.snapshots) if due else set()
        files += [self._disk.open(self._path(offset)) for offset in due if offset in known]

    def loaded_until(
        self, log_start_offset: int, log_end_offset: int, now_ms: int
    ) -> Work["ProducerStateManager"]:
        """Return another state, loaded from the best snapshot of the log's range [start, end).

        The caller brings it from `map_end_offset` to the end; it is given to `adopt`, and has no
        other use. The snapshots are those of this state.
        """
        other = ProducerStateManager(
            self._disk, self._trace, self._topic_partition, self._directory,
            expiration_ms=self._expiration_ms,
        )  # fmt: skip
        other.snapshots = self.snapshots
        yield from other.load_in_steps(log_start_offset, log_end_offset, now_ms)
        return other

    def adopt(self, other: "ProducerStateManager", log_start_offset: int) -> None:
        """Continue with the state `other` of the truncated log, which begins at
        `log_start_offset`."""
        self.delete_snapshots_outside(log_start_offset, other.map_end_offset)
        self.producers = other.producers
        self.packed_producers = other.packed_producers
        self._ongoing, self._unreplicated = other.open_transactions
        self._last_snapshot_offset = self.snapshots[-1] if self.snapshots else log_start_offset
        self.map_end_offset = other.map_end_offset

    @property
    def open_transactions(
        self,
    ) -> tuple[OrderedDict[int, OpenTransaction], dict[int, OpenTransaction]]:
        """Return the ongoing transactions, and those whose marker is not replicated."""
        return self._ongoing, self._unreplicated

    def delete_snapshots_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove snapshots at offsets outside the log; those beyond its end would become wrong once
        it grows again."""
        for offset in self.snapshots[:]:
            if not log_start_offset <= offset <= log_end_offset:
                self._delete_snapshot(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Clear the state; the log is empty and continues at `offset`."""
        self._clear_producers()
        self._ongoing.clear()
        self._unreplicated.clear()
        for snapshot in self.snapshots[:]:
            self._delete_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_head(self, log_start_offset: int) -> None:
        """Remove snapshots below the raised log start offset; producers stay until they expire."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        # Others go with the next checkpoint.
        next(self.delete_snapshots_before(log_start_offset), None)
        self._last_snapshot_offset = max([log_start_offset, *self.snapshots[-1:]])

    def delete_snapshots_before(self, offset: int) -> Work[None]:
        """Remove the files of snapshots below `offset`, in steps."""
        removed = 0
        while self.snapshots and self.snapshots[0] < offset:
            if removed == SNAPSHOTS_PER_STEP:
                yield
                removed = 0
            else:
                self._delete_snapshot(self.snapshots[0])
                removed += 1

    def load_best_snapshot(self, log_start_offset: int, end_offset: int, now_ms: int) -> None:
        """Replace the state with that of the latest readable snapshot up to `end_offset`."""
        at_once(self.load_in_steps(log_start_offset, end_offset, now_ms))

    def load_in_steps(self, log_start_offset: int, end_offset: int, now_ms: int) -> Work[None]:
        """Replace the state as `load_best_snapshot` does, in steps."""
        self._clear_producers()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._last_snapshot_offset = self.map_end_offset = min(log_start_offset, end_offset)
        for offset in reversed(self.snapshots[:]):
            if log_start_offset <= offset <= end_offset and (
                yield from self._load_snapshot(offset, now_ms)
            ):
                return

    def _load_snapshot(self, offset: int, now_ms: int) -> Work[bool]:
        path = self._path(offset)
        try:
            entries = checked_entries(self._disk.read_file(path), path)
        except CorruptDataError as error:
            self._trace.warning(f"{error}; it is removed")
            self._delete_snapshot(offset)
            return False
        open_from: list[tuple[int, int]] = []
        step = PRODUCERS_PER_STEP * ENTRY_BYTES
        for start in range(0, len(entries), step):
            for entry in unpacked(entries[start : start + step]):
                state = ProducerState.from_snapshot(ProducerSnapshotEntry._make(entry))
                if not self._is_expired(state, now_ms):
                    self.producers[state.producer_id] = state
                    self.packed_producers.changed(state)
                    if state.current_txn_first_offset is not None:
                        open_from.append((state.current_txn_first_offset, state.producer_id))
            if len(entries) > step:
                yield
        for first, producer_id in sorted(open_from):
            self._ongoing[first] = OpenTransaction(producer_id, first)
        self._last_snapshot_offset = self.map_end_offset = offset
        return True

    def _delete_snapshot(self, offset: int) -> None:
        self._disk.remove(self._path(offset))
        self.snapshots.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
