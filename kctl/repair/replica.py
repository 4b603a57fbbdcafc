"""Takes the batches that a log has lost from another replica of the partition.

Replicas hold the same batches, byte for byte, up to where they diverge: if two logs have a batch of
the same leader epoch at the same offset, they agree on everything before it (KIP-101). So before
anything is taken,

1. the other log must be of the same topic, partition and cluster, and not the damaged one,
2. its offsets must rise, and its leader epochs must not fall,
3. every batch that both logs have at an offset must be the same: offsets, leader epoch, checksum,
   and there must be at least one,
4. the epochs of what is taken must fit between those of its neighbours.

Only intact batches are taken, and only where the damaged log has none. An empty batch that an
earlier repair left, and a batch whose place repair has guessed, give way to those of the replica.

Kafka 2.7: kafka.server.AbstractFetcherThread (truncation on fetch); KIP-101, KIP-279
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import pairwise

from kctl.errors import CorruptDataError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.records.record_batch import NO_PRODUCER_ID, RECORD_BATCH_OVERHEAD
from kctl.repair.batch_table import BatchTable, Row, read_table
from kctl.repair.placement import Fate, Placement, new_order
from kctl.repair.segment_edit import Extent
from kctl.runtime.disk import Disk
from kctl.storage.layout import META_PROPERTIES, parse_directory_name
from kctl.storage.meta_properties import MetaProperties, read_any_meta_properties
from kctl.storage.segment_files import segment_base_offsets

__all__ = ["Borrowed", "Replica", "borrow", "open_replica"]


@dataclass(frozen=True, slots=True)
class Replica:
    """A directory with the batches of another replica, and what the user calls it."""

    directory: str
    name: str


@dataclass(slots=True)
class Borrowed:
    """What is taken from a replica."""

    name: str
    table: BatchTable
    # Indexes of the rows of `table` that are taken, by rising offsets.
    rows: list[int] = field(default_factory=list)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the first and last offsets of the batches that are taken."""
        firsts, lasts = self.table.first_offsets, self.table.last_offsets
        return [(firsts[row], lasts[row]) for row in self.rows]

    @property
    def base_offsets(self) -> list[int]:
        """Return the base offsets of the replica's segments whose first batch is taken."""
        files, firsts, bases = self.table.files, self.table.first_offsets, self.table.base_offsets
        return [firsts[row] for row in self.rows if bases[files[row]] == firsts[row]]

    def extent(self, row: int) -> Extent:
        """Return where the batch of a row stands."""
        found = self.table[row]
        return Extent(self.table.paths[found.file], found.position, found.end)


def open_replica(disk: Disk, directory: str, path: str) -> Replica:
    """Return the replica of the partition in `directory` that `path` names: its partition's
    directory, or a log directory that has one.

    UsageError if there is none, if it is the same directory, or of another partition or cluster.
    """
    name = directory.rpartition("/")[2]
    path = path.rstrip("/")
    found = path if path.rpartition("/")[2] == name else f"{path}/{name}"
    if not disk.exists(found):
        raise UsageError(
            f"{path} has no replica of {name}",
            hint=f"name a directory called {name}, or the log directory that it is in",
        )
    if parse_directory_name(name) is None:
        raise UsageError(f"{directory} is not named after a partition, such as orders-0")
    if disk.real_path(found) == disk.real_path(directory):
        raise UsageError(f"{path} is the log to be repaired: it is no other replica")
    mine, theirs = cluster_id_of(disk, directory), cluster_id_of(disk, found)
    check_cluster(mine, theirs, path)
    if not segment_base_offsets(disk, found):
        raise UsageError(f"{found} holds no segments")
    return Replica(found, path)


def check_cluster(mine: str | None, theirs: str | None, name: str) -> None:
    """Raise UsageError if both cluster ids are known and differ."""
    if mine is not None and theirs is not None and mine != theirs:
        raise UsageError(f"{name} belongs to another cluster: {theirs}, not {mine}")


def cluster_id_of(disk: Disk, directory: str) -> str | None:
    """Return the id of the cluster that the partition in `directory` belongs to, if it is known."""
    found = _meta_properties(disk, directory)
    return None if found is None else found.cluster_id


def broker_id_of(disk: Disk, directory: str) -> int | None:
    """Return the id of the broker that the partition in `directory` belongs to, if it is known."""
    found = _meta_properties(disk, directory)
    return None if found is None else found.broker_id


def _meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    path = f"{directory.rpartition('/')[0] or '.'}/{META_PROPERTIES}"
    with suppress(CorruptDataError):
        if disk.exists(path):
            return read_any_meta_properties(disk.read_file(path), path)
    return None


def borrow(
    disk: Disk,
    replica: Replica,
    table: BatchTable,
    placements: dict[int, Placement],
    start: int,
    *,
    has_wrong_epochs: bool = False,
) -> Borrowed:
    """Return what the log of `table` takes from `replica`, from offset `start` on.

    Batches of `table` that give way become REPLACED in `placements`. `has_wrong_epochs` says that
    leader epochs of `table` are damaged: then they are not compared. UsageError if the logs do not
    belong together.
    """
    theirs = read_table(
        disk, replica.directory, segment_base_offsets(disk, replica.directory), set()
    )
    _check_order(theirs, replica)
    return _Borrowing(replica, table, placements, theirs, start, has_wrong_epochs).run()


def _check_order(theirs: BatchTable, replica: Replica) -> None:
    end, epoch = -1, -1
    for row in theirs:
        if row.first_offset < end or 0 <= row.leader_epoch < epoch:
            raise UsageError(
                f"{replica.name} is damaged itself at offset {row.first_offset}",
                hint=f"kctl verify-log {replica.directory}",
            )
        end, epoch = row.last_offset + 1, max(epoch, row.leader_epoch)


class _Borrowing:
    def __init__(
        self,
        replica: Replica,
        table: BatchTable,
        placements: dict[int, Placement],
        theirs: BatchTable,
        start: int,
        has_wrong_epochs: bool,
    ) -> None:
        self._replica = replica
        self._table = table
        self._placements = placements
        self._theirs = theirs
        self._start = start
        self._has_wrong_epochs = has_wrong_epochs
        self._placed = new_order(table, placements)
        self._found = Borrowed(replica.name, theirs)
        self._replaced: set[int] = set()

    def run(self) -> Borrowed:
        at, common = 0, 0
        for number, row in enumerate(self._theirs):
            while at < len(self._placed) and self._last(at) < row.first_offset:
                at += 1
            mine = self._overlapping(at, row)
            if len(mine) == 1 and self._is_same(self._placed[mine[0]], row):
                common += 1
                continue
            if mine:
                self._replace(mine, row)
            if row.last_offset >= self._start:
                self._found.rows.append(number)
        if self._found.rows and not common:
            raise UsageError(
                f"{self._replica.name} has no batch in common with the log: nothing proves that "
                "they are replicas of one partition"
            )
        self._keep_what_is_not_covered()
        for i in self._replaced:
            first = self._table.first_offsets[i]
            self._placements[i] = Placement(Fate.REPLACED, first)
        self._check_epochs()
        return self._found

    def _last(self, at: int) -> int:
        first, i = self._placed[at]
        return first + self._table.last_offsets[i] - self._table.first_offsets[i]

    def _overlapping(self, at: int, row: Row) -> list[int]:
        found = []
        while at < len(self._placed) and self._placed[at][0] <= row.last_offset:
            found.append(at)
            at += 1
        return found

    def _is_same(self, placed: tuple[int, int], row: Row) -> bool:
        first, i = placed
        mine = self._table[i]
        last = first + mine.last_offset - mine.first_offset
        is_epoch_right = self._has_wrong_epochs or mine.leader_epoch == row.leader_epoch
        return is_epoch_right and (first, last, mine.magic, mine.size, mine.crc) == (
            row.first_offset, row.last_offset, row.magic, row.size, row.crc
        )  # fmt: skip

    def _replace(self, mine: Sequence[int], row: Row) -> None:
        for at in mine:
            first, i = self._placed[at]
            if i in self._placements or _is_empty(self._table[i]):
                self._replaced.add(i)
                continue
            raise UsageError(
                f"{self._replica.name} diverges from the log at offset {first}: leader epoch "
                f"{row.leader_epoch} there, {self._table[i].leader_epoch} here, or other records",
                hint="one of them was truncated or compacted: let the broker copy the partition "
                "from its leader instead",
            )

    def _keep_what_is_not_covered(self) -> None:
        """Let a replaced batch stay if the replica lacks a part of its offsets."""
        spans = self._found.spans
        for first, i in self._placed:
            if i not in self._replaced:
                continue
            last = first + self._table.last_offsets[i] - self._table.first_offsets[i]
            inside = [span for span in spans if span[0] <= last and span[1] >= first]
            covered = sum(min(end, last) - max(begin, first) + 1 for begin, end in inside)
            if covered == last - first + 1:
                continue
            self._replaced.discard(i)
            firsts, lasts = self._theirs.first_offsets, self._theirs.last_offsets
            self._found.rows = [
                row for row in self._found.rows if firsts[row] > last or lasts[row] < first
            ]

    def _check_epochs(self) -> None:
        if self._has_wrong_epochs:
            return
        order = [
            (first, self._table[i].leader_epoch, False)
            for first, i in self._placed
            if i not in self._replaced
        ]
        rows = [self._theirs[row] for row in self._found.rows]
        order += [(row.first_offset, row.leader_epoch, True) for row in rows]
        epoch = -1
        was_taken = False
        for first, found, is_taken in sorted(order):
            if 0 <= found < epoch and (is_taken or was_taken):
                raise UsageError(
                    f"The leader epochs of {self._replica.name} do not fit the log at offset "
                    f"{first}: {found} follows {epoch}"
                )
            epoch, was_taken = max(epoch, found), is_taken


def _is_empty(row: Row) -> bool:
    """Return whether the batch has no records, as one that a repair left in place of damage."""
    return (
        row.magic == 2 and row.size == RECORD_BATCH_OVERHEAD and row.producer_id == NO_PRODUCER_ID
    )


def lost_ranges(
    table: BatchTable, placements: Mapping[int, Placement], start: int
) -> list[tuple[int, int | None]]:
    """Return the ranges of offsets to ask a replica for: those that the log lacks from `start` on,
    each with the batch before it and the batch after it, for the comparison. The last has no end.
    """
    placed = [
        (first, first + table.last_offsets[i] - table.first_offsets[i])
        for first, i in new_order(table, placements)
        if not _is_empty(table[i])
    ]
    if not placed:
        return [(start, None)]
    found: list[tuple[int, int | None]] = []
    if start < placed[0][0]:
        found.append((start, placed[0][1]))
    for before, after in pairwise(placed):
        if before[1] + 1 < after[0]:
            found.append((before[0], after[1]))
    return [*found, (placed[-1][0], None)]
