"""Describes the topics of both clusters, and carries out the plan for those of the target."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.selection import matching
from kctl.admin.topics import BROKER_DEFAULT, NewTopic
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import PREFIX
from kctl.mirror.mirror_plan import Step, TopicFacts, TopicPlan, plan_topics
from kctl.mirror.mm2_formats import is_heartbeats, is_internal
from kctl.mirror.renames import Rename
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.name_filter import NameFilter
    from kctl.mirror.sources import MirrorSource

# The version of CreateTopics from which the broker knows how many replicas it wants (KIP-464).
_DEFAULTS_VERSION = 4


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics a mirror copies, and what they are called in the target."""

    patterns: tuple[str, ...]
    exclude: tuple[str, ...]
    rename: Rename
    # Of new topics; BROKER_DEFAULT leaves it to the target.
    replication_factor: int = BROKER_DEFAULT
    # Selects topics instead of the patterns.
    name_filter: "NameFilter | None" = None
    # Whether this mirror keeps MirrorMaker 2's topics: those of the source are not mixed with them.
    has_mm2_topics: bool = False
    # Names or globs of settings that are not copied.
    exclude_configs: tuple[str, ...] = ()

    def selects(self, name: str) -> bool:
        """Return whether topic `name` of the source is to be copied, if it is not internal."""
        if self.has_mm2_topics:
            if is_internal(name):
                return False
            if is_heartbeats(name):
                return self.rename(name) != name
        if self.name_filter is not None:
            return self.name_filter(name)
        is_excluded = self.exclude and matching([name], self.exclude)
        return bool(matching([name], self.patterns)) and not is_excluded


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The plan for all topics of a mirror."""

    source_id: str | None
    target_id: str | None
    topics: list[TopicPlan]
    # Of the source, where it has any (Kafka 2.8 and later).
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def chosen(topics: Iterable[TopicFacts], selects: Callable[[str], bool]) -> list[TopicFacts]:
    """Return the topics that are selected, by name. Internal topics and those of mirrors are never
    among them."""
    found = {
        topic.name: topic
        for topic in topics
        if not topic.is_internal
        and topic.name not in INTERNAL_TOPICS
        and not topic.name.startswith(PREFIX)
        and selects(topic.name)
    }
    return [found[name] for name in sorted(found)]


async def describe_topics(
    admin: "AdminClient", names: Sequence[str] | None = None
) -> list[TopicFacts]:
    """Return the topics of a cluster with their own settings; of `names`, those that exist."""
    if names is None:
        described = await admin.topics.list_topics()
    else:
        described = await admin.topics.describe(names) if names else []
    described = [topic for topic in described if topic.error is None]
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in described]
    configs: dict[str, dict[str, str]] = {}
    unreadable: dict[str, str] = {}
    if resources and await admin.router.max_version(ApiKey.DESCRIBE_CONFIGS) >= 0:
        for found in await admin.configs.describe(resources):
            if found.error is not None:
                unreadable[found.resource.name] = str(found.error)
            configs[found.resource.name] = {
                entry.name: entry.value
                for entry in found.entries
                if entry.value is not None and entry.is_own_of(found.resource)
            }
    return [
        TopicFacts(
            topic.name, len(topic.partitions), configs.get(topic.name, {}),
            topic.is_internal, topic.topic_id, unreadable=unreadable.get(topic.name),
        )
        for topic in described
    ]  # fmt: skip


async def plan_mirror(
    source: "MirrorSource", target: "AdminClient", choice: TopicChoice
) -> MirrorPlan:
    """Compare both clusters; raise UnreachableError if one of them does not answer."""
    source_id, sources = await source.describe(choice.selects)
    await target.router.refresh([])
    target_id = target.router.view.cluster_id
    targets = await describe_topics(target, [choice.rename(topic.name) for topic in sources])
    topics = plan_topics(
        sources,
        {topic.name: topic for topic in targets},
        choice.rename,
        is_same_cluster=(
            source.admin is not None and source_id is not None and source_id == target_id
        ),
        exclude_configs=choice.exclude_configs,
    )
    ids = {topic.name: topic.topic_id for topic in sources if topic.topic_id is not None}
    return MirrorPlan(source_id, target_id, topics, ids)


async def apply_plan(
    target: "AdminClient", plans: Sequence[TopicPlan], replication_factor: int = BROKER_DEFAULT
) -> dict[str, KctlError]:
    """Create and change topics of the target; return the errors by topic."""
    new = [plan for plan in plans if plan.step is Step.CREATE]
    if replication_factor == BROKER_DEFAULT:
        version = await target.router.max_version(ApiKey.CREATE_TOPICS)
        if version < _DEFAULTS_VERSION:
            replication_factor = min(3, len(target.router.view.brokers))
    created = await target.topics.create(
        [NewTopic(p.target, p.partitions, replication_factor, p.configs) for p in new]
    )
    errors: dict[str, KctlError] = {it.name: it.error for it in created if it.error is not None}
    grown = {plan.target: plan.partitions for plan in plans if plan.adds_partitions}
    enlarged = await target.topics.add_partitions(grown)
    errors |= {it.name: it.error for it in enlarged if it.error is not None}
    changes = {
        ConfigResource(ResourceType.TOPIC, plan.target): ConfigChanges(set=plan.configs)
        for plan in plans
        if plan.step is Step.CHANGE and plan.configs
    }
    if changes:
        altered = await target.configs.alter(changes)
        errors |= {it.resource.name: it.error for it in altered if it.error is not None}
    return errors
