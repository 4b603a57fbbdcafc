"""EpochRuns: the leader epochs of a log's batches, against the leader epoch checkpoint.

Epochs rise along a log. A batch's epoch is not under its checksum: a run of batches whose epoch
is out of line with runs before and behind it is damaged; what the rest says is held against the
checkpoint: each epoch begins where its first batch does, or before it, behind the last of the
epoch before.

Kafka 2.7: kafka.server.epoch.LeaderEpochFileCache; KIP-101, KIP-279
"""

from dataclasses import dataclass

from kctl.dump.findings import Findings
from kctl.dump.segment_walk import WalkedBatch
from kctl.dump.verify_rules import Finding, Rule
from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import EpochEntry, decode_epochs

# Epochs change when leaders do; more runs than this are damage, and the first tell enough.
_RUNS_MAX = 100_000


@dataclass(slots=True)
class EpochRun:
    """Batches of one epoch, one after the other."""

    epoch: int
    first_offset: int
    last_offset: int
    path: str
    position: int
    batches: int = 1


class EpochRuns:
    """See the module."""

    def __init__(self) -> None:
        self._runs: list[EpochRun] = []
        # Of the run under way.
        self.epoch = -1

    def on_batch(self, path: str, batch: WalkedBatch) -> None:
        """A valid batch that has an epoch."""
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
        """The runs whose epochs rise, and those out of line with the epoch that they should have.

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
        """What the checkpoint should say, as far as the batches tell."""
        return [EpochEntry(run.epoch, run.first_offset) for run in self.in_line()[0]]


def _is_lone(run: EpochRun, following: EpochRun) -> bool:
    return run.batches <= following.batches


def _is_odd_end(
    run: EpochRun, before: EpochRun | None, checkpoint: list[EpochEntry] | None
) -> bool:
    """Whether the log's very last batch has an epoch that nobody else has heard of."""
    if before is None or run.batches > 1 or not checkpoint:
        return False
    epochs = [entry.epoch for entry in checkpoint]
    return run.epoch not in epochs and before.epoch in epochs


def check_epochs(
    disk: Disk,
    path: str,
    runs: EpochRuns,
    findings: Findings,
    *,
    log_start_offset: int,
    end_offset: int,
) -> None:
    """Hold the checkpoint at `path` against the batches of the log."""
    entries: list[EpochEntry] | None = None
    try:
        data = disk.read_file(path) if disk.exists(path) else b""
        # Kafka makes the file with the log, and writes it with the first epoch.
        entries = decode_epochs(data, path) if data else []
    except CorruptDataError as error:
        message = str(error).removeprefix(f"{path}:").strip()
        findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_CORRUPT, message))
    kept, wrong = runs.in_line(entries)
    for run, epoch in wrong:
        findings.add(
            Finding(
                run.path, Rule.BATCH_EPOCH,
                f"the leader epoch is {run.epoch}, but {epoch} before and behind it",
                run.position, run.first_offset, run.last_offset, should_be=epoch,
            )
        )  # fmt: skip
    if entries is not None:
        _check_order(path, entries, end_offset, findings)
        visible = [run for run in kept if run.last_offset >= log_start_offset]
        _compare(path, visible, entries, log_start_offset, findings)


def _check_order(path: str, entries: list[EpochEntry], end_offset: int, findings: Findings) -> None:
    before = EpochEntry(-1, -1)
    for entry in entries:
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            message = f"{_words(entry)} does not follow {_words(before)}"
            findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_ORDER, message))
        elif entry.start_offset > end_offset:
            message = f"{_words(entry)}, the log ends at {end_offset}"
            findings.add(Finding(path, Rule.EPOCH_CHECKPOINT_BOUNDS, message))
        before = entry


def _compare(
    path: str,
    runs: list[EpochRun],
    entries: list[EpochEntry],
    log_start_offset: int,
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
        elif not last_before < start <= max(run.first_offset, log_start_offset):
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


def _words(entry: EpochEntry) -> str:
    return f"epoch {entry.epoch} from offset {entry.start_offset}"
