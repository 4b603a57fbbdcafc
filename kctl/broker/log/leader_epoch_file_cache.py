"""LeaderEpochFileCache: maps the offsets of a log to the leader epochs that wrote them.

It has one entry per epoch, with its first offset. A returning follower asks the leader where an
epoch ended, which is where the next one begins, and truncates its log there: this is how logs of
different leaders converge (KIP-101, KIP-279).

Invariants: epochs and start offsets increase strictly from entry to entry. A new entry removes
those that it contradicts. The file is written before the first record of an epoch, and made durable
before the log's recovery point passes it; records above that point restore their epochs during
recovery. An epoch without records may be in memory only: losing it has no effect.

Kafka 2.7: kafka.server.epoch.LeaderEpochFileCache
"""

from bisect import bisect_right

from kctl.protocol.constants import NO_EPOCH
from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.checkpoint import EpochEntry, decode_epochs, encode_epochs
from kctl.storage.layout import LEADER_EPOCH_CHECKPOINT


class LeaderEpochFileCache:
    """The epochs of one log and their file."""

    __slots__ = ("_directory", "_disk", "entries", "is_durable", "is_saved")

    def __init__(self, disk: Disk, directory: str, entries: list[EpochEntry]) -> None:
        self._disk = disk
        self._directory = directory
        self.entries = entries
        self.is_saved = True
        self.is_durable = True

    @classmethod
    def load(cls, disk: Disk, directory: str, *, exists: bool = True) -> "LeaderEpochFileCache":
        """Read the log's file; raise CorruptDataError if it is damaged."""
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        entries = decode_epochs(disk.read_file(path), path) if exists else []
        return cls(disk, directory, entries)

    @property
    def latest_epoch(self) -> int:
        """Return the newest epoch, or -1."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    @property
    def earliest(self) -> EpochEntry | None:
        """Return the oldest entry, or None."""
        return self.entries[0] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; return False if this is known already.

        The entry is saved with the first record of the epoch.
        """
        entries = self.entries
        if entries:
            last = entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return False
        kept = [
            entry for entry in entries if entry.epoch < epoch and entry.start_offset < start_offset
        ]
        self.entries = [*kept, EpochEntry(epoch, start_offset)]
        self.is_saved = self.is_durable = False
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Return (the largest epoch not beyond `epoch`, its end offset), or None if it is unknown.

        The newest epoch ends at the end of the log. For an epoch older than all entries the result
        is that epoch and the start offset of the first entry.
        """
        entries = self.entries
        if epoch == NO_EPOCH or not entries or epoch > entries[-1].epoch:
            return None
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        found = entries[following - 1].epoch if following else epoch
        return found, entries[following].start_offset

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or -1."""
        following = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[following - 1].epoch if following else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at `end_offset` or later, where the log now ends."""
        if self.entries and self.entries[-1].start_offset >= end_offset >= 0:
            self._replace([entry for entry in self.entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end at `start_offset` or earlier, where the log now begins."""
        following = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if not following:
            return
        first = self.entries[following - 1]
        if following > 1 or first.start_offset < start_offset:
            first = EpochEntry(first.epoch, start_offset)
            self._replace([first, *self.entries[following:]])

    def clear(self) -> None:
        """Remove all entries, because the log now holds records without epochs."""
        if self.entries:
            self._replace([])

    def forget(self) -> None:
        """Remove all entries, because records of the topic no longer have epochs.

        This is saved with the next record: a log of such a topic forgets what it loads, too.
        """
        if self.entries:
            self.entries = []
            self.is_saved = self.is_durable = False

    def add_to_flush(self, files: list[DiskFile]) -> None:
        """Save, and add the file to `files` unless it is durable; the caller fsyncs its
        directory."""
        self.save()
        if not self.is_durable:
            files.append(self._disk.open(f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"))
            self.is_durable = True

    def moved_to(self, directory: str) -> "LeaderEpochFileCache":
        """Return these epochs, which continue in the directory's new name."""
        self._directory = directory
        return self

    def _replace(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.is_saved = self.is_durable = False
        self.save()

    def save(self) -> None:
        """Write unsaved entries to a temporary file and rename it."""
        if self.is_saved:
            return
        path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
        beside = f"{path}.tmp"
        file = self._disk.open(beside, create=True)
        if file.size():
            file.truncate(0)
        file.append([encode_epochs(self.entries)])
        file.close()
        self._disk.rename(beside, path)
        self.is_saved = True
