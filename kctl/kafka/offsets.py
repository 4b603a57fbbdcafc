"""A group's offsets in ZooKeeper, in Kafka, or in both: where they are read and written, and which
of two offsets a consumer begins at. Pure.

A consumer has a main store (`offsets.storage`); with `dual.commit.enabled` the other store follows:

    commit   the main store first. A partition whose commit succeeded there, and whose offset has
             changed since the last write, is then written to the other store.
    start    both stores are read, and the pick decides. A store that does not answer is not the
             same as one without an offset: the consumer asks again before it begins.

So the store that follows is never ahead of the main store by a commit of this consumer. Apache
Kafka ignores `dual.commit.enabled` where ZooKeeper is the main store; then the documented way back
from Kafka loses what was committed since. Here it works in both directions, unless `like_java`.

Kafka 1.1: kafka.consumer.ZookeeperConsumerConnector (`commitOffsets`, `fetchOffsets`)
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from kctl.lazy_dataclass import dataclass

P = TypeVar("P")

_TIME_PREFIX = "kctl-commit-ms="


class OffsetsStorage(StrEnum):
    """The stores of committed offsets; the values of `offsets.storage`."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"

    @property
    def other(self) -> "OffsetsStorage":
        """Return the other store."""
        return OffsetsStorage.KAFKA if self is self.ZOOKEEPER else OffsetsStorage.ZOOKEEPER


class DualPick(StrEnum):
    """Which offset counts where both stores have one; the values of `dual.commit.pick`."""

    # The larger one, as in Apache Kafka: a rewind in one store has no effect.
    MAX = "max"
    # That of the main store, if it has one.
    STORAGE = "storage"
    # The one committed last, if the times of both are known; otherwise the larger one.
    NEWEST = "newest"


class StoredOffset(NamedTuple):
    """A committed offset, and when it was committed, if that is known."""

    offset: int
    committed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetsPolicy:
    """The settings of a consumer that decide about its stores."""

    storage: OffsetsStorage = OffsetsStorage.ZOOKEEPER
    # `dual.commit.enabled`, whose default is whether the main store is Kafka.
    is_dual: bool = False
    pick: DualPick = DualPick.MAX
    # Ignore `is_dual` where ZooKeeper is the main store, as Apache Kafka does.
    like_java: bool = False

    @property
    def stores(self) -> tuple[OffsetsStorage, ...]:
        """Return the stores to read and to write, the main store first."""
        is_ignored = self.like_java and self.storage is OffsetsStorage.ZOOKEEPER
        if self.is_dual and not is_ignored:
            return self.storage, self.storage.other
        return (self.storage,)


def start_offset(
    policy: OffsetsPolicy, found: Mapping[OffsetsStorage, StoredOffset | None]
) -> int | None:
    """Return the committed offset that a consumer begins at, or None: `auto.offset.reset` decides.

    `found` has the answer of each store of the policy, None for a partition without an offset; an
    offset below 0 counts as none. KeyError if a store has not answered.
    """
    answers = [found[store] for store in policy.stores]
    there = [answer for answer in answers if answer is not None and answer.offset >= 0]
    if not there:
        return None
    if policy.pick is DualPick.STORAGE:
        return there[0].offset
    times = [answer.committed_ms for answer in there]
    if policy.pick is DualPick.NEWEST and None not in times:
        return max(there, key=lambda answer: (answer.committed_ms or 0, answer.offset)).offset
    return max(answer.offset for answer in there)


def to_follow(
    policy: OffsetsPolicy, committed: Mapping[P, int], followed: Mapping[P, int]
) -> dict[P, int]:
    """Return what is to be written to the store that follows.

    `committed` are the offsets that the main store has just accepted; `followed` is what this
    consumer last wrote to the other store.
    """
    if len(policy.stores) == 1:
        return {}
    return {p: offset for p, offset in committed.items() if followed.get(p) != offset}


def commit_metadata(now_ms: int) -> str:
    """Return the metadata of a commit to Kafka that DualPick.NEWEST finds its time in: brokers do
    not return when an offset was committed."""
    return f"{_TIME_PREFIX}{now_ms}"


def commit_time_ms(metadata: str) -> int | None:
    """Return the time in the metadata of a commit, or None."""
    digits = metadata.removeprefix(_TIME_PREFIX)
    if digits == metadata or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)
