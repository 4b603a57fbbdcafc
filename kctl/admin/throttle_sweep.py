"""Removes replication throttles: kctl's own, and on request those that others left behind.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (clearAllThrottles)
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kctl.admin.reassignment_job import remove_throttle, wait_until_idle
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.replication_throttle import Leftover, Restored


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did."""

    # A result per setting that kctl's throttle had replaced.
    restored: "list[Restored]"
    # The throttles of others that were deleted.
    deleted: "list[Leftover]"


async def sweep_throttles(
    cluster: "ReassignmentCluster",
    *,
    force: bool = False,
    on_wait: Callable[[int], object] = lambda _moving: None,
    confirm_others: "Callable[[list[Leftover]], bool] | None" = None,
) -> Sweep:
    """Restore the settings that kctl's throttle replaced, once no replica moves; then delete the
    throttles of others if `confirm_others` agrees to the list.

    `on_wait` is called once, with the number of partitions on the move. `force` does not wait, and
    forgets the settings that brokers which are not alive keep; their results have errors.
    """
    if not force:
        await _wait(cluster, on_wait)
    restored = await remove_throttle(cluster, forget_absent=force) or []
    leftovers = await cluster.throttle.leftovers() if confirm_others is not None else []
    if not leftovers or confirm_others is None or not confirm_others(leftovers):
        return Sweep(restored, [])
    await cluster.throttle.remove(leftovers)
    return Sweep(restored, leftovers)


async def _wait(cluster: "ReassignmentCluster", on_wait: Callable[[int], object]) -> None:
    is_reported = False

    def report_once(moving: int) -> None:
        nonlocal is_reported
        if not is_reported:
            on_wait(moving)
            is_reported = True

    await wait_until_idle(cluster, report_once)
