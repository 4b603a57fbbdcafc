"""ClusterHealth: what is wrong with a cluster, from what its brokers tell. The judging is pure.

Critical: records cannot be read or written, or may be lost. Warning: one more failure and they
cannot, or somebody forgot something.

Kafka 2.7: kafka.admin.TopicCommand (`--under-replicated-partitions` and its like).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from kctl.admin.configs import ConfigResource, ResourceType
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.runtime.future import gather, sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.log_dirs import LogDirDescription
    from kctl.admin.reassignment import MoveProgress
    from kctl.admin.replication_throttle import Leftover
    from kctl.admin.topics import PartitionDescription
    from kctl.storage.meta_properties import MetaProperties

MIN_ISR = "min.insync.replicas"
# Topics whose settings are asked for at once.
TOPICS_MAX = 500
# A broker that takes longer for its log directories does not answer.
ANSWER_MS_MAX = 5_000
THROTTLED_LOOKS_MAX = 4


class Severity(IntEnum):
    """As monitoring systems number it."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: which check found it, where, and in words."""

    check: str
    severity: Severity
    subject: str
    detail: str


@dataclass(slots=True)
class HealthFacts:
    """All that is judged."""

    controller_id: int = -1
    brokers: Sequence[int] = ()
    partitions: Sequence["PartitionDescription"] = ()
    # Topic -> min.insync.replicas, where it could be read.
    min_isr: Mapping[str, int] = field(default_factory=dict)
    # Brokers that did not answer, with why.
    silent: Mapping[int, str] = field(default_factory=dict)
    log_dirs: Sequence["LogDirDescription"] = ()
    throttles: Sequence["Leftover"] = ()
    # What is on the move at a first and a second look.
    moving: Sequence["MoveProgress"] = ()
    moving_later: Sequence["MoveProgress"] = ()
    # The log directories again, if the first look found replicas that are in no assignment.
    log_dirs_later: Sequence["LogDirDescription"] = ()


# What is checked, in the order shown, and how bad it is.
CHECKS = {
    "controller": Severity.CRITICAL,
    "broker": Severity.CRITICAL,
    "log directory": Severity.CRITICAL,
    "offline": Severity.CRITICAL,
    "under min ISR": Severity.CRITICAL,
    "meta.properties": Severity.CRITICAL,
    "under-replicated": Severity.WARNING,
    "stuck reassignment": Severity.WARNING,
    "leader not preferred": Severity.WARNING,
    "leftover throttle": Severity.WARNING,
    "leftover replica": Severity.WARNING,
}


def judge(facts: HealthFacts) -> list[Finding]:
    """Everything that is wrong, the worst checks first."""
    told = [*_broker_complaints(facts), *_leftovers(facts)]
    adding = {it.partition: it.adding for it in facts.moving if not it.is_inside}
    for partition in facts.partitions:
        tp = TopicPartition(partition.topic, partition.partition)
        minimum = facts.min_isr.get(partition.topic)
        arriving = adding.get(tp)
        complaints = _complaints(partition, minimum, arriving)
        told += [(check, str(tp), detail) for check, detail in complaints]
    order = list(CHECKS)
    found = [Finding(check, CHECKS[check], subject, detail) for check, subject, detail in told]
    return sorted(found, key=lambda it: order.index(it.check))


def _broker_complaints(facts: HealthFacts) -> Iterable[tuple[str, str, str]]:
    if facts.controller_id < 0:
        yield "controller", "cluster", "no broker is controller"
    for broker_id, reason in facts.silent.items():
        yield "broker", f"broker {broker_id}", reason
    for broker_id in _gone(facts):
        yield "broker", f"broker {broker_id}", "has replicas, but is not alive"
    for directory in facts.log_dirs:
        if directory.error is not None:
            subject = f"broker {directory.broker_id}: {directory.path}"
            yield "log directory", subject, str(directory.error)


def _leftovers(facts: HealthFacts) -> Iterable[tuple[str, str, str]]:
    for tp, detail in _stuck(facts):
        yield "stuck reassignment", str(tp), detail
    for it in () if facts.moving else facts.throttles:
        subject = f"{it.resource.resource_type.name.lower()} {it.resource.name}"
        yield "leftover throttle", subject, ", ".join(it.values)
    later = {(broker_id, tp) for broker_id, tp, _ in _strays(facts, facts.log_dirs_later)}
    for broker_id, tp, path in _strays(facts, facts.log_dirs):
        if (broker_id, tp) in later:
            detail = f"lies in {path}, but is in no assignment: a topic of its name may find it"
            yield "leftover replica", f"broker {broker_id}: {tp}", detail


def _strays(
    facts: HealthFacts, log_dirs: "Sequence[LogDirDescription]"
) -> Iterable[tuple[int, TopicPartition, str]]:
    """(broker, partition, directory) of replicas that are not assigned to the broker. A topic that
    comes or goes between two questions looks like that, too."""
    assigned = {
        TopicPartition(it.topic, it.partition): frozenset(it.replicas) for it in facts.partitions
    }
    for directory in log_dirs:
        for replica in directory.replicas:
            if directory.broker_id not in assigned.get(replica.partition, ()):
                yield directory.broker_id, replica.partition, directory.path


def _gone(facts: HealthFacts) -> list[int]:
    holders = {broker for partition in facts.partitions for broker in partition.replicas}
    return sorted(holders - set(facts.brokers))


def _complaints(
    partition: "PartitionDescription",
    min_isr: int | None,
    arriving: "Sequence[int | str] | None",
) -> Iterable[tuple[str, str]]:
    """`arriving`: the replicas that come, if it is on the move: they are not missing yet, and who
    leads is not settled."""
    isr, replicas = partition.isr, partition.replicas
    if partition.is_offline:
        yield "offline", f"no leader; replicas {_text(replicas)}"
        return
    if min_isr is not None and len(isr) < min_isr:
        yield "under min ISR", f"ISR {_text(isr)}, at least {min_isr} needed for acks=all"
    missing = [b for b in replicas if b not in isr and b not in (arriving or ())]
    if missing:
        yield "under-replicated", f"out of sync: {_text(missing)}"
    if arriving is None and replicas and partition.leader != replicas[0]:
        yield "leader not preferred", f"led by {partition.leader}, not {replicas[0]}"


def _stuck(facts: HealthFacts) -> Iterable[tuple[TopicPartition, str]]:
    later = {it.key: it for it in facts.moving_later}
    for first in facts.moving:
        dead = [b for b in first.adding if b not in facts.brokers and not first.is_inside]
        second = later.get(first.key)
        if dead:
            yield first.partition, f"is to go to {_text(dead)}, not alive"
        elif second is not None and second.done_bytes <= first.done_bytes < first.total_bytes:
            yield first.partition, "nothing was copied between two looks"


def _text(brokers: Iterable[object]) -> str:
    return ",".join(map(str, brokers)) or "none"


async def gather_facts(admin: "AdminClient", settle_ms: int) -> HealthFacts:
    """Ask everybody; moves are looked at twice, `settle_ms` apart, throttled ones more often."""
    from kctl.admin.replication_throttle import ApiThrottleConfigs, ReplicationThrottle

    cluster = await admin.cluster.describe()
    silent, found = await _ask_all(admin, [broker.broker_id for broker in cluster.brokers])
    if silent:
        # Meanwhile the cluster may have noticed.
        cluster = await admin.cluster.describe()
    topics = await admin.topics.list_topics()
    facts = HealthFacts(
        controller_id=cluster.controller_id,
        brokers=[broker.broker_id for broker in cluster.brokers],
        partitions=[it for topic in topics for it in topic.partitions],
        min_isr=await _min_isr(admin, [topic.name for topic in topics]),
        log_dirs=found,
    )
    facts.silent = {b: reason for b, reason in silent.items() if b in facts.brokers}
    if not facts.silent:
        throttle = ReplicationThrottle(ApiThrottleConfigs(admin.router))
        facts.throttles = await throttle.leftovers()
    if await admin.router.max_version(ApiKey.LIST_PARTITION_REASSIGNMENTS) >= 0:
        await _watch_moves(admin, facts, settle_ms)
    await _look_again_for_strays(admin, facts, settle_ms)
    return facts


async def _look_again_for_strays(admin: "AdminClient", facts: HealthFacts, settle_ms: int) -> None:
    brokers = sorted({broker_id for broker_id, _, _ in _strays(facts, facts.log_dirs)})
    if brokers:
        await sleep(admin.router.runtime.scheduler, settle_ms)
        _, facts.log_dirs_later = await _ask_all(admin, brokers)


async def _ask_all(
    admin: "AdminClient", broker_ids: Sequence[int]
) -> "tuple[dict[int, str], list[LogDirDescription]]":
    """Why brokers do not answer, and the log directories of those that do."""
    silent: dict[int, str] = {}
    found: list[LogDirDescription] = []

    async def ask(broker_id: int) -> None:
        limit_ms = min(ANSWER_MS_MAX, admin.router.timeout_ms)
        try:
            found.extend(await admin.log_dirs.describe([broker_id], timeout_ms=limit_ms))
        except KctlError as error:
            silent[broker_id] = f"does not answer: {error}"

    await gather(admin.router.runtime.scheduler, [ask(broker_id) for broker_id in broker_ids])
    found.sort(key=lambda it: (it.broker_id, it.path))
    return silent, found


async def _watch_moves(admin: "AdminClient", facts: HealthFacts, settle_ms: int) -> None:
    facts.moving = await admin.reassignments.progress()
    # A throttle lets bytes through in gushes.
    looks = THROTTLED_LOOKS_MAX if facts.throttles else 1
    while facts.moving and looks:
        await sleep(admin.router.runtime.scheduler, settle_ms)
        facts.moving_later = await admin.reassignments.progress()
        looks = looks - 1 if any(_stuck(facts)) else 0


async def _min_isr(admin: "AdminClient", topics: Sequence[str]) -> dict[str, int]:
    found = {}
    for start in range(0, len(topics), TOPICS_MAX):
        some = [ConfigResource(ResourceType.TOPIC, name) for name in topics[start:][:TOPICS_MAX]]
        for description in await admin.configs.describe(some, names=[MIN_ISR]):
            for entry in description.entries:
                if entry.name == MIN_ISR and entry.value is not None:
                    found[description.resource.name] = int(entry.value)
    return found


def judge_identity(
    path: str, found: "MetaProperties", cluster_id: str | None, broker_id: int
) -> Finding | None:
    """What is wrong with the meta.properties in a directory of that broker."""
    wrong = []
    if cluster_id is not None and found.cluster_id not in (None, cluster_id):
        wrong.append(f"cluster.id {found.cluster_id}, not {cluster_id}")
    if found.broker_id != broker_id:
        wrong.append(f"broker.id {found.broker_id}, not {broker_id}")
    if not wrong:
        return None
    check = "meta.properties"
    return Finding(check, CHECKS[check], f"broker {broker_id}: {path}", "; ".join(wrong))
