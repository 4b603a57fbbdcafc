"""LeaderEpochFileCache: which leader epoch wrote which offsets of a log.

One entry per epoch: its first offset. Followers that return ask where an epoch ended, which is
where the next one begins, and cut their log there: that is how logs of different leaders agree
again (KIP-101, KIP-279).

Invariants: epochs and start offsets rise strictly from entry to entry. A new entry removes those
it contradicts. The file is written before the first record of an epoch is, and made durable before
the log's recovery point passes it; records above that point bring their epochs back when they are
recovered. An epoch that has no records yet may be in memory only: nothing is lost with it.

Kafka 2.7: kafka.server.epoch.LeaderEpochFileCache
"""

from bisect import bisect_right

from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.checkpoint import EpochEntry, decode_epochs, encode_epochs
from kctl.storage.layout import LEADER_EPOCH_CHECKPOINT

NO_EPOCH = -1


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
        """Read the log's file; CorruptDataError if it is damaged."""
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        entries = decode_epochs(disk.read_file(path), path) if exists else []
        return cls(disk, directory, entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or -1."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    @property
    def earliest(self) -> EpochEntry | None:
        """The oldest entry."""
        return self.entries[0] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`, to be saved with its first record; whether that was
        news."""
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
        """(the largest epoch not beyond `epoch`, its end offset); None if that is not known.

        The end of the newest epoch is the log's. Asked for an epoch older than all, the answer is
        that epoch and the first offset there is.
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
        """The epoch that wrote `offset`, or -1."""
        following = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[following - 1].epoch if following else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: forget epochs that begin there or later."""
        if self.entries and self.entries[-1].start_offset >= end_offset >= 0:
            self._replace([entry for entry in self.entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: forget epochs that end there or earlier."""
        following = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if not following:
            return
        first = self.entries[following - 1]
        if following > 1 or first.start_offset < start_offset:
            first = EpochEntry(first.epoch, start_offset)
            self._replace([first, *self.entries[following:]])

    def clear(self) -> None:
        """Forget everything: the log now holds records without epochs."""
        if self.entries:
            self._replace([])

    def add_to_flush(self, files: list[DiskFile]) -> None:
        """Save; add the file unless it is durable. Its directory is the caller's."""
        self.save()
        if not self.is_durable:
            files.append(self._disk.open(f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"))
            self.is_durable = True

    def _replace(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.is_saved = self.is_durable = False
        self.save()

    def save(self) -> None:
        """Write what is not in the file yet: beside it, then rename."""
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
