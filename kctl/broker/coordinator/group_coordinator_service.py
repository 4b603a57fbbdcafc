"""GroupCoordinatorService: the group coordinator as request handlers know it.

Finds the shard that a group id belongs to, refuses what cannot be asked of it now (not elected,
still loading, group id that is none), hands the rest to the pure core and its outcome to the
shard's host. Replies are given as callbacks, called exactly once, maybe before the call returns.

Kafka 2.7: kafka.coordinator.group.GroupCoordinator (validateGroupStatus and what stands around).
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from kctl.broker.config import BrokerConfig
from kctl.broker.coordinator.connection_order import ConnectionOrder
from kctl.broker.coordinator.group.group_coordinator import GroupCoordinator
from kctl.broker.coordinator.group.membership import JoinAttempt
from kctl.broker.coordinator.group.offset_commits import FetchedOffset, OffsetCommit, PlainCommit
from kctl.broker.coordinator.group.offsets import NO_LEADER_EPOCH
from kctl.broker.coordinator.group.rebalance import join_error
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.java_hash import abs_java_hash
from kctl.broker.coordinator.runtime import CoordinatorOptions, CoordinatorRuntime
from kctl.broker.coordinator.shard_host import HostState, PartitionWriter, ShardHost
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.consumer_offsets import GROUP_VALUE_VERSION, OFFSET_VALUE_VERSION
from kctl.protocol.messages.describe_groups import DescribedGroup
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kctl.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from kctl.protocol.messages.list_groups import ListedGroup
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# The inter-broker protocol from which on every coordinator keeps instance ids (KIP-345).
STATIC_MEMBERS_SINCE = "2.3-IV0"
GROUP_METADATA_TOPIC = "__consumer_offsets"
# Bytes of the log decoded per turn of the loop while a partition is loaded: a few milliseconds.
LOAD_BYTES_PER_TURN_MAX = 128 * 1024
# Group ids whose partition is remembered.
PARTITIONS_CACHED_MAX = 100_000

_NONE = int(ErrorCode.NONE)
_LOADING = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_MINUTE_MS = 60_000

Host = ShardHost[GroupCoordinator]


class GroupCoordinatorService:
    """Consumer groups of one broker; `partition_count` tells how many partitions
    __consumer_offsets has (or will have)."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        writer: PartitionWriter,
        partition_count: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._settings = group_settings(config)
        self.knows_static_members = config.is_at_least(STATIC_MEMBERS_SINCE)
        self._partition_count = partition_count
        self._count_cached = 0
        self._partitions: dict[str, int] = {}
        self._check_interval_ms = config.offsets_retention_check_interval_ms
        self._expiry_timer: Timer | None = None
        self._is_active = False
        options = CoordinatorOptions(
            GROUP_METADATA_TOPIC,
            min(config.offsets_load_buffer_size, LOAD_BYTES_PER_TURN_MAX),
            config.offsets_topic_compression_codec,
        )
        self._shards: CoordinatorRuntime[GroupCoordinator] = CoordinatorRuntime(
            runtime, writer, options, lambda _epoch: GroupCoordinator(self._settings)
        )
        # Partition -> the host of its shard.
        self.hosts = self._shards.hosts
        self._order = ConnectionOrder()

    # Life

    def start(self) -> None:
        """Serve from now on."""
        self._is_active = True
        self._schedule_expiry()

    def shutdown(self) -> None:
        """Serve no more; who waits is sent to find another coordinator."""
        self._is_active = False
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._shards.close()

    def on_elected(self, partition: int, epoch: int) -> None:
        """This broker leads that partition of __consumer_offsets, in that leader epoch."""
        self._shards.elect(partition, epoch)

    def on_resigned(self, partition: int, epoch: int | None) -> None:
        """It leads it no more; None: its replica is gone altogether."""
        self._shards.resign(partition, epoch)

    def on_partitions_deleted(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Topics were deleted: forget their offsets."""
        for host in self._shards.active_hosts():
            host.run(host.shard.cleanup.partitions_deleted(topic_partitions))

    def on_transaction_ended(
        self, producer_id: int, partitions: Sequence[int], *, is_commit: bool
    ) -> None:
        """The producer's markers are in these partitions of __consumer_offsets, committed."""
        for partition in partitions:
            host = self.hosts.get(partition)
            if host is not None and host.state is HostState.ACTIVE:
                host.shard.commits.end_transaction(producer_id, is_commit=is_commit)

    # Where a group is

    def partition_for(self, group_id: str) -> int:
        """The partition of __consumer_offsets that keeps the group."""
        count = self._partition_count()
        if count != self._count_cached:
            self._count_cached = count
            self._partitions.clear()
        partition = self._partitions.get(group_id)
        if partition is None:
            if len(self._partitions) >= PARTITIONS_CACHED_MAX:
                self._partitions.clear()
            partition = self._partitions[group_id] = abs_java_hash(group_id) % count
        return partition

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[Host | None, int]:
        """The group's host, or why there is none. Only offsets may be kept for the group id
        "" (old simple consumers)."""
        if not group_id and not may_be_empty:
            return None, int(ErrorCode.INVALID_GROUP_ID)
        if not self._is_active:
            return None, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = self.partition_for(group_id)
        host = self.hosts.get(partition)
        if host is not None and host.state is HostState.ACTIVE:
            return host, _NONE
        return None, self._shards.error_of(partition)

    # Membership

    def join(
        self,
        body: JoinGroupRequest,
        client_id: str,
        client_host: str,
        reply: Callable[[JoinGroupResponse], object],
        *,
        is_member_id_required: bool,
    ) -> None:
        """JoinGroup. `protocol_name` is None where there is none, whatever the version."""
        host, code = self._find(body.group_id)
        if host is None:
            reply(join_error(code, body.member_id))
            return
        uuid = "" if body.member_id else self._new_uuid()
        attempt = JoinAttempt(body, client_id, client_host, is_member_id_required, uuid, reply)
        host.run(host.shard.membership.join(attempt, host.moment()))

    def sync(self, body: SyncGroupRequest, reply: Callable[[SyncGroupResponse], object]) -> None:
        """SyncGroup."""
        host, code = self._find(body.group_id)
        if host is None:
            # The rebalance under way did not survive the move: members join again. Old clients
            # do not know LOAD_IN_PROGRESS here.
            code = int(ErrorCode.REBALANCE_IN_PROGRESS) if code == _LOADING else code
            reply(SyncGroupResponse(error_code=code))
            return
        host.run(host.shard.membership.sync(body, reply, host.moment()))

    def heartbeat(self, body: HeartbeatRequest) -> int:
        """Heartbeat: the error code."""
        host, code = self._find(body.group_id)
        if host is None:
            # While loading nobody is late: sessions begin when it is done.
            return _NONE if code == _LOADING else code
        return host.shard.membership.heartbeat(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id,
            self._clock.monotonic_ms(),
        )

    def leave(
        self,
        group_id: str,
        members: Sequence[MemberIdentity],
        reply: Callable[[LeaveGroupResponse], object],
    ) -> None:
        """LeaveGroup, as from version 3 on: many members, each with an error of its own."""
        host, code = self._find(group_id)
        if host is None:
            reply(LeaveGroupResponse(error_code=code))
            return
        host.run(host.shard.membership.leave(group_id, members, reply, host.moment()))

    # Offsets

    def commit_offsets(self, commit: OffsetCommit) -> None:
        """OffsetCommit; `commit.reply` takes an error code per offset."""
        host, code = self._find(commit.group_id, may_be_empty=True)
        if host is None:
            commit.reply([code] * len(commit.offsets))
            return
        host.run(host.shard.commits.commit(commit, host.moment()))

    def commit_plain(
        self, commit: PlainCommit, offset: int, leader_epoch: int = NO_LEADER_EPOCH
    ) -> bool:
        """OffsetCommit of one offset, if it is done at once and well; else nothing was done."""
        host, _ = self._find(commit.group_id, may_be_empty=True)
        if host is None:
            return False
        record = host.shard.commits.plain_record(commit, offset, leader_epoch, host.moment())
        return record is not None and host.write_now(record)

    def commit_offsets_in_transaction(self, commit: OffsetCommit, connection_number: int) -> None:
        """TxnOffsetCommit; `commit` has the producer's id and epoch. Its reply is given None if
        the request came late: its connection is to be closed then."""
        host, code = self._find(commit.group_id)
        if host is None:
            commit.reply([code] * len(commit.offsets))
            return
        if self._order.is_late(commit.producer_id, commit.producer_epoch, connection_number):
            self._runtime.trace.event("late_transaction_request", group=commit.group_id)
            commit.reply(None)
            return
        host.run(host.shard.commits.commit_in_transaction(commit, host.moment()))

    def fetch_offsets(
        self,
        group_id: str,
        topic_partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool = False,
    ) -> tuple[int, list[FetchedOffset]]:
        """OffsetFetch: an error code for all, and what there is for each, in order; None asks
        for all partitions with an offset."""
        host, code = self._find(group_id, may_be_empty=True)
        if host is None:
            return code, []
        commits = host.shard.commits
        return _NONE, commits.fetch(group_id, topic_partitions, require_stable=require_stable)

    def delete_offsets(
        self,
        group_id: str,
        topic_partitions: Sequence[TopicPartition],
        reply: Callable[[tuple[int, list[int]]], object],
    ) -> None:
        """OffsetDelete: `reply` takes the group's error code and, if that is 0, one for each
        partition."""
        host, code = self._find(group_id)
        if host is None:
            reply((code, []))
            return
        host.run(host.shard.cleanup.delete_offsets(group_id, topic_partitions, reply))

    # Groups

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups, for one group."""
        host, code = self._find(group_id, may_be_empty=True)
        if host is None:
            return DescribedGroup(error_code=code, group_id=group_id)
        return host.shard.describe(group_id)

    def list_groups(self, states: Sequence[str] = ()) -> tuple[int, list[ListedGroup]]:
        """ListGroups: the groups that are known here, and an error code if some are not yet."""
        if not self._is_active:
            return int(ErrorCode.COORDINATOR_NOT_AVAILABLE), []
        groups = [
            group
            for host in self._shards.active_hosts()
            for group in host.shard.list_groups(states)
        ]
        return _LOADING if self._shards.is_loading else _NONE, groups

    def delete_groups(
        self, group_ids: Sequence[str], reply: Callable[[dict[str, int]], object]
    ) -> None:
        """DeleteGroups: `reply` takes an error code for each group id, once all are known."""
        results: dict[str, int] = {}
        wanted = list(dict.fromkeys(group_ids))

        def one_done(group_id: str, code: int) -> None:
            results[group_id] = code
            if len(results) == len(wanted):
                reply({group_id: results[group_id] for group_id in wanted})

        if not wanted:
            reply({})
        for group_id in wanted:
            self._delete_group(group_id, one_done)

    def _delete_group(self, group_id: str, done: Callable[[str, int], object]) -> None:
        host, code = self._find(group_id, may_be_empty=True)
        if host is None:
            done(group_id, code)
            return
        host.run(host.shard.cleanup.delete_group(group_id, lambda code: done(group_id, code)))

    # Expiry

    def _schedule_expiry(self) -> None:
        self._expiry_timer = self._runtime.scheduler.call_later(
            self._check_interval_ms, self._begin_expiry
        )

    def _begin_expiry(self) -> None:
        self._expire_next(self._shards.active_hosts())
        self._schedule_expiry()

    def _expire_next(self, hosts: list[Host]) -> None:
        """One shard per turn of the loop."""
        if not hosts or not self._is_active:
            return
        host = hosts.pop()
        if host.state is HostState.ACTIVE:
            host.run(host.shard.cleanup.expire(host.moment()))
        self._runtime.scheduler.call_later(0, self._expire_next, hosts)

    def _new_uuid(self) -> str:
        return str(UUID(bytes=self._runtime.entropy.random_bytes(16), version=4))


def group_settings(config: BrokerConfig) -> GroupSettings:
    """What of the broker's configuration the core needs."""
    offset_version = OFFSET_VALUE_VERSION
    if not config.is_at_least("2.1-IV1"):
        offset_version = 2 if config.is_at_least("2.1-IV0") else 1
    group_version = GROUP_VALUE_VERSION
    if not config.is_at_least(STATIC_MEMBERS_SINCE):
        group_version = 2 if config.is_at_least("2.1-IV0") else 1
    if not config.is_at_least("0.10.1-IV0"):
        group_version = 0
    return GroupSettings(
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        group_size_max=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offset_value_version=offset_version,
        group_value_version=group_version,
    )
