"""ReplicationThrottle: limits the copies of a reassignment, and restores the previous settings.

Brokers have a rate for copies as leader and as follower; topics list the replicas that it applies
to. `prepare` reads the settings and returns a ThrottleRecord of the old and the new values. The
caller stores it durably and then calls `apply`. `restore` restores the old values from the record
alone, and can be repeated, also by another process after a crash.

Invariants: nothing changes that is not in a record; a setting that was changed by others since is
left alone and reported. Brokers up to 3.x hide the value of their rate from DescribeConfigs: a
broker that has a rate keeps it, since it could not be restored. A broker that is not alive gets no
rate: it copies nothing. Its settings outlive it in ZooKeeper, so that a record that names it stays
until they are restored.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (modifyInterBrokerThrottle, modifyTopicThrottles),
kafka.server.DynamicConfig; KIP-73.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kctl.admin.configs import (
    ConfigAdmin,
    ConfigChanges,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kctl.admin.topics import TopicAdmin
from kctl.errors import CorruptDataError, KctlError, UnreachableError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.client.router import Router

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
# For copies between the log directories of one broker.
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
_NAMES = {ResourceType.BROKER: RATES, ResourceType.TOPIC: REPLICAS}
_ALL = "*"
_OWN = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG)


class Override(NamedTuple):
    """The value of an override; None if it is set but the broker hides it."""

    value: str | None


class ThrottleChange(NamedTuple):
    """A setting, its previous value (None: not set), and the value that kctl sets."""

    resource: ConfigResource
    name: str
    before: str | None
    applied: str


class Copying(NamedTuple):
    """The brokers that send and receive the copies of a partition."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Throttle:
    """The copies to limit; rates are in bytes/s per broker, None is unlimited."""

    copies: Mapping[TopicPartition, Copying]
    rate: int | None
    # Brokers that copy between their log directories.
    dir_brokers: tuple[int, ...] = ()
    dir_rate: int | None = None

    @property
    def is_any(self) -> bool:
        """Return whether any copy is limited."""
        is_between = self.rate is not None and bool(self.copies)
        return is_between or (self.dir_rate is not None and bool(self.dir_brokers))

    @property
    def shown_rate(self) -> int:
        """Return the rate to show to users."""
        return next(it for it in (self.rate, self.dir_rate) if it is not None)


@dataclass(frozen=True, slots=True)
class ThrottleRecord:
    """All changes of one throttle."""

    cluster_id: str
    rate: int
    changes: tuple[ThrottleChange, ...]
    # Brokers that keep the rate they had.
    kept: tuple[int, ...] = ()
    # Brokers that were not alive and got no rate.
    absent: tuple[int, ...] = ()

    def to_json(self) -> str:
        """Return the record as JSON, for a durable file."""
        changes = [
            {
                "type": int(it.resource.resource_type),
                "resource": it.resource.name,
                "name": it.name,
                "before": it.before,
                "ours": it.applied,
            }
            for it in self.changes
        ]
        document = {
            "version": 1,
            "cluster_id": self.cluster_id,
            "rate": self.rate,
            "changes": changes,
            "kept": list(self.kept),
            "absent": list(self.absent),
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ThrottleRecord":
        """Parse the result of `to_json`; raise CorruptDataError."""
        try:
            document = json.loads(text)
            changes = tuple(
                ThrottleChange(
                    ConfigResource(ResourceType(it["type"]), it["resource"]),
                    it["name"],
                    it["before"],
                    it["ours"],
                )
                for it in document["changes"]
            )
            # Earlier versions of kctl wrote no `absent`.
            absent = tuple(document.get("absent", ()))
            kept = tuple(document["kept"])
            return cls(document["cluster_id"], document["rate"], changes, kept, absent)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"not a throttle record: {error}") from None


@dataclass(slots=True)
class Restored:
    """The result of restoring one setting."""

    change: ThrottleChange
    # Others have changed the setting since: it stays.
    is_foreign: bool = False
    # The topic was deleted, and its settings with it.
    is_gone: bool = False
    # The broker is not alive: it keeps the setting, and `error` says so.
    is_absent: bool = False
    error: KctlError | None = None


@dataclass(slots=True)
class Leftover:
    """A throttle setting found on a broker or topic."""

    resource: ConfigResource
    values: dict[str, str | None] = field(default_factory=dict)


class ThrottleConfigs(Protocol):
    """Access to the settings of throttles, by requests or by znodes."""

    async def overrides(
        self, resources: Sequence[ConfigResource], names: Sequence[str]
    ) -> dict[ConfigResource, dict[str, Override]]:
        """Return those of `names` that each resource overrides, without topics that do not exist
        and brokers that cannot be asked because they are not alive."""
        ...

    async def alter_overrides(self, changes: Mapping[ConfigResource, ConfigChanges]) -> None:
        """Set and delete overrides; raise if any is rejected, or a broker is not alive."""
        ...

    async def resources(self) -> list[ConfigResource]:
        """Return all brokers and topics that may have overrides."""
        ...


class ApiThrottleConfigs:
    """ThrottleConfigs by DescribeConfigs and IncrementalAlterConfigs."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._configs = ConfigAdmin(router)

    async def overrides(
        self, resources: Sequence[ConfigResource], names: Sequence[str]
    ) -> dict[ConfigResource, dict[str, Override]]:
        """Return those of `names` that each resource overrides, without topics that do not exist
        and brokers that are not alive."""
        absent = await self._absent(resources)
        asked = [it for it in resources if it not in absent]
        found = {}
        for description in await self._configs.describe(asked, names=names):
            if _is_of_no_topic(description.error):
                continue
            if description.error is not None:
                raise description.error
            found[description.resource] = {
                entry.name: Override(entry.value)
                for entry in description.entries
                if entry.name in names and entry.source in _OWN
            }
        return found

    async def alter_overrides(self, changes: Mapping[ConfigResource, ConfigChanges]) -> None:
        """Set and delete overrides; raise if any is rejected. If a broker is not alive, raise after
        the other changes are made."""
        absent = await self._absent(changes)
        asked = {it: change for it, change in changes.items() if it not in absent}
        for result in await self._configs.alter(asked):
            if result.error is not None:
                raise result.error
        if absent:
            names = ", ".join(it.name for it in absent)
            raise UnreachableError(f"Not alive, and unchanged: broker {names}")

    async def _absent(self, resources: Iterable[ConfigResource]) -> list[ConfigResource]:
        """Return the brokers among `resources` that are not alive."""
        brokers = [it for it in resources if it.resource_type is ResourceType.BROKER]
        if not brokers:
            return []
        alive = {str(broker_id) for broker_id in (await self._router.refresh([])).brokers}
        return [it for it in brokers if it.name not in alive]

    async def resources(self) -> list[ConfigResource]:
        """Return all live brokers and all topics."""
        view = await self._router.refresh([])
        brokers = [ConfigResource(ResourceType.BROKER, str(b)) for b in sorted(view.brokers)]
        topics = await TopicAdmin(self._router).list_topics()
        return brokers + [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]


class ReplicationThrottle:
    """Applies throttles to one cluster, and removes them."""

    def __init__(self, configs: ThrottleConfigs) -> None:
        self._configs = configs

    async def prepare(self, cluster_id: str, throttle: Throttle) -> ThrottleRecord:
        """Return the changes that a throttle requires, without making them; NotFoundError for a
        topic that does not exist."""
        wanted = wanted_settings(throttle)
        current = await self._current(list(wanted))
        changes = []
        kept = set()
        absent = []
        for resource, settings in wanted.items():
            if resource not in current:
                if resource.resource_type is ResourceType.TOPIC:
                    raise not_found("topic", resource.name)
                absent.append(int(resource.name))
                continue
            for name, value in settings.items():
                before = current[resource].get(name)
                if before is not None and before.value is None:
                    kept.add(int(resource.name))
                    continue
                old = None if before is None else before.value
                applied = joined(old, value) if name in REPLICAS else value
                changes.append(ThrottleChange(resource, name, old, applied))
        return ThrottleRecord(
            cluster_id, throttle.shown_rate, tuple(changes), tuple(sorted(kept)), tuple(absent)
        )

    async def apply(self, record: ThrottleRecord) -> None:
        """Make the changes."""
        settings: dict[ConfigResource, dict[str, str]] = {}
        for change in record.changes:
            if change.applied != change.before:
                settings.setdefault(change.resource, {})[change.name] = change.applied
        await self._configs.alter_overrides(
            {resource: ConfigChanges(set=values) for resource, values in settings.items()}
        )

    async def change_rate(self, record: ThrottleRecord, rate: int) -> ThrottleRecord:
        """Return the record of the same throttle at another rate, to be stored and applied."""
        changes = tuple(
            it._replace(applied=str(rate)) if it.name in RATES else it for it in record.changes
        )
        return replace(record, rate=rate, changes=changes)

    async def restore(self, record: ThrottleRecord) -> list[Restored]:
        """Restore the previous values and return a result per setting."""
        by_resource: dict[ConfigResource, list[ThrottleChange]] = {}
        for change in record.changes:
            by_resource.setdefault(change.resource, []).append(change)
        results: list[Restored] = []
        for resource, changes in by_resource.items():
            try:
                results += await self._restore(resource, changes)
            except KctlError as error:
                results += [Restored(change, error=error) for change in changes]
        return results

    async def _restore(
        self, resource: ConfigResource, changes: Sequence[ThrottleChange]
    ) -> list[Restored]:
        current = (await self._current([resource])).get(resource)
        if current is None:
            return _restored_without(resource, changes)
        results = []
        back: dict[str, str] = {}
        gone: list[str] = []
        for change in changes:
            now = current.get(change.name)
            is_ours = now is not None and now.value in (None, change.applied)
            is_back = (None if now is None else now.value) == change.before
            results.append(Restored(change, is_foreign=not is_ours and not is_back))
            if is_ours and change.before is None:
                gone.append(change.name)
            elif is_ours and change.before is not None:
                back[change.name] = change.before
        if back or gone:
            try:
                await self._configs.alter_overrides(
                    {resource: ConfigChanges(set=back, delete=gone)}
                )
            except ApiError as error:
                if not _is_of_no_topic(error):
                    raise
                return _restored_without(resource, changes)
        return results

    async def leftovers(self) -> list[Leftover]:
        """Return every throttle setting in the cluster, regardless of its origin."""
        current = await self._current(await self._configs.resources())
        return [
            Leftover(resource, {name: it.value for name, it in settings.items()})
            for resource, settings in current.items()
            if settings
        ]

    async def remove(self, leftovers: Iterable[Leftover]) -> None:
        """Delete the settings."""
        await self._configs.alter_overrides(
            {it.resource: ConfigChanges(delete=list(it.values)) for it in leftovers}
        )

    async def _current(
        self, resources: Sequence[ConfigResource]
    ) -> dict[ConfigResource, dict[str, Override]]:
        found: dict[ConfigResource, dict[str, Override]] = {}
        for kind, names in _NAMES.items():
            asked = [it for it in resources if it.resource_type is kind]
            if asked:
                found |= await self._configs.overrides(asked, names)
        return found


def _is_of_no_topic(error: KctlError | None) -> bool:
    code = error.code if isinstance(error, ApiError) else None
    return code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _restored_without(
    resource: ConfigResource, changes: Sequence[ThrottleChange]
) -> list[Restored]:
    """Return the results for a topic that does not exist, or a broker that is not alive."""
    if resource.resource_type is ResourceType.TOPIC:
        return [Restored(change, is_gone=True) for change in changes]
    return [
        Restored(
            change,
            is_absent=True,
            error=UnreachableError(
                f"broker {resource.name} is not alive and keeps {change.applied}; "
                f"before: {'not set' if change.before is None else change.before}"
            ),
        )
        for change in changes
    ]


def wanted_settings(throttle: Throttle) -> dict[ConfigResource, dict[str, str]]:
    """Return the settings of brokers and topics for a throttle: leaders are throttled where
    replicas are, followers where they will be."""
    copies = throttle.copies if throttle.rate is not None else {}
    between = {b for it in copies.values() for b in (*it.sources, *it.destinations)}
    inside = set(throttle.dir_brokers) if throttle.dir_rate is not None else set()
    settings: dict[ConfigResource, dict[str, str]] = {}
    for broker in sorted(between | inside):
        rates = settings[ConfigResource(ResourceType.BROKER, str(broker))] = {}
        if broker in between:
            rates |= {LEADER_RATE: str(throttle.rate), FOLLOWER_RATE: str(throttle.rate)}
        if broker in inside:
            rates[LOG_DIRS_RATE] = str(throttle.dir_rate)
    for tp, (sources, destinations) in sorted(copies.items()):
        topic = settings.setdefault(
            ConfigResource(ResourceType.TOPIC, tp.topic), dict.fromkeys(REPLICAS, "")
        )
        for name, ends in ((LEADER_REPLICAS, sources), (FOLLOWER_REPLICAS, destinations)):
            topic[name] = joined(topic[name], ",".join(f"{tp.partition}:{b}" for b in ends))
    return settings


def joined(before: str | None, added: str) -> str:
    """Return the union of two lists of replicas; `*` is all of them."""
    items = [item for item in (before or "").split(",") if item]
    if items == [_ALL]:
        return _ALL
    return ",".join(dict.fromkeys([*items, *(item for item in added.split(",") if item)]))
