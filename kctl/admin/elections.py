"""ElectionAdmin: preferred and unclean elections of leaders.

Kafka 2.7: kafka.admin.LeaderElectionCommand; KIP-183, KIP-460
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from kctl.client.results import error_of, raise_for
from kctl.errors import UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.client.router import Router

# Partitions of one request; the controller answers when all of them are done.
PARTITIONS_MAX = 1000


class ElectionType(IntEnum):
    """Which replicas may become leader, with the numbers of the protocol."""

    # The first replica, if it is in sync.
    PREFERRED = 0
    # Any live replica of a partition without a leader: records that only other replicas have are
    # lost.
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result of one partition; not needed if the right replica leads already."""

    partition: TopicPartition
    is_needed: bool = True
    error: ApiError | None = None


class ElectionAdmin:
    """Leader elections of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def elect(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition]
    ) -> list[ElectionResult]:
        """Elect leaders of `partitions` and return a result for each, in order.

        Raise UsageError if the cluster is too old (preferred elections require Kafka 2.2, unclean
        ones 2.4), ApiError if the request as a whole is rejected (KIP-183, KIP-460).
        """
        version = await self._router.max_version(ApiKey.ELECT_LEADERS)
        if version < (1 if election_type is ElectionType.UNCLEAN else 0):
            needed = "2.4" if election_type is ElectionType.UNCLEAN else "2.2"
            raise UnsupportedVersionError(
                f"This cluster is older than Kafka {needed} and cannot elect leaders on request",
                hint="see --zookeeper" if election_type is ElectionType.PREFERRED else None,
            )
        wanted = sorted(set(partitions))
        results = []
        for start in range(0, len(wanted), PARTITIONS_MAX):
            results += await self._elect(election_type, wanted[start : start + PARTITIONS_MAX])
        return results

    async def _elect(
        self, election_type: ElectionType, partitions: list[TopicPartition]
    ) -> list[ElectionResult]:
        from kctl.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = ElectLeadersRequest(
            election_type=int(election_type),
            topic_partitions=[
                TopicPartitions(topic=topic, partition_id=numbers)
                for topic, numbers in topics.items()
            ],
            timeout_ms=self._router.timeout_ms,
        )
        response = await self._router.send_to_controller(request)
        raise_for(response.error_code)
        found = {
            TopicPartition(topic.topic, item.partition_id): item
            for topic in response.replica_election_results
            for item in topic.partition_result
        }
        results = []
        for tp in partitions:
            item = found.get(tp)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if item is None else item.error_code
            message = None if item is None else item.error_message
            is_needed = code != ErrorCode.ELECTION_NOT_NEEDED
            results.append(
                ElectionResult(tp, is_needed, error_of(code, message) if is_needed else None)
            )
        return results
