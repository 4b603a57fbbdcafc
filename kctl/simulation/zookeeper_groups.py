"""Groups on ZooKeeper under simulated faults: `python -m kctl.simulation.zookeeper_groups`.

Members with the real GroupMembership, ConsumerRegistry and Claims consume partitions whose records
are their offsets. Each has a session with a store behind links that lag and break. Members start,
stop, crash, and are paused for longer than their sessions; sessions expire at any moment, at the
store or on the client's side only; topics come and grow; someone deletes a consumer's id.

Checked at every delivery, at every commit, and at rest:

- who delivers a partition owns it in the store's tree at that very moment
- who commits an offset owns the partition at that moment, and no committed offset moves backwards
- what is committed has been consumed, by this owner or an earlier one
- what is delivered was not committed before
- at rest every partition has an owner, and every member reads what the assignment gives it

Same seed, same run. `--seeds 0-999 --jobs 2` plays many.
"""

import sys
from argparse import ArgumentParser
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from multiprocessing import get_context
from typing import Any

from kctl.errors import KctlError
from kctl.kafka.assignment import Strategy, assign
from kctl.kafka.claims import Claims, Consumption
from kctl.kafka.group_membership import GroupMembership, GroupSettings, ZooKeeperOffsets
from kctl.lazy_dataclass import dataclass
from kctl.runtime.real.clock import RealClock
from kctl.runtime.runtime import Runtime
from kctl.simulation.disk import SimDisk
from kctl.simulation.network import SimNetwork, Weather
from kctl.simulation.runtime import SimEntropy, node_runtime
from kctl.simulation.scheduler import NodeScheduler, SimScheduler
from kctl.simulation.store import STORE_HOST, SimStore, SimStoreServer
from kctl.store import znodes
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import (
    ConsumedPartition,
    consumer_id_path,
    decode_consumer_offset,
    offset_path,
    offsets_path,
    owner_path,
    thread_id,
)
from kctl.store.errors import StoreError
from kctl.store.interface import Create, Operation, SessionState, Set
from kctl.store.topic_filter import Whitelist

GROUP = "g"
TRACE_LINES_KEPT = 400
# One message per stream in so many milliseconds.
DELIVERY_MS = 100
COMMIT_MS = 700
# How long after the last fault everything must be settled, in session timeouts.
REST_TIMEOUTS = 12


class Violation(Exception):
    """An invariant does not hold."""


@dataclass
class Outcome:
    """The result of one seed."""

    seed: int
    violation: str | None
    counters: dict[str, int]
    trace: list[str] = field(default_factory=list)


class _ClientStore(SimStore):
    """A session that its client may give up while the store still has it."""

    def _begin(self) -> Any:
        session = self._server.open_session()
        session.on_session_state(lambda state: self._down.send(self._state_of, session, state))
        self._server.touch(session, self._timeout_ms)
        return session

    def _state_of(self, session: object, state: SessionState) -> None:
        if session is self.session:
            self._session_changed(state)

    def _serve(self, session: Any, number: int, call: Callable[[Any], Any]) -> None:
        # Any request is a sign of life.
        if session.session_id in self._server.database.tree.sessions:
            self._server.touch(session, self._timeout_ms)
        super()._serve(session, number, call)

    def give_up(self) -> None:
        """End the session on this side."""
        if self._state is not SessionState.EXPIRED:
            self._session_changed(SessionState.EXPIRED)


class Member:
    """A consumer process: the real membership, and an application."""

    def __init__(self, world: "GroupWorld", name: str) -> None:
        self.name = name
        self._world = world
        self.scheduler = NodeScheduler(world.world, name, world.entropy.split(f"{name}-jobs"))
        self.scheduler.on_unseen_error = world.task_failed
        self.runtime = world.runtime_of(name, self.scheduler)
        self.store = _ClientStore(
            world.server, world.network, self.scheduler, name, world.session_timeout_ms
        )
        registry = ConsumerRegistry(self.store)
        entropy = self._entropy = world.entropy.split(f"{name}-application")
        self.claims = Claims()
        self.errors: list[KctlError] = []
        streams = 1 + entropy.random_below(3)
        subscription: Any = dict.fromkeys(world.topics, streams)
        if world.has_filters and entropy.chance(500):
            subscription = (Whitelist("t.*"), streams)
        settings = GroupSettings(
            GROUP, name, strategy=world.strategy, rebalance_backoff_ms=world.backoff_ms,
            rebalance_retries=world.retries, stops_all=world.stops_all,
        )  # fmt: skip
        self.membership = GroupMembership(
            self.runtime, registry, settings, subscription, self, ZooKeeperOffsets(registry, GROUP)
        )
        self._threads = [Consumption() for _ in range(streams)]
        # Offset to hand out next.
        self._next: dict[ConsumedPartition, int] = {}
        self._turn = 0
        # Messages handed out whose successor was not asked for yet, by stream.
        self._in_work: dict[int, tuple[ConsumedPartition, int]] = {}
        self.is_leaving = False

    def begin(self) -> None:
        """Join, consume and commit."""
        self.membership.start()
        self._later(self._deliver, DELIVERY_MS)
        self._later(self._commit, COMMIT_MS)

    def _later(self, what: Callable[[], None], delay_ms: int) -> None:
        self.scheduler.call_later(self._entropy.between(delay_ms // 2, delay_ms * 3 // 2), what)

    # --- Receiver

    def start(
        self, threads: Mapping[ConsumedPartition, int], offsets: Mapping[ConsumedPartition, int]
    ) -> None:
        """Begin to deliver."""
        for partition, thread in threads.items():
            committed = offsets.get(partition)
            self.claims.open(partition, thread, self.membership.lease, committed)
            self._next[partition] = committed or 0
            self._world.note(self.name, f"start {partition} at {committed}")

    def stop(self, partitions: Collection[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """End the delivery."""
        if self.scheduler.is_dead:
            # A coroutine of a crashed member ends whenever the interpreter collects it.
            return {}
        for partition in partitions:
            self._world.note(self.name, f"stop {partition}")
        return self.claims.close(partitions)

    def committed(self, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Note a commit."""
        self.claims.committed(offsets)

    def failed(self, error: KctlError) -> None:
        """Note an error."""
        if self.scheduler.is_dead:
            return
        self._world.counters["errors"] += 1
        self._world.note(self.name, f"error {error}")

    # --- the application

    def _deliver(self) -> None:
        self._later(self._deliver, DELIVERY_MS)
        self._turn += 1
        for thread, consumption in enumerate(self._threads):
            if self._entropy.chance(200):
                continue
            mine = [it for it in self.claims if it.thread == thread]
            consumption.asked_for_next()
            done = self._in_work.pop(thread, None)
            if done is not None:
                self._world.consumed(*done)
            if not mine:
                continue
            claim = mine[self._turn % len(mine)]
            offset = self._next[claim.partition]
            if consumption.hand_out(claim, offset + 1, self.runtime.clock.monotonic_ms()):
                self._next[claim.partition] = offset + 1
                self._in_work[thread] = (claim.partition, offset)
                self._world.delivered(self, claim.partition, offset)

    def _commit(self) -> None:
        if self.is_leaving:
            return
        self._later(self._commit, COMMIT_MS)
        offsets = self.claims.uncommitted()
        if offsets:
            self.scheduler.spawn(self._commit_these(offsets), "commit")

    async def _commit_these(self, offsets: Mapping[ConsumedPartition, int]) -> None:
        try:
            await self.membership.commit(offsets)
        except StoreError:
            self._world.counters["commits_refused"] += 1

    async def leave(self) -> None:
        """Shut down."""
        self.is_leaving = True
        await self.membership.close()
        await self.store.close()
        self._world.gone(self)


class GroupWorld:
    """One seed's group, its store, its faults and its judge."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.entropy = SimEntropy(seed, "zookeeper-groups")
        draw = self.entropy.split("plan")
        self.world = SimScheduler()
        self.world.on_error = self._event_failed
        self.network = SimNetwork(self.entropy.split("network"), Weather())
        self.session_timeout_ms = draw.choice([2_000, 4_000, 6_000])
        self.backoff_ms = draw.choice([200, 1_000, 2_000])
        self.strategy = draw.choice([Strategy.RANGE, Strategy.RANGE, Strategy.ROUNDROBIN])
        self.has_filters = draw.chance(300)
        modes = self.entropy.split("modes")
        self.retries = modes.choice([None, None, 4])
        self.stops_all = modes.chance(250)
        self.topics = {f"t{n}": draw.between(1, 5) for n in range(draw.between(1, 3))}
        self.counters = dict.fromkeys(
            ("delivered", "committed", "commits_refused", "errors", "faults", "expired"), 0
        )
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_KEPT)
        self.violation: str | None = None
        scheduler = NodeScheduler(self.world, STORE_HOST, self.entropy.split("store-jobs"))
        entropy = self.entropy.split(STORE_HOST)
        self.server = SimStoreServer(self.runtime_of(STORE_HOST, scheduler), scheduler, entropy)
        self._judge_commits()
        self.members: dict[str, Member] = {}
        self._names = 0
        # Offset up to which every message was consumed, and those beyond it.
        self._consumed: dict[ConsumedPartition, int] = {}
        self._beyond: dict[ConsumedPartition, set[int]] = {}
        # Sessions that were ended before their time.
        self._forced: set[int] = set()
        self._draw = draw

    def runtime_of(self, name: str, scheduler: NodeScheduler) -> Runtime:
        """Return the runtime of a process."""
        return node_runtime(
            self.world, self.network, scheduler, SimDisk(), self.entropy.split(f"run-{name}"),
            lambda *line: self.note(line[0], " ".join(line[1:])),
        )  # fmt: skip

    # --- the judge

    def note(self, name: str, text: str) -> None:
        """Keep a line of the trace."""
        self.trace.append(f"{self.world.now_us / 1e6:9.3f} {name:8} {text}")

    def _violated(self, text: str) -> None:
        if self.violation is None:
            self.violation = f"at {self.world.now_us / 1e6:.3f} s: {text}"
            self.note("JUDGE", text)

    def _event_failed(self, node: NodeScheduler, error: BaseException) -> None:
        self._violated(f"{node.name}: {type(error).__name__}: {error}")

    def task_failed(self, name: str, error: BaseException) -> None:
        """Handle a task that failed: none may."""
        self._violated(f"task {name}: {type(error).__name__}: {error}")

    def _owner_session(self, partition: ConsumedPartition) -> int:
        node = self.server.database.tree.nodes.get(owner_path(GROUP, *partition))
        return 0 if node is None else node.stat().ephemeral_owner

    def _committed(self, partition: ConsumedPartition) -> int:
        node = self.server.database.tree.nodes.get(offset_path(GROUP, *partition))
        return 0 if node is None else decode_consumer_offset(node.data) or 0

    def delivered(self, member: Member, partition: ConsumedPartition, offset: int) -> None:
        """Judge a delivery."""
        self.counters["delivered"] += 1
        owner, session = self._owner_session(partition), member.store.session.session_id
        if session in self._forced:
            # No lease can foresee it: ZooKeeper ends sessions by their timeout only.
            return
        if owner != session:
            self._violated(
                f"{member.name} delivers {partition}@{offset} in session {session:#x}, "
                f"but the owner's is {owner:#x}"
            )
        if offset < self._committed(partition):
            self._violated(
                f"{member.name} delivers {partition}@{offset}, but "
                f"{self._committed(partition)} is committed"
            )

    def consumed(self, partition: ConsumedPartition, offset: int) -> None:
        """Note that an application is done with a message."""
        beyond = self._beyond.setdefault(partition, set())
        beyond.add(offset)
        reached = self._consumed.get(partition, 0)
        while reached in beyond:
            beyond.discard(reached)
            reached += 1
        self._consumed[partition] = reached

    def _judge_commits(self) -> None:
        database = self.server.database
        commit, commit_multi = database.commit, database.commit_multi

        def one(session_id: int, operation: Operation) -> Any:
            self._judge_write(session_id, [operation])
            return commit(session_id, operation)

        def many(session_id: int, operations: Sequence[Operation]) -> Any:
            before = {it: self._committed(it) for it, _ in _commits(operations)}
            results = commit_multi(session_id, operations)
            self._judge_write(session_id, operations, before)
            return results

        database.commit = one  # type: ignore[method-assign]
        database.commit_multi = many  # type: ignore[method-assign]

    def _judge_write(
        self,
        session_id: int,
        operations: Sequence[Operation],
        before: Mapping[ConsumedPartition, int] | None = None,
    ) -> None:
        for partition, offset in _commits(operations):
            self.counters["committed"] += 1
            owner = self._owner_session(partition)
            if owner != session_id:
                self._violated(
                    f"session {session_id:#x} commits {offset} of {partition}, which is owned by "
                    f"{owner:#x}"
                )
            known = self._committed(partition) if before is None else before[partition]
            if offset < known:
                self._violated(
                    f"the committed offset of {partition} moves from {known} to {offset}"
                )
            if offset > self._consumed.get(partition, 0):
                self._violated(
                    f"{offset} of {partition} is committed, but only "
                    f"{self._consumed.get(partition, 0)} are consumed"
                )

    # --- play

    def play(self) -> Outcome:
        """Play the seed and return what was seen."""
        self._make_topics()
        for _ in range(self._draw.between(1, 4)):
            self._add_member()
        for _ in range(self._draw.between(6, 25)):
            self.world.run_for(self._draw.between(20, 2 * self.session_timeout_ms))
            if self.violation is not None:
                break
            self._one_fault()
        if self.violation is None:
            self._rest()
        self.counters["expired"] = self.server.expired
        return Outcome(self.seed, self.violation, self.counters, list(self.trace))

    def _make_topics(self) -> None:
        tree = self.server.open_session()
        for path in ("/brokers", znodes.TOPICS):
            tree.create(path, b"")
        for topic, count in self.topics.items():
            tree.create(znodes.topic_path(topic), _topic_data(count))
        self._operator = tree

    def _add_member(self) -> None:
        self._names += 1
        name = f"m{self._names}"
        member = self.members[name] = Member(self, name)
        self.note(name, "is born")
        member.scheduler.call_soon(member.begin)

    def _one_fault(self) -> None:
        self.counters["faults"] += 1
        faults: list[Callable[[], None]] = [
            self._come, self._go, self._crash, self._pause, self._pause, self._expire, self._expire,
            self._forget_session, self._lag, self._cut, self._heal, self._grow, self._evict,
            self._burst,
        ]  # fmt: skip
        self._draw.choice(faults)()

    def _someone(self) -> Member | None:
        alive = [it for it in self.members.values() if not it.is_leaving]
        return self._draw.choice(alive) if alive else None

    def _come(self) -> None:
        if len(self.members) < 6:
            self._add_member()

    def _burst(self) -> None:
        self._come()
        self._come()
        self._expire()

    def _go(self) -> None:
        member = self._someone()
        if member is not None and len(self.members) > 1:
            self.note(member.name, "leaves")
            member.is_leaving = True
            member.scheduler.call_soon(lambda: member.scheduler.spawn(member.leave(), "leave"))

    def gone(self, member: Member) -> None:
        """Note that a member has shut down."""
        self.note(member.name, "is gone")
        self.members.pop(member.name, None)

    def _crash(self) -> None:
        member = self._someone()
        if member is not None and len(self.members) > 1:
            self.note(member.name, "crashes")
            member.scheduler.is_dead = True
            del self.members[member.name]

    def _pause(self) -> None:
        member = self._someone()
        if member is not None:
            self.note(member.name, "is stopped")
            member.scheduler.pause()
            delay_ms = self._draw.between(10, 3 * self.session_timeout_ms)
            self.server.scheduler.call_later(delay_ms, self._resume, member)

    def _resume(self, member: Member) -> None:
        self.note(member.name, "continues")
        member.scheduler.resume()

    def _expire(self) -> None:
        member = self._someone()
        if member is not None:
            self.note(member.name, f"loses its session {member.store.session.session_id:#x}")
            self._forced.add(member.store.session.session_id)
            self.server.expire(member.store.session)

    def _forget_session(self) -> None:
        member = self._someone()
        if member is not None and member.scheduler.held is None:
            self.note(member.name, "forgets its session")
            member.scheduler.call_soon(member.store.give_up)

    def _lag(self) -> None:
        member = self._someone()
        if member is not None:
            ends = [(member.name, STORE_HOST), (STORE_HOST, member.name)]
            for link in ends[: self._draw.between(1, 2)]:
                self.network.slow(*link, self._draw.choice([50, 500, 1_500]) * 1_000)

    def _cut(self) -> None:
        member = self._someone()
        if member is not None:
            self.note(member.name, "is cut off")
            ends = [(member.name, STORE_HOST), (STORE_HOST, member.name)]
            for link in self._draw.sample(ends, self._draw.between(1, 2)):
                self.network.cut(*link)
            self.server.scheduler.call_later(
                self._draw.between(10, 2 * self.session_timeout_ms), self.network.heal_all
            )

    def _heal(self) -> None:
        self.network.heal_all()

    def _grow(self) -> None:
        if self._draw.chance(300) and len(self.topics) < 5 and self.has_filters:
            topic = f"t{len(self.topics)}"
            self.topics[topic] = self._draw.between(1, 4)
            self._operator.create(znodes.topic_path(topic), _topic_data(self.topics[topic]))
        else:
            topic = self._draw.choice(list(self.topics))
            self.topics[topic] += 1
            self._operator.set(znodes.topic_path(topic), _topic_data(self.topics[topic]))
        self.note("operator", f"{topic} has {self.topics[topic]} partitions")

    def _evict(self) -> None:
        member = self._someone()
        if member is not None:
            path = consumer_id_path(GROUP, member.membership.rebalance.consumer_id)
            if path in self.server.database.tree.nodes:
                self.note("operator", f"deletes {path}")
                self._operator.delete(path)

    # --- rest

    def _rest(self) -> None:
        self.network.heal_all()
        if not [it for it in self.members.values() if not it.is_leaving]:
            self._add_member()
        deadline_ms = self.world.now_ms + REST_TIMEOUTS * self.session_timeout_ms
        # Pauses end, sessions of the dead expire.
        self.world.run_for(4 * self.session_timeout_ms)
        self.world.run_until(lambda: self.violation is not None or not self._unrest(), deadline_ms)
        if self.violation is None and self._unrest():
            self._violated(f"no rest: {self._unrest()}")

    def _unrest(self) -> str:
        """Return what is not as it should be at rest; empty if all is."""
        alive = {it.membership.rebalance.consumer_id: it for it in self.members.values()}
        streams = {name: self._read_by(it) for name, it in alive.items()}
        partitions = {topic: range(count) for topic, count in self.topics.items()}
        expected = assign(streams, partitions, self.strategy)
        for topic, count in self.topics.items():
            for number in range(count):
                partition = ConsumedPartition(topic, number)
                node = self.server.database.tree.nodes.get(owner_path(GROUP, *partition))
                owner = "" if node is None else node.data.decode()
                if owner != expected.get(partition, ""):
                    return f"{partition} is owned by {owner!r}, not {expected.get(partition)!r}"
        for name, member in alive.items():
            claims = {it.partition: thread_id(name, it.thread) for it in member.claims}
            should = {it: t for it, t in expected.items() if t.rpartition("-")[0] == name}
            if claims != should:
                return f"{member.name} delivers {claims}, not {should}"
            if not member.membership.may_deliver():
                return f"{member.name} has no lease"
        return ""

    def _read_by(self, member: Member) -> dict[str, int]:
        subscription = member.membership.subscription
        if isinstance(subscription, Mapping):
            return dict(subscription)
        return dict.fromkeys(self.topics, subscription[1])


def _topic_data(count: int) -> bytes:
    return znodes.to_json({"version": 2, "partitions": {str(n): [1] for n in range(count)}})


def _commits(operations: Sequence[Operation]) -> Iterator[tuple[ConsumedPartition, int]]:
    prefix = offsets_path(GROUP) + "/"
    for operation in operations:
        if isinstance(operation, Set | Create) and operation.path.startswith(prefix):
            topic, slash, number = operation.path[len(prefix) :].partition("/")
            if slash:
                offset = decode_consumer_offset(operation.data)
                if offset is not None:
                    yield ConsumedPartition(topic, int(number)), offset


def play(seed: int) -> Outcome:
    """Play one seed to its end."""
    return GroupWorld(seed).play()


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds; return 1 if one shows a violation."""
    parser = ArgumentParser(prog="python -m kctl.simulation.zookeeper_groups", description=__doc__)
    parser.add_argument("--seeds", "--seed", default="0", help="a seed, or FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--lines", type=int, default=60, help="of the trace to show")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    clock = RealClock()
    began_ms = clock.monotonic_ms()
    totals: dict[str, int] = {}
    bad = []
    with get_context("spawn").Pool(options.jobs) as pool:
        played = pool.imap(play, seeds, chunksize=8) if options.jobs > 1 else map(play, seeds)
        for outcome in played:
            for name, count in outcome.counters.items():
                totals[name] = totals.get(name, 0) + count
            if outcome.violation is not None:
                bad.append(outcome.seed)
                lines = [f"  {line}" for line in outcome.trace[-options.lines :]]
                sys.stdout.write(
                    "\n".join([*lines, f"seed {outcome.seed}: VIOLATION: {outcome.violation}", ""])
                )
    seconds = (clock.monotonic_ms() - began_ms) / 1000
    counts = ", ".join(f"{name} {count:,}" for name, count in totals.items())
    sys.stdout.write(
        f"{len(seeds)} seeds in {seconds:.1f} s, violations: {bad or 'none'}; {counts}\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
