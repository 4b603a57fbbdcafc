"""Partition: one partition on this broker, as its leader or as a follower.

A partition has a role only from a LeaderAndIsr request of the controller. The leader appends,
answers reads, watches its followers and moves the high watermark: the smallest log end offset
among the in-sync replicas, those about to be (KIP-497) and those that keep up. No I/O but its
log's. Changes of the ISR are decided here and asked of the controller by `alter_isr`.

Invariants: the leader epoch never falls; only a leader appends for clients; the high watermark
never passes the log end offset of an in-sync replica; a follower joins the ISR only with all that
the leader had when its epoch began (KAFKA-7128).

Kafka 2.7: kafka.cluster.Partition; KIP-101, KIP-279, KIP-320, KIP-497.
"""

from collections.abc import Sequence
from enum import Enum

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
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from kctl.runtime.disk import Buffer
from kctl.runtime.future import Future

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
NO_EPOCH = -1


class Role(Enum):
    """What this broker is to the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    # Its log directory failed (KIP-112).
    OFFLINE = "offline"


# An Enum takes long to look its members up: here they are asked for with every request.
_LEADER = Role.LEADER
_FOLLOWER = Role.FOLLOWER


class Partition:
    """One partition; `log` is there from the first LeaderAndIsr on."""

    def __init__(
        self, topic_partition: TopicPartition, broker_id: int, replica_lag_ms_max: int = 30_000
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        # replica.lag.time.max.ms: how long a replica in sync may be behind.
        self.replica_lag_ms_max = replica_lag_ms_max
        self.role = Role.NONE
        self.log: UnifiedLog | None = None
        # The flush that the last append waits for, under flush.messages=1.
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
        """The in-sync replicas, as the controller said last."""
        return self.isr_state.isr

    # --- roles -------------------------------------------------------------------------------

    def become_leader(
        self, state: LeaderAndIsrPartitionState, log: UnifiedLog, now_ms: int
    ) -> bool:
        """Lead from `state` on; whether this broker did not lead before."""
        is_new_leader = self.role is not Role.LEADER
        self._adopt(state, log)
        self.role = Role.LEADER
        self.leader_epoch_start_offset = log.log_end_offset
        # Kafka assigns the epoch before any append, so that followers find its start (KIP-101).
        log.maybe_assign_epoch_start_offset(state.leader_epoch, log.log_end_offset)
        # What they told in an older epoch counts no more: in epochs that it did not hear of,
        # others may have made them cut their logs. (Apache Kafka 2.7.2 forgets it only if it knows
        # that it did not lead.)
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
        """Follow `state.leader`; whether there is something to fetch anew."""
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
        """Lead no more, and follow nobody yet."""
        self.role = Role.NONE
        self.leader_id = NO_LEADER
        self.isr_state = IsrState.committed(self.isr)
        self.followers = {}

    def mark_offline(self) -> None:
        """The log directory failed: answer KAFKA_STORAGE_ERROR from now on."""
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
        """KIP-320: ApiError when the asker's idea of the leader epoch is not ours."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> UnifiedLog:
        """The log, if this broker leads; otherwise an ApiError that sends the client away."""
        self.check_epoch(current_leader_epoch)
        if self.role is not _LEADER or self.log is None:
            raise ApiError(self._lost_role())
        return self.log

    def readable_log(self, current_leader_epoch: int, *, only_leader: bool) -> UnifiedLog:
        """The log for a read; followers answer too unless `only_leader` (KIP-392)."""
        if only_leader or self.role is not _FOLLOWER or self.log is None:
            return self.leader_log(current_leader_epoch)
        self.check_epoch(current_leader_epoch)
        return self.log

    # --- appends -----------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytearray | memoryview,
        origin: AppendOrigin,
        required_acks: int,
        now_ms: int,
    ) -> LogAppendInfo:
        """Append a produce request's records; ApiError if it cannot be."""
        log = self.log
        if self.role is not _LEADER or log is None:
            log = self.leader_log()
        if required_acks == -1 and len(self.isr) < log.config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the "
                f"min.isr requirement of {log.config.min_insync_replicas} for partition "
                f"{self.topic_partition}",
            )
        info = log.append_as_leader(records, self.leader_epoch, origin=origin, now_ms=now_ms)
        if not self.followers and not log.is_write_through:
            # Alone: what is appended is committed.
            log.update_high_watermark(log.log_end_offset)
        else:
            self.maybe_increment_high_watermark(now_ms)
        return info

    def append_as_follower(
        self, records: Buffer | None, leader_high_watermark: int, leader_start_offset: int
    ) -> bool:
        """Append what the leader sent and take over its high watermark and log start offset;
        whether there is more to read here. ApiError, CorruptDataError, StorageError."""
        log = self.log
        assert log is not None
        before = log.high_watermark
        if records:
            log.append_as_follower(records)
        # Either may be ahead of a log that is still catching up. A new leader may know less than
        # its predecessor told: what was committed stays so.
        log.maybe_increment_high_watermark(min(leader_high_watermark, log.log_end_offset))
        log.maybe_increment_log_start_offset(min(leader_start_offset, log.high_watermark))
        return log.high_watermark > before

    def has_enough_replicas_reached(self, required_offset: int) -> tuple[bool, int]:
        """Whether records below `required_offset` are committed, and with which error code."""
        if self.role is not Role.LEADER or self.log is None:
            return True, self._lost_role()
        if self.log.high_watermark < required_offset:
            return False, ErrorCode.NONE
        if self.log.config.min_insync_replicas <= len(self.isr):
            return True, ErrorCode.NONE
        return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def has_flushed(self, required_offset: int) -> tuple[bool, int]:
        """Whether records below `required_offset` are on the disk, and with which error code."""
        if self.role is not Role.LEADER or self.log is None:
            return True, self._lost_role()
        return self.log.recovery_point >= required_offset, ErrorCode.NONE

    def _lost_role(self) -> ErrorCode:
        """What to tell a client that waits for a leader which this broker is no more."""
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
        """Records from `fetch_offset` as a slice of the file; ApiError."""
        log = self.readable_log(current_leader_epoch, only_leader=only_leader)
        if (
            self.role is _FOLLOWER
            and current_leader_epoch == NO_EPOCH
            and fetch_offset > log.log_end_offset
        ):
            # Who does not say which epoch it knows of may take this broker for the leader still,
            # and would begin anew if its offset were called out of range.
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
        """(epoch, end offset) up to where a reader may agree that read `last_fetched_epoch` last
        and is at `fetch_offset`; None: this log goes on from there (KIP-595). ApiError."""
        log = self.readable_log(current_leader_epoch, only_leader=only_leader)
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found is None:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        epoch, end_offset = found
        return found if epoch < last_fetched_epoch or end_offset < fetch_offset else None

    def fetch_offset_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation | None, current_leader_epoch: int
    ) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp` that a
        client of `isolation` may read (None: a replica, which may read all)."""
        log = self.leader_log(current_leader_epoch)
        if isolation is FetchIsolation.TXN_COMMITTED:
            bound = log.last_stable_offset
        elif isolation is FetchIsolation.HIGH_WATERMARK:
            bound = log.high_watermark
        else:
            bound = log.log_end_offset
        if isolation is not None and log.high_watermark < self.leader_epoch_start_offset:
            # KIP-207: a new leader must not tell an older end than its predecessor did.
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if timestamp == LATEST_TIMESTAMP:
            return -1, bound, self.leader_epoch
        found = log.fetch_offset_by_timestamp(timestamp)
        if found is not None and timestamp != EARLIEST_TIMESTAMP and found[1] >= bound:
            return None
        return found

    def segment_offsets_before(self, timestamp: int, count_max: int, now_ms: int) -> list[int]:
        """ListOffsets v0: where segments begin whose files did not change after `timestamp`, and
        the end of what may be read, newest first."""
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
        """(epoch, end offset) of the largest epoch not beyond `leader_epoch` (KIP-279)."""
        return self.leader_log(current_leader_epoch).end_offset_for_epoch(leader_epoch)

    # --- followers ---------------------------------------------------------------------------

    def update_follower(
        self, broker_id: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> bool:
        """A follower fetched; whether the high watermark rose. ApiError for a stranger."""
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
        """Move the high watermark to what every replica has that is in sync, may be by now, or
        keeps up and so is about to be; whether it rose. Only a leader may: a flush that it waited
        for may end when it follows another."""
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
        """Whether this follower caught up and may join the ISR."""
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
        """Replicas of the ISR that fell behind for longer than `replica.lag.time.max.ms`."""
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
        """Ask for `broker_id` to join; what is to be sent to the controller."""
        self.isr_state = self.isr_state.expand(broker_id)
        return self.isr_state

    def shrink_isr(self, broker_ids: Sequence[int]) -> IsrState:
        """Ask for `broker_ids` to leave; what is to be sent to the controller."""
        self.isr_state = self.isr_state.shrink(broker_ids)
        return self.isr_state

    def isr_altered(
        self, isr: Sequence[int], leader_epoch: int, zk_version: int, now_ms: int
    ) -> bool:
        """The controller agreed to an ISR; whether the high watermark rose. Answers about older
        states change nothing."""
        if leader_epoch != self.leader_epoch or zk_version <= self.zk_version:
            return False
        self.isr_state = IsrState.committed(isr)
        self.zk_version = zk_version
        return self.maybe_increment_high_watermark(now_ms)

    # --- deletion of records -----------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: the high watermark); the offset asked."""
        log = self.leader_log()
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

    def low_watermark(self) -> int:
        """The smallest log start offset among the in-sync and other live replicas."""
        log = self.leader_log()
        return min([log.log_start_offset, *(f.log_start_offset for f in self.followers.values())])
