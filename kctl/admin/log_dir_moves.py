"""LogDirMoves: replicas that are to lie in other directories of their brokers, and where they are.

A broker remembers the directory of a replica that is still to come: that one arrives with the
replica.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (alterReplicaLogDirs, findLogDirMoveStates);
KIP-113
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.log_dirs import LogDirAdmin

# Partition and broker -> the directory.
LogDirs = Mapping[tuple[TopicPartition, int], str]


class DirMoveStatus(StrEnum):
    """Where one replica is."""

    WAITING = "not started"
    # The replica is still to come, and the broker knows where to.
    CHOSEN = "directory chosen"
    STARTED = "on the move"
    DONE = "moved"
    # Neither there nor on its way: somebody sent it elsewhere, or it is gone.
    ELSEWHERE = "is elsewhere"
    # The broker refused.
    FAILED = "failed"


@dataclass(slots=True)
class DirMove:
    """One replica, and the directory where it is to lie."""

    partition: TopicPartition
    broker_id: int
    path: str
    # Where it was at the first look; None: nowhere yet.
    before: str | None = None
    # Where it was at the last look.
    found: str | None = None
    size_bytes: int = 0
    status: DirMoveStatus = DirMoveStatus.WAITING
    error: KctlError | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether another look may find it elsewhere."""
        return self.status in (DirMoveStatus.CHOSEN, DirMoveStatus.STARTED)


class LogDirMoves:
    """What a file wants of log directories; `look` first."""

    def __init__(self, log_dirs: "LogDirAdmin | None", wanted: LogDirs) -> None:
        """`log_dirs` is needed if anything is wanted."""
        self.moves = [DirMove(tp, broker, path) for (tp, broker), path in sorted(wanted.items())]
        self._log_dirs = log_dirs
        # Those in use, by broker, as of the last look.
        self.directories: dict[int, list[str]] = {}

    @property
    def pending(self) -> list[DirMove]:
        """Those that are not where they are to be."""
        return [it for it in self.moves if it.status is not DirMoveStatus.DONE]

    @property
    def is_under_way(self) -> bool:
        """Whether any may still arrive."""
        return any(it.is_under_way for it in self.moves)

    async def start(self) -> None:
        """Ask for those that are pending."""
        asked = {(it.partition, it.broker_id): it.path for it in self.pending}
        if self._log_dirs is None or not asked:
            return
        outcomes = await self._log_dirs.move(asked)
        for it in self.pending:
            error = outcomes.get((it.partition, it.broker_id))
            if error is None:
                it.status = DirMoveStatus.STARTED
            elif error.code == ErrorCode.REPLICA_NOT_AVAILABLE:
                it.status = DirMoveStatus.CHOSEN
            else:
                it.status, it.error = DirMoveStatus.FAILED, error

    async def look(self, *, is_last: bool = False) -> None:
        """See where they are. `is_last`: what is not on its way now never will be."""
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
            where = f"is in {current}" if current else "is not there"
            it.status = DirMoveStatus.ELSEWHERE
            it.error = KctlError(f"{where}, and not on the move")
