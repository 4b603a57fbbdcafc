"""GroupCoordinatorService: the group coordinator's interface for request handlers.

Finds the shard of a group id, rejects requests that it cannot serve now (not elected, still
loading, invalid group id), passes the rest to the pure core and the core's outcome to the shard's
host. Replies are callbacks, called exactly once, possibly before the call returns.

Kafka 2.7: kafka.coordinator.group.GroupCoordinator (validateGroupStatus and its callers).
"""

from collections.abc import Callable, Sequence

from kctl.broker.coordinator.connection_order import ConnectionOrder
from kctl.broker.coordinator.group.cleanup import Steps
from kctl.broker.coordinator.group.group_coordinator import LISTED_PER_TURN, GroupCoordinator
from kctl.broker.coordinator.group.member_memory import MemberMemory
from kctl.broker.coordinator.group.membership import JoinAttempt
from kctl.broker.coordinator.group.offset_commits import FetchedOffset, OffsetCommit, PlainCommit
from kctl.broker.coordinator.group.rebalance import join_error
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.runtime import CoordinatorOptions, CoordinatorRuntime
from kctl.broker.coordinator.shard_host import HostState, PartitionWriter, ShardHost
from kctl.configs.broker_config import BrokerConfig
from kctl.java_hash import abs_java_hash
from kctl.model import TopicPartition
from kctl.protocol.constants import GROUP_METADATA_TOPIC, NO_EPOCH
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
from kctl.runtime.turns import alone_in_turns, in_turns
from kctl.work import Work

# From this inter-broker protocol on, every coordinator keeps instance ids (KIP-345).
STATIC_MEMBERS_SINCE = "2.3-IV0"
# Bytes of the log decoded per turn of the loop while a partition loads: a few milliseconds.
LOAD_BYTES_PER_TURN_MAX = 128 * 1024
# Maximum number of group ids whose partition is cached, and of their characters (4 bytes at most):
# beyond either the cache is cleared.
PARTITIONS_CACHED_MAX = 100_000
CHARACTERS_CACHED_MAX = 4 * 1024 * 1024

_NONE = int(ErrorCode.NONE)
_LOADING = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_MINUTE_MS = 60_000

Host = ShardHost[GroupCoordinator]


class GroupCoordinatorService:
    """Consumer groups of one broker.

    `partition_count` returns the number of partitions that __consumer_offsets has (or will have).
    """

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
        # The bytes held by the members of all groups.
        self.memory = MemberMemory()
        self.knows_static_members = config.is_at_least(STATIC_MEMBERS_SINCE)
        self._partition_count = partition_count
        self._count_cached = 0
        self._partitions: dict[str, int] = {}
        self._characters_cached = 0
        self._check_interval_ms = config.offsets_retention_check_interval_ms
        self._expiry_timer: Timer | None = None
        self._is_active = False
        options = CoordinatorOptions(
            GROUP_METADATA_TOPIC,
            min(config.offsets_load_buffer_size, LOAD_BYTES_PER_TURN_MAX),
            config.offsets_topic_compression_codec,
        )
        self._shards: CoordinatorRuntime[GroupCoordinator] = CoordinatorRuntime(
            runtime, writer, options, lambda _epoch: GroupCoordinator(self._settings, self.memory)
        )
        # Partition -> the host of its shard.
        self.hosts = self._shards.hosts
        self._order = ConnectionOrder()

    # Lifecycle

    def start(self) -> None:
        """Begin to serve requests."""
        self._is_active = True
        self._schedule_expiry()

    def shutdown(self) -> None:
        """Stop serving; pending requests get an error that makes clients look up the coordinator
        again."""
        self._is_active = False
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._shards.close()

    def on_elected(self, partition: int, epoch: int) -> None:
        """Load the groups of a partition of __consumer_offsets that this broker leads in
        `epoch`."""
        self._shards.elect(partition, epoch)

    def on_resigned(self, partition: int, epoch: int | None) -> None:
        """Release a partition that this broker no longer leads; `epoch` is None if it has no
        replica."""
        self._shards.resign(partition, epoch)

    def on_partitions_deleted(self, topic_partitions: Sequence[TopicPartition]) -> Work[None]:
        """Remove the offsets of deleted partitions."""
        return self._clean_up(lambda host: host.shard.cleanup.partitions_deleted(topic_partitions))

    def _clean_up(self, begin: Callable[[Host], Steps]) -> Work[None]:
        """Execute the steps of every active shard, with a `yield` between two of them."""
        for host in list(self._shards.active_hosts()):
            if not host.shard.groups:
                continue
            yield from host.steps(begin(host))
            yield

    def ending_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> Work[int]:
        """Apply the end of a transaction whose marker in this partition of __consumer_offsets is
        committed, in turns if it has many offsets; return the units of work.

        A shard that has yet to read the log to its end will find the marker there. One that has,
        and is still being built from it, will not.
        """
        host = self.hosts.get(partition)
        if host is None or not host.has_read:
            return 0
        if host.state not in (HostState.LOADING, HostState.ACTIVE):
            return 0
        return (yield from host.shard.commits.ending_transaction(producer_id, is_commit=is_commit))

    # Shards

    def partition_for(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that stores the group."""
        count = self._partition_count()
        if count != self._count_cached:
            self._count_cached = count
            self._clear_partitions()
        partition = self._partitions.get(group_id)
        if partition is None:
            self._characters_cached += len(group_id)
            is_full = len(self._partitions) >= PARTITIONS_CACHED_MAX
            if is_full or self._characters_cached > CHARACTERS_CACHED_MAX:
                self._clear_partitions()
                self._characters_cached = len(group_id)
            partition = self._partitions[group_id] = abs_java_hash(group_id) % count
        return partition

    def _clear_partitions(self) -> None:
        self._partitions.clear()
        self._characters_cached = 0

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[Host | None, int]:
        """Return the group's host and 0, or None and the error code.

        The group id "" is only valid for offsets (old simple consumers).
        """
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
        """Handle JoinGroup; `protocol_name` is None if there is none, whatever the version."""
        host, code = self._find(body.group_id)
        if host is None:
            reply(join_error(code, body.member_id))
            return
        uuid = "" if body.member_id else self._new_uuid()
        attempt = JoinAttempt(body, client_id, client_host, is_member_id_required, uuid, reply)
        host.run(host.shard.membership.join(attempt, host.moment()))

    def sync(self, body: SyncGroupRequest, reply: Callable[[SyncGroupResponse], object]) -> None:
        """Handle SyncGroup."""
        host, code = self._find(body.group_id)
        if host is None:
            # The rebalance under way did not survive the move, so members must rejoin. Old clients
            # do not know LOAD_IN_PROGRESS here.
            code = int(ErrorCode.REBALANCE_IN_PROGRESS) if code == _LOADING else code
            reply(SyncGroupResponse(error_code=code))
            return
        host.run(host.shard.membership.sync(body, reply, host.moment()))

    def heartbeat(self, body: HeartbeatRequest) -> int:
        """Handle Heartbeat and return its error code."""
        host, code = self._find(body.group_id)
        if host is None:
            # No member is late during loading: sessions begin when it is complete.
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
        """Handle LeaveGroup as of version 3: several members, each with its own error."""
        host, code = self._find(group_id)
        if host is None:
            reply(LeaveGroupResponse(error_code=code))
            return
        host.run(host.shard.membership.leave(group_id, members, reply, host.moment()))

    # Offsets

    def commit_offsets(self, commit: OffsetCommit) -> None:
        """Handle OffsetCommit; `commit.reply` takes an error code per offset."""
        host, code = self._find(commit.group_id, may_be_empty=True)
        if host is None:
            commit.reply([code] * len(commit.offsets))
            return
        host.run(host.shard.commits.commit(commit, host.moment()))

    def commit_plain(self, commit: PlainCommit, offset: int, leader_epoch: int = NO_EPOCH) -> bool:
        """Commit one offset if this succeeds at once; return False if nothing was done."""
        host, _ = self._find(commit.group_id, may_be_empty=True)
        if host is None:
            return False
        record = host.shard.commits.plain_record(commit, offset, leader_epoch, host.moment())
        return record is not None and host.write_now(record)

    def commit_offsets_in_transaction(self, commit: OffsetCommit, connection_number: int) -> None:
        """Handle TxnOffsetCommit; `commit` has the producer's id and epoch.

        A late request gets None as its reply, and its connection must then be closed.
        """
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
        """Handle OffsetFetch: return an error code and, in order, the result for each partition.

        `topic_partitions` is None for all partitions with an offset.
        """
        host, code = self._find(group_id, may_be_empty=True)
        if host is None:
            return code, []
        commits = host.shard.commits
        return _NONE, commits.fetch(group_id, topic_partitions, require_stable=require_stable)

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions with an offset of the group; none if it is not known here."""
        host, _ = self._find(group_id, may_be_empty=True)
        return [] if host is None else host.shard.commits.committed_partitions(group_id)

    def delete_offsets(
        self,
        group_id: str,
        topic_partitions: Sequence[TopicPartition],
        reply: Callable[[tuple[int, list[int]]], object],
    ) -> None:
        """Handle OffsetDelete; `reply` takes the group's error code and, if it is 0, one per
        partition."""
        host, code = self._find(group_id)
        if host is None:
            reply((code, []))
            return
        host.run(host.shard.cleanup.delete_offsets(group_id, topic_partitions, reply))

    # Groups

    def describe(self, group_id: str) -> Work[DescribedGroup]:
        """Handle DescribeGroups for one group."""
        host, code = self._find(group_id, may_be_empty=True)
        if host is None:
            return DescribedGroup(error_code=code, group_id=group_id)
        return (yield from host.shard.describe(group_id))

    def list_groups(self, states: Sequence[str] = ()) -> Work[tuple[int, list[ListedGroup]]]:
        """Handle ListGroups: return the loaded groups, and an error code if some are still
        loading."""
        if not self._is_active:
            return int(ErrorCode.COORDINATOR_NOT_AVAILABLE), []
        groups: list[ListedGroup] = []
        for host in self._shards.active_hosts():
            groups += yield from host.shard.list_groups(states)
            if len(groups) > LISTED_PER_TURN:
                yield
        return _LOADING if self._shards.is_loading else _NONE, groups

    def delete_groups(
        self, group_ids: Sequence[str], reply: Callable[[dict[str, int]], object]
    ) -> None:
        """Handle DeleteGroups; `reply` takes an error code per group id, once all are known."""
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
        steps = host.shard.cleanup.delete_group(group_id, lambda code: done(group_id, code))

        def carried_out(is_whole: bool) -> None:
            if not is_whole:
                done(group_id, int(ErrorCode.NOT_COORDINATOR))

        def failed(error: Exception) -> None:
            done(group_id, int(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise error

        in_turns(self._runtime.scheduler, host.steps(steps), carried_out, failed)

    # Expiry

    def _schedule_expiry(self) -> None:
        self._expiry_timer = self._runtime.scheduler.call_later(
            self._check_interval_ms, self._begin_expiry
        )

    def _begin_expiry(self) -> None:
        work = self._clean_up(lambda host: host.shard.cleanup.expire(host.moment()))
        alone_in_turns(self._runtime.scheduler, work)
        self._schedule_expiry()

    def _new_uuid(self) -> str:
        """Return a random UUID of version 4, as text."""
        data = bytearray(self._runtime.entropy.random_bytes(16))
        data[6] = data[6] & 0x0F | 0x40
        data[8] = data[8] & 0x3F | 0x80
        text = data.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def group_settings(config: BrokerConfig) -> GroupSettings:
    """Return the broker configs that the core needs."""
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
