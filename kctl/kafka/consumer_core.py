"""ConsumerCore: the coroutines of a Consumer, on its loop.

One task at a time advances: it joins the group where that is necessary, commits if it is due, and
fetches once. `poll` waits for it no longer than the caller wants; the task goes on meanwhile.
Before records that were fetched earlier are handed out, `attend` commits if that is due, and gives
them up if the group rebalances: they may belong to another member.

Invariants: no partition is read, and no record is handed out, between a rebalance that this member
knows of and the start of its next assignment. `_ends` holds, per assigned partition, the offset
after the last record that was put into the buffer; so a record is in the buffer, was handed out, or
is fetched again, whatever fails. What is committed is at most the offset of the first record that
was not handed out.

Kafka 2.7: org.apache.kafka.clients.consumer.KafkaConsumer, internals.ConsumerCoordinator
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from kctl.client.bootstrap_servers import parse_servers
from kctl.client.consumer import FetchedRecord, PartitionReader
from kctl.client.group_member import GroupMember, MemberState
from kctl.client.offsets import (
    OffsetsClient,
    commit_codes,
    commit_topics,
    offsets_or_error,
    raise_for_commit,
)
from kctl.client.old_brokers import VersionFallback
from kctl.client.router import Router
from kctl.client.security import ClientSecurity
from kctl.errors import KctlError, NotFoundError, TimedOutError, UsageError, not_found
from kctl.kafka.consumer_config import ConsumerConfig
from kctl.kafka.streams import ConsumedMessage
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.messages.offset_commit import OffsetCommitRequest
from kctl.runtime.future import Task, sleep, wait_at_most
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# How long a member without partitions waits before it looks again.
_IDLE_MS = 200
# The topic and the partition of a FetchedRecord.
_place = itemgetter(0, 1)
_RESETS = {"earliest": PositionKind.EARLIEST, "latest": PositionKind.LATEST}


class ConsumerCore:
    """What a consumer reads, and where it is."""

    def __init__(self, runtime: Runtime, config: ConsumerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self.router = Router(
            runtime,
            parse_servers(config["bootstrap"]),
            client_id=config["client_id"],
            timeout_ms=config["request_timeout_ms"],
            security=ClientSecurity.of(config.properties),
            fallback=VersionFallback.of(config.properties),
        )
        self._offsets = OffsetsClient(self.router)
        self._member: GroupMember | None = None
        self._reader: PartitionReader | None = None
        self._task: Task[None] | None = None
        # Records that were not handed out, by partition: a position is asked for at each commit.
        self._buffer: dict[TopicPartition, deque[FetchedRecord]] = {}
        self._ends: dict[TopicPartition, int] = {}
        # What this consumer knows to be committed.
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit_ms = 0
        self._interval: Timer | None = None
        # What the last join assigned; it is read once its positions are known.
        self._joined: Sequence[TopicPartition] = ()
        # How often the partitions were given up, and with them what was polled of them.
        self.revocations = 0

    # Partitions

    async def subscribe(self, topics: Sequence[str], held: Mapping[TopicPartition, int]) -> None:
        """Read the partitions of `topics` that the group assigns to this member. What is committed
        of earlier partitions is at most `held`."""
        group = self._group()
        if isinstance(topics, str) or not topics:
            raise UsageError("subscribe takes a list of topics")
        await self._unassign(held)
        self._member = GroupMember(
            self.router,
            group,
            topics,
            session_timeout_ms=self._config["session_timeout_ms"],
            rebalance_timeout_ms=self._config["poll_interval_ms"],
            heartbeat_interval_ms=self._config["heartbeat_interval_ms"],
        )

    async def assign(
        self, partitions: Iterable[TopicPartition], held: Mapping[TopicPartition, int]
    ) -> None:
        """Read `partitions`, without a group's members. What is committed of earlier ones is at
        most `held`."""
        wanted = [TopicPartition(*it) for it in partitions]
        await self._unassign(held)
        await self._begin(wanted)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return sorted(self._ends)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to hand out."""
        self._check_assigned(partition)
        fetched = self._buffer.get(partition)
        return self._ends[partition] if fetched is None else fetched[0].record.offset

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on elsewhere."""
        if not offsets:
            return
        for partition, offset in offsets.items():
            self._check_assigned(partition)
            if offset < 0:
                raise UsageError(f"offset {offset} is negative")
        for partition in offsets:
            self._buffer.pop(partition, None)
        self._read_from({**self._ends, **offsets})

    async def seek_to(self, kind: PositionKind, partitions: Iterable[TopicPartition]) -> None:
        """Go on at an end of the partitions; of all that are assigned if none are given."""
        wanted = list(partitions) or list(self._ends)
        self.seek(await self.resolve(dict.fromkeys(wanted, Position(kind))))

    async def resolve(
        self, positions: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of positions; raise the first error."""
        return offsets_or_error(
            await self._offsets.resolve(positions, isolation_level=self._config["isolation_level"])
        )

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return what the group has committed for `partitions`; raise the first error."""
        group = self._group()
        if not partitions:
            return {}
        found = offsets_or_error(await self._offsets.committed(group, partitions))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        view = await self.router.refresh([topic])
        numbers = view.partitions_of(topic)
        if not numbers:
            raise not_found("topic", topic, view.topics)
        return numbers

    # Reading

    async def poll(self, timeout_ms: int, records_max: int) -> list[ConsumedMessage]:
        """Return the next records, or none if none arrive in time."""
        deadline_ms = self._runtime.clock.monotonic_ms() + timeout_ms
        self._cancel_interval()
        try:
            if self._buffer:
                await self._attend(deadline_ms, {})
            while not self._buffer:
                if self._task is None:
                    self._task = self._runtime.scheduler.spawn(self._advance(), "consume")
                if not await self._has_ended(deadline_ms):
                    return []
            return self._take(records_max)
        finally:
            self._watch_interval()

    @property
    def is_due(self) -> bool:
        """Return whether `attend` has something to do; any thread may ask."""
        # Asked for each message of an iteration.
        if self._runtime.clock.monotonic_ms() >= self._next_commit_ms:
            return True
        member = self._member
        return member is not None and member.state is not MemberState.STABLE

    async def attend(self, timeout_ms: int, held: Mapping[TopicPartition, int]) -> None:
        """Do what is due before the caller hands out records that it polled earlier: commit, at
        most `held`, and give up the partitions if the group rebalances. The commit goes on if it
        takes longer than `timeout_ms`."""
        deadline_ms = self._runtime.clock.monotonic_ms() + timeout_ms
        self._cancel_interval()
        try:
            await self._attend(deadline_ms, held)
        finally:
            self._watch_interval()

    async def _attend(self, deadline_ms: int, held: Mapping[TopicPartition, int]) -> None:
        if self._member is not None:
            self._member.check()
        is_lost = self._has_lost_partitions()
        if not is_lost and not self._is_commit_due():
            return
        # The task that may run is a commit that took longer than an earlier call.
        if await self._has_ended(deadline_ms):
            commit = self._commit_automatically(held)
            self._task = self._runtime.scheduler.spawn(commit, "commit")
            await self._has_ended(deadline_ms)
        if is_lost:
            self._revoke()

    async def _has_ended(self, deadline_ms: int) -> bool:
        """Wait for the task, if one runs, until `deadline_ms`; return whether it has ended, or
        raise its error."""
        task = self._task
        if task is None:
            return True
        left_ms = max(deadline_ms - self._runtime.clock.monotonic_ms(), 0)
        late = TimedOutError("not in time")
        try:
            await wait_at_most(self._runtime.scheduler, task, left_ms, late)
        except TimedOutError as error:
            if error is late:
                return False
            raise
        finally:
            if task.done:
                self._task = None
        return True

    async def _advance(self) -> None:
        """Fetch once; the records before were processed, since the caller polls again."""
        member = self._member
        if member is not None:
            member.check()
            if member.must_rejoin:
                await self._commit_automatically({})
                self._revoke()
                self._joined = await member.join()
            if self._reader is None:
                await self._begin(self._joined)
        elif self._reader is None:
            raise UsageError("nothing to read", hint="call subscribe or assign first")
        if self._is_commit_due():
            await self._commit_automatically({})
        reader = self._reader
        if reader is None or not reader.positions:
            await sleep(self._runtime.scheduler, _IDLE_MS)
            return
        self._put(await reader.poll())
        self._ends = dict(reader.positions)
        # Positions that no longer exist, from which the reader went on elsewhere.
        notes, reader.notes = reader.notes, []
        for note in notes:
            self._runtime.trace.warning(note)

    def _put(self, records: Sequence[FetchedRecord]) -> None:
        # Those of a partition come one after the other, with few exceptions.
        for (topic, number), run in groupby(records, key=_place):
            self._buffer.setdefault(TopicPartition(topic, number), deque()).extend(run)

    def _take(self, count_max: int) -> list[ConsumedMessage]:
        taken: list[ConsumedMessage] = []
        while self._buffer and len(taken) < count_max:
            partition, fetched = next(iter(self._buffer.items()))
            count = min(count_max - len(taken), len(fetched))
            taken += [_message(fetched.popleft()) for _ in range(count)]
            if not fetched:
                del self._buffer[partition]
        return taken

    async def _begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Start to read `partitions` where the group is, or where auto.offset.reset says."""
        committed: dict[TopicPartition, int] = {}
        if self._config["group_id"] is not None:
            committed = await self.committed(partitions)
        fresh = [partition for partition in partitions if partition not in committed]
        if fresh and self._config["reset"] == "none":
            names = ", ".join(map(str, fresh))
            raise NotFoundError(f"no committed offset for {names}, and auto.offset.reset=none")
        start = Position(_RESETS.get(self._config["reset"], PositionKind.EARLIEST))
        self._committed = committed
        starts = {**committed, **await self.resolve(dict.fromkeys(fresh, start))}
        # The task that joins the group is the one that is running here.
        self._read_from(starts, cancels=False)

    def _read_from(self, ends: Mapping[TopicPartition, int], *, cancels: bool = True) -> None:
        if cancels:
            self._cancel_task()
        if self._reader is not None:
            self._reader.close()
        self._ends = dict(ends)
        self._reader = PartitionReader(
            self.router,
            self._ends,
            isolation_level=self._config["isolation_level"],
            max_wait_ms=self._config["fetch_wait_ms"],
            partition_bytes_max=self._config["fetch_size"],
            response_bytes_max=self._config["fetch_bytes_max"],
            resets=self._config["reset"] != "none",
        )

    # Commits

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets`; raise ApiError, which names the partitions that failed."""
        group = self._group()
        member = self._member
        if not offsets:
            return
        request = OffsetCommitRequest(group_id=group, topics=commit_topics(offsets))
        if member is not None:
            request.generation_id = member.generation_id
            request.member_id = member.member_id
        response = await self.router.send_to_coordinator(group, request)
        codes = commit_codes(response)
        for partition, code in codes.items():
            if not code and partition in self._ends:
                self._committed[partition] = offsets[partition]
        raise_for_commit(codes)

    async def commit_positions(self, held: Mapping[TopicPartition, int]) -> None:
        """Commit how far each partition has been handed out, or `held`, where that is less."""
        await self.commit(self._uncommitted(held))

    def _uncommitted(self, held: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        offsets = {it: held.get(it, self.position(it)) for it in self._ends}
        return {it: at for it, at in offsets.items() if self._committed.get(it) != at}

    def _has_lost_partitions(self) -> bool:
        return self._member is not None and self._member.must_rejoin

    def _is_commit_due(self) -> bool:
        return self._runtime.clock.monotonic_ms() >= self._next_commit_ms

    async def _commit_automatically(self, held: Mapping[TopicPartition, int]) -> None:
        """Commit if the settings ask for it, at most `held`; a failure is logged, and tried again
        later."""
        interval_ms: int = self._config["auto_commit_ms"]
        self._next_commit_ms = self._runtime.clock.monotonic_ms() + interval_ms
        if not self._config["auto_commit"] or self._config["group_id"] is None:
            return
        try:
            await self.commit_positions(held)
        except KctlError as error:
            self._runtime.trace.warning(f"automatic commit: {error}")

    # Ends

    async def close(self, held: Mapping[TopicPartition, int]) -> None:
        """Commit if the settings ask for it, leave the group, close the connections."""
        try:
            self._cancel_task()
            is_automatic = self._config["auto_commit"] and self._config["group_id"] is not None
            if is_automatic and self._ends:
                await self.commit_positions(held)
        finally:
            try:
                await self._unassign(None)
            finally:
                self.router.close()

    async def _unassign(self, held: Mapping[TopicPartition, int] | None) -> None:
        """Give up the partitions, and leave the group; commit at most `held` before (None: do not
        commit)."""
        self._cancel_task()
        if held is not None:
            await self._commit_automatically(held)
        self._cancel_interval()
        self._revoke()
        member, self._member = self._member, None
        if member is not None:
            await member.leave()

    def _revoke(self) -> None:
        """Give up the partitions at once, and what was fetched of them: another member may read
        them."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._buffer.clear()
        self._ends, self._committed, self._joined = {}, {}, ()
        self.revocations += 1

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _cancel_interval(self) -> None:
        if self._interval is not None:
            self._interval.cancel()
            self._interval = None

    def _watch_interval(self) -> None:
        """Leave the group if the caller does not poll for max.poll.interval.ms: another member can
        have the partitions then. The next poll joins again."""
        self._cancel_interval()
        member = self._member
        if member is not None:
            self._interval = self._runtime.scheduler.call_later(
                self._config["poll_interval_ms"], self._end_interval, member
            )

    def _end_interval(self, member: GroupMember) -> None:
        if self._task is not None and not self._task.done:
            # A join that goes on without the caller ends first.
            self._watch_interval()
        else:
            self._runtime.scheduler.spawn(member.leave(), "leave")

    def _group(self) -> str:
        group: str | None = self._config["group_id"]
        if group is None:
            raise UsageError("the consumer has no group", hint="set group.id")
        return group

    def _check_assigned(self, partition: TopicPartition) -> None:
        if partition not in self._ends:
            raise UsageError(f"{TopicPartition(*partition)} is not assigned to this consumer")


def _message(fetched: FetchedRecord) -> ConsumedMessage:
    record = fetched.record
    return ConsumedMessage(
        fetched.topic, fetched.partition, record.offset, record.key, record.value,
        record.timestamp, record.headers,
    )  # fmt: skip
