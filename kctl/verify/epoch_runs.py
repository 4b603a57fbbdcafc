"""EpochRuns: the leader epochs of a log's batches, against the leader epoch checkpoint.

Epochs rise along a log. No checksum covers a batch's epoch: a run of batches whose epoch is out of
line with the runs before and after it is damaged; the others are compared with the checkpoint. Each
epoch begins at its first batch, or before it and after the last batch of the epoch before.

The checkpoint knows no epoch below the log start offset, nor below the last message of format v0
or v1: the broker deletes the checkpoint when `message.format.version` is lowered, and starts it
again when it is raised. Either can leave no trace in the log: after an unclean stop the log start
offset on disk may be old, and the messages between the two changes of format may be compacted away.
A checkpoint that begins too late is therefore a note if a broker can have written it: after an
unclean stop, in a compacted log, or where it begins at the start of a batch.

Kafka 2.7: kafka.server.epoch.LeaderEpochFileCache; KIP-101, KIP-279
"""

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import EpochEntry, decode_epochs
from kctl.verify.findings import Findings
from kctl.verify.rules import Finding, Rule
from kctl.verify.segment_walk import WalkedBatch

# Epochs change when leaders do; more runs than this are damage, and the first suffice.
_RUNS_MAX = 100_000


@dataclass(slots=True)
class EpochRun:
    """Consecutive batches of one epoch."""

    epoch: int
    first_offset: int
    last_offset: int
    path: str
    position: int
    batches: int = 1


class EpochRuns:
    """Gathers the leader epochs of a log's batches, and compares them with the checkpoint."""

    def __init__(self, checkpoint_start: int = -1) -> None:
        """Take `checkpoint_start`, the start offset of the checkpoint's first epoch."""
        self._runs: list[EpochRun] = []
        # End of the messages of format v0 or v1.
        self.legacy_end_offset = 0
        self._checkpoint_start = checkpoint_start
        # Whether a batch begins there.
        self.is_start_of_batch = False
        # Of the current run.
        self.epoch = -1

    def on_batch(self, path: str, batch: WalkedBatch) -> None:
        """Add a valid batch that has an epoch."""
        if batch.base_offset == self._checkpoint_start:
            self.is_start_of_batch = True
        if batch.leader_epoch == self.epoch:
            run = self._runs[-1]
            run.last_offset = batch.last_offset
            run.batches += 1
        elif len(self._runs) < _RUNS_MAX:
            self.epoch = batch.leader_epoch
            self._runs.append(
                EpochRun(self.epoch, batch.base_offset, batch.last_offset, path, batch.position)
            )

    def in_line(self, checkpoint: list[EpochEntry] | None = None) -> tuple[
        list[EpochRun], list[tuple[EpochRun, int]]
    ]:  # fmt: skip
        """Return the runs whose epochs rise, and those out of line with their proper epoch.

        `checkpoint` decides about a last batch that nothing follows.
        """
        kept: list[EpochRun] = []
        wrong: list[tuple[EpochRun, int]] = []
        runs = self._runs
        for i, run in enumerate(runs):
            following = runs[i + 1] if i + 1 < len(runs) else None
            before = kept[-1] if kept else None
            if before is not None and before.epoch == run.epoch:
                before.last_offset = run.last_offset
                before.batches += run.batches
            elif before is not None and run.epoch < before.epoch:
                wrong.append((run, before.epoch))
            elif following is not None and following.epoch < run.epoch and _is_lone(run, following):
                wrong.append((run, before.epoch if before is not None else following.epoch))
            elif following is None and _is_odd_end(run, before, checkpoint):
                assert before is not None
                wrong.append((run, before.epoch))
            else:
                kept.append(run)
        return kept, wrong

    def entries(self) -> list[EpochEntry]:
        """Return the checkpoint that follows from the batches."""
        return [EpochEntry(run.epoch, run.first_offset) for run in self.in_line()[0]]


def _is_lone(run: EpochRun, following: EpochRun) -> bool:
    return run.batches <= following.batches


def _is_odd_end(
    run: EpochRun, before: EpochRun | None, checkpoint: list[EpochEntry] | None
) -> bool:
    """Return whether the last batch of the log has an epoch that only this batch has."""
    if before is None or run.batches > 1 or not checkpoint:
        return False
    epochs = [entry.epoch for entry in checkpoint]
    return run.epoch not in epochs and before.epoch in epochs


def first_epoch_start(disk: Disk, path: str) -> int:
    """Return the start offset of the checkpoint's first epoch; -1 if it cannot be read."""
    try:
        entries = decode_epochs(disk.read_file(path), path) if disk.exists(path) else []
    except CorruptDataError:
        return -1
    return entries[0].start_offset if entries else -1


def check_epochs(
    disk: Disk,
    path: str,
    runs: EpochRuns,
    findings: Findings,
    *,
    log_start_offset: int,
    end_offset: int,
    may_begin_late: bool,
) -> None:
    """Compare the checkpoint at `path` with the batches of the log.

    `may_begin_late` states that its first epochs may be missing without a reason in the log."""
    entries: list[EpochEntry] | None = None
    try:
        data = disk.read_file(path) if disk.exists(path) else b""
        # Kafka creates the file with the log, and writes it with the first epoch.
        entries = decode_epochs(data, path) if data else []
    except CorruptDataError as error:
        message = str(error).removeprefix(f"{path}:").strip()
        findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_CORRUPT, message))
    kept, wrong = runs.in_line(entries)
    for run, epoch in wrong:
        findings.add(
            Finding(
                run.path, Rule.BATCH_EPOCH,
                f"the leader epoch is {run.epoch}, but {epoch} before and after it",
                run.position, run.first_offset, run.last_offset, should_be=epoch,
            )
        )  # fmt: skip
    if entries is not None:
        _check_order(path, entries, end_offset, findings)
        known_from = max(log_start_offset, runs.legacy_end_offset)
        first = entries[0].start_offset if entries else 0
        is_late = bool(kept) and max(known_from, kept[0].first_offset) < first
        may_begin_late |= runs.is_start_of_batch
        if is_late and may_begin_late and first <= kept[-1].last_offset:
            message = (
                f"it begins with offset {first}, batches from {kept[0].first_offset} on have epochs"
            )
            findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_LATE, message))
            known_from = first
        visible = [run for run in kept if run.last_offset >= known_from]
        _compare(path, visible, entries, known_from, findings)


def _check_order(path: str, entries: list[EpochEntry], end_offset: int, findings: Findings) -> None:
    before = EpochEntry(-1, -1)
    for entry in entries:
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            message = f"{_describe(entry)} does not follow {_describe(before)}"
            findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_ORDER, message))
        elif entry.start_offset > end_offset:
            message = f"{_describe(entry)}, the log ends at {end_offset}"
            findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_BOUNDS, message))
        before = entry


def _compare(
    path: str,
    runs: list[EpochRun],
    entries: list[EpochEntry],
    known_from: int,
    findings: Findings,
) -> None:
    starts = {entry.epoch: entry.start_offset for entry in entries}
    last_before = -1
    for run in runs:
        start = starts.get(run.epoch)
        if start is None:
            message = f"epoch {run.epoch} is missing: batches from {run.first_offset} on have it"
            findings.add(
                Finding(
                    path, Rule.EPOCH_CHECKPOINT_SHORT, message, None, run.first_offset,
                    run.last_offset,
                )
            )  # fmt: skip
        elif not last_before < start <= max(run.first_offset, known_from):
            message = (
                f"epoch {run.epoch} begins at {start}, but its first batch at {run.first_offset} "
                f"and the last of the epoch before ends at {last_before}"
            )
            findings.add(
                Finding(
                    path, Rule.EPOCH_CHECKPOINT_ORDER, message, None, run.first_offset,
                    run.last_offset,
                )
            )  # fmt: skip
        last_before = run.last_offset


def _describe(entry: EpochEntry) -> str:
    return f"epoch {entry.epoch} from offset {entry.start_offset}"
