"""Partition: one partition on this broker, as leader or follower.

A partition gets its role only from a LeaderAndIsr request of the controller. The leader appends,
serves reads, tracks its followers and moves the high watermark: the smallest log end offset among
the replicas that are in sync, about to be (KIP-497), or keep up. The only I/O is that of its log.
Changes of the ISR are decided here and proposed to the controller by `alter_isr`.

Invariants: the leader epoch never decreases; only a leader appends for clients; the high watermark
never passes the log end offset of an in-sync replica; a follower joins the ISR only with all
records that the leader had when its epoch began (KAFKA-7128).

Kafka 2.7: kafka.cluster.Partition; KIP-101, KIP-279, KIP-320, KIP-497.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from kctl.broker.log.log_validator import CheckedRecords
from kctl.broker.log.unified_log import (
    AppendOrigin,
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
    UnifiedLog,
)
from kctl.broker.replication.isr_state import IsrState
from kctl.broker.replication.replica import Replica
from kctl.model import NO_LEADER, TopicPartition
from kctl.protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from kctl.protocol.primitives import Buffer
from kctl.runtime.future import Future
from kctl.work import ClaimingWork


class Role(Enum):
    """The role of this broker for a partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    # Its log directory failed (KIP-112).
    OFFLINE = "offline"


# Looking up an Enum's member is slow, and every request needs these.
_LEADER: Final = Role.LEADER
_FOLLOWER: Final = Role.FOLLOWER


class Partition:
    """One partition; it has a `log` from the first LeaderAndIsr on."""

    def __init__(
        self, topic_partition: TopicPartition, broker_id: int, replica_lag_ms_max: int = 30_000
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        # replica.lag.time.max.ms: how long an in-sync replica may lag.
        self.replica_lag_ms_max = replica_lag_ms_max
        self.role = Role.NONE
        self.log: UnifiedLog | None = None
        # The error message for producers while the partition is a copy, led here, of one in another
        # cluster; None: they may write.
        self.read_only: str | None = None
        # The flush that the last append waits for, with flush.messages=1.
        self.next_flush: Future[None] | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        # Where the current leader's epoch begins; a follower joins the ISR only beyond it.
        self.leader_epoch_start_offset = 0
        self.controller_epoch = 0
        self.zk_version = 0
        self.assignment: tuple[int, ...] = ()
        self.isr_state = IsrState()
        # Followers by broker id, in assignment order; only a leader has any.
        self.followers: dict[int, Replica] = {}

    @property
    def isr(self) -> tuple[int, ...]:
        """Return the in-sync replicas as last confirmed by the controller."""
        return self.isr_state.isr

    # --- roles -------------------------------------------------------------------------------

    def become_leader(
        self, state: LeaderAndIsrPartitionState, log: UnifiedLog, now_ms: int
    ) -> bool:
        """Lead from `state` on; return whether this broker did not lead before."""
        is_new_leader = self.role is not Role.LEADER
        self._adopt(state, log)
        self.role = Role.LEADER
        self.leader_epoch_start_offset = log.log_end_offset
        # Kafka assigns the epoch before any append, so that followers find its start (KIP-101). The
        # epochs of a copy are those of the original.
        if self.read_only is None:
            log.maybe_assign_epoch_start_offset(state.leader_epoch, log.log_end_offset)
        # Progress reported in older epochs is discarded: in epochs that this broker missed, other
        # leaders may have made the followers truncate. (Apache Kafka 2.7.2 discards it only if it
        # knows that it did not lead.)
        self.followers = {
            broker_id: Replica(
                broker_id,
                leader_end_offset_at_last_fetch=log.log_end_offset,
                last_fetch_ms=now_ms,
                last_caught_up_ms=now_ms if broker_id in self.isr else 0,
            )
            for broker_id in self.assignment
            if broker_id != self.broker_id
        }
        self.maybe_increment_high_watermark(now_ms)
        return is_new_leader

    def become_follower(self, state: LeaderAndIsrPartitionState, log: UnifiedLog) -> bool:
        """Follow `state.leader`; return whether fetching must restart."""
        is_new = (
            self.role is not Role.FOLLOWER
            or self.leader_id != state.leader
            or self.leader_epoch != state.leader_epoch
        )
        self._adopt(state, log)
        self.role = Role.FOLLOWER
        self.followers = {}
        return is_new

    def resign(self) -> None:
        """Stop leading, without following another broker yet."""
        self.role = Role.NONE
        self.leader_id = NO_LEADER
        self.isr_state = IsrState.committed(self.isr)
        self.followers = {}

    def mark_offline(self) -> None:
        """Report KAFKA_STORAGE_ERROR from now on, because the log directory failed."""
        self.role = Role.OFFLINE
        self.log = None
        self.followers = {}

    def _adopt(self, state: LeaderAndIsrPartitionState, log: UnifiedLog) -> None:
        self.log = log
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.zk_version = state.zk_version
        self.assignment = tuple(state.replicas)
        self.isr_state = IsrState.committed(state.isr)

    # --- checks ------------------------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise ApiError if the client's leader epoch is not the current one (KIP-320)."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> UnifiedLog:
        """Return the log if this broker leads; otherwise raise the ApiError for clients."""
        self.check_epoch(current_leader_epoch)
        if self.role is not _LEADER or self.log is None:
            raise ApiError(self._lost_role())
        return self.log

    def readable_log(self, current_leader_epoch: int, *, only_leader: bool) -> UnifiedLog:
        """Return the log for a read; followers serve it too unless `only_leader` (KIP-392)."""
        if only_leader or self.role is not _FOLLOWER or self.log is None:
            return self.leader_log(current_leader_epoch)
        self.check_epoch(current_leader_epoch)
        return self.log

    # --- appends -----------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytearray | memoryview | CheckedRecords,
        origin: AppendOrigin,
        required_acks: int,
        now_ms: int,
    ) -> LogAppendInfo:
        """Append a produce request's records.

        Raise ApiError if they are rejected, or ValidationInTurns if the check takes several turns.
        """
        log = self.log
        if self.role is not _LEADER or log is None:
            log = self.leader_log()
        if self.read_only is not None:
            raise ApiError(ErrorCode.POLICY_VIOLATION, self.read_only)
        if required_acks == -1 and len(self.isr) < log.config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the "
                f"min.isr requirement of {log.config.min_insync_replicas} for partition "
                f"{self.topic_partition}",
            )
        info = log.append_as_leader(records, self.leader_epoch, origin=origin, now_ms=now_ms)
        if not self.followers and not log.is_write_through:
            # Without followers, appended records are committed.
            log.update_high_watermark(log.log_end_offset)
        else:
            self.maybe_increment_high_watermark(now_ms)
        return info

    def append_as_follower(
        self, records: Buffer | None, leader_high_watermark: int, leader_start_offset: int
    ) -> bool:
        """Append the leader's records and adopt its high watermark and log start offset.

        Return whether more can be read here. Raise ApiError, CorruptDataError or StorageError.
        """
        log = self.log
        assert log is not None
        before = log.high_watermark
        if records:
            log.append_as_follower(records)
        # Either may be ahead of a log that is still catching up. A new leader may report less than
        # its predecessor; committed records stay committed.
        log.maybe_increment_high_watermark(min(leader_high_watermark, log.log_end_offset))
        log.maybe_increment_log_start_offset(min(leader_start_offset, log.high_watermark))
        return log.high_watermark > before

    def append_from_source(
        self, records: Buffer | None, source_start_offset: int, now_ms: int
    ) -> bool:
        """Append batches of the partition of another cluster that this one is a copy of, as they
        are, and follow its log start offset. Return whether more can be read here.

        Raise ApiError, CorruptDataError or StorageError.
        """
        log = self.log
        assert log is not None
        before = log.high_watermark
        if records:
            log.append_as_follower(records)
        self.maybe_increment_high_watermark(now_ms)
        log.maybe_increment_log_start_offset(min(source_start_offset, log.high_watermark))
        return log.high_watermark > before

    def forget_progress(self, now_ms: int) -> None:
        """Forget what followers have reported, because this leader has truncated its log: they may
        have records that it no longer has."""
        for follower in self.followers.values():
            follower.forget(now_ms)

    def become_writable(self) -> None:
        """Begin an epoch of this cluster's own, where the copy ends."""
        self.read_only = None
        if self.role is _LEADER and self.log is not None:
            log = self.log
            self.leader_epoch_start_offset = log.log_end_offset
            log.maybe_assign_epoch_start_offset(self.leader_epoch, log.log_end_offset)

    def has_enough_replicas_reached(self, required_offset: int) -> tuple[bool, int]:
        """Return whether records below `required_offset` are settled, and with which error code."""
        if self.role is not Role.LEADER or self.log is None:
            return True, self._lost_role()
        if self.log.high_watermark < required_offset:
            return False, ErrorCode.NONE
        # A replica that is about to join has the records, too: the high watermark waited for it.
        if self.log.config.min_insync_replicas <= len(self.isr_state.maximal):
            return True, ErrorCode.NONE
        return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def has_flushed(self, required_offset: int) -> tuple[bool, int]:
        """Return whether records below `required_offset` are durable, and with which error code."""
        if self.role is not Role.LEADER or self.log is None:
            return True, self._lost_role()
        return self.log.recovery_point >= required_offset, ErrorCode.NONE

    def _lost_role(self) -> ErrorCode:
        """Return the error for clients that wait: this broker no longer leads the partition."""
        if self.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- reads -------------------------------------------------------------------------------

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        *,
        current_leader_epoch: int,
        only_leader: bool,
        min_one_message: bool,
    ) -> FetchDataInfo:
        """Return records from `fetch_offset` as a slice of the file. Raise ApiError."""
        log = self.readable_log(current_leader_epoch, only_leader=only_leader)
        if (
            self.role is _FOLLOWER
            and current_leader_epoch == NO_EPOCH
            and fetch_offset > log.log_end_offset
        ):
            # A client without a leader epoch may still take this broker for the leader, and would
            # reset its position on OFFSET_OUT_OF_RANGE.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log.read(
            fetch_offset, max_bytes, isolation=isolation, min_one_message=min_one_message
        )

    def find_divergence(
        self,
        fetch_offset: int,
        last_fetched_epoch: int,
        current_leader_epoch: int,
        *,
        only_leader: bool,
    ) -> tuple[int, int] | None:
        """Return (epoch, end offset) up to which a reader may agree with this log, or None if it
        may continue at `fetch_offset` (KIP-595).

        The reader last read `last_fetched_epoch`. Raise ApiError.
        """
        log = self.readable_log(current_leader_epoch, only_leader=only_leader)
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found is None:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        epoch, end_offset = found
        return found if epoch < last_fetched_epoch or end_offset < fetch_offset else None

    def fetch_offset_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation | None, current_leader_epoch: int
    ) -> ClaimingWork[tuple[int, int, int] | None]:
        """Return (timestamp, offset, leader epoch) of the first record at or after `timestamp`, or
        None, in steps of bounded work.

        Only records that a client of `isolation` may read count (None: a replica, which may read
        all). Raise ApiError, CorruptDataError or StorageError.
        """
        log = self.leader_log(current_leader_epoch)
        if isolation is FetchIsolation.TXN_COMMITTED:
            bound = log.last_stable_offset
        elif isolation is FetchIsolation.HIGH_WATERMARK:
            bound = log.high_watermark
        else:
            bound = log.log_end_offset
        if isolation is not None and log.high_watermark < self.leader_epoch_start_offset:
            # KIP-207: a new leader must not report an older end than its predecessor did.
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if timestamp == LATEST_TIMESTAMP:
            return -1, bound, self.leader_epoch
        found = yield from log.fetch_offset_by_timestamp(timestamp)
        if found is not None and timestamp != EARLIEST_TIMESTAMP and found[1] >= bound:
            return None
        return found

    def segment_offsets_before(self, timestamp: int, count_max: int, now_ms: int) -> list[int]:
        """Handle ListOffsets v0: return the base offsets of segments whose files did not change
        after `timestamp`, and the readable end, newest first."""
        log = self.leader_log()
        points = [
            (max(log.log_start_offset, segment.base_offset), segment.modified_ms)
            for segment in log.segments
        ]
        if log.segments[-1].size:
            points.append((log.log_end_offset, now_ms))
        if timestamp == EARLIEST_TIMESTAMP:
            found = [points[0][0]]
        elif timestamp == LATEST_TIMESTAMP:
            found = [offset for offset, _ in points]
        else:
            last = max((n for n, point in enumerate(points) if point[1] <= timestamp), default=-1)
            found = [offset for offset, _ in points[: last + 1]]
        newest = sorted(found[max(len(found) - count_max, 0) :], reverse=True)
        readable = [offset for offset in newest if offset <= log.high_watermark]
        return readable if len(readable) == len(newest) else [log.high_watermark, *readable]

    def end_offset_for_epoch(
        self, leader_epoch: int, current_leader_epoch: int
    ) -> tuple[int, int] | None:
        """Return (epoch, end offset) of the largest epoch not beyond `leader_epoch` (KIP-279)."""
        return self.leader_log(current_leader_epoch).end_offset_for_epoch(leader_epoch)

    # --- followers ---------------------------------------------------------------------------

    def update_follower(
        self, broker_id: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> bool:
        """Record a follower's fetch; return whether the high watermark rose.

        Raise ApiError if the broker is not a follower.
        """
        log = self.leader_log()
        follower = self.followers.get(broker_id)
        if follower is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower.update_fetch_state(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=log.log_end_offset,
            now_ms=now_ms,
        )
        return self.maybe_increment_high_watermark(now_ms)

    def maybe_increment_high_watermark(self, now_ms: int) -> bool:
        """Raise the high watermark to the end that every replica has that is in sync, may be, or
        keeps up and so is about to be; return whether it rose.

        Only a leader may: a flush that it waited for may end after it has become a follower.
        """
        log = self.log
        if log is None or self.role is not _LEADER:
            return False
        committed = log.recovery_point if log.is_write_through else log.log_end_offset
        if self.followers:
            in_sync = self.isr_state.maximal
            oldest_ms = now_ms - self.replica_lag_ms_max
            for follower in self.followers.values():
                if follower.log_end_offset < committed and (
                    follower.broker_id in in_sync or follower.last_caught_up_ms >= oldest_ms
                ):
                    committed = follower.log_end_offset
        if committed <= log.high_watermark:
            return False
        log.update_high_watermark(committed)
        return True

    # --- in-sync replicas --------------------------------------------------------------------

    def wants_in_sync(self, broker_id: int) -> bool:
        """Return whether this follower has caught up and may join the ISR."""
        log, follower = self.log, self.followers.get(broker_id)
        return (
            self.role is _LEADER
            and log is not None
            and follower is not None
            and broker_id not in self.isr_state.maximal
            and not self.isr_state.is_in_flight
            and follower.log_end_offset >= log.high_watermark
            and follower.log_end_offset >= self.leader_epoch_start_offset
        )

    def out_of_sync(self, now_ms: int) -> list[int]:
        """Return the replicas of the ISR that have lagged for more than
        `replica.lag.time.max.ms`."""
        log = self.log
        if self.role is not _LEADER or log is None or self.isr_state.is_in_flight:
            return []
        return [
            broker_id
            for broker_id in self.isr
            if (follower := self.followers.get(broker_id)) is not None
            and not follower.is_caught_up(
                leader_end_offset=log.log_end_offset,
                now_ms=now_ms,
                max_lag_ms=self.replica_lag_ms_max,
            )
        ]

    def expand_isr(self, broker_id: int) -> IsrState:
        """Propose that `broker_id` joins; return the state to send to the controller."""
        self.isr_state = self.isr_state.expand(broker_id)
        return self.isr_state

    def shrink_isr(self, broker_ids: Sequence[int]) -> IsrState:
        """Propose that `broker_ids` leave; return the state to send to the controller."""
        self.isr_state = self.isr_state.shrink(broker_ids)
        return self.isr_state

    def isr_altered(
        self, isr: Sequence[int], leader_epoch: int, zk_version: int, now_ms: int
    ) -> bool:
        """Apply an ISR that the controller confirmed; return whether the high watermark rose.

        Responses for older states are ignored.
        """
        if leader_epoch != self.leader_epoch or zk_version <= self.zk_version:
            return False
        self.isr_state = IsrState.committed(isr)
        self.zk_version = zk_version
        return self.maybe_increment_high_watermark(now_ms)

    # --- deletion of records -----------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: the high watermark) and return it."""
        log = self.leader_log()
        if self.read_only is not None:
            raise ApiError(ErrorCode.POLICY_VIOLATION, self.read_only)
        if "delete" not in log.config.cleanup_policy:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic_partition} can not be deleted due to the "
                "configured policy",
            )
        wanted = log.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > log.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {wanted} for partition {self.topic_partition} is not valid",
            )
        log.maybe_increment_log_start_offset(wanted)
        return wanted

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """Return the smallest log start offset among the replicas on live brokers; `is_alive` takes
        a broker id."""
        log = self.leader_log()
        followers = self.followers.items()
        starts = [it.log_start_offset for broker_id, it in followers if is_alive(broker_id)]
        return min([log.log_start_offset, *starts])
