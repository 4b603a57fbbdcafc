"""BatchProgress: how far a stream that writes exactly once has come, as a group's offset holds it.

The tasks of a batch write in open transactions, one each. The driver then commits them one after
another, which is not atomic; so it first makes durable that the batch is prepared, with the
producer ids and epochs that end the transactions from any process.

    COMMITTED(n - 1) --prepare--> PREPARED(n) --commit--> COMMITTED(n)
                                  PREPARED(n) --roll back--> COMMITTED(n - 1)

Invariants:
- Rows of batch n are written only while the progress is a batch before n.
- Transactions of batch n are committed only while it is prepared, in the order of their tasks. So
  if the first one cannot be committed, none was, and the batch may be rolled back and written
  again.
- Batch n + 1 is prepared only when n is committed; batches without rows leave no trace.

The offset is the number of the batch plus one, and the metadata holds the state and the parts.
"""

import re
from enum import StrEnum

from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass

# The default of offset.metadata.max.bytes.
METADATA_BYTES_MAX = 4096
_PREFIX = "kctl-spark"
_METADATA = re.compile(rf"{_PREFIX} (prepared|committed)((?: \d+:\d+:\d+)*)")
NO_BATCH = -1


class BatchState(StrEnum):
    """The state of the batch that the progress names."""

    PREPARED = "prepared"
    COMMITTED = "committed"


class Move(StrEnum):
    """What the driver does with a batch."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLL_BACK = "roll back"


_MOVES = {
    (BatchState.COMMITTED, Move.PREPARE): BatchState.PREPARED,
    (BatchState.PREPARED, Move.COMMIT): BatchState.COMMITTED,
    (BatchState.PREPARED, Move.ROLL_BACK): BatchState.COMMITTED,
}


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of one task, which any process may end."""

    task: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The newest batch that was prepared; NO_BATCH before the first."""

    batch: int = NO_BATCH
    state: BatchState = BatchState.COMMITTED
    # Of a prepared batch, in the order of tasks.
    transactions: tuple[TaskTransaction, ...] = ()

    def must_write(self, batch: int) -> bool:
        """Return whether the rows of `batch` are still to be written.

        KctlError if the progress contradicts the order of batches.
        """
        if batch < self.batch:
            raise KctlError(
                f"Batch {batch} was written long ago, and batch {self.batch} after it: the "
                "checkpoint is older than the topic",
                hint="begin with a new checkpoint",
            )
        if batch == self.batch:
            return False
        if self.state is not BatchState.COMMITTED:
            raise KctlError(f"Batch {self.batch} is not committed, and batch {batch} begins")
        return True

    def prepared(self, batch: int, transactions: tuple[TaskTransaction, ...]) -> "BatchProgress":
        """Return the progress with `batch` prepared; KctlError if it is not to be written."""
        state = self._moved(Move.PREPARE)
        if not self.must_write(batch):
            raise KctlError(f"Batch {batch} is committed already")
        ordered = tuple(sorted(transactions, key=lambda it: it.task))
        found = BatchProgress(batch, state, ordered)
        if len(found.metadata) > METADATA_BYTES_MAX:
            raise UsageError(
                f"A batch of {len(ordered)} tasks is too large to be committed at once",
                hint="coalesce(100) before writeStream",
            )
        return found

    def committed(self) -> "BatchProgress":
        """Return the progress with the prepared batch committed."""
        return BatchProgress(self.batch, self._moved(Move.COMMIT))

    def rolled_back(self) -> "BatchProgress":
        """Return the progress in which the prepared batch is to be written again."""
        return BatchProgress(self.batch - 1, self._moved(Move.ROLL_BACK))

    @property
    def offset(self) -> int:
        """Return the offset to commit."""
        return self.batch + 1

    @property
    def metadata(self) -> str:
        """Return the metadata to commit."""
        parts = (f"{it.task}:{it.producer_id}:{it.producer_epoch}" for it in self.transactions)
        return " ".join([_PREFIX, self.state.value, *parts])

    def _moved(self, move: Move) -> BatchState:
        if (self.state, move) not in _MOVES:
            raise KctlError(f"Batch {self.batch} is {self.state.value}: cannot {move.value}")
        return _MOVES[self.state, move]


def parse_progress(offset: int, metadata: str) -> BatchProgress:
    """Return what a group has committed; KctlError if it is not of a stream's writer."""
    if offset < 0:
        return BatchProgress()
    match = _METADATA.fullmatch(metadata)
    if match is None:
        raise KctlError(
            f"The group has committed offset {offset} with other metadata than kctl's: {metadata}",
            hint="kctl.transactional.id names the group: choose another",
        )
    transactions = tuple(TaskTransaction(*map(int, part.split(":"))) for part in match[2].split())
    return BatchProgress(offset - 1, BatchState(match[1]), transactions)
