"""Plans and runs elections: which partitions need one, and who leads them afterwards.

Kafka 2.7: kafka.admin.LeaderElectionCommand; KIP-460
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.admin.elections import ElectionType
from kctl.admin.selection import select_partitions
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.topics import PartitionDescription

# The brokers' metadata shows a new leader shortly after the controller elects it.
POLLS_MAX = 20
POLL_MS = 100


@dataclass(frozen=True, slots=True)
class ElectionPlan:
    """The partitions of an election before it."""

    election_type: ElectionType
    # Those that need an election, by the brokers' metadata.
    candidates: "list[PartitionDescription]"
    # Those that the controller is asked to elect a leader for: candidates, and all named ones.
    requested: "list[PartitionDescription]"


@dataclass(frozen=True, slots=True)
class Elected:
    """The result of one partition."""

    # The partition as it was before.
    before: "PartitionDescription"
    # Whether an election was needed, by the controller.
    is_needed: bool
    # None if there is none, or if the metadata did not show it in time.
    new_leader: int | None
    error: ApiError | None


async def plan_election(
    admin: "AdminClient",
    election_type: ElectionType,
    wanted: Mapping[str, Sequence[int] | None] | None = None,
) -> ElectionPlan:
    """Return the partitions that need an election, without changing anything.

    `wanted` names partitions by topic, None selecting all of a topic; without it, all partitions of
    the cluster that need an election are requested. Raise UsageError for an unknown partition.
    """
    chosen = await select_partitions(admin, wanted)
    is_unclean = election_type is ElectionType.UNCLEAN
    candidates = [it for it in chosen if (it.is_offline if is_unclean else not _is_preferred(it))]
    # The controller decides whether named partitions need an election: its metadata is newer.
    return ElectionPlan(election_type, candidates, chosen if wanted else candidates)


async def run_election(admin: "AdminClient", plan: ElectionPlan) -> list[Elected]:
    """Elect the leaders of a plan and return a result for each requested partition.

    After an unclean election, wait at most two seconds until the brokers' metadata shows the new
    leaders. Raise UsageError if the cluster is too old, ApiError if the request is rejected.
    """
    requested = {_name(it): it for it in plan.requested}
    results = await admin.elections.elect(plan.election_type, requested)
    elected = {it.partition for it in results if it.is_needed and it.error is None}
    is_unclean = plan.election_type is ElectionType.UNCLEAN
    leaders = await _leaders(admin, elected) if is_unclean else {}
    return [
        Elected(
            before := requested[result.partition],
            result.is_needed,
            leaders.get(result.partition, before.replicas[0])
            if result.partition in elected
            else None,
            result.error,
        )
        for result in results
    ]


async def _leaders(
    admin: "AdminClient", elected: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Wait until the brokers' metadata shows new leaders; return them, None for unknown ones."""
    leaders: dict[TopicPartition, int | None] = dict.fromkeys(elected)
    for _ in range(POLLS_MAX):
        if None not in leaders.values():
            break
        for it in await select_partitions(admin):
            if _name(it) in leaders and not it.is_offline:
                leaders[_name(it)] = it.leader
        if None in leaders.values():
            await sleep(admin.router.runtime.scheduler, POLL_MS)
    return leaders


def _is_preferred(partition: "PartitionDescription") -> bool:
    return not partition.replicas or partition.leader == partition.replicas[0]


def _name(partition: "PartitionDescription") -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
