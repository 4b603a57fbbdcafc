"""Selects topics, partitions and groups by names and globs.

A glob has one of `*`, `?` and `[`, which names of topics cannot contain.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kctl.client.results import is_unknown_topic
from kctl.errors import KctlError, NotFoundError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.group_descriptions import GroupListing
    from kctl.admin.topics import PartitionDescription, TopicDescription

_GLOB = frozenset("*?[")


@dataclass(slots=True)
class SelectedTopics:
    """The topics that names and globs select; unknown names with a hint, or None."""

    topics: "list[TopicDescription]"
    missing: dict[str, str | None] = field(default_factory=dict)


def is_pattern(text: str) -> bool:
    """Return whether `text` is a glob."""
    return not _GLOB.isdisjoint(text)


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return those of `names` that equal or match a pattern; without patterns, all."""
    return [
        name
        for name in names
        if not patterns or any(name == p or fnmatchcase(name, p) for p in patterns)
    ]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the closest name in `known`, or None."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else None


async def select_topics(
    admin: "AdminClient", names: Sequence[str], *, internal: bool = False
) -> SelectedTopics:
    """Return the topics that names and globs select.

    Without names, return all topics; `internal` then includes internal ones. A glob never matches
    an internal topic, so that no glob can delete `__consumer_offsets`.
    """
    if names and not any(map(is_pattern, names)):
        described = await admin.topics.describe(names)
        topics = [topic for topic in described if topic.error is None]
        if len(topics) == len(described):
            return SelectedTopics(topics)
    known = {topic.name: topic for topic in await admin.topics.list_topics()}
    if not names:
        return SelectedTopics([it for it in known.values() if internal or not it.is_internal])
    missing = {
        name: did_you_mean(name, known)
        for name in dict.fromkeys(names)
        if not is_pattern(name) and name not in known
    }
    globs = [name for name in names if is_pattern(name)]
    own = [topic.name for topic in known.values() if not topic.is_internal]
    wanted = {*names, *(matching(own, globs) if globs else [])}
    return SelectedTopics([it for it in known.values() if it.name in wanted], missing)


async def existing_topics(
    admin: "AdminClient", names: Sequence[str] | None = None
) -> "list[TopicDescription]":
    """Return the named topics, or all; raise KctlError if one does not exist."""
    if names is None:
        return await admin.topics.list_topics()
    described = await admin.topics.describe(names)
    for topic in described:
        if is_unknown_topic(topic.error):
            raise await unknown_topic(admin, topic.name)
        if topic.error is not None:
            raise KctlError(f"{topic.name}: {topic.error}", hint=topic.error.hint)
    return described


async def unknown_topic(admin: "AdminClient", name: str) -> KctlError:
    """Return the error for a topic that does not exist, with the name that was probably meant."""
    known = [it.name for it in await admin.topics.list_topics()]
    return not_found("topic", name, known)


async def select_partitions(
    admin: "AdminClient", wanted: Mapping[str, Sequence[int] | None] | None = None
) -> "list[PartitionDescription]":
    """Return the wanted partitions by topic, where None selects all of a topic; without `wanted`,
    all partitions of the cluster. Raise NotFoundError if one does not exist."""
    known = {
        TopicPartition(topic.name, partition.partition): partition
        for topic in await admin.topics.list_topics()
        for partition in topic.partitions
    }
    if not wanted:
        return list(known.values())
    return [known[tp] for tp in chosen_among(known, wanted)]


async def partitions_of(
    admin: "AdminClient", topics: Sequence[str], numbers: Sequence[int] | None = None
) -> list[TopicPartition]:
    """Return the partitions of topics, or those with the given numbers in each topic; raise
    KctlError if a topic or partition does not exist."""
    partitions = []
    for topic in await existing_topics(admin, topics):
        known = [item.partition for item in topic.partitions]
        for number in known if numbers is None else numbers:
            if number not in known:
                raise NotFoundError(f"{topic.name} has no partition {number}, only {len(known)}")
            partitions.append(TopicPartition(topic.name, number))
    return partitions


def chosen_among(
    known: Iterable[TopicPartition], wanted: Mapping[str, Sequence[int] | None]
) -> list[TopicPartition]:
    """Return the wanted partitions in the order of `wanted`; None selects all of a topic.

    Raise NotFoundError for a topic or partition that is not known.
    """
    by_topic: dict[str, list[int]] = {}
    for tp in known:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    chosen = []
    for topic, numbers in wanted.items():
        if topic not in by_topic:
            raise not_found("topic", topic, by_topic)
        for number in by_topic[topic] if numbers is None else numbers:
            if number not in by_topic[topic]:
                raise NotFoundError(
                    f"{topic} has no partition {number}, only {len(by_topic[topic])}"
                )
            chosen.append(TopicPartition(topic, number))
    return chosen


def matching_groups(
    groups: "Sequence[GroupListing]", patterns: Sequence[str]
) -> "list[GroupListing]":
    """Return the groups that match a name or glob; without patterns, all."""
    wanted = set(matching([group.group_id for group in groups], patterns))
    return [group for group in groups if group.group_id in wanted]


async def select_groups(
    admin: "AdminClient", names: Sequence[str], *, must_be_complete: bool = False
) -> list[str]:
    """Return the ids of the groups that names and globs select.

    A name is returned whether such a group exists or not. Brokers list their groups only if there
    is a glob. With `must_be_complete`, raise KctlError if a broker does not list its groups, or if
    nothing is selected; otherwise such a broker is left out.
    """
    exact = [name for name in names if not is_pattern(name)]
    globs = [name for name in names if is_pattern(name)]
    if not globs:
        return list(dict.fromkeys(exact))
    listing = await admin.groups.list_groups()
    found = [group.group_id for group in matching_groups(listing.groups, globs)]
    if must_be_complete and (listing.errors or not (found or exact)):
        why = next(iter(listing.errors.values()), None)
        raise KctlError(f"Cannot list all groups: {why}" if why else f"No group {globs[0]}")
    return list(dict.fromkeys([*exact, *found]))
