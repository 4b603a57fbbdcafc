"""Decides whether records of a source partition were lost to its mirror, by what the source says.
Pure.

A mirror that is at offset `p`, having copied a batch of leader epoch `e` before it, may continue if
the source still has `p` and its history still contains what was copied: the log starts at or before
`p`, ends at or after it, and epoch `e` ends at or after it (KIP-101, KIP-320). Otherwise records
were deleted before they were copied, records that were copied are gone (an unclean election), or
the topic was deleted and created again.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.OffsetsForLeaderEpochClient
"""

from enum import StrEnum

from kctl.lazy_dataclass import dataclass


class LossKind(StrEnum):
    """What happened at the source."""

    DELETED = "deleted before they were copied"
    TRUNCATED = "copied, and no longer at the source"
    RECREATED = "in another topic of the same name"
    # The last copied record; see `witness`.
    REWRITTEN = "copied, and another one is in its place at the source"
    GONE = "in a topic that no longer exists"


class OnLoss(StrEnum):
    """What a mirror does then."""

    STOP = "stop"
    SKIP = "skip"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the source says about a partition."""

    start: int
    end: int
    # The largest epoch not above that of the position and its end; None if it was not asked. (-1,
    # -1): the source has not reached that epoch.
    epoch_end: tuple[int, int] | None = None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a partition cannot simply continue."""

    kind: LossKind
    # The offsets of the source that are concerned, the second exclusive.
    first: int
    end: int
    # Where the source can be read on.
    resume: int

    @property
    def text(self) -> str:
        """Return a sentence about the loss."""
        if self.kind is LossKind.DELETED:
            count = self.end - self.first
            if count == 1:
                return f"record {self.first} was deleted before it was copied"
            return f"{count} records, {self.first} to {self.end - 1}, were {self.kind}"
        if self.kind is LossKind.TRUNCATED:
            return f"records {self.first} to {self.end - 1} were {self.kind}"
        if self.kind is LossKind.REWRITTEN:
            return (
                f"record {self.first} was {self.kind}: the topic was created again, or restored"
                " from a backup"
            )
        if self.kind is LossKind.RECREATED:
            return f"the topic was deleted and created again after {self.first} was reached"
        return "the topic no longer exists"


def judge(
    position: int, leader_epoch: int, topic_id: str | None, facts: SourceFacts
) -> Loss | None:
    """Return what was lost to a mirror at `position`, or None if it can continue."""
    if topic_id is not None and facts.topic_id is not None and topic_id != facts.topic_id:
        return Loss(LossKind.RECREATED, position, position, facts.start)
    if leader_epoch >= 0 and facts.epoch_end is not None:
        epoch, end = facts.epoch_end
        if epoch < 0:
            return Loss(LossKind.RECREATED, position, position, facts.start)
        if end < position:
            return Loss(LossKind.TRUNCATED, end, position, max(end, facts.start))
    if facts.end < position:
        return Loss(LossKind.TRUNCATED, facts.end, position, facts.end)
    if facts.start > position:
        return Loss(LossKind.DELETED, position, facts.start, facts.start)
    return None
