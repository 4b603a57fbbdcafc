"""A group coordinator with its world: virtual time, and a log in memory that commits on command.

The coordinator, its runtime and its service are the real ones.
"""

from dataclasses import dataclass, field

from kctl.broker.coordinator.group.offset_commits import OffsetCommit
from kctl.broker.coordinator.group.offsets import CommittedOffset
from kctl.broker.coordinator.group_coordinator_service import GroupCoordinatorService
from kctl.configs.broker_config import BrokerConfig
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.leave_group import MemberIdentity
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.records.memory_records import batches
from kctl.work import at_once
from tests.support.virtual_runtime import virtual_runtime

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class MemoryLog:
    """A PartitionWriter over lists of batches; commits at once, later, or never."""

    def __init__(self):
        # Topic-partition -> batches in order, each with its offsets set.
        self.batches = {}
        # Partitions that this broker leads.
        self.is_leader = True
        # Appends wait for `release`.
        self.is_holding = False
        # Error codes for the next appends; an append that times out is in the log nevertheless.
        self.failures = []
        self._held = []
        self.reads = 0
        # Replicas that are behind: up to here all have it. None: none is.
        self.committed_end = None

    def append(self, topic_partition, records, on_committed):
        code = self.failures.pop(0) if self.failures else 0
        if code not in (0, ErrorCode.REQUEST_TIMED_OUT):
            on_committed(code, -1)
            return
        base_offset = self.log_end_offset(topic_partition)
        (batch,) = batches(records)
        batch.set_base_offset(base_offset)
        self.batches.setdefault(topic_partition, []).append(records)
        if code:
            on_committed(code, -1)
        elif self.is_holding:
            self._held.append((on_committed, base_offset))
        else:
            on_committed(0, base_offset)

    def append_now(self, topic_partition, records):
        if self.is_holding or self.failures:
            return -1
        offsets = []
        self.append(topic_partition, records, lambda _code, offset: offsets.append(offset))
        return offsets[0]

    def release(self):
        """Settle what is held."""
        held, self._held = self._held, []
        self.is_holding = False
        for on_committed, base_offset in held:
            on_committed(0, base_offset)

    def read(self, topic_partition, offset, max_bytes):
        self._check()
        self.reads += 1
        data = bytearray()
        for records in self.batches.get(topic_partition, []):
            (batch,) = batches(records)
            if batch.next_offset > offset and (not data or len(data) + len(records) <= max_bytes):
                data += records
        return bytes(data) or None

    def log_start_offset(self, topic_partition):
        self._check()
        return 0

    def log_end_offset(self, topic_partition):
        self._check()
        stored = self.batches.get(topic_partition)
        return next(batches(stored[-1])).next_offset if stored else 0

    def high_watermark(self, topic_partition):
        end = self.log_end_offset(topic_partition)
        return end if self.committed_end is None else min(end, self.committed_end)

    def records(self, topic_partition):
        """Every record in order: (key, value)."""
        return [
            (record.key, record.value)
            for stored in self.batches.get(topic_partition, [])
            for batch in batches(stored)
            for record in batch.records()
        ]

    def _check(self):
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class Answer:
    """What came back on one request, as it came."""

    responses: list = field(default_factory=list)

    def __call__(self, response):
        self.responses.append(response)

    @property
    def is_there(self):
        return bool(self.responses)

    @property
    def response(self):
        assert len(self.responses) == 1, f"{len(self.responses)} answers"
        return self.responses[0]

    @property
    def error(self):
        return ErrorCode(self.response.error_code)


class GroupWorld:
    """One broker that coordinates all groups; __consumer_offsets has one partition here."""

    def __init__(self, settings=None, log=None, partition_count=1, seed=1):
        self.runtime = virtual_runtime(seed)
        self.clock = self.runtime.clock
        self.scheduler = self.runtime.scheduler
        self.trace = self.runtime.trace
        self.log = log or MemoryLog()
        given = {"group.initial.rebalance.delay.ms": str(DELAY_MS), **(settings or {})}
        self.config = BrokerConfig(given)
        self.service = GroupCoordinatorService(
            self.runtime, self.config, self.log, lambda: partition_count
        )
        self.service.start()

    def elect(self, partition=0, epoch=0):
        self.service.on_elected(partition, epoch)
        self.scheduler.settle()
        return self

    @property
    def shard(self):
        return self.service._shards.hosts[0].shard

    def group(self, group_id="g"):
        return self.shard.groups[group_id]

    def state(self, group_id="g"):
        return self.describe(group_id).group_state

    def describe(self, group_id="g"):
        return at_once(self.service.describe(group_id))

    def list_groups(self):
        return at_once(self.service.list_groups())

    def advance(self, delay_ms):
        self.scheduler.advance(delay_ms)

    # Requests

    def join(
        self,
        member_id="",
        *,
        group_id="g",
        instance_id=None,
        protocols=None,
        protocol_type="consumer",
        session_ms=SESSION_MS,
        rebalance_ms=REBALANCE_MS,
        client_id="client",
        required=None,
    ):
        answer = Answer()
        body = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols or {"range": b"m"}).items()
            ],
        )
        is_required = instance_id is None if required is None else required
        self.service.join(body, client_id, "/127.0.0.1", answer, is_member_id_required=is_required)
        self.scheduler.settle()
        return answer

    def new_member_id(self, **options):
        """A member id given out, but not joined with."""
        answer = self.join(**options)
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        return answer.response.member_id

    def enter(self, **options):
        """Join as a dynamic member does: get an id, join with it. (member id, answer)"""
        member_id = self.new_member_id(**options)
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id,
        generation_id,
        assignments=None,
        *,
        group_id="g",
        instance_id=None,
        protocol_type=None,
        protocol_name=None,
    ):
        answer = Answer()
        body = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        self.service.sync(body, answer)
        self.scheduler.settle()
        return answer

    def heartbeat(self, member_id, generation_id, *, group_id="g", instance_id=None):
        body = HeartbeatRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return ErrorCode(self.service.heartbeat(body))

    def leave(self, *identities, group_id="g"):
        """Identities: member ids, or (member id, instance id). The error of each."""
        answer = Answer()
        members = [
            MemberIdentity(member_id=identity)
            if isinstance(identity, str)
            else MemberIdentity(member_id=identity[0], group_instance_id=identity[1])
            for identity in identities
        ]
        self.service.leave(group_id, members, answer)
        self.scheduler.settle()
        assert answer.error is ErrorCode.NONE
        return [ErrorCode(member.error_code) for member in answer.response.members]

    def commit(
        self,
        offsets,
        *,
        group_id="g",
        member_id="",
        generation_id=-1,
        instance_id=None,
        metadata="",
        expire_ms=-1,
        producer_id=-1,
    ):
        """Offsets: {(topic, partition): offset}. An Answer with a list of error codes."""
        answer = Answer()
        now_ms = self.clock.wall_ms()
        commit = OffsetCommit(
            group_id,
            member_id,
            instance_id,
            generation_id,
            [
                (TopicPartition(*tp), CommittedOffset(offset, -1, metadata, now_ms, expire_ms))
                for tp, offset in offsets.items()
            ],
            answer,
            producer_id,
            0 if producer_id >= 0 else -1,
        )
        if producer_id >= 0:
            self.service.commit_offsets_in_transaction(commit, 1)
        else:
            self.service.commit_offsets(commit)
        self.scheduler.settle()
        return answer

    def end_transaction(self, producer_id, partition=0, *, is_commit):
        """The marker of the transaction is committed in this partition."""
        at_once(self.service.ending_transaction(producer_id, partition, is_commit=is_commit))

    def committed(self, *partitions, group_id="g", stable=False):
        """{(topic, partition): offset} of all, or of these."""
        asked = [TopicPartition(*tp) for tp in partitions] or None
        code, fetched = self.service.fetch_offsets(group_id, asked, require_stable=stable)
        assert code == 0, ErrorCode(code)
        return {tuple(one.topic_partition): one.offset for one in fetched}

    def delete_groups(self, *group_ids):
        answer = Answer()
        self.service.delete_groups(group_ids, answer)
        self.scheduler.settle()
        return answer

    def delete_offsets(self, *partitions, group_id="g"):
        answer = Answer()
        self.service.delete_offsets(group_id, [TopicPartition(*tp) for tp in partitions], answer)
        self.scheduler.settle()
        return answer

    # Stories that many tests begin with

    def _wait_for(self, answer):
        for _ in range(20):
            if answer.is_there:
                return
            self.advance(DELAY_MS)
        raise AssertionError("the group never got a generation")

    def form_group(self, count=2, *, group_id="g", **options):
        """A Stable group of `count` members, in the order of their joining: their ids and the
        generation. Each has b"part of <number>" assigned."""
        entered = [self.enter(group_id=group_id, **options) for _ in range(count)]
        self._wait_for(entered[0][1])
        ids = [member_id for member_id, _ in entered]
        generation_id = entered[0][1].response.generation_id
        leader = entered[0][1].response.leader
        for member_id in ids:
            if member_id != leader:
                self.sync(member_id, generation_id, group_id=group_id)
        plan = {member_id: b"part of %d" % number for number, member_id in enumerate(ids)}
        self.sync(leader, generation_id, plan, group_id=group_id)
        assert self.state(group_id) == "Stable"
        return ids, generation_id

    def form_static_group(self, *instance_ids, group_id="g", **options):
        """A Stable group of static members: their ids and the generation."""
        answers = [
            self.join(instance_id=name, group_id=group_id, **options) for name in instance_ids
        ]
        self._wait_for(answers[0])
        ids = [answer.response.member_id for answer in answers]
        generation_id = answers[0].response.generation_id
        for member_id, name in list(zip(ids, instance_ids, strict=True))[::-1]:
            plan = {one: b"part of %d" % number for number, one in enumerate(ids)}
            given = plan if member_id == answers[0].response.leader else None
            self.sync(member_id, generation_id, given, group_id=group_id, instance_id=name)
        assert self.state(group_id) == "Stable"
        return ids, generation_id
