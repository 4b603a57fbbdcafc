"""What a copy's leader does when an operator accepts a loss: remove the copy on all its replicas.

The source's topic may have been created again, with epochs and offsets that the copy has, too. So a
follower that kept its log could not tell old records from new ones by an epoch, and nothing is
appended before each replica has been seen to be empty: a follower that fetches beyond the end of
its leader's log truncates its own to that end.

Kafka 2.7: kafka.server.AbstractFetcherThread (`fetchOffsetAndTruncate`)
"""

from kctl.broker.links.takeover import POLL_MS, WAIT_MS, NotLeadingError
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.errors import TimedOutError
from kctl.runtime.polling import poll_until
from kctl.runtime.runtime import Runtime


def discard_copy(
    runtime: Runtime, replicas: ReplicaManager, partition: Partition, start: int
) -> tuple[int, int] | None:
    """Remove all records of the copy, and begin it at `start`. Return the ends of the log before
    and after, or None if it was empty there already; raise KctlError."""
    log, tp = partition.log, partition.topic_partition
    if partition.role is not Role.LEADER or log is None or partition.read_only is None:
        raise NotLeadingError("this broker no longer leads the copy")
    before = log.log_end_offset
    if (log.log_start_offset, before) == (start, start):
        return None
    log.truncate_fully_and_start_at(start)
    replicas.log_manager.futures.current_restarted(tp, start)
    partition.forget_progress(runtime.clock.wall_ms())
    replicas.wake(tp)
    return before, start


async def all_replicas_are_empty(runtime: Runtime, partition: Partition) -> None:
    """Wait until all followers have fetched at the start of the empty log; raise KctlError, as
    every follower counts, also one that is not in sync or does not run."""

    def behind() -> list[int]:
        log = partition.log
        end = -1 if log is None else log.log_end_offset
        return [it.broker_id for it in partition.followers.values() if it.log_end_offset != end]

    def is_over() -> bool:
        return partition.role is not Role.LEADER or not behind()

    if not await poll_until(runtime, is_over, WAIT_MS, POLL_MS):
        names = ", ".join(map(str, behind()))
        raise TimedOutError(f"waits for the replicas on brokers {names} to remove their copies")
    if partition.role is not Role.LEADER:
        raise NotLeadingError("this broker no longer leads the copy")
