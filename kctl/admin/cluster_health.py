"""Finds problems of a cluster: collects facts from its brokers and judges them without I/O.

Critical: records cannot be read or written, or may be lost. Warning: one more failure has that
effect, or something was left behind.

Kafka 2.7: kafka.admin.TopicCommand (`--under-replicated-partitions` and similar options).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING

from kctl.admin.partition_states import min_isr_of
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.runtime.disk import Disk
from kctl.runtime.future import gather, sleep
from kctl.storage.meta_properties import MetaProperties, decode_meta_properties

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.cluster import ClusterDescription
    from kctl.admin.log_dirs import LogDirDescription
    from kctl.admin.reassignment import MoveProgress
    from kctl.admin.replication_throttle import Leftover
    from kctl.admin.topics import PartitionDescription

# A broker that takes longer to describe its log directories counts as not answering.
ANSWER_MS_MAX = 5_000
THROTTLED_LOOKS_MAX = 4
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Severity(IntEnum):
    """Severities, with the numbers that monitoring systems use."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: the check that found it, the resource, and a description."""

    check: str
    severity: Severity
    subject: str
    detail: str


@dataclass(slots=True)
class HealthFacts:
    """The facts to judge."""

    controller_id: int = -1
    brokers: Sequence[int] = ()
    partitions: Sequence["PartitionDescription"] = ()
    # Topic -> min.insync.replicas, where it could be read.
    min_isr: Mapping[str, int] = field(default_factory=dict)
    # Brokers that did not answer -> the reason.
    silent: Mapping[int, str] = field(default_factory=dict)
    log_dirs: Sequence["LogDirDescription"] = ()
    throttles: Sequence["Leftover"] = ()
    # The moves in progress at the first and at the second look.
    moving: Sequence["MoveProgress"] = ()
    moving_later: Sequence["MoveProgress"] = ()
    # The log directories again, if the first look found replicas that are not assigned.
    log_dirs_later: Sequence["LogDirDescription"] = ()


# The checks in the order of output, and their severities.
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
    """Return all problems, the most severe checks first. No I/O."""
    problems = [*_broker_problems(facts), *_leftovers(facts)]
    adding = {it.partition: it.adding for it in facts.moving if not it.is_inside}
    for partition in facts.partitions:
        tp = TopicPartition(partition.topic, partition.partition)
        minimum = facts.min_isr.get(partition.topic)
        arriving = adding.get(tp)
        found = _partition_problems(partition, minimum, arriving)
        problems += [(check, str(tp), detail) for check, detail in found]
    order = list(CHECKS)
    findings = [
        Finding(check, CHECKS[check], subject, detail) for check, subject, detail in problems
    ]
    return sorted(findings, key=lambda it: order.index(it.check))


def _broker_problems(facts: HealthFacts) -> Iterable[tuple[str, str, str]]:
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
            detail = f"is in {path}, but not assigned: a new topic of its name may find it"
            yield "leftover replica", f"broker {broker_id}: {tp}", detail


def _strays(
    facts: HealthFacts, log_dirs: "Sequence[LogDirDescription]"
) -> Iterable[tuple[int, TopicPartition, str]]:
    """Yield (broker, partition, directory) of replicas that are not assigned to the broker. A topic
    that is created or deleted between two requests looks the same."""
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


def _partition_problems(
    partition: "PartitionDescription",
    min_isr: int | None,
    arriving: "Sequence[int | str] | None",
) -> Iterable[tuple[str, str]]:
    """Yield (check, detail) for a partition. `arriving` are the replicas that a reassignment adds,
    or None: they are not missing, and the leader may still change."""
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
            yield first.partition, f"moves to {_text(dead)}, which is not alive"
        elif second is not None and second.done_bytes <= first.done_bytes < first.total_bytes:
            yield first.partition, "nothing was copied between two checks"


def _text(brokers: Iterable[object]) -> str:
    return ",".join(map(str, brokers)) or "none"


async def check_health(
    admin: "AdminClient", disk: Disk, settle_ms: int
) -> tuple[HealthFacts, list[Finding]]:
    """Return the facts and all problems, the most severe checks first.

    Moves are looked at twice, `settle_ms` milliseconds apart. For brokers on this machine, `disk`
    is searched for meta.properties of another broker or cluster; their findings come last. Raise
    UnreachableError if no broker answers.
    """
    facts = await gather_facts(admin, settle_ms)
    return facts, judge(facts) + _wrong_identities(facts, await admin.cluster.describe(), disk)


async def gather_facts(admin: "AdminClient", settle_ms: int) -> HealthFacts:
    """Collect the facts. Moves are looked at twice, `settle_ms` milliseconds apart, throttled moves
    more often. Brokers that do not answer are in `silent`; raise UnreachableError if none does."""
    from kctl.admin.replication_throttle import ApiThrottleConfigs, ReplicationThrottle

    cluster = await admin.cluster.describe()
    silent, found = await _ask_all(admin, [broker.broker_id for broker in cluster.brokers])
    if silent:
        # The cluster may have noticed meanwhile.
        cluster = await admin.cluster.describe()
    topics = await admin.topics.list_topics()
    facts = HealthFacts(
        controller_id=cluster.controller_id,
        brokers=[broker.broker_id for broker in cluster.brokers],
        partitions=[it for topic in topics for it in topic.partitions],
        min_isr=await min_isr_of(admin, [topic.name for topic in topics]),
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
    """Return the brokers that do not answer with the reason, and the log directories of the
    others."""
    silent: dict[int, str] = {}
    found: list[LogDirDescription] = []

    async def ask(broker_id: int) -> None:
        limit_ms = min(ANSWER_MS_MAX, admin.router.timeout_ms)
        try:
            found.extend(await admin.log_dirs.describe([broker_id], timeout_ms=limit_ms))
        except KctlError as error:
            silent[broker_id] = f"did not answer: {error}"

    await gather(admin.router.runtime.scheduler, [ask(broker_id) for broker_id in broker_ids])
    found.sort(key=lambda it: (it.broker_id, it.path))
    return silent, found


async def _watch_moves(admin: "AdminClient", facts: HealthFacts, settle_ms: int) -> None:
    facts.moving = await admin.reassignments.progress()
    # A throttled copy proceeds in bursts.
    looks = THROTTLED_LOOKS_MAX if facts.throttles else 1
    while facts.moving and looks:
        await sleep(admin.router.runtime.scheduler, settle_ms)
        facts.moving_later = await admin.reassignments.progress()
        looks = looks - 1 if any(_stuck(facts)) else 0


def _wrong_identities(
    facts: HealthFacts, cluster: "ClusterDescription", disk: Disk
) -> list[Finding]:
    """Return findings for brokers on this machine, whose directories can be read."""
    here = {it.broker_id for it in cluster.brokers if it.host in _LOCAL_HOSTS}
    found = []
    for directory in facts.log_dirs:
        path = f"{directory.path}/meta.properties"
        if directory.broker_id not in here or not disk.exists(path):
            continue
        try:
            identity = decode_meta_properties(disk.read_file(path), path)
        except (KctlError, OSError):
            continue  # `kctl verify-log` reports it
        wrong = judge_identity(path, identity, cluster.cluster_id, directory.broker_id)
        if wrong is not None:
            found.append(wrong)
    return found


def judge_identity(
    path: str, found: MetaProperties, cluster_id: str | None, broker_id: int
) -> Finding | None:
    """Return the problem with the meta.properties at `path`, a directory of that broker, or
    None."""
    wrong = []
    if cluster_id is not None and found.cluster_id not in (None, cluster_id):
        wrong.append(f"cluster.id {found.cluster_id}, not {cluster_id}")
    if found.broker_id != broker_id:
        wrong.append(f"broker.id {found.broker_id}, not {broker_id}")
    if not wrong:
        return None
    check = "meta.properties"
    return Finding(check, CHECKS[check], f"broker {broker_id}: {path}", "; ".join(wrong))
