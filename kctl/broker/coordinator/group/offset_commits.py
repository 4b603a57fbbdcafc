"""OffsetCommits: commits and fetches of a shard's offsets, inside transactions and outside. Pure.

A consumer that is not a member of a group commits with generation -1. This is allowed while the
group has no members, and creates the group if it does not exist.

Kafka 2.7: kafka.coordinator.group.GroupCoordinator; KIP-98, KIP-447.
"""

from collections.abc import Callable, Iterable, Sequence

from kctl.broker.coordinator.group.append_errors import offsets_error
from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.offsets import ENDED_PER_TURN, CommittedOffset
from kctl.broker.coordinator.group.rebalance import Rebalance
from kctl.broker.coordinator.group.records import OffsetRecord, offset_record
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.outcome import Moment, Outcome, Reply, Write
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.constants import NO_EPOCH
from kctl.protocol.error_codes import ErrorCode
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kctl.work import Work

INVALID_OFFSET = -1
NO_METADATA = ""

_NONE = int(ErrorCode.NONE)
_OFFSET_METADATA_TOO_LARGE = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)


# Not frozen, which would triple the cost of creation; one is created per request.
@dataclass(slots=True)
class OffsetCommit:
    """A request to commit offsets, from any version of OffsetCommit or TxnOffsetCommit."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]]
    # Takes a list of error codes, one for each of `offsets`, in the same order.
    reply: Reply
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def fail(self, code: int, outcome: Outcome) -> Outcome:
        """Reject the whole request with `code`."""
        return outcome.reply(self.reply, [int(code)] * len(self.offsets))


@dataclass(frozen=True, slots=True)
class PlainCommit:
    """The fields that all commits of one consumer for one partition share."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The result of OffsetFetch for one partition."""

    topic_partition: TopicPartition
    offset: int = INVALID_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = NO_METADATA
    error_code: int = _NONE


class OffsetCommits:
    """The offsets of a shard's groups."""

    def __init__(
        self, groups: dict[str, Group], rebalance: Rebalance, settings: GroupSettings
    ) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._settings = settings
        # Producer id -> groups with commits in its open transaction, in order.
        self._groups_by_producer: dict[int, dict[str, None]] = {}

    # Commits

    def commit(self, commit: OffsetCommit, moment: Moment) -> Outcome:
        """Commit offsets; the reply comes when they are in the log."""
        outcome = Outcome()
        group = self._groups.get(commit.group_id)
        code = self._check(group, commit)
        if code != _NONE:
            return commit.fail(code, outcome)
        if group is None:
            group = self._make_group(commit.group_id, moment)
        member = group.members.get(commit.member_id)
        if member is not None:
            self._rebalance.renew_session(member, moment.monotonic_ms)
        accepted, codes = self._accept(commit)
        if not accepted:
            return outcome.reply(commit.reply, codes)
        offsets = group.offsets
        partitions = [topic_partition for topic_partition, _ in accepted]

        def settled(code: int, _moment: Moment) -> Outcome:
            offsets.clear_in_flight(partitions)
            return Outcome().reply(commit.reply, _with_error(codes, offsets_error(code)))

        # First: a record that cannot be encoded must leave nothing in flight.
        outcome.writes.append(self._write(group, commit, accepted, settled))
        offsets.mark_in_flight(partitions)
        return outcome

    def plain_record(
        self, commit: PlainCommit, offset: int, leader_epoch: int, moment: Moment
    ) -> OffsetRecord | None:
        """Return the record for a commit on the fast path, or None if `commit` must handle it.

        The fast path covers a valid commit without metadata for a partition that has a committed
        offset; it needs no further steps.
        """
        group = self._groups.get(commit.group_id)
        if group is None or self._check(group, commit):
            return None
        logged = group.offsets.committed.get(commit.topic_partition)
        if logged is None:
            return None
        member = group.members.get(commit.member_id)
        if member is not None:
            self._rebalance.renew_session(member, moment.monotonic_ms)
        committed = CommittedOffset(offset, leader_epoch, NO_METADATA, moment.wall_ms)
        version = self._settings.offset_value_version
        return offset_record(
            commit.group_id, commit.topic_partition, committed, version, logged.key
        )

    def _check(self, group: Group | None, commit: "OffsetCommit | PlainCommit") -> int:
        if group is None:
            return _NONE if commit.generation_id < 0 else int(ErrorCode.ILLEGAL_GENERATION)
        if group.is_fenced(commit.member_id, commit.group_instance_id):
            return int(ErrorCode.FENCED_INSTANCE_ID)
        if commit.generation_id < 0 and group.state is GroupState.EMPTY:
            return _NONE
        if commit.member_id not in group.members:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if commit.generation_id != group.generation_id:
            return int(ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # It knows the generation from JoinGroup but has no assignment yet.
            return int(ErrorCode.REBALANCE_IN_PROGRESS)
        return _NONE

    def commit_in_transaction(self, commit: OffsetCommit, moment: Moment) -> Outcome:
        """Commit offsets in a transaction; the reply comes when they are in the log.

        They take effect when the transaction commits.
        """
        outcome = Outcome()
        group = self._groups.get(commit.group_id)
        code = self._check_in_transaction(group, commit)
        if code != _NONE:
            return commit.fail(code, outcome)
        if group is None:
            group = self._make_group(commit.group_id, moment)
        accepted, codes = self._accept(commit)
        if not accepted:
            return outcome.reply(commit.reply, codes)
        offsets, producer_id = group.offsets, commit.producer_id
        partitions = [topic_partition for topic_partition, _ in accepted]

        def settled(code: int, _moment: Moment) -> Outcome:
            if code != _NONE:
                offsets.fail_in_transaction(producer_id, partitions)
            return Outcome().reply(commit.reply, _with_error(codes, offsets_error(code)))

        # First, as in `commit`.
        outcome.writes.append(self._write(group, commit, accepted, settled))
        offsets.mark_in_flight_in_transaction(producer_id, partitions)
        self._groups_by_producer.setdefault(producer_id, {})[group.group_id] = None
        return outcome

    def _check_in_transaction(self, group: Group | None, commit: OffsetCommit) -> int:
        if group is None:
            if commit.member_id:
                return int(ErrorCode.UNKNOWN_MEMBER_ID)
            return int(ErrorCode.ILLEGAL_GENERATION) if commit.generation_id > 0 else _NONE
        if group.is_fenced(commit.member_id, commit.group_instance_id):
            return int(ErrorCode.FENCED_INSTANCE_ID)
        # Producers before KIP-447 do not send the group's membership.
        if commit.member_id and commit.member_id not in group.members:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if commit.generation_id >= 0 and commit.generation_id != group.generation_id:
            return int(ErrorCode.ILLEGAL_GENERATION)
        return _NONE

    def ending_transaction(self, producer_id: int, *, is_commit: bool) -> Work[int]:
        """Apply the end of the producer's transaction, whose marker is in this shard's log, with a
        `yield` after about ENDED_PER_TURN offsets and groups; return their number."""
        units = since_turn = 0
        for group_id in self._groups_by_producer.pop(producer_id, {}):
            if since_turn >= ENDED_PER_TURN:
                since_turn = 0
                yield
            group = self._groups.get(group_id)
            ended = 1
            if group is not None:
                ended += yield from group.offsets.ending_transaction(
                    producer_id, is_commit=is_commit
                )
            units += ended
            since_turn += ended
        return units

    def note_pending(self, producer_id: int, group_id: str) -> None:
        """Record that the producer's open transaction holds commits of the group."""
        self._groups_by_producer.setdefault(producer_id, {})[group_id] = None

    def _make_group(self, group_id: str, moment: Moment) -> Group:
        group = self._groups[group_id] = self._rebalance.new_group(group_id, moment.wall_ms)
        return group

    def _accept(
        self, commit: OffsetCommit
    ) -> tuple[Sequence[tuple[TopicPartition, CommittedOffset]], list[int]]:
        metadata_max = self._settings.offset_metadata_max
        codes = [
            _NONE if len(committed.metadata) <= metadata_max else _OFFSET_METADATA_TOO_LARGE
            for _, committed in commit.offsets
        ]
        if not any(codes):
            return commit.offsets, codes
        return [o for o, code in zip(commit.offsets, codes, strict=True) if not code], codes

    def _write(
        self,
        group: Group,
        commit: OffsetCommit,
        accepted: Iterable[tuple[TopicPartition, CommittedOffset]],
        settled: Callable[[int, Moment], Outcome],
    ) -> Write:
        group_id, known = group.group_id, group.offsets.committed
        version = self._settings.offset_value_version
        records = []
        for topic_partition, offset in accepted:
            logged = known.get(topic_partition)
            key = None if logged is None else logged.key
            records.append(offset_record(group_id, topic_partition, offset, version, key))
        return Write(records, settled, commit.producer_id, commit.producer_epoch)

    # Fetches

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions with a committed offset."""
        group = self._groups.get(group_id)
        return [] if group is None else list(group.offsets.committed)

    def fetch(
        self,
        group_id: str,
        topic_partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> list[FetchedOffset]:
        """Return the committed offsets of these partitions, or of all with one (None).

        It does not matter whether the group has members or exists.
        """
        group = self._groups.get(group_id)
        if group is None:
            return [FetchedOffset(tp) for tp in topic_partitions or ()]
        offsets = group.offsets
        if topic_partitions is None:
            topic_partitions = list(offsets.committed)
        fetched = []
        for topic_partition in topic_partitions:
            logged = offsets.committed.get(topic_partition)
            if require_stable and offsets.is_unstable(topic_partition):
                unstable = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
                fetched.append(FetchedOffset(topic_partition, error_code=unstable))
            elif logged is None:
                fetched.append(FetchedOffset(topic_partition))
            else:
                offset, leader_epoch, metadata, *_ = logged.committed
                fetched.append(FetchedOffset(topic_partition, offset, leader_epoch, metadata))
        return fetched


def _with_error(codes: list[int], code: int) -> list[int]:
    return codes if code == _NONE else [own or code for own in codes]
