"""ReassignmentExecution: executes a plan in batches, and waits for each before the next.

Without waiting, all moves are submitted at once. After each look at the cluster, a callback gets
the progress. If the execution is cancelled, submitted moves continue in the cluster, and the others
are never submitted. Moves whose answer is lost count as started, since they may be in progress.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.errors import (
    AuthenticationError,
    ImpossibleError,
    KctlError,
    UnsupportedVersionError,
    UsageError,
)
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.reassignment import Reassignments
    from kctl.runtime.scheduler import Scheduler

POLL_MS = 250
# Brokers learn the end of a move later than the controller, by at most this many looks.
LATE_LOOKS_MAX = 12
# Nothing is submitted if these are raised, whatever becomes of the answer.
_REFUSALS = (UsageError, ImpossibleError, UnsupportedVersionError, AuthenticationError)
_REFUSAL_CODES = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


class MoveStatus(StrEnum):
    """The states of a partition of a plan."""

    WAITING = "not started"
    STARTED = "started"
    DONE = "moved"
    FAILED = "failed"
    # Submitted, no longer moving, and not in place: cancelled, or reassigned elsewhere.
    ELSEWHERE = "is elsewhere"


@dataclass(slots=True)
class MoveResult:
    """The result of one partition."""

    partition: TopicPartition
    target: tuple[int, ...]
    status: MoveStatus = MoveStatus.WAITING
    error: KctlError | None = None
    # Looks since the move ended at which the replicas were not in place.
    late_looks: int = 0


class ReassignmentExecution:
    """One execution; its results are up to date at any moment."""

    def __init__(
        self,
        scheduler: "Scheduler",
        reassignments: "Reassignments",
        targets: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        self.results = {tp: MoveResult(tp, tuple(targets[tp])) for tp in sorted(targets)}
        self._scheduler = scheduler
        self._reassignments = reassignments

    async def start_all(self) -> None:
        """Submit all moves."""
        await self._start(self.results.values())

    async def run(self, batch: int, on_look: Callable[[int], object]) -> None:
        """Execute all batches; call `on_look` with the number of completed moves after each
        look."""
        waiting = list(self.results.values())
        for start in range(0, len(waiting), batch):
            some = waiting[start : start + batch]
            await self._start(some)
            while any(it.status is MoveStatus.STARTED for it in some):
                await self._look(some)
                on_look(sum(it.status is not MoveStatus.WAITING for it in self._ended()))
                if any(it.status is MoveStatus.STARTED for it in some):
                    await sleep(self._scheduler, POLL_MS)

    def _ended(self) -> list[MoveResult]:
        going = (MoveStatus.WAITING, MoveStatus.STARTED)
        return [it for it in self.results.values() if it.status not in going]

    async def _start(self, some: Iterable[MoveResult]) -> None:
        chosen = list(some)
        # Before the request: if its answer is lost, the moves may be in progress.
        for it in chosen:
            it.status = MoveStatus.STARTED
        try:
            outcomes = await self._reassignments.alter({it.partition: it.target for it in chosen})
        except KctlError as error:
            if _is_refusal(error):
                for it in chosen:
                    it.status = MoveStatus.WAITING
            raise
        for it in chosen:
            it.error = outcomes[it.partition]
            it.status = MoveStatus.STARTED if it.error is None else MoveStatus.FAILED

    async def _look(self, some: Sequence[MoveResult]) -> None:
        moving = await self._reassignments.ongoing()
        over = [it for it in some if it.status is MoveStatus.STARTED and it.partition not in moving]
        if not over:
            return
        found = (await self._reassignments.layout(with_sizes=False)).assignment
        for it in over:
            it.late_looks += 1
            if found.get(it.partition) == it.target:
                it.status = MoveStatus.DONE
            elif it.late_looks > LATE_LOOKS_MAX:
                it.status = MoveStatus.ELSEWHERE
                it.error = KctlError("cancelled, or reassigned meanwhile")


def _is_refusal(error: KctlError) -> bool:
    """Return whether the moves are certainly not in progress after `error`."""
    if isinstance(error, ApiError):
        return error.code in _REFUSAL_CODES
    return isinstance(error, _REFUSALS)
