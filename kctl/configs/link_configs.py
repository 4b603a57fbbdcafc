"""The configs that make a topic a link: it follows a topic of another cluster.

A topic has them only while it is a link. Apache Kafka does not know them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from kctl.errors import UsageError

# The name of a file of client settings, NAME.properties, in the brokers' directory of sources.
MIRROR_SOURCE = "mirror.source"
# The id of the source's cluster, as it was when the link was created.
MIRROR_SOURCE_CLUSTER = "mirror.source.cluster"
MIRROR_STATE = "mirror.state"
# Counts the partitions of a link that a broker leads, by phase; read-only, never in the store.
MIRROR_STATUS = "mirror.status"
# mirror.status.N describes those among so many partitions from N on, a multiple of this number. A
# string of Kafka has at most 32,767 bytes, and a description here has at most 800.
STATUS_PARTITIONS = 40
# What an operator has decided on partitions that stopped: NUMBER:DECISION, separated by commas. Its
# leader removes a partition once this is carried out.
MIRROR_RESUME = "mirror.resume"
# Decisions that the text has room for, whatever the numbers are.
RESUMES_MAX = 1_500
LINK_CONFIGS = (MIRROR_SOURCE, MIRROR_SOURCE_CLUSTER, MIRROR_STATE, MIRROR_RESUME)

# A setting of brokers: the directory with the settings of sources. Without it a broker connects to
# no other cluster, whatever a client asks for.
SOURCES_DIRECTORY = "mirror.sources.dir"


class LinkState(StrEnum):
    """What the leaders of a link do."""

    FOLLOWING = "following"
    # They stop to follow, and prepare to take over; the link ends when all of them are ready.
    FAILOVER = "failover"


class OnLoss(StrEnum):
    """What the leader of a partition that stopped does next."""

    # Compare again, and stop again if records would still be lost or mixed.
    STOP = "stop"
    # Remove all records of the copy, and copy what the source has now.
    RESTART = "restart"


class Link(NamedTuple):
    """The source of a topic that is a link."""

    source: str
    cluster_id: str
    state: LinkState = LinkState.FOLLOWING
    # By partition.
    resumes: Mapping[int, OnLoss] = {}

    def refusal(self, topic: str) -> str:
        """Return the error message for a producer."""
        return (
            f"Topic {topic} is read-only: it follows cluster {self.source}. Produce there, or make "
            f"it writable here with: kctl link failover {topic}"
        )


def status_config(number: int) -> str:
    """Return the config that describes partition `number` of a link.

    >>> status_config(83)
    'mirror.status.80'
    """
    return f"{MIRROR_STATUS}.{number - number % STATUS_PARTITIONS}"


def status_partitions(config: str, count: int) -> range | None:
    """Return the partitions of a topic with `count` of them that a config describes; None if it is
    no such config.

    >>> status_partitions("mirror.status.80", 100), status_partitions("mirror.status.81", 100)
    (range(80, 100), None)
    """
    text = config.removeprefix(f"{MIRROR_STATUS}.")
    if text == config or len(text) > 10 or not (text.isascii() and text.isdigit()):
        return None
    first = int(text)
    if first >= count or status_config(first) != config:
        return None
    return range(first, min(first + STATUS_PARTITIONS, count))


def link_of(overrides: Mapping[str, str]) -> Link | None:
    """Return the link that a topic with these overrides is; None if it is none.

    Whatever a tool has written to the store, a topic with a source is read-only.
    """
    source = overrides.get(MIRROR_SOURCE)
    if source is None:
        return None
    is_failover = overrides.get(MIRROR_STATE) == LinkState.FAILOVER
    state = LinkState.FAILOVER if is_failover else LinkState.FOLLOWING
    try:
        resumes = parse_resumes(overrides.get(MIRROR_RESUME, ""))
    except UsageError:
        # Nothing is removed by mistake.
        resumes = {}
    return Link(source, overrides.get(MIRROR_SOURCE_CLUSTER, ""), state, resumes)


def parse_resumes(text: str) -> dict[int, OnLoss]:
    """Return the decisions of `mirror.resume` by partition; raise UsageError."""
    found = {}
    for part in filter(None, text.split(",")):
        number, _, decision = part.partition(":")
        if not (number.isascii() and number.isdigit()) or decision not in list(OnLoss):
            raise UsageError(f"{MIRROR_RESUME}: {part} is not PARTITION:{'|'.join(OnLoss)}")
        found[int(number)] = OnLoss(decision)
    return found


def format_resumes(resumes: Mapping[int, OnLoss]) -> str:
    """Return the text of `mirror.resume`."""
    return ",".join(f"{number}:{resumes[number]}" for number in sorted(resumes))


def without_resume(overrides: Mapping[str, str], partition: int) -> dict[str, str]:
    """Return a link's overrides without the decision on a partition."""
    left = parse_resumes(overrides.get(MIRROR_RESUME, ""))
    left.pop(partition, None)
    changed = {name: text for name, text in overrides.items() if name != MIRROR_RESUME}
    return {**changed, MIRROR_RESUME: format_resumes(left)} if left else changed


def check_link(overrides: Mapping[str, str]) -> None:
    """Raise UsageError if the overrides describe no valid link, and are not free of them either."""
    given = [name for name in LINK_CONFIGS if name in overrides]
    if not given:
        return
    source = overrides.get(MIRROR_SOURCE, "")
    if not source or not overrides.get(MIRROR_SOURCE_CLUSTER):
        raise UsageError(f"A link needs {MIRROR_SOURCE} and {MIRROR_SOURCE_CLUSTER}")
    if not all(it.isalnum() or it in "_-" for it in source):
        raise UsageError(f"{MIRROR_SOURCE}={source}: a name has letters, digits, - and _ only")
    parse_resumes(overrides.get(MIRROR_RESUME, ""))
    state = overrides.get(MIRROR_STATE, LinkState.FOLLOWING)
    if state not in list(LinkState):
        raise UsageError(f"{MIRROR_STATE}={state} is none of {', '.join(LinkState)}")


def check_link_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise UsageError unless a topic's link may change so: it can be created, fail over, and end
    after that."""
    old, new = link_of(before), link_of(after)
    if old is None:
        return
    if new is None:
        if old.state is not LinkState.FAILOVER:
            raise UsageError(
                f"The topic follows cluster {old.source}: its leaders have to take over before the "
                "link can end; use kctl link failover"
            )
    elif new[:2] != old[:2]:
        raise UsageError(f"The topic follows cluster {old.source} already")
    elif old.state is LinkState.FAILOVER and new.state is not old.state:
        raise UsageError("A failover cannot be taken back: complete it, then create a link again")
