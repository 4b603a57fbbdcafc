"""ReassignmentExecution: a plan carried out in batches, each waited for before the next.

Without waiting everything is asked for at once. Between two looks at the cluster whoever called may
be told how far the moves are. If it is stopped in between, what was asked for goes on in the
cluster, and the rest was never asked for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.reassignment import Reassignments
    from kctl.runtime.scheduler import Scheduler

POLL_MS = 250
# Brokers hear of the end of a move a little later than the controller: so many looks later.
LATE_LOOKS_MAX = 12


class MoveStatus(StrEnum):
    """Where one partition of a plan is."""

    WAITING = "not started"
    STARTED = "started"
    DONE = "moved"
    FAILED = "failed"
    # Asked for, gone from the list, and yet elsewhere: somebody cancelled or asked for other.
    ELSEWHERE = "is elsewhere"


@dataclass(slots=True)
class MoveResult:
    """What became of one partition."""

    partition: TopicPartition
    target: tuple[int, ...]
    status: MoveStatus = MoveStatus.WAITING
    error: KctlError | None = None
    # Looks since it is not on the move, at which it was not yet where it is to be.
    late_looks: int = 0


class ReassignmentExecution:
    """Owns the results, which are right at any moment."""

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
        """Ask for everything."""
        await self._start(self.results.values())

    async def run(self, batch: int, on_look: Callable[[int], object]) -> None:
        """Batch by batch to the end; `on_look` is given how many are done at each look."""
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
        outcomes = await self._reassignments.alter({it.partition: it.target for it in chosen})
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
                it.error = KctlError("cancelled, or reassigned by somebody else")
