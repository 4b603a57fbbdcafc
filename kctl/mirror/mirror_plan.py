"""Decides what has to change in the target before topics can be mirrored, and what prevents it.
Pure.

A topic of the target gets the partitions of its source and the settings that its source has of its
own, except for those that concern a cluster and not the data (`NOT_COPIED`, MirrorMaker 2's list
and the format version). Partitions are added and never removed; settings of the target that the
source does not have stay. A topic whose settings cannot be read is copied only if the target has
it.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorSourceConnector, DefaultConfigPropertyFilter
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from fnmatch import fnmatchcase

from kctl.configs.link_configs import LINK_CONFIGS
from kctl.counts import counted
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import PREFIX
from kctl.protocol.constants import INTERNAL_TOPICS

NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        *LINK_CONFIGS,
    }
)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as one of the clusters describes it."""

    name: str
    partitions: int
    # The settings that the topic has of its own.
    configs: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False
    topic_id: str | None = None
    # Whether there may be more partitions elsewhere, as beside a broker's directory.
    is_part: bool = False
    # Why its settings cannot be read.
    unreadable: str | None = None


class Step(StrEnum):
    """What is done with a topic."""

    CREATE = "create"
    CHANGE = "change"
    KEEP = "keep"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What is done with one topic of the target."""

    source: str
    target: str
    step: Step
    # Of the source; what the target gets.
    partitions: int
    # Partitions that the target has; 0 if there is no such topic.
    partitions_before: int = 0
    # Settings to set.
    configs: Mapping[str, str] = field(default_factory=dict)
    # Why it is refused.
    reason: str | None = None

    @property
    def adds_partitions(self) -> bool:
        """Return whether an existing topic gets more partitions."""
        return 0 < self.partitions_before < self.partitions


def plan_topics(
    sources: Iterable[TopicFacts],
    targets: Mapping[str, TopicFacts],
    rename: Callable[[str], str],
    *,
    is_same_cluster: bool = False,
    exclude_configs: Sequence[str] = (),
) -> list[TopicPlan]:
    """Return a plan for each of `sources`, by the topics that the target has.

    Settings whose names match `exclude_configs` are not copied.
    """
    plans: list[TopicPlan] = []
    taken: dict[str, str] = {}
    for source in sources:
        wanted = {
            key: value
            for key, value in source.configs.items()
            if key not in NOT_COPIED and not any(fnmatchcase(key, it) for it in exclude_configs)
        }
        target = rename(source.name)
        reason = None
        if is_same_cluster and target == source.name:
            reason = "source and target are the same topic of the same cluster"
        elif target in taken:
            reason = f"{taken[target]} is copied to {target} as well"
        elif target in INTERNAL_TOPICS or target.startswith(PREFIX):
            reason = f"{target} is internal"
        taken.setdefault(target, source.name)
        plans.append(_plan_topic(source, wanted, target, targets.get(target), reason))
    return plans


def _plan_topic(
    source: TopicFacts,
    wanted: dict[str, str],
    name: str,
    target: TopicFacts | None,
    reason: str | None,
) -> TopicPlan:
    before = target.partitions if target is not None else 0
    if target is not None:
        wanted = {k: v for k, v in wanted.items() if target.configs.get(k) != v}
        if reason is None and before > source.partitions and not source.is_part:
            reason = (
                f"the target has {counted(before, 'partition')}, the source {source.partitions}"
            )
    elif reason is None and source.unreadable is not None:
        # It would be created with the target's defaults: deleted after a week instead of compacted.
        reason = (
            f"its settings in the source cannot be read ({source.unreadable}),"
            " and the target has no such topic"
        )
    if reason is not None:
        step = Step.REFUSE
    elif target is None:
        step = Step.CREATE
    else:
        step = Step.CHANGE if wanted or before < source.partitions else Step.KEEP
    return TopicPlan(source.name, name, step, source.partitions, before, wanted, reason)
