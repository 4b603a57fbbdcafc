"""LogDirMoves: moves of replicas to other log directories of their brokers, and their progress.

A broker remembers the directory chosen for a replica that it does not have yet: the replica is
created there.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (alterReplicaLogDirs, findLogDirMoveStates);
KIP-113
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.log_dirs import LogDirAdmin

# (partition, broker) -> directory.
LogDirs = Mapping[tuple[TopicPartition, int], str]


class DirMoveStatus(StrEnum):
    """The states of a move."""

    WAITING = "not started"
    # The replica does not exist yet, and the broker knows its directory.
    CHOSEN = "directory chosen"
    STARTED = "on the move"
    DONE = "moved"
    # Neither there nor moving there: it was moved elsewhere, or deleted.
    ELSEWHERE = "is elsewhere"
    # The broker rejected the move.
    FAILED = "failed"


@dataclass(slots=True)
class DirMove:
    """A replica and its target directory."""

    partition: TopicPartition
    broker_id: int
    path: str
    # Its directory at the first look; None if it did not exist.
    before: str | None = None
    # Its directory at the last look.
    found: str | None = None
    size_bytes: int = 0
    status: DirMoveStatus = DirMoveStatus.WAITING
    error: KctlError | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether the move may still complete."""
        return self.status in (DirMoveStatus.CHOSEN, DirMoveStatus.STARTED)


class LogDirMoves:
    """The moves to a set of target directories; call `look` first."""

    def __init__(self, log_dirs: "LogDirAdmin | None", wanted: LogDirs) -> None:
        """Take the moves; `log_dirs` is required if `wanted` is not empty."""
        self.moves = [DirMove(tp, broker, path) for (tp, broker), path in sorted(wanted.items())]
        self._log_dirs = log_dirs
        # The directories in use, by broker, at the last look.
        self.directories: dict[int, list[str]] = {}

    @property
    def pending(self) -> list[DirMove]:
        """Return the moves that are not complete."""
        return [it for it in self.moves if it.status is not DirMoveStatus.DONE]

    @property
    def is_under_way(self) -> bool:
        """Return whether any move may still complete."""
        return any(it.is_under_way for it in self.moves)

    async def start(self) -> None:
        """Submit the pending moves."""
        pending = self.pending
        for broker_id in sorted({it.broker_id for it in pending}):
            await self._start_some([it for it in pending if it.broker_id == broker_id])

    async def _start_some(self, moves: Sequence[DirMove]) -> None:
        """Submit moves on one broker."""
        if self._log_dirs is None:
            return
        # Before the request: if its answer is lost, the moves may be in progress.
        for it in moves:
            it.status = DirMoveStatus.STARTED
        outcomes = await self._log_dirs.move(
            {(it.partition, it.broker_id): it.path for it in moves}
        )
        for it in moves:
            error = outcomes.get((it.partition, it.broker_id))
            if error is None:
                continue
            if error.code == ErrorCode.REPLICA_NOT_AVAILABLE:
                it.status = DirMoveStatus.CHOSEN
            else:
                it.status, it.error = DirMoveStatus.FAILED, error

    async def look(self, *, is_last: bool = False) -> None:
        """Update the status of every move. With `is_last`, a replica that is not on its way
        fails."""
        if self._log_dirs is None or not self.moves:
            return
        brokers = sorted({it.broker_id for it in self.moves})
        topics = sorted({it.partition.topic for it in self.moves})
        found: dict[tuple[TopicPartition, int, bool], tuple[str, int]] = {}
        self.directories = {broker_id: [] for broker_id in brokers}
        for directory in await self._log_dirs.describe(brokers, topics):
            if directory.error is None:
                self.directories[directory.broker_id].append(directory.path)
            for replica in directory.replicas:
                key = (replica.partition, directory.broker_id, replica.is_future)
                found[key] = (directory.path, replica.size_bytes)
        for it in self.moves:
            if it.status is not DirMoveStatus.FAILED:
                current, size = found.get((it.partition, it.broker_id, False), (None, 0))
                future, _ = found.get((it.partition, it.broker_id, True), (None, 0))
                it.size_bytes = size
                self._note(it, current, future, is_last)

    def _note(self, it: DirMove, current: str | None, future: str | None, is_last: bool) -> None:
        it.found, it.error = current, None
        if it.status is DirMoveStatus.WAITING:
            it.before = current
        if current == it.path and future is None:
            it.status = DirMoveStatus.DONE
        elif future == it.path:
            it.status = DirMoveStatus.STARTED
        elif is_last:
            where = f"is in {current}" if current else "does not exist"
            it.status = DirMoveStatus.ELSEWHERE
            it.error = KctlError(f"{where}, and not moving")
