"""TopicCreator: validates new topics and partitions and writes them to the store.

The controller reads them there and does the rest. Rejections are ApiErrors with Kafka's messages.
These are rejected here but not by Kafka: a manual assignment with no replica or a negative broker
id for some partition (Kafka creates a topic that never gets a leader), a negative partition number,
and a topic of more than REPLICAS_MAX replicas (Kafka runs out of memory).

Kafka 2.7: kafka.server.AdminManager, kafka.zk.AdminZkClient, common.internals.Topic; KIP-464 (-1:
the broker's defaults).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from kctl.broker.config.config_changes import check_topic_config
from kctl.broker.metadata_cache import MetadataCache
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.topic_name import check_topic_name
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import ReplicaAssignment
from kctl.protocol.constants import INTERNAL_TOPICS
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.replica_assignment import Racks, assign_replicas, shift_between
from kctl.runtime.future import sleep
from kctl.runtime.runtime import Runtime
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import NodeExistsError, NoNodeError

USE_DEFAULT = -1
# The assignment of a topic is one znode, which ZooKeeper limits to 1 MiB, and one response.
REPLICAS_MAX = 50_000
# Partitions placed per turn of the loop.
PARTITIONS_PER_TURN = 1_000
# Creation waits for the deletion of a topic of the same name, at most a second.
DELETION_LOOK_MS = 20
DELETION_LOOKS_MAX = 50

Assignment = Mapping[int, Sequence[int]]
# Takes a number of new partitions; raises ApiError if the client may not create them now.
Allow = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic; USE_DEFAULT or an assignment in place of the counts."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    # Partition -> replicas; empty: the broker chooses.
    assignment: Assignment = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicCreator:
    """Creates topics and partitions in the store."""

    def __init__(
        self,
        store: ClusterStore,
        metadata_cache: MetadataCache,
        config: BrokerConfig,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._cache = metadata_cache
        self._config = config
        self._entropy = runtime.entropy
        self._scheduler = runtime.scheduler
        # Topics whose znodes are being written: other requests for them must fail.
        self._under_way: dict[str, None] = {}

    async def deletions(self) -> Collection[str]:
        """Return the topics whose deletion is requested and not complete: for `create`, which must
        be called before the next turn of the loop."""
        return dict.fromkeys(await self._store.get_topic_deletions())

    async def create(
        self,
        topic: NewTopic,
        *,
        validate_only: bool = False,
        deletions: Collection[str] | None = None,
        allow: Allow | None = None,
    ) -> dict[int, tuple[int, ...]]:
        """Validate and write a topic; return its assignment.

        A request for many topics reads `deletions` once for all of them. `allow` is called with the
        number of partitions before anything is written, and may raise ApiError.
        """
        if self._cache.contains(topic.name) or topic.name in self._under_way:
            raise _already_exists(topic.name)
        self._under_way[topic.name] = None
        try:
            assignment = await self._assignment(topic)
            check_topic_name(topic.name)
            if deletions is None or topic.name in deletions:
                await self._until_deleted(topic.name)
            await self._check_against_store(topic.name)
            if topic.assignment:
                check_assignment(assignment)
            configs = checked_configs(topic.configs)
            if not validate_only:
                if allow is not None:
                    allow(len(assignment))
                await self._write(topic.name, assignment, configs)
        finally:
            del self._under_way[topic.name]
        return assignment

    async def add_partitions(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        allow: Allow | None = None,
    ) -> dict[int, tuple[int, ...]]:
        """Extend `topic` to `count` partitions; return the assignment of the new ones. `allow` is
        called with their number before anything is written, and may raise ApiError."""
        added: dict[int, tuple[int, ...]] = {}
        is_allowed = allow is None

        def grown(old: dict[int, ReplicaAssignment]) -> dict[int, ReplicaAssignment]:
            nonlocal added, is_allowed
            added = self._added(topic, old, count, assignments)
            # Once, however often the store is written.
            if not is_allowed and allow is not None and not validate_only:
                allow(len(added))
                is_allowed = True
            return {**old, **{p: ReplicaAssignment(r) for p, r in added.items()}}

        try:
            if validate_only:
                grown(await self._store.get_topic_assignment(topic))
            else:
                await self._store.update_topic_assignment(topic, grown)
        except NoNodeError:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist."
            ) from None
        return added

    def _added(
        self,
        topic: str,
        old: Mapping[int, ReplicaAssignment],
        count: int,
        assignments: Sequence[Sequence[int]] | None,
    ) -> dict[int, tuple[int, ...]]:
        """Return the assignment of the new partitions of `topic`; raise ApiError if it cannot
        grow."""
        if any(partition.adding or partition.removing for partition in old.values()):
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{topic}'.",
            )
        _check_increase(count, len(old))
        _check_replica_count(count, len(old[0].replicas))
        racks = self._racks()
        if assignments is None:
            return _continued(racks, old, count - len(old))
        return _checked_added(racks, old, count - len(old), assignments)

    def partitions_of(self, topic: NewTopic) -> int:
        """Return the topic's number of partitions."""
        if topic.assignment:
            return len(topic.assignment)
        return self._config.num_partitions if topic.partitions == USE_DEFAULT else topic.partitions

    async def _assignment(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        counts = (topic.partitions, topic.replication_factor)
        if topic.assignment:
            if counts != (USE_DEFAULT, USE_DEFAULT):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "Both numPartitions or replicationFactor and replicasAssignments were set. "
                    "Both cannot be used at the same time.",
                )
            return {p: tuple(replicas) for p, replicas in sorted(topic.assignment.items())}
        partitions = self.partitions_of(topic)
        factor = topic.replication_factor
        if factor == USE_DEFAULT:
            factor = self._config.default_replication_factor
        _check_replica_count(partitions, factor)
        racks = self._racks()
        bound = max(len(racks), 1)
        start_index = self._entropy.random_below(bound)
        shift = self._entropy.random_below(bound)
        try:
            return await self._placed(racks, range(partitions), factor, start_index, shift)
        except UsageError as error:
            code = (
                ErrorCode.INVALID_PARTITIONS
                if partitions <= 0
                else ErrorCode.INVALID_REPLICATION_FACTOR
            )
            raise ApiError(code, str(error)) from None

    async def _placed(
        self, racks: Racks, numbers: range, factor: int, start_index: int, shift: int
    ) -> dict[int, tuple[int, ...]]:
        """Return the replicas of the partitions `numbers`, placed as by one call of
        `assign_replicas`.

        Raise UsageError if they cannot be placed.
        """
        placed: dict[int, tuple[int, ...]] = {}
        # At least once: `assign_replicas` rejects an empty range.
        for first in range(
            numbers.start, max(numbers.stop, numbers.start + 1), PARTITIONS_PER_TURN
        ):
            if placed:
                await self._store.store.turn()
            placed |= assign_replicas(
                racks,
                min(numbers.stop - first, PARTITIONS_PER_TURN),
                factor,
                start_index=start_index,
                shift=shift + shift_between(numbers.start, first, len(racks)),
                first_partition=first,
            )
        return placed

    def _racks(self) -> Racks:
        return {broker.broker_id: broker.rack for broker in self._cache.alive_brokers()}

    async def _until_deleted(self, name: str) -> None:
        """Wait until the deletion of a topic of that name, if any, is complete; raise ApiError.

        The controller deletes a topic's configs after its znode: a topic created in between would
        lose its own. (In Apache Kafka 2.7.2 it does.)
        """
        for _ in range(DELETION_LOOKS_MAX):
            if not await self._store.is_marked_for_deletion(name):
                return
            await sleep(self._scheduler, DELETION_LOOK_MS)
        raise _already_exists(name)

    async def _check_against_store(self, name: str) -> None:
        if "." not in name and "_" not in name:
            if await self._store.topic_exists(name):
                raise _already_exists(name)
            return
        topics = await self._store.get_all_topics()
        if name in topics:
            raise _already_exists(name)
        # Metric names, derived from topics, do not distinguish the two characters.
        folded = name.replace(".", "_")
        colliding = [
            topic
            for topic in (*topics, *self._under_way)
            if topic != name and topic.replace(".", "_") == folded
        ]
        if colliding:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
            )

    async def _write(
        self, name: str, assignment: Mapping[int, tuple[int, ...]], configs: Mapping[str, str]
    ) -> None:
        # Overrides first: the topic must never be visible without them.
        await self._store.set_entity_config(znodes.TOPIC_CONFIGS, name, configs)
        replicas = {p: ReplicaAssignment(r) for p, r in assignment.items()}
        try:
            await self._store.create_topic_assignment(name, replicas)
        except NodeExistsError:
            raise _already_exists(name) from None


def is_internal(topic: str) -> bool:
    """Return whether Kafka stores its own state in the topic."""
    return topic in INTERNAL_TOPICS


def check_assignment(assignment: Assignment) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the partitions are 0 to n, each with the same number
    of replicas and none of them twice. The brokers need not be alive."""
    sizes = dict.fromkeys(len(replicas) for replicas in assignment.values())
    if len(sizes) != 1:
        raise _invalid_assignment("All partitions should have the same number of replicas")
    for partition, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            raise _invalid_assignment(
                f"Duplicate replica assignment found: partition {partition}: "
                f"{', '.join(map(str, replicas))}"
            )
        if not replicas or min(replicas) < 0:
            raise _invalid_assignment(
                f"Partition {partition} needs replicas with valid broker ids: {list(replicas)}"
            )
    if sorted(assignment) != list(range(len(assignment))):
        raise _invalid_assignment("partitions should be a consecutive 0-based integer sequence")


def checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the overrides; raise INVALID_REQUEST for nulls, INVALID_CONFIG for invalid configs."""
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Null value not supported for topic configs : {','.join(nulls)}",
        )
    checked = {name: value for name, value in configs.items() if value is not None}
    try:
        check_topic_config(checked)
    except UsageError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return checked


def _check_increase(count: int, existing: int) -> None:
    if count < existing:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {existing} partitions, "
            f"which is higher than the requested {count}.",
        )
    if count == existing:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partitions.")


def _check_replica_count(partitions: int, replication_factor: int) -> None:
    if partitions * max(replication_factor, 1) > REPLICAS_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions with {replication_factor} replicas are more than the "
            f"{REPLICAS_MAX} replicas that a topic may have.",
        )


def _continued(
    racks: Racks, old: Mapping[int, ReplicaAssignment], added: int
) -> dict[int, tuple[int, ...]]:
    """Place new partitions as if they had been placed together with the existing ones."""
    first = old[0].replicas
    brokers = sorted(racks)
    start = next((i for i, broker in enumerate(brokers) if broker >= first[0]), 0)
    try:
        return assign_replicas(
            racks, added, len(first), start_index=start, shift=start, first_partition=len(old)
        )
    except UsageError as error:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None


def _checked_added(
    racks: Racks,
    old: Mapping[int, ReplicaAssignment],
    increase: int,
    assignments: Sequence[Sequence[int]],
) -> dict[int, tuple[int, ...]]:
    if len(assignments) != increase:
        raise _invalid_assignment(
            f"Increasing the number of partitions by {increase} "
            f"but {len(assignments)} assignments provided."
        )
    unknown = [
        str(broker)
        for broker in dict.fromkeys(broker for replicas in assignments for broker in replicas)
        if broker not in racks
    ]
    if unknown:
        raise _invalid_assignment(f"Unknown broker(s) in replica assignment: {', '.join(unknown)}.")
    added = {len(old) + i: tuple(replicas) for i, replicas in enumerate(assignments)}
    for partition, replicas in added.items():
        if not replicas:
            raise _invalid_assignment(
                f"Cannot have replication factor of 0 for partition id {partition}."
            )
        if len(set(replicas)) != len(replicas):
            raise _invalid_assignment(
                "Duplicate brokers not allowed in replica assignment: "
                f"{', '.join(map(str, replicas))} for partition id {partition}."
            )
    _check_same_factor(len(old[0].replicas), added)
    return added


def _check_same_factor(factor: int, added: Mapping[int, tuple[int, ...]]) -> None:
    bad = {p: len(replicas) for p, replicas in added.items() if len(replicas) != factor}
    if bad:
        raise _invalid_assignment(
            "Inconsistent replication factor between partitions, "
            f"partition 0 has {factor} while partitions [{_listed(bad)}] "
            f"have replication factors [{_listed(bad.values())}], respectively."
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _already_exists(name: str) -> ApiError:
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _invalid_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
