"""Links of a cluster: plans, creates and describes them, and fails them over.

A link is a topic's configs `mirror.source`, `mirror.source.cluster` and `mirror.state`; its brokers
do the rest (`kctl.broker.links`). What each leader of a linked partition does is in the configs
`mirror.status.N`, as the leader's broker returns them. Responses are bounded, however many
partitions a link has.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.topics import BROKER_DEFAULT, NewTopic, TopicDescription
from kctl.configs.link_configs import (
    LINK_CONFIGS,
    MIRROR_RESUME,
    MIRROR_SOURCE,
    MIRROR_SOURCE_CLUSTER,
    MIRROR_STATE,
    RESUMES_MAX,
    SOURCES_DIRECTORY,
    Link,
    LinkState,
    OnLoss,
    format_resumes,
    link_of,
    status_config,
)
from kctl.counts import counted
from kctl.errors import KctlError, UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.mirror_plan import NOT_COPIED, TopicFacts
from kctl.mirror.topics import describe_topics
from kctl.protocol.constants import INTERNAL_TOPICS, TOPIC_RESOURCE
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

# A link follows these, although copies of records do not need them.
FOLLOWED = frozenset({"message.timestamp.difference.max.ms", "message.timestamp.type"})
POLL_MS = 200
# Partitions whose status one request asks for, about 800 bytes each at most.
STATUSES_PER_REQUEST = 1_000
READY = "ready"
STOPPED = "stopped"


class LinkStep(StrEnum):
    """What is done with a topic."""

    CREATE = "create"
    FOLLOW = "follow"
    KEEP = "keep"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A topic that is to become a link."""

    topic: str
    step: LinkStep
    partitions: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    # Why it is refused, or what creating the link removes.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LinkedTopic:
    """A link of the cluster."""

    topic: str
    source: str
    cluster_id: str
    state: LinkState
    partitions: int
    # Decisions on partitions that are not carried out yet.
    resumes: Mapping[int, OnLoss] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkedPartitionStatus:
    """A partition of a link, as its leader's broker describes it."""

    topic: str
    partition: int
    source: str
    phase: str
    detail: str = ""
    start: int | None = None
    end: int | None = None
    source_end: int | None = None
    leader_epoch: int | None = None
    # How long ago the copy had all that the source had, in milliseconds; 0: it has.
    lag_ms: int | None = None
    # The first offset and the end of records that were removed as the source does not have them.
    removed: tuple[int, int] | None = None

    @property
    def lag(self) -> int | None:
        """Return how many offsets are still to be copied; None if unknown."""
        if self.end is None or self.source_end is None:
            return None
        return max(self.source_end - self.end, 0)


async def plan_links(
    source: "AdminClient",
    target: "AdminClient",
    name: str,
    topics: Sequence[str],
    *,
    replaces: bool = False,
) -> list[LinkPlan]:
    """Compare both clusters; with `replaces`, topics that the target has follow the source, too.

    Raise UsageError if a broker of the target has no directory of sources.
    """
    await target.router.refresh([])
    await source.router.refresh([])
    cluster_id = source.router.view.cluster_id
    if cluster_id is None or cluster_id == target.router.view.cluster_id:
        raise UsageError("A topic cannot follow a topic of its own cluster")
    await _check_brokers(target)
    there = {it.name: it for it in await describe_topics(source, topics)}
    here = {it.name: it for it in await describe_topics(target, topics)}
    link = {MIRROR_SOURCE: name, MIRROR_SOURCE_CLUSTER: cluster_id}
    return [_plan(topic, there.get(topic), here.get(topic), link, replaces) for topic in topics]


def _plan(
    topic: str,
    there: TopicFacts | None,
    here: TopicFacts | None,
    link: Mapping[str, str],
    replaces: bool,
) -> LinkPlan:
    def refused(why: str) -> LinkPlan:
        return LinkPlan(topic, LinkStep.REFUSE, detail=why)

    if topic in INTERNAL_TOPICS:
        return refused("an internal topic cannot be a link")
    if there is None or there.unreadable is not None:
        return refused("the source has no such topic" if there is None else str(there.unreadable))
    configs = {
        **{
            each: text
            for each, text in there.configs.items()
            if each not in NOT_COPIED or each in FOLLOWED
        },
        **link,
    }
    if here is None:
        return LinkPlan(topic, LinkStep.CREATE, there.partitions, configs)
    known = link_of(here.configs)
    if known is not None:
        if (known.source, known.cluster_id) == (link[MIRROR_SOURCE], link[MIRROR_SOURCE_CLUSTER]):
            return LinkPlan(topic, LinkStep.KEEP, here.partitions, detail="is a link already")
        return refused(f"follows {known.source} already")
    if not replaces:
        return refused("the topic exists; --replace makes it follow the source")
    if here.partitions > there.partitions:
        return refused(
            f"has {counted(here.partitions, 'partition')}, its source {there.partitions}"
        )
    return LinkPlan(
        topic, LinkStep.FOLLOW, there.partitions, link,
        "records that the source does not have are removed",
    )  # fmt: skip


async def _check_brokers(target: "AdminClient") -> None:
    """Raise UsageError unless all brokers of the target can follow other clusters."""
    brokers = sorted(target.router.view.brokers)
    resources = [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in brokers]
    for found in await target.configs.describe(resources, names=[SOURCES_DIRECTORY]):
        if not any(entry.name == SOURCES_DIRECTORY and entry.value for entry in found.entries):
            raise UsageError(
                f"Broker {found.resource.name} of the target has no {SOURCES_DIRECTORY}",
                hint="all brokers of a cluster with links run kctl, with this setting",
            )


async def create_links(
    target: "AdminClient", plans: Sequence[LinkPlan], replication_factor: int = BROKER_DEFAULT
) -> dict[str, KctlError]:
    """Create what is planned; return the errors by topic."""
    new = [plan for plan in plans if plan.step is LinkStep.CREATE]
    created = await target.topics.create(
        [NewTopic(it.topic, it.partitions, replication_factor, it.configs) for it in new]
    )
    errors: dict[str, KctlError] = {it.name: it.error for it in created if it.error is not None}
    again = [plan for plan in plans if plan.step is LinkStep.FOLLOW]
    errors |= await _alter(target, {it.topic: ConfigChanges(set=it.configs) for it in again})
    return errors


async def list_links(target: "AdminClient", names: Sequence[str] = ()) -> list[LinkedTopic]:
    """Return the links of a cluster, or those of `names` that are links, by name."""
    topics = await (target.topics.describe(names) if names else target.topics.list_topics())
    partitions = {it.name: len(it.partitions) for it in topics if it.error is None}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in partitions]
    found = []
    for it in await target.configs.describe(resources, names=LINK_CONFIGS):
        link = link_of({each.name: each.value for each in it.entries if each.value is not None})
        if link is not None:
            found.append(_linked(it.resource.name, link, partitions[it.resource.name]))
    return sorted(found, key=lambda it: it.topic)


def _linked(topic: str, link: Link, partitions: int) -> LinkedTopic:
    return LinkedTopic(topic, link.source, link.cluster_id, link.state, partitions, link.resumes)


async def describe_links(
    target: "AdminClient", names: Sequence[str] = ()
) -> list[LinkedPartitionStatus]:
    """Return the partitions of the links, or of those of `names`, as their leaders know them."""
    links = {it.topic: it for it in await list_links(target, names)}
    described = await target.topics.describe(links)
    statuses = await _statuses(target, described)
    rows = []
    for topic in described:
        source = links[topic.name].source
        for partition in topic.partitions:
            number = partition.partition
            given = statuses.get((topic.name, number))
            if given is None:
                why = "has no leader" if partition.is_offline else "its leader does not follow yet"
                rows.append(LinkedPartitionStatus(topic.name, number, source, "waiting", why))
            else:
                rows.append(_status(topic.name, source, given))
    return rows


async def _statuses(
    target: "AdminClient", topics: Iterable[TopicDescription]
) -> dict[tuple[str, int], dict[str, Any]]:
    by_leader: dict[int, Counter[tuple[str, str]]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if not partition.is_offline:
                wanted = by_leader.setdefault(partition.leader, Counter())
                wanted[topic.name, status_config(partition.partition)] += 1
    found = {}
    for broker_id, wanted in by_leader.items():
        for request in _status_requests(wanted):
            response: DescribeConfigsResponse = await target.router.send_to_broker(
                broker_id, request
            )
            for result in response.results:
                for entry in result.configs:
                    for row in json.loads(entry.value or "[]"):
                        found[result.resource_name, row["partition"]] = row
    return found


def _status_requests(wanted: Mapping[tuple[str, str], int]) -> Iterator[DescribeConfigsRequest]:
    """Yield requests for the configs of topics, by the number of partitions that each describes."""
    keys: dict[str, list[str]] = {}
    size = 0
    for (topic, config), count in wanted.items():
        if size and size + count > STATUSES_PER_REQUEST:
            yield _status_request(keys)
            keys, size = {}, 0
        keys.setdefault(topic, []).append(config)
        size += count
    if keys:
        yield _status_request(keys)


def _status_request(keys: Mapping[str, list[str]]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=configs
            )
            for topic, configs in keys.items()
        ]
    )


def _status(topic: str, source: str, given: Mapping[str, Any]) -> LinkedPartitionStatus:
    truncated = given["truncated"]
    return LinkedPartitionStatus(
        topic,
        given["partition"],
        source,
        given["phase"],
        given["detail"],
        given["start"],
        given["end"],
        given["source_end"],
        given["leader_epoch"],
        given.get("lag_ms"),
        None if truncated is None else (truncated[1], truncated[0]),
    )


async def plan_resume(target: "AdminClient", names: Sequence[str]) -> list[LinkedPartitionStatus]:
    """Return the partitions of the links `names` that have stopped; raise UsageError for a topic
    that is no link."""
    return [row for row in await plan_failover(target, names) if row.phase == STOPPED]


async def resume(
    target: "AdminClient",
    stopped: Sequence[LinkedPartitionStatus],
    on_loss: OnLoss,
    timeout_ms: int,
) -> dict[tuple[str, int], KctlError]:
    """Let partitions go on that have stopped, and wait until their leaders have begun. Return the
    errors by topic and partition; what is not begun in time is begun later.

    The decisions on a topic's partitions are written RESUMES_MAX at a time, as many as one config
    has room for.
    """
    clock = target.router.runtime.clock
    deadline_ms = clock.monotonic_ms() + timeout_ms
    errors: dict[tuple[str, int], KctlError] = {}
    waiting = {(it.topic, it.partition): None for it in stopped}
    while waiting:
        topics = sorted({topic for topic, _ in waiting})
        # Of an earlier command: a replica whose broker does not run is waited for.
        decided = {it.topic: dict(it.resumes) for it in await list_links(target, topics)}
        begun = []
        for topic, number in waiting:
            resumes = decided.setdefault(topic, {})
            if number in resumes or len(resumes) < RESUMES_MAX:
                resumes[number] = on_loss
                begun.append((topic, number))
        if not begun:
            why = KctlError("not begun: the decisions on other partitions are not carried out yet")
            return {**errors, **dict.fromkeys(waiting, why)}
        for key in begun:
            del waiting[key]
        errors |= await _begin(target, decided, begun, deadline_ms)
    return errors


async def _begin(
    target: "AdminClient",
    decided: Mapping[str, Mapping[int, OnLoss]],
    begun: Sequence[tuple[str, int]],
    deadline_ms: int,
) -> dict[tuple[str, int], KctlError]:
    """Write decisions by topic, and wait until those on the partitions `begun` are carried out;
    return their errors."""
    failed = await _alter(
        target,
        {
            topic: ConfigChanges(set={MIRROR_RESUME: format_resumes(decided[topic])})
            for topic in sorted({topic for topic, _ in begun})
        },
    )
    left = {key for key in begun if key[0] not in failed}
    errors = {key: failed[key[0]] for key in begun if key[0] in failed}
    clock = target.router.runtime.clock
    while left:
        links = await list_links(target, sorted({topic for topic, _ in left}))
        left &= {(it.topic, number) for it in links for number in it.resumes}
        if left and clock.monotonic_ms() > deadline_ms:
            why = KctlError("not begun yet; its leader goes on: see kctl link describe")
            return {**errors, **dict.fromkeys(left, why)}
        await sleep(target.router.runtime.scheduler, POLL_MS if left else 0)
    return errors


async def plan_failover(target: "AdminClient", names: Sequence[str]) -> list[LinkedPartitionStatus]:
    """Return the partitions of the links `names`; raise UsageError for a topic that is none."""
    rows = await describe_links(target, names)
    missing = [name for name in names if name not in {row.topic for row in rows}]
    if missing:
        raise UsageError(f"Not a link: {', '.join(missing)}", hint="see kctl link list")
    return rows


async def fail_over(
    target: "AdminClient", names: Sequence[str], timeout_ms: int
) -> dict[str, KctlError]:
    """Make links writable; return the errors by topic."""
    errors = await request_failover(target, names)
    rest = [name for name in names if name not in errors]
    return {**errors, **await complete_failover(target, rest, timeout_ms)}


async def request_failover(target: "AdminClient", names: Sequence[str]) -> dict[str, KctlError]:
    """Let the leaders of links stop following, and prepare; return the errors by topic."""
    wanted = ConfigChanges(set={MIRROR_STATE: LinkState.FAILOVER})
    return await _alter(target, dict.fromkeys(names, wanted))


async def complete_failover(
    target: "AdminClient", names: Sequence[str], timeout_ms: int
) -> dict[str, KctlError]:
    """Wait until all partitions of a link are ready, end it, and wait until clients can write.
    Return the errors by topic; a failover that is not complete can be completed later."""
    clock = target.router.runtime.clock
    deadline_ms = clock.monotonic_ms() + timeout_ms
    errors: dict[str, KctlError] = {}
    left = list(names)
    while left:
        rows = await describe_links(target, left)
        waiting = {row.topic: row for row in rows if row.phase != READY}
        ready = [name for name in left if name not in waiting]
        errors |= await _alter(
            target, dict.fromkeys(ready, ConfigChanges(delete=list(LINK_CONFIGS)))
        )
        left = [name for name in left if name in waiting]
        if left and clock.monotonic_ms() > deadline_ms:
            for name in left:
                row = waiting[name]
                why = f"partition {row.partition} is not ready: {row.detail or row.phase}"
                errors[name] = KctlError(f"{why}; the topic stays read-only: run this again")
            break
        await sleep(target.router.runtime.scheduler, POLL_MS if left else 0)
    await _wait_until_writable(target, [it for it in names if it not in errors], deadline_ms)
    return errors


async def _wait_until_writable(
    target: "AdminClient", names: Sequence[str], deadline_ms: int
) -> None:
    """Wait until no leader takes topics for links; after the deadline that is so soon."""
    clock, scheduler = target.router.runtime.clock, target.router.runtime.scheduler
    try:
        described = await target.topics.describe(names)
        while await _statuses(target, described) and clock.monotonic_ms() <= deadline_ms:
            await sleep(scheduler, POLL_MS)
    except UnreachableError:
        # The failover is complete; a broker that is away applies it when it is back.
        return


async def _alter(
    target: "AdminClient", changes: Mapping[str, ConfigChanges]
) -> dict[str, KctlError]:
    if not changes:
        return {}
    resources = {ConfigResource(ResourceType.TOPIC, name): it for name, it in changes.items()}
    altered = await target.configs.alter(resources)
    return {it.resource.name: it.error for it in altered if it.error is not None}


__all__ = [
    "LinkPlan",
    "LinkStep",
    "LinkedPartitionStatus",
    "LinkedTopic",
    "complete_failover",
    "create_links",
    "describe_links",
    "fail_over",
    "list_links",
    "plan_failover",
    "plan_links",
    "plan_resume",
    "request_failover",
    "resume",
]
