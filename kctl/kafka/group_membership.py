"""GroupMembership: one consumer's life in a group on ZooKeeper, round by round.

`Rebalance` decides; this object reads, writes and waits for it. It calls its Receiver when a
partition may be delivered and when it may no longer be. A member never stops trying: if ZooKeeper,
a broker or another member makes a round fail, it leaves the group, passes the error to its streams,
and joins again after a pause that grows to the session timeout.

Kafka 1.1: kafka.consumer.ZookeeperConsumerConnector.
"""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from kctl.errors import KctlError
from kctl.kafka.assignment import Assignment, HashedText, Strategy, assign
from kctl.kafka.rebalance import Lease, Moves, Rebalance, RebalanceState, Tries
from kctl.lazy_dataclass import dataclass
from kctl.runtime.future import Future, Task, sleep
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_registry import ConsumerRegistry, LostClaimError
from kctl.store.consumer_znodes import (
    ConsumedPartition,
    FilterEscapes,
    Layout,
    Partition,
    Pattern,
    Subscription,
    consumer_ids_path,
    encode_subscription,
    encode_subscription_07,
)
from kctl.store.errors import NodeExistsError, SessionExpiredError, StoreError
from kctl.store.interface import SessionState, WatchedEvent
from kctl.store.topic_filter import TopicFilter, registered_filter

T = TypeVar("T")

# Changes that come one after the other, as when many members start, cost one round.
SETTLE_MS = 20
# How often the session is checked in the time of one lease.
PINGS_PER_LEASE = 4
# Former sessions of this process whose znodes may still be there.
FORMER_SESSIONS_MAX = 4
# Filters of members that are kept compiled.
FILTERS_MAX = 100
# How long `close` waits for ZooKeeper.
CLOSE_MS_MAX = 5_000


class Receiver(Protocol):
    """What delivers partitions."""

    def start(
        self, threads: Mapping[ConsumedPartition, int], offsets: Mapping[ConsumedPartition, int]
    ) -> None:
        """Begin to deliver partitions to threads, from the committed offsets where there are
        any."""
        ...

    def stop(self, partitions: Collection[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """End the delivery of partitions at once; return their consumed offsets that are not
        committed."""
        ...

    def committed(self, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Note that offsets are committed."""
        ...

    def failed(self, error: KctlError) -> None:
        """Pass the error to everyone who waits for messages."""
        ...


class CommittedOffsets(Protocol):
    """Where a group keeps its offsets."""

    async def fetch(self, partitions: Sequence[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """Return the committed offset of each partition that has one."""
        ...

    async def commit(self, consumer_id: str, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Commit offsets of partitions that the consumer owns; LostClaimError if it does not."""
        ...


@dataclass(frozen=True)
class GroupSettings:
    """The settings of a member; times in ms."""

    group_id: str
    host: str
    consumer_id: str | None = None
    strategy: Strategy = Strategy.RANGE
    hashed_text: HashedText = HashedText.DASH
    exclude_internal_topics: bool = True
    rebalance_backoff_ms: int = 2_000
    auto_commit: bool = True
    # After so many failed tries in a row the streams raise RebalanceFailedError; None: after each
    # they raise its error.
    rebalance_retries: int | None = None
    # Whether a new assignment also stops, for a moment, what stays with this member.
    stops_all: bool = False


class _EvictedError(KctlError):
    """The id znode is gone although the session lives: someone deleted the group."""


class GroupMembership:
    """A member of the group from `start` to `close`, through all its sessions."""

    def __init__(
        self,
        runtime: Runtime,
        registry: ConsumerRegistry,
        settings: GroupSettings,
        subscription: Mapping[str, int] | tuple[TopicFilter, int],
        receiver: Receiver,
        offsets: CommittedOffsets,
    ) -> None:
        self._runtime = runtime
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._registry = registry
        self._store = registry.store
        self._settings = settings
        self._group = settings.group_id
        self.subscription = subscription
        self._receiver = receiver
        self._offsets = offsets
        self.rebalance = Rebalance()
        self.lease = Lease(self._store.session_timeout_ms)
        self._tries = Tries(settings.rebalance_retries, settings.rebalance_backoff_ms)
        # The assignment of the last round.
        self._assigned: Assignment = {}
        # Rounds so far, for reports and benchmarks.
        self.rounds = 0
        self._is_changed = False
        self._is_closing = False
        self._woken: Future[None] | None = None
        # Sessions so far; what was begun in an earlier one must not continue.
        self._sessions = 0
        self._born_ms = runtime.clock.wall_ms()
        self._former: dict[str, list[ConsumedPartition]] = {}
        self._backoff_ms = settings.rebalance_backoff_ms
        self._committing: Future[None] | None = None
        self._filters: dict[tuple[str, str], TopicFilter] = {}
        self._store.on_session_state(self._session_state_changed)
        self._life: Task[None] | None = None
        self._pings: Task[None] | None = None

    # --- life

    def start(self) -> None:
        """Join the group, and stay in it until `close`."""
        self._life = self._scheduler.spawn(self._run(), "group membership")
        self._pings = self._scheduler.spawn(self._ping(), "session lease")

    async def close(self) -> None:
        """Stop delivering, commit if the settings say so, leave the group. The store stays
        open.

        Without a connection to ZooKeeper the membership ends with its session.
        """
        self._is_closing = True
        self._wake()
        life = self._life
        if life is not None and not life.done:
            if self.rebalance.state in (RebalanceState.ABSENT, RebalanceState.EXPIRED):
                life.cancel()
            if not self._registry.is_connected:
                self._registry.stop_waiting()
            timer = self._scheduler.call_later(CLOSE_MS_MAX, self._registry.stop_waiting)
            done: Future[None] = self._scheduler.future()
            life.add_done_callback(lambda _: done.set_result(None))
            await done
            timer.cancel()
        if self._pings is not None:
            self._pings.cancel()

    async def _run(self) -> None:
        try:
            while not self._is_closing:
                try:
                    await self._begin_session()
                    await self._join()
                    await self._stay()
                    await self._leave()
                except KctlError as error:
                    await self._recover(error)
        finally:
            self._end_delivery()

    async def _recover(self, error: KctlError) -> None:
        """Leave the group because a round failed, and wait unless the cause is over."""
        is_over = isinstance(error, SessionExpiredError | LostClaimError | _EvictedError)
        if not is_over:
            self._runtime.trace.warning(f"Consumer {self.rebalance.consumer_id}: {error}")
        await self._leave_after(error)
        if not is_over and not self._is_closing:
            await self._pause(error)

    async def _begin_session(self) -> None:
        """Replace a session that has ended."""
        while self.rebalance.state is RebalanceState.EXPIRED:
            self.rebalance.move(RebalanceState.ABSENT)
            await self._store.new_session()

    async def _leave_after(self, error: KctlError) -> None:
        rebalance = self.rebalance
        if rebalance.state in (RebalanceState.ABSENT, RebalanceState.EXPIRED):
            return
        try:
            if isinstance(error, SessionExpiredError) or rebalance.state is RebalanceState.LEAVING:
                raise error
            await self._leave()
        except SessionExpiredError:
            self._session_ended()
        except KctlError:
            # What is left is removed when this member joins again, or ends with the session.
            self._end_delivery()
            self._remember_former()
            rebalance.left()

    async def _pause(self, error: KctlError) -> None:
        shown = self._tries.failed(error)
        if shown is not None:
            self._receiver.failed(shown)
        if self._store.failure is not None:
            self._is_closing = True
        await self._wait(self._backoff_ms)
        self._backoff_ms = min(2 * self._backoff_ms, max(1, self._store.session_timeout_ms))

    # --- the session

    def may_deliver(self) -> bool:
        """Return whether the session is known to live at this moment."""
        return self.lease.is_held(self._clock.monotonic_ms())

    def _session_state_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._session_ended()
            self._wake()
        elif state is SessionState.FAILED:
            self._is_closing = True
            self._end_delivery()
            if self._store.failure is not None:
                self._receiver.failed(self._store.failure)
            self._wake()

    def _session_ended(self) -> None:
        if self.rebalance.state is RebalanceState.EXPIRED:
            return
        self._sessions += 1
        self.lease.end()
        self._remember_former()
        self._end_delivery()
        self.rebalance.session_ended()

    def _remember_former(self) -> None:
        if self.rebalance.consumer_id:
            self._former[self.rebalance.consumer_id] = self.rebalance.to_look_at({})
        while len(self._former) > FORMER_SESSIONS_MAX:
            del self._former[next(iter(self._former))]

    def _end_delivery(self) -> dict[ConsumedPartition, int]:
        claims = list(self.rebalance.claims)
        offsets = self._receiver.stop(claims)
        self.rebalance.stopped(claims)
        return offsets

    async def _ping(self) -> None:
        """Keep the lease, as long as ZooKeeper answers."""
        while not self._is_closing:
            sent_ms, sessions = self._clock.monotonic_ms(), self._sessions
            consumer_id = self.rebalance.consumer_id
            try:
                stat = await self._store.exists(consumer_ids_path(self._group) + f"/{consumer_id}")
                if sessions == self._sessions and consumer_id:
                    self.lease.answered(sent_ms)
                    if stat is None and consumer_id == self.rebalance.consumer_id:
                        self._changed()
            except StoreError:
                # The lease runs out, or the membership learns of it itself.
                pass
            length_ms = self._store.session_timeout_ms * 2 // 3
            await sleep(self._scheduler, max(1, min(length_ms // PINGS_PER_LEASE, 60_000)))

    async def _do(self, call: Awaitable[T]) -> T:
        """Return what `call` returns; SessionExpiredError if the session has ended meanwhile."""
        sessions = self._sessions
        try:
            result = await call
        except KctlError:
            if sessions != self._sessions:
                raise SessionExpiredError from None
            raise
        if sessions != self._sessions:
            raise SessionExpiredError
        return result

    # --- joining and leaving

    async def _join(self) -> None:
        registry, group = self._registry, self._group
        self.lease = Lease(self._store.session_timeout_ms)
        self.rebalance.join(self._new_id(), self._store.session_id)
        await self._do(registry.prepare(group))
        for consumer_id, claims in list(self._former.items()):
            await self._do(registry.remove_former(group, consumer_id, claims))
            self._former.pop(consumer_id, None)
        sent_ms = self._clock.monotonic_ms()
        try:
            await self._do(
                registry.register(group, self.rebalance.consumer_id, self._registration())
            )
        except NodeExistsError as error:
            raise KctlError(
                f"another consumer of group {group} has the id {self.rebalance.consumer_id}",
                hint="give each its own consumer.id, or none; a former one's ends with its session",
            ) from error
        self.lease.answered(sent_ms)

    def _new_id(self) -> str:
        """Return an id that no session had; like Java's, `GROUP_HOST-MILLIS-UUID8`."""
        given = self._settings.consumer_id
        if given is not None:
            suffix = f"-{self._sessions}" if self._sessions else ""
            return f"{self._group}_{given}{suffix}"
        tail = self._runtime.entropy.random_bytes(4).hex()
        return f"{self._group}_{self._settings.host}-{self._born_ms}-{tail}"

    def _registration(self) -> bytes:
        now_ms = self._clock.wall_ms()
        is_07 = self._registry.layout is Layout.KAFKA_0_7
        if isinstance(self.subscription, Mapping):
            static = Subscription(dict(self.subscription), timestamp_ms=now_ms)
            return encode_subscription_07(static) if is_07 else encode_subscription(static)
        topic_filter, count = self.subscription
        # Members go by the registered text: escaped once, it is the expression itself.
        subscription = Subscription({topic_filter.regex: count}, topic_filter.pattern, now_ms)
        if is_07:
            return encode_subscription_07(subscription)
        return encode_subscription(subscription, FilterEscapes.ONCE)

    async def _leave(self) -> None:
        """Give up everything in order: delivery, offsets, claims, id."""
        self.rebalance.move(RebalanceState.LEAVING)
        offsets = self._end_delivery()
        consumer_id = self.rebalance.consumer_id
        try:
            if self._settings.auto_commit:
                await self._commit_at_last(consumer_id, offsets)
            await self._do(self._registry.release(self._group, consumer_id, await self._mine()))
            await self._do(self._registry.unregister(self._group, consumer_id))
        except LostClaimError:
            # Someone deleted the id znode. The claims of this session can still be deleted only
            # with it: register it again for that.
            await self._do(self._registry.prepare(self._group))
            await self._do(self._registry.register(self._group, consumer_id, b""))
            self._remember_former()
        self.rebalance.left()

    async def _commit_at_last(
        self, consumer_id: str, offsets: Mapping[ConsumedPartition, int]
    ) -> None:
        try:
            await self._do(self._commit_in_turn(consumer_id, offsets))
        except StoreError:
            raise
        except KctlError as error:
            # The partitions are free all the same: their next owner reads these messages again.
            self._runtime.trace.warning(f"Offsets are not committed: {error}")

    async def _mine(self) -> list[ConsumedPartition]:
        """Return what the znodes say this session owns: a claim that was asked for may have gone to
        another consumer."""
        looked_at = self.rebalance.to_look_at({})
        owners = await self._do(self._registry.owners(self._group, looked_at, self._watch))
        session_id = self.rebalance.session_id
        return [it for it in looked_at if it in owners and owners[it].session_id == session_id]

    # --- rounds

    async def _stay(self) -> None:
        conflicts = 0
        while not self._is_closing:
            self._is_changed = False
            is_settled = await self._round()
            if is_settled:
                conflicts = 0
                self._tries.succeeded()
                self._backoff_ms = self._settings.rebalance_backoff_ms
            else:
                conflicts += 1
            if not self._is_changed:
                # Without a watch on it nothing says that a claim would succeed now: look again.
                await self._do(self._wait(None if is_settled else self._pace_ms(conflicts)))
            if not self._is_closing:
                await self._do(sleep(self._scheduler, SETTLE_MS))

    def _pace_ms(self, conflicts: int) -> int:
        longest_ms = max(self._settings.rebalance_backoff_ms, 1)
        return min(longest_ms, SETTLE_MS << min(conflicts, 10))

    async def _round(self) -> bool:
        """Read, release, claim; return whether this member now owns its part, all of it."""
        self.rounds += 1
        rebalance, registry = self.rebalance, self._registry
        rebalance.move(RebalanceState.READING)
        await self._do(registry.call(lambda: self._store.sync(consumer_ids_path(self._group))))
        changes = await self._do(registry.member_changes(self._group))
        members = await self._do(registry.members(self._group, self._watch))
        if rebalance.consumer_id not in members:
            raise _EvictedError(f"{rebalance.consumer_id} is no longer registered")
        assignment = await self._assignment(members)
        wanted = rebalance.wanted(assignment)
        looked_at = rebalance.to_look_at(wanted)
        owners = await self._do(registry.owners(self._group, looked_at, self._watch))
        stops_all = self._settings.stops_all and assignment != self._assigned
        moves = rebalance.plan(wanted, owners, stops_all=stops_all)
        self._assigned = assignment
        rebalance.move(RebalanceState.RELEASING)
        await self._give_up(moves)
        rebalance.move(RebalanceState.CLAIMING)
        is_complete = await self._take(moves)
        if changes != await self._do(registry.member_changes(self._group)):
            # The assignment was computed from a view that is out of date.
            self._is_changed = True
        is_settled = is_complete and not moves.blocked
        if not is_settled:
            self._tries.waits(self._clock.monotonic_ms(), moves.blocked)
        rebalance.move(RebalanceState.OWNING if is_settled else RebalanceState.WAITING)
        return is_settled

    async def _assignment(self, members: Mapping[str, Subscription | None]) -> Assignment:
        """Return the assignment of all members, by what ZooKeeper says of topics."""
        registry = self._registry
        topics: list[str] = []
        if any(it is not None and it.pattern is not Pattern.STATIC for it in members.values()):
            topics = await self._do(registry.topics(self._watch))
        streams = {
            name: self._streams_of(it, topics) for name, it in members.items() if it is not None
        }
        if self._settings.strategy is Strategy.RANGE:
            read = sorted(streams[self.rebalance.consumer_id])
        else:
            read = sorted({topic for counts in streams.values() for topic in counts})
        partitions: dict[str, Sequence[Partition]] = await self._do(
            registry.partitions(read, self._watch)
        )
        only = set(read)
        known = {
            name: {topic: count for topic, count in counts.items() if topic in only}
            for name, counts in streams.items()
        }
        return assign(known, partitions, self._settings.strategy, self._settings.hashed_text)

    def _streams_of(self, member: Subscription, topics: Sequence[str]) -> Mapping[str, int]:
        if member.pattern is Pattern.STATIC:
            return member.streams
        ((regex, count),) = member.streams.items()
        key = (member.pattern.value, member.registered_filter or regex)
        if key not in self._filters:
            if len(self._filters) >= FILTERS_MAX:
                self._filters.clear()
            self._filters[key] = registered_filter(member)
        is_hidden = self._settings.exclude_internal_topics
        allows = self._filters[key].allows
        return {it: count for it in topics if allows(it, exclude_internal_topics=is_hidden)}

    async def _give_up(self, moves: Moves) -> None:
        rebalance = self.rebalance
        self._receiver.stop(moves.lost)
        rebalance.stopped(moves.lost)
        rebalance.released(moves.lost)
        if not moves.release:
            return
        offsets = self._receiver.stop([it for it in moves.release if it in rebalance.claims])
        rebalance.stopped(moves.release)
        if self._settings.auto_commit:
            await self._do(self._commit_in_turn(rebalance.consumer_id, offsets))
        await self._do(self._registry.release(self._group, rebalance.consumer_id, moves.release))
        rebalance.released(moves.release)

    async def _take(self, moves: Moves) -> bool:
        """Claim what is free and begin its delivery; return False if another consumer was
        faster."""
        rebalance = self.rebalance
        taken = dict(moves.adopt)
        is_complete = True
        if moves.claim:
            rebalance.asks_for(moves.claim)
            try:
                await self._do(
                    self._registry.claim(self._group, rebalance.consumer_id, moves.claim)
                )
                taken |= moves.claim
            except NodeExistsError:
                is_complete = False
        if taken:
            rebalance.claimed(taken)
            offsets = await self._do(self._offsets.fetch(sorted(taken, key=str)))
            self._receiver.start(taken, offsets)
        return is_complete

    # --- offsets

    async def commit(self, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Commit offsets of owned partitions, after commits that were asked for earlier.

        LostClaimError if the session has ended; partitions given up meanwhile are left out.
        """
        await self._do(self._commit_in_turn(self.rebalance.consumer_id, offsets, is_owned=True))

    async def _commit_in_turn(
        self, consumer_id: str, offsets: Mapping[ConsumedPartition, int], *, is_owned: bool = False
    ) -> None:
        before, done = self._committing, self._scheduler.future()
        self._committing = done
        try:
            if before is not None and not before.done:
                await before
            if consumer_id != self.rebalance.consumer_id:
                raise LostClaimError(consumer_id)
            if is_owned:
                offsets = {it: at for it, at in offsets.items() if it in self.rebalance.claims}
            if offsets:
                await self._offsets.commit(consumer_id, offsets)
                self._receiver.committed(offsets)
        finally:
            done.set_result(None)

    # --- waiting

    def _watch(self, _event: WatchedEvent) -> None:
        self._changed()

    def _changed(self) -> None:
        self._is_changed = True
        self._wake()

    def _wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is not None and not woken.done:
            woken.set_result(None)

    async def _wait(self, timeout_ms: int | None) -> None:
        """Wait for a change, the end, or `timeout_ms`."""
        if self._is_closing:
            return
        woken: Future[None] = self._scheduler.future()
        self._woken = woken
        timer = None
        if timeout_ms is not None:
            timer = self._scheduler.call_later(timeout_ms, self._wake)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()


class ZooKeeperOffsets:
    """Offsets in ZooKeeper, written under the claim that they belong to."""

    def __init__(self, registry: ConsumerRegistry, group_id: str) -> None:
        self._registry = registry
        self._group = group_id

    async def fetch(self, partitions: Sequence[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """Return the committed offset of each partition that has one."""
        found = await self._registry.stored_offsets(self._group, partitions)
        return {it: offset for it, (offset, _) in found.items()}

    async def commit(self, consumer_id: str, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Commit; LostClaimError if a claim is gone."""
        await self._registry.commit(self._group, consumer_id, offsets)
