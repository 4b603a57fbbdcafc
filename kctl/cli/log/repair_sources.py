"""Other replicas of a partition in kctl repair-log: as sources of lost batches, and as advice.

A repair cannot know from the files whether the partition has other replicas. It therefore warns of
every record that is lost here, and with -b it asks the cluster.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.cli.session import Session
from kctl.cli.units import format_bytes
from kctl.counts import counted, offset_range
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.admin.replica_advice import ReplicaAdvice
    from kctl.model import TopicPartition
    from kctl.repair.repair_plan import RepairPlan, RepairRequest
    from kctl.repair.replica import Replica
    from kctl.runtime.disk import Disk

_RANGES_SHOWN_MAX = 5


class Requests:
    """The requests for each partition: the first with its replica, the rest without.

    Copies of replicas are removed with `stack`.
    """

    def __init__(
        self,
        session: Session,
        disk: "Disk",
        request: "RepairRequest",
        source: str | None,
        stack: ExitStack,
    ) -> None:
        # What is repaired after the first round.
        self.rest = request
        self._session = session
        self._disk = disk
        self._source = source
        self._stack = stack

    def first(self, directory: str) -> "RepairRequest":
        """Return the request for the first round; UsageError if there is no such replica."""
        if self._source is None:
            return self.rest
        return replace(self.rest, replica=self._replica(directory, self._source))

    def _replica(self, directory: str, source: str) -> "Replica":
        from kctl.client.bootstrap_servers import parse_servers
        from kctl.repair.replica import open_replica

        if self._disk.exists(source) or "/" in source or ":" not in source:
            return open_replica(self._disk, directory, source)
        [address, *others] = parse_servers(source)
        if others:
            raise UsageError("--from takes one broker", hint="--from HOST:PORT")
        return self._fetched(directory, address, source)

    def _fetched(self, directory: str, address: tuple[str, int], source: str) -> "Replica":
        """Return a copy of what the broker at `address` has of the lost offsets."""
        from kctl.admin.replica_fetch import fetch_replica
        from kctl.client.security import ClientSecurity
        from kctl.repair.repair_plan import ranges_to_take
        from kctl.repair.replica import Replica, check_cluster, cluster_id_of
        from kctl.runtime.real import make_runtime
        from kctl.runtime.real.temporary import temporary_directory
        from kctl.runtime.trace import NullTrace

        name = directory.rpartition("/")[2]
        partition = _partition_of(directory)
        if partition is None:
            raise UsageError(f"{directory} is not named after a partition, such as orders-0")
        ranges = ranges_to_take(self._disk, directory)
        copy = f"{self._stack.enter_context(temporary_directory('kctl-replica-'))}/{name}"
        self._disk.make_directory(copy)
        session = self._session
        runtime = make_runtime(NullTrace())
        settings = session.settings
        work = fetch_replica(
            runtime, self._disk, address, partition, ranges, copy, settings.timeout_ms,
            ClientSecurity.of(settings.properties),
        )  # fmt: skip
        try:
            fetched = runtime.scheduler.run_until(runtime.scheduler.spawn(work))
        finally:
            runtime.scheduler.close()
        check_cluster(cluster_id_of(self._disk, directory), fetched.cluster_id, source)
        session.output.say(
            f"Fetched {counted(fetched.batches, 'batch')}, "
            f"{format_bytes(fetched.bytes)}, of {partition} from {source} for comparison"
        )
        return Replica(copy, source)


def warn_of_lost_records(session: Session, disk: "Disk", plans: "Sequence[RepairPlan]") -> None:
    """Say which records the plans lose, and, if the command line names a cluster, who has them."""
    losing = [plan for plan in plans if plan.lost]
    for plan in losing:
        name = plan.directory.rpartition("/")[2]
        session.output.say(
            f"warning: records of {name} are lost here: {_ranges_text(plan.lost)}. Another replica "
            "may still have them; if this broker leads the partition again, the cluster loses them"
        )
    if losing and not session.names_a_cluster:
        session.output.say(
            "hint: if the partition has other replicas, let the broker copy it from its leader, or "
            "take the records with --from REPLICA; -b HOST:PORT says which brokers have them"
        )
    elif losing:
        _advise(session, disk, losing)


def _ranges_text(lost: Sequence[tuple[int, int | None]]) -> str:
    texts = [
        f"offset {first} and what follows" if last is None else offset_range(first, last)
        for first, last in lost[:_RANGES_SHOWN_MAX]
    ]
    more = len(lost) - len(texts)
    return ", ".join(texts) + (f" and {counted(more, 'more range')}" if more else "")


def _advise(session: Session, disk: "Disk", plans: "Sequence[RepairPlan]") -> None:
    from kctl.admin.replica_advice import advise
    from kctl.repair.replica import broker_id_of

    named = [(plan.directory, _partition_of(plan.directory)) for plan in plans]
    damaged = [
        (partition, broker_id_of(disk, directory))
        for directory, partition in named
        if partition is not None
    ]
    directories = [directory for directory, partition in named if partition is not None]
    try:
        advice = session.run(lambda admin: advise(admin, damaged))
    except KctlError as error:
        session.output.say(f"note: the cluster was not asked for other replicas: {error}")
        return
    for it, directory, (_, own_id) in zip(advice, directories, damaged, strict=True):
        session.output.say(_advice_text(it, directory, own_id))


def _advice_text(it: "ReplicaAdvice", directory: str, own_id: int | None) -> str:
    from kctl.admin.replica_advice import Remedy

    match it.remedy:
        case Remedy.UNKNOWN_PARTITION:
            return f"note: the cluster has no {it.partition}"
        case Remedy.NO_OTHER_REPLICA:
            return f"note: {it.partition} has no other replica: nothing else has these records"
        case Remedy.COPY_FROM_LEADER:
            [leader] = it.brokers
            return (
                f"recommended: do not repair {it.partition}. Broker {leader} leads it and is in "
                f"sync: with broker {own_id} stopped, move {directory} out of the log directory; "
                f"when the broker starts, it copies the partition from broker {leader}"
            )
        case Remedy.TAKE_RECORDS:
            return (
                f"recommended: take the records of {it.partition} from broker {it.brokers[0]}: "
                f"--from {it.address}"
            )
        case Remedy.START_A_BROKER:
            ids = ", ".join(map(str, it.brokers))
            return (
                f"recommended: no other replica of {it.partition} is alive (brokers {ids}): start "
                "one of these brokers, or name its directory with --from"
            )


def _partition_of(directory: str) -> "TopicPartition | None":
    from kctl.storage.layout import parse_directory_name

    name = parse_directory_name(directory.rpartition("/")[2])
    return None if name is None else name.topic_partition
