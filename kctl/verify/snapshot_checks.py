"""SnapshotChecks: producer snapshots compared with a replay of the batches.

A snapshot at offset N contains the producers of the batches below N, without expired ones, and
those whose batches retention or compaction removed. A producer that only the replay knows is no
breach; one that only the snapshot knows is a breach if the replay began with the log's first batch.
Of a producer that both know:

- without gaps in the log, sequence, offset and epoch of its last batch agree;
- with gaps (compaction, damage) the snapshot may know a later batch, never an earlier one: the log
  cleaner keeps the last batch of each producer in the whole log, not in the log below N.

Kafka 2.7: kafka.log.ProducerStateManager; KIP-98
"""

from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk
from kctl.storage.layout import SNAPSHOT_SUFFIX, file_name
from kctl.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot
from kctl.verify.findings import Findings
from kctl.verify.producer_replay import ProducerReplay
from kctl.verify.rules import Finding, Rule

_NEVER = 2**63 - 1


class SnapshotChecks:
    """The snapshots of one directory, which a replay passes in order."""

    def __init__(self, disk: Disk, directory: str, offsets: list[int], findings: Findings) -> None:
        self._disk = disk
        self._directory = directory
        self._findings = findings
        self._offsets = offsets
        self._slot = 0
        self._corrupt: set[int] = set()
        self.next_offset = offsets[0] if offsets else _NEVER

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def is_usable(self, offset: int) -> bool:
        """Return whether there is a readable snapshot of exactly that offset."""
        return offset in self._offsets and self._load(offset) is not None

    def entries_at(self, offset: int) -> list[ProducerSnapshotEntry]:
        """Return the entries of the snapshot of that offset; none without a snapshot."""
        return (self._load(offset) or []) if offset in self._offsets else []

    def _load(self, offset: int) -> list[ProducerSnapshotEntry] | None:
        path = self._path(offset)
        try:
            return decode_snapshot(self._disk.read_file(path), path)
        except CorruptDataError as error:
            if offset not in self._corrupt:
                self._corrupt.add(offset)
                message = str(error).removeprefix(f"{path}: ")
                self._findings.add(Finding(path, Rule.SNAPSHOT_CORRUPT, message))
            return None

    def compare(
        self, next_offset: int, replay: ProducerReplay, *, is_whole: bool, has_gaps: bool
    ) -> None:
        """Compare the snapshots up to `next_offset`, the base offset of the next batch, with the
        replay.

        A snapshot inside the batch before was taken before compaction. `is_whole`: the replay began
        with all producers. `has_gaps`: it may have missed batches.
        """
        while self.next_offset <= next_offset:
            offset = self.next_offset
            entries = self._load(offset)
            if entries is not None and offset == next_offset:
                self._compare(offset, entries, replay, is_whole=is_whole, has_gaps=has_gaps)
            self._slot += 1
            is_more = self._slot < len(self._offsets)
            self.next_offset = self._offsets[self._slot] if is_more else _NEVER

    def finish(
        self, end_offset: int, replay: ProducerReplay, *, is_whole: bool, has_gaps: bool
    ) -> None:
        """Compare the remaining snapshots when the log ends at `end_offset`."""
        self.compare(end_offset, replay, is_whole=is_whole, has_gaps=has_gaps)
        for offset in self._offsets[self._slot :]:
            message = f"it is of offset {offset}, the log ends at {end_offset}"
            self._findings.add(Finding(self._path(offset), Rule.SNAPSHOT_BOUNDS, message))

    def _compare(
        self, offset: int, entries: list[ProducerSnapshotEntry], replay: ProducerReplay, *,
        is_whole: bool, has_gaps: bool,
    ) -> None:  # fmt: skip
        known = replay.forms()
        for entry in entries:
            forms = known.get(entry.producer_id)
            if forms is None:
                if is_whole:
                    message = f"producer {entry.producer_id} wrote nothing to the log"
                    self._findings.add(Finding(self._path(offset), Rule.SNAPSHOT_STATE, message))
                continue
            if entry in forms or (has_gaps and _is_later(entry, forms[0], offset)):
                continue
            for name, found, should_be in zip(
                ProducerSnapshotEntry._fields, entry, forms[0], strict=True
            ):
                if found != should_be and (is_whole or _contradicts_batches(name, forms, found)):
                    message = (
                        f"{name} of producer {entry.producer_id} is {found}, but from the batches "
                        f"{should_be}"
                    )
                    self._findings.add(Finding(self._path(offset), Rule.SNAPSHOT_STATE, message))


def _contradicts_batches(name: str, forms: tuple[ProducerSnapshotEntry, ...], found: int) -> bool:
    """Return whether the last batches determine the field, and no form of the entry has it."""
    values = [getattr(form, name) for form in forms]
    is_decided = name in ("producer_epoch", "last_sequence", "last_offset")
    return is_decided and values[0] >= 0 and found not in values


def _is_later(entry: ProducerSnapshotEntry, replayed: ProducerSnapshotEntry, offset: int) -> bool:
    """Return whether the snapshot's last batch comes after the replay's and before `offset`."""
    if entry.producer_epoch > replayed.producer_epoch:
        return entry.last_offset < offset
    is_same_epoch = entry.producer_epoch == replayed.producer_epoch
    return is_same_epoch and replayed.last_offset < entry.last_offset < offset
