"""SnapshotChecks: producer snapshots against what a replay of the batches says.

A snapshot at offset N holds what batches below N say, less producers that were silent too long
and forgotten, plus those whose batches retention or compaction took. So what both know must
agree; what only the replay knows is no breach; what only the snapshot knows is one if the replay
saw the log from its very start.

Kafka 2.7: kafka.log.ProducerStateManager; KIP-98
"""

from kctl.dump.findings import Findings
from kctl.dump.producer_replay import ProducerReplay
from kctl.dump.verify_rules import Finding, Rule
from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk
from kctl.storage.layout import SNAPSHOT_SUFFIX, file_name
from kctl.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot

_NEVER = 2**63 - 1


class SnapshotChecks:
    """The snapshots of one directory, met one after the other by a replay."""

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
        """Whether there is a readable snapshot of exactly that offset."""
        return offset in self._offsets and self._load(offset) is not None

    def entries_at(self, offset: int) -> list[ProducerSnapshotEntry]:
        """What the snapshot of that offset says; nothing if there is none."""
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

    def compare(self, next_offset: int, replay: ProducerReplay, *, is_whole: bool) -> None:
        """Hold the snapshots up to `next_offset` against the state there: a batch with that base
        offset comes next. One inside the batch before was taken before compaction."""
        while self.next_offset <= next_offset:
            offset = self.next_offset
            entries = self._load(offset)
            if entries is not None and offset == next_offset:
                self._compare(offset, entries, replay, is_whole=is_whole)
            self._slot += 1
            is_more = self._slot < len(self._offsets)
            self.next_offset = self._offsets[self._slot] if is_more else _NEVER

    def finish(self, end_offset: int, replay: ProducerReplay, *, is_whole: bool) -> None:
        """The log ends at `end_offset`."""
        self.compare(end_offset, replay, is_whole=is_whole)
        for offset in self._offsets[self._slot :]:
            message = f"it is of offset {offset}, the log ends at {end_offset}"
            self._findings.add(Finding(self._path(offset), Rule.SNAPSHOT_BOUNDS, message))

    def _compare(
        self, offset: int, entries: list[ProducerSnapshotEntry], replay: ProducerReplay, *,
        is_whole: bool,
    ) -> None:  # fmt: skip
        known = {entry.producer_id: entry for entry in replay.entries()}
        for entry in entries:
            expected = known.get(entry.producer_id)
            if expected is None:
                if is_whole:
                    message = f"producer {entry.producer_id} wrote nothing to the log"
                    self._findings.add(Finding(self._path(offset), Rule.SNAPSHOT_STATE, message))
                continue
            for name, found, should_be in zip(
                ProducerSnapshotEntry._fields, entry, expected, strict=True
            ):
                if found != should_be and (is_whole or _is_told(name, should_be)):
                    message = (
                        f"{name} of producer {entry.producer_id} is {found}, the batches say "
                        f"{should_be}"
                    )
                    self._findings.add(Finding(self._path(offset), Rule.SNAPSHOT_STATE, message))


def _is_told(name: str, replayed: int) -> bool:
    """Whether the field's value follows from the last batches alone."""
    return name in ("producer_epoch", "last_sequence", "last_offset") and replayed >= 0
